/* SPDX-License-Identifier: MIT */
/* One sample of a task. */
#include "eval/tasks/sample.h"

#include "app/json.h"
#include "eval/base/grow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clear_turn(struct eval_turn *t)
{
    free(t->question.s);
    free(t->prefix.s);
    for (int32_t i = 0; i < t->n_refs; i++)
        free(t->refs[i]);
    free(t->refs);
}

void eval_sample_clear(struct eval_sample *s)
{
    for (int32_t i = 0; i < s->n_turns; i++)
        clear_turn(&s->turns[i]);
    clear_turn(&s->lost);
    free(s->turns);
    free(s->spans);
    free(s->context.s);
    json_decref(s->meta);
    *s = (struct eval_sample){0};
}

void eval_sample_key(char out[EVAL_MAX_SAMPLE_KEY], const struct eval_sample *s)
{
    snprintf(out, EVAL_MAX_SAMPLE_KEY, "%s|%d|%d|%llu", s->task, (int)s->n_target, (int)s->index,
             (unsigned long long)s->seed);
}

void eval_put_n(struct eval_sample *s, struct app_text *to, const char *text, size_t len)
{
    if (!app_text_add(to, text, len))
        s->no_memory = true;
}

void eval_put(struct eval_sample *s, struct app_text *to, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!app_text_vput(to, fmt, ap))
        s->no_memory = true;
    va_end(ap);
}

void eval_put_piece(struct eval_sample *s, const char *text, size_t len, bool evidence)
{
    if (evidence && eval_grow(&s->spans, (size_t)s->n_spans, sizeof *s->spans))
        s->spans[s->n_spans++] = (struct eval_span){s->context.len, s->context.len + len};
    else
        s->no_memory = s->no_memory || evidence;
    eval_put_n(s, &s->context, text, len);
}

/* The value for the {name} at `text`, NULL if the list has no such name; *len is the name's length with
 * braces. */
static const char *value_at(const char *text, const char *const *values, size_t *len)
{
    for (int i = 0; values && values[i]; i += 2) {
        const size_t n = strlen(values[i]);
        if (strncmp(text + 1, values[i], n) == 0 && text[1 + n] == '}') {
            *len = n + 2;
            return values[i + 1];
        }
    }
    return NULL;
}

void eval_put_template(struct eval_sample *s, struct app_text *to, const char *text,
                       const char *const *values)
{
    while (*text) {
        size_t n = strcspn(text, "{");
        eval_put_n(s, to, text, n);
        text += n;
        if (*text == '\0')
            return;
        const char *value = value_at(text, values, &n);
        if (value)
            eval_put_n(s, to, value, strlen(value));
        else
            eval_put_n(s, to, text, n = 1);
        text += n;
    }
}

struct eval_turn *eval_add_turn(struct eval_sample *s)
{
    if (!eval_grow(&s->turns, (size_t)s->n_turns, sizeof *s->turns)) {
        s->no_memory = true;
        return &s->lost;
    }
    s->turns[s->n_turns] = (struct eval_turn){0};
    return &s->turns[s->n_turns++];
}

struct eval_turn *eval_ask(struct eval_sample *s, const struct eval_list *form, const char *const *values)
{
    struct eval_turn *turn = eval_add_turn(s);
    eval_put_template(s, &turn->question, form->at[EVAL_QUESTION], values);
    eval_put_template(s, &turn->prefix, form->at[EVAL_PREFIX], values);
    return turn;
}

void eval_add_ref(struct eval_sample *s, struct eval_turn *turn, const char *ref)
{
    char *copy = strdup(ref);
    if (copy && eval_grow(&turn->refs, (size_t)turn->n_refs, sizeof *turn->refs)) {
        turn->refs[turn->n_refs++] = copy;
    } else {
        free(copy);
        s->no_memory = true;
    }
}

void eval_set_meta(struct eval_sample *s, const char *key, json_t *value)
{
    if (!s->meta)
        s->meta = json_object();
    if (json_object_set_new(s->meta, key, value) != 0)
        s->no_memory = true;
}

static json_t *text_json(const struct app_text *t)
{
    return app_json_text(t->s ? t->s : "");
}

json_t *eval_refs_json(const struct eval_turn *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < t->n_refs && app_json_append(&list, app_json_text(t->refs[i])); i++)
        ;
    return list;
}

static json_t *turns_json(const struct eval_sample *s)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < s->n_turns; i++)
        if (!app_json_append(&list, json_pack("{s:o, s:o, s:o}", "question", text_json(&s->turns[i].question),
                                              "answer_prefix", text_json(&s->turns[i].prefix), "refs",
                                              eval_refs_json(&s->turns[i]))))
            break;
    return list;
}

static json_t *spans_json(const struct eval_sample *s)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < s->n_spans; i++)
        if (!app_json_append(&list,
                             json_pack("[I, I]", (json_int_t)s->spans[i].from, (json_int_t)s->spans[i].to)))
            break;
    return list;
}

json_t *eval_sample_json(const struct eval_sample *s)
{
    const struct eval_turn none = {0}, *first = s->n_turns > 0 ? &s->turns[0] : &none;
    json_t *o =
        json_pack("{s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:i, s:s, s:o, s:O}", "task", s->task, "n_target",
                  (int)s->n_target, "index", (int)s->index, "seed", (json_int_t)s->seed, "context",
                  text_json(&s->context), "question", text_json(&first->question), "answer_prefix",
                  text_json(&first->prefix), "refs", eval_refs_json(first), "max_new", (int)s->max_new,
                  "metric", s->metric, "needle_spans", spans_json(s), "meta", s->meta);
    if (o && s->n_turns > 1 && json_object_set_new(o, "turns", turns_json(s)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
