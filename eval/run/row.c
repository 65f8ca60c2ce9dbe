/* SPDX-License-Identifier: MIT */
/* The record of one answer. Its fields are described in docs/evaluation.md. */
#include "eval/run/row.h"

#include "app/console.h"
#include "app/json.h"
#include "eval/base/stats.h"
#include "eval/tasks/grade.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void eval_row_key(char out[EVAL_MAX_KEY], const struct eval_sample *s, const char *config, int32_t turn)
{
    snprintf(out, EVAL_MAX_KEY, "%s|%d|%d|%llu|%s|%d", s->task, (int)s->n_target, (int)s->index,
             (unsigned long long)s->seed, config, (int)turn);
}

bool eval_row_is_sample(const char *key)
{
    const char *length = strchr(key, '|'), *index = length ? strchr(length + 1, '|') : NULL;
    return index && strtol(index + 1, NULL, 10) < EVAL_GATE_FIRST;
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

static void set_identity(json_t **o, const struct eval_reading *r, const struct eval_entry *e, int32_t turn)
{
    char key[EVAL_MAX_KEY];
    const struct eval_sample *s = r->sample;
    const struct eval_config *c = e->config;
    eval_row_key(key, s, c->id, turn);
    app_json_set(o, "v", json_integer(1));
    app_json_set(o, "key", json_string(key));
    app_json_set(o, "task", json_string(s->task));
    app_json_set(o, "N", json_integer(s->n_target));
    app_json_set(o, "index", json_integer(s->index));
    app_json_set(o, "turn", json_integer(turn));
    app_json_set(o, "config", json_string(c->id));
    app_json_set(o, "policy", json_string(c->recipe));
    app_json_set(o, "mode", json_string(eval_mode_name(c->mode)));
    app_json_set(o, "size", json_string(c->size_text));
    app_json_set(o, "kv_type", json_string(c->kv_text));
    app_json_set(o, "kv_rotated", json_boolean(app_kv_rotates(&c->kv)));
    if (c->mask)
        app_json_set(o, "mask", json_string(c->mask->text));
}

/* Whether the evidence stays whatever it scores; null where there is none, or where that is not known. */
static json_t *is_protected(const struct eval_reading *r, const struct eval_entry *e)
{
    if (r->evidence.n == 0 || !e->planned)
        return json_null();
    return json_boolean(eval_evidence_within(&r->evidence, e->protected_first, e->protected_last, e->n_part));
}

static void set_cache(json_t **o, const struct eval_reading *r, const struct eval_entry *e,
                      const struct eval_answer *a, bool *bad)
{
    const struct eval_sample *s = r->sample;
    const json_t *depth = json_object_get(s->meta, "depth");
    const int32_t n_part = a->again ? a->n_part : e->n_part;
    app_json_set(o, "ratio_ach",
                 number(n_part > 0 ? 1 - (a->again ? a->kept_mean : e->kept_mean) / n_part : 0, bad));
    app_json_set(o, "kv_bytes", json_integer((json_int_t)(a->again ? a->kv_bytes : e->kv_bytes)));
    app_json_set(o, "meta_bytes", json_integer((json_int_t)(a->again ? a->meta_bytes : e->meta_bytes)));
    app_json_set(o, "peak_bytes", json_integer((json_int_t)e->peak_bytes));
    app_json_set(o, "ctx_tokens", json_integer(r->first[0].n_context));
    app_json_set(o, "q_tokens", json_integer(a->n_question));
    app_json_set(o, "gen_tokens", json_integer(a->n_text));
    app_json_set(o, "stop", json_string(a->stop ? a->stop : "bad"));
    app_json_set(o, "depth", depth ? json_incref((json_t *)depth) : json_null());
    app_json_set(o, "protected", is_protected(r, e));
    const bool truncated = json_is_true(json_object_get(s->meta, "truncated"));
    app_json_set(o, "truncated", json_boolean(truncated));
    if (truncated)
        app_json_set(o, "ctx_uncut", json_incref(json_object_get(s->meta, "context_tokens")));
}

static void set_comparison(json_t **o, const struct eval_answer *a, bool *bad)
{
    const bool any = a->compared && a->same.n > 0;
    app_json_set(o, "fgt", any ? json_integer(a->same_first) : json_null());
    app_json_set(o, "agree", any ? json_real((double)a->same.n_same / a->same.n) : json_null());
    app_json_set(o, "prefix", any ? json_integer(a->same.n_lead) : json_null());
    app_json_set(o, "kl", any ? number(a->same.kl / a->same.n, bad) : json_null());
    app_json_set(o, "dnll", any ? number(a->dnll, bad) : json_null());
}

/* What a line of a file says of itself: one of the user's its name and its metric, one of LongBench's how long it is. */
static void set_line(json_t **o, const struct eval_sample *s)
{
    static const char *const fields[] = {"id", "metric", "bucket"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = json_object_get(s->meta, fields[i]);
        if (value)
            app_json_set(o, fields[i], json_deep_copy(value));
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
    app_json_set(&o, "ms",
                 json_pack("{s:f, s:f, s:f}", "prefill", e->prefill_ms, "compress", e->compress_ms,
                           "question", a->question_ms));
    app_json_set(&scores, "nll", number(a->nll, &bad));
    app_json_set(&o, "scores", scores);
    if (bad)
        app_json_set(&o, "bad", json_true());
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
    app_json_set(&o, "question", app_json_text(question->s ? question->s : ""));
    app_json_set(&o, "pred", json_stringn(a->text.s ? a->text.s : "", a->text.len));
    app_json_set(&o, "refs", refs_of(&r->sample->turns[turn]));
    set_comparison(&o, a, &bad);
    app_json_set(&o, "ms",
                 json_pack("{s:f, s:f, s:f, s:f}", "prefill", e->prefill_ms, "compress",
                           a->again ? a->again_ms : e->compress_ms, "question", a->question_ms, "decode",
                           a->decode_ms));
    *score = bad ? 0 : g.score;
    app_json_set(&o, "score", json_real(*score));
    app_json_set(&o, "scores", g.scores);
    if (bad)
        app_json_set(&o, "bad", json_true());
    *row = o;
    return rc == APP_OK && !o ? app_fail(APP_FAILED, "out of memory for a result") : rc;
}
