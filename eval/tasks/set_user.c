/* SPDX-License-Identifier: MIT */
/* The user's own questions: one context, one question and its answers a line. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "eval/metrics/metric.h"

#include <string.h>

enum { MAX_NEW = 65536 }; /* the longest answer that a line may ask for, tokens */

/* The text under `key`, which must say something. */
static int read_text(const char **out, const struct eval_jsonl *j, const json_t *o, const char *key)
{
    const json_t *text;
    WNW_TRY(eval_jsonl_text(&text, j, o, key));
    *out = json_string_value(text);
    return eval_jsonl_is_blank(*out) ? eval_jsonl_bad(j, "\"%s\" is empty", key) : APP_OK;
}

/* An empty answer is refused, because every prediction contains it. */
static int put_answers(struct eval_sample *s, struct eval_turn *turn, const struct eval_jsonl *j,
                       const json_t *o)
{
    const json_t *one = json_object_get(o, "answer"), *list = json_object_get(o, "answers");
    const char *text;
    if (!one == !list)
        return eval_jsonl_bad(j, one ? "\"answer\" and \"answers\" exclude each other"
                                     : "no text \"answer\" and no list \"answers\"");
    WNW_TRY(one ? read_text(&text, j, o, "answer") : eval_jsonl_answers(&list, j, o));
    if (one)
        eval_add_ref(s, turn, text);
    for (size_t i = 0; i < json_array_size(list); i++)
        eval_add_ref(s, turn, json_string_value(json_array_get(list, i)));
    return APP_OK;
}

static int read_metric(struct eval_sample *s, const struct eval_jsonl *j, const json_t *o)
{
    const json_t *name, *classes;
    if (!json_object_get(o, "metric"))
        return APP_OK;
    WNW_TRY(eval_jsonl_text(&name, j, o, "metric"));
    const struct eval_metric *m = eval_metric_find(json_string_value(name));
    if (!m) {
        const char *near = eval_metric_nearest(json_string_value(name));
        return eval_jsonl_bad(j, "unknown metric '%.100s'; %s%s", json_string_value(name),
                              near ? "did you mean " : "`winnow eval --list` lists them", near ? near : "");
    }
    s->metric = m->name;
    eval_set_meta(s, "metric", json_string(m->name));
    if (!m->classes)
        return APP_OK;
    WNW_TRY(eval_jsonl_texts(&classes, j, o, "classes", 1));
    eval_set_meta(s, "classes", json_deep_copy(classes));
    return APP_OK;
}

/* Reads the optional fields of a line: all but context, question and answers. */
static int read_rest(struct eval_sample *s, struct eval_turn *turn, const struct eval_jsonl *j,
                     const json_t *o)
{
    const json_t *prefix = json_object_get(o, "answer_prefix"), *max_new = json_object_get(o, "max_new"), *id;
    const json_int_t n = json_integer_value(max_new);
    if (prefix && !json_is_string(prefix))
        return eval_jsonl_bad(j, "\"answer_prefix\" is not text");
    if (max_new && (!json_is_integer(max_new) || n < 1 || n > MAX_NEW))
        return eval_jsonl_bad(j, "\"max_new\" is not a whole number of 1 to %d", MAX_NEW);
    WNW_TRY(eval_jsonl_id(&id, j, o));
    eval_put(s, &turn->prefix, "%s", prefix ? json_string_value(prefix) : "Answer:");
    if (max_new)
        s->max_new = (int32_t)n;
    if (id)
        eval_set_meta(s, "id", json_deep_copy(id));
    return APP_OK;
}

int eval_make_user(struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_jsonl *j = d->file;
    const json_t *o = d->line;
    const char *context, *question;
    WNW_TRY(read_text(&context, j, o, "context"));
    WNW_TRY(read_text(&question, j, o, "question"));
    struct eval_turn *turn = eval_add_turn(s);
    eval_put(s, &s->context, "%s\n\n", context);
    eval_put(s, &turn->question, "%s\n", question);
    WNW_TRY(put_answers(s, turn, j, o));
    WNW_TRY(read_metric(s, j, o));
    return read_rest(s, turn, j, o);
}
