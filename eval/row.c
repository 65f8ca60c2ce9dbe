/* SPDX-License-Identifier: MIT */
/* The record of one answer. Its fields are described in docs/evaluation.md. */
#include "eval/row.h"

#include "app/console.h"
#include "app/json.h"
#include "eval/grade.h"

#include <math.h>
#include <string.h>

void eval_row_key(char out[EVAL_MAX_KEY], const struct eval_sample *s, const char *config, int32_t turn)
{
    snprintf(out, EVAL_MAX_KEY, "%s|%d|%d|%llu|%s|%d", s->task, (int)s->n_target, (int)s->index,
             (unsigned long long)s->seed, config, (int)turn);
}

/* A number, or null where there is none; *bad is set then. */
static json_t *number(double x, bool *bad)
{
    if (isfinite(x))
        return json_real(x);
    *bad = true;
    return json_null();
}

static json_t *refs_of(const struct eval_turn *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < t->n_refs && app_json_append(&list, app_json_text(t->refs[i])); i++)
        ;
    return list;
}

/* Adds a value and takes it over; *o becomes NULL if memory runs out. */
static void set(json_t **o, const char *key, json_t *value)
{
    if (*o && json_object_set_new(*o, key, value) == 0)
        return;
    if (!*o)
        json_decref(value);
    json_decref(*o);
    *o = NULL;
}

static void set_identity(json_t **o, const struct eval_reading *r, const struct eval_entry *e, int32_t turn)
{
    char key[EVAL_MAX_KEY];
    const struct eval_sample *s = r->sample;
    const struct eval_config *c = e->config;
    eval_row_key(key, s, c->id, turn);
    set(o, "v", json_integer(1));
    set(o, "key", json_string(key));
    set(o, "task", json_string(s->task));
    set(o, "N", json_integer(s->n_target));
    set(o, "index", json_integer(s->index));
    set(o, "turn", json_integer(turn));
    set(o, "config", json_string(c->id));
    set(o, "policy", json_string(c->recipe));
    set(o, "mode", json_string(eval_mode_name(c->mode)));
    set(o, "size", json_string(c->size_text));
    set(o, "kv_type", json_string(c->kv_text));
}

static void set_cache(json_t **o, const struct eval_reading *r, const struct eval_entry *e,
                      const struct eval_answer *a, bool *bad)
{
    const struct eval_sample *s = r->sample;
    const json_t *depth = json_object_get(s->meta, "depth");
    set(o, "ratio_ach", number(e->n_part > 0 ? 1 - e->kept_mean / e->n_part : 0, bad));
    set(o, "kv_bytes", json_integer((json_int_t)e->kv_bytes));
    set(o, "ctx_tokens", json_integer(r->first[0].n_context));
    set(o, "q_tokens", json_integer(a->n_question));
    set(o, "gen_tokens", json_integer(a->n_text));
    set(o, "stop", json_string(a->stop ? a->stop : "bad"));
    set(o, "depth", depth ? json_incref((json_t *)depth) : json_null());
    set(o, "truncated", json_boolean(json_is_true(json_object_get(s->meta, "truncated"))));
}

static void set_comparison(json_t **o, const struct eval_answer *a, bool *bad)
{
    const bool any = a->compared && a->same.n > 0;
    set(o, "fgt", any ? json_integer(a->same_first) : json_null());
    set(o, "agree", any ? json_real((double)a->same.n_same / a->same.n) : json_null());
    set(o, "prefix", any ? json_integer(a->same.n_lead) : json_null());
    set(o, "kl", any ? number(a->same.kl / a->same.n, bad) : json_null());
    set(o, "dnll", any ? number(a->dnll, bad) : json_null());
}

/* What a line of the user's file says of itself. */
static void set_line(json_t **o, const struct eval_sample *s)
{
    static const char *const fields[] = {"id", "metric"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = json_object_get(s->meta, fields[i]);
        if (value)
            set(o, fields[i], json_deep_copy(value));
    }
}

/* What a text costs; it has no score. */
static int make_text(json_t **row, const struct eval_reading *r, const struct eval_entry *e)
{
    const struct eval_answer *a = &e->answer[0];
    bool bad = strcmp(a->stop, "bad") == 0;
    json_t *o = json_object(), *scores = json_object();
    set_identity(&o, r, e, 0);
    set_cache(&o, r, e, a, &bad);
    set_comparison(&o, a, &bad);
    set(&o, "ms",
        json_pack("{s:f, s:f, s:f}", "prefill", e->prefill_ms, "compress", e->compress_ms, "question",
                  a->question_ms));
    set(&scores, "nll", number(a->nll, &bad));
    set(&o, "scores", scores);
    if (bad)
        set(&o, "bad", json_true());
    *row = o;
    return o ? APP_OK : app_fail(APP_FAILED, "out of memory for a result");
}

int eval_row_make(json_t **row, double *score, const struct eval_reading *r, const struct eval_entry *e,
                  int32_t turn)
{
    const struct eval_answer *a = &e->answer[turn];
    const struct app_text *question = &r->sample->turns[turn].question;
    struct eval_grade g;
    if (r->is_text) {
        *score = 0;
        return make_text(row, r, e);
    }
    bool bad = !a->stop || strcmp(a->stop, "bad") == 0;
    int rc = eval_grade_turn(&g, r->sample, turn, &a->text);
    json_t *o = json_object();
    set_identity(&o, r, e, turn);
    set_line(&o, r->sample);
    set_cache(&o, r, e, a, &bad);
    set(&o, "question", app_json_text(question->s ? question->s : ""));
    set(&o, "pred", json_stringn(a->text.s ? a->text.s : "", a->text.len));
    set(&o, "refs", refs_of(&r->sample->turns[turn]));
    set_comparison(&o, a, &bad);
    set(&o, "ms",
        json_pack("{s:f, s:f, s:f, s:f}", "prefill", e->prefill_ms, "compress", e->compress_ms, "question",
                  a->question_ms, "decode", a->decode_ms));
    *score = bad ? 0 : g.score;
    set(&o, "score", json_real(*score));
    set(&o, "scores", g.scores);
    if (bad)
        set(&o, "bad", json_true());
    *row = o;
    return rc == APP_OK && !o ? app_fail(APP_FAILED, "out of memory for a result") : rc;
}
