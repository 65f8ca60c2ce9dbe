/* SPDX-License-Identifier: MIT */
/* The record of one answer. Its fields are described in docs/reference/evaluation.md. */
#include "eval/run/record.h"

#include "app/console.h"
#include "app/json.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/record.h"
#include "eval/base/stats.h"
#include "eval/tasks/grade.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void eval_record_key(char out[EVAL_MAX_KEY], const struct eval_sample *s, const char *config, int32_t turn)
{
    snprintf(out, EVAL_MAX_KEY, "%s|%d|%d|%llu|%s|%d", s->task, (int)s->n_target, (int)s->index,
             (unsigned long long)s->seed, config, (int)turn);
}

bool eval_record_is_sample(const char *key)
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

static void set_text(json_t **o, int field, const char *text)
{
    eval_field_set(o, field, json_string(text));
}

static void set_identity(json_t **o, const struct eval_reading *r, const struct eval_entry *e, int32_t turn)
{
    char key[EVAL_MAX_KEY];
    const struct eval_sample *s = r->sample;
    const struct eval_config *c = e->config;
    eval_record_key(key, s, c->id, turn);
    eval_field_set(o, EVAL_F_VERSION, json_integer(EVAL_RECORD_VERSION));
    set_text(o, EVAL_F_KEY, key);
    set_text(o, EVAL_F_TASK, s->task);
    eval_field_set(o, EVAL_F_LENGTH, json_integer(s->n_target));
    eval_field_set(o, EVAL_F_INDEX, json_integer(s->index));
    eval_field_set(o, EVAL_F_TURN, json_integer(turn));
    set_text(o, EVAL_F_CONFIG, c->id);
    set_text(o, EVAL_F_POLICY, c->recipe);
    if (strcmp(c->asked, c->recipe) != 0)
        set_text(o, EVAL_F_ASKED, c->asked);
    set_text(o, EVAL_F_MODE, eval_mode_name(c->mode));
    set_text(o, EVAL_F_SIZE, c->size_text);
    set_text(o, EVAL_F_KV_TYPE, c->kv_text);
    eval_field_set(o, EVAL_F_KV_ROTATED, json_boolean(app_kv_rotates(&c->kv)));
    if (s->text != 0) {
        char hash[17];
        eval_hash_text(hash, s->text);
        set_text(o, EVAL_F_TEXT, hash);
    }
    if (c->mask)
        set_text(o, EVAL_F_MASK, c->mask->text);
    /* What a line of a file says of itself: one of the user's its name and its metric, one of LongBench's how long it is. */
    for (int field = EVAL_F_ID; field <= EVAL_F_BUCKET; field++) {
        const json_t *value = json_object_get(s->meta, eval_field_name(field));
        if (value)
            eval_field_set(o, field, json_deep_copy(value));
    }
}

/* Whether the evidence is always kept, independent of its scores; null if there is no evidence, or if that is unknown. */
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
    const bool truncated = json_is_true(json_object_get(s->meta, "truncated"));
    const int32_t n_part = a->again ? a->n_part : e->n_part;
    const double kept = a->again ? a->kept_mean : e->kept_mean;
    eval_field_set(o, EVAL_M_RATIO, number(n_part > 0 ? 1 - kept / n_part : 0, bad));
    eval_field_set(o, EVAL_M_BYTES, json_integer((json_int_t)(a->again ? a->kv_bytes : e->kv_bytes)));
    eval_field_set(o, EVAL_M_META, json_integer((json_int_t)(a->again ? a->meta_bytes : e->meta_bytes)));
    eval_field_set(o, EVAL_M_PEAK, json_integer((json_int_t)e->peak_bytes));
    eval_field_set(o, EVAL_M_CONTEXT, json_integer(r->first[0].n_context));
    eval_field_set(o, EVAL_F_Q_TOKENS, json_integer(a->n_question));
    eval_field_set(o, EVAL_M_GENERATED, json_integer(a->n_text));
    set_text(o, EVAL_F_STOP, a->stop ? a->stop : "bad");
    eval_field_set(o, EVAL_M_DEPTH, depth ? json_deep_copy(depth) : json_null());
    eval_field_set(o, EVAL_F_PROTECTED, is_protected(r, e));
    eval_field_set(o, EVAL_F_TRUNCATED, json_boolean(truncated));
    if (truncated)
        eval_field_set(o, EVAL_F_UNCUT, json_incref(json_object_get(s->meta, "context_tokens")));
}

static void set_comparison(json_t **o, const struct eval_answer *a, bool *bad)
{
    const bool any = a->compared && a->same.n > 0;
    eval_field_set(o, EVAL_M_FGT, any ? json_integer(a->same_first) : json_null());
    eval_field_set(o, EVAL_M_AGREE, any ? json_real((double)a->same.n_same / a->same.n) : json_null());
    eval_field_set(o, EVAL_F_PREFIX, any ? json_integer(a->same.n_lead) : json_null());
    eval_field_set(o, EVAL_M_KL, any ? number(a->same.kl / a->same.n, bad) : json_null());
    eval_field_set(o, EVAL_M_DNLL, any ? number(a->dnll, bad) : json_null());
}

static void set_times(json_t **o, const struct eval_entry *e, const struct eval_answer *a)
{
    eval_field_set(o, EVAL_M_PREFILL, json_real(e->prefill_ms));
    eval_field_set(o, EVAL_M_COMPRESS, json_real(a->again ? a->again_ms : e->compress_ms));
    eval_field_set(o, EVAL_M_QUESTION, json_real(a->question_ms));
}

json_t *eval_record_left_out(const struct eval_reading *r, const struct eval_entry *e)
{
    json_t *o = json_object();
    set_identity(&o, r, e, 0);
    eval_field_set(&o, EVAL_F_LEFT_OUT, app_json_text(e->left_out));
    return o;
}

int eval_record_make(json_t **record, double *score, const struct eval_reading *r, const struct eval_entry *e,
                     int32_t turn)
{
    const struct eval_answer *a = &e->answer[turn];
    struct eval_grade g = {0};
    bool bad = !a->stop || strcmp(a->stop, "bad") == 0;
    int rc = r->is_text ? APP_OK : eval_grade_turn(&g, r->sample, turn, &a->text);
    json_t *o = json_object();
    set_identity(&o, r, e, turn);
    set_cache(&o, r, e, a, &bad);
    if (!r->is_text) {
        const struct eval_turn *t = &r->sample->turns[turn];
        eval_field_set(&o, EVAL_F_QUESTION, app_json_text(t->question.s ? t->question.s : ""));
        eval_field_set(&o, EVAL_F_PRED, json_stringn(a->text.s ? a->text.s : "", a->text.len));
        eval_field_set(&o, EVAL_F_REFS, eval_refs_json(t));
    }
    set_comparison(&o, a, &bad);
    set_times(&o, e, a);
    if (r->is_text) { /* what a text costs; it has no score */
        eval_field_set(&o, EVAL_M_NLL, number(a->nll, &bad));
    } else {
        eval_field_set(&o, EVAL_M_DECODE, json_real(a->decode_ms));
        eval_field_set(&o, EVAL_M_SCORE, json_real(bad ? 0 : g.score));
        eval_field_set(&o, EVAL_F_SCORES, g.scores);
    }
    *score = bad ? 0 : g.score;
    if (bad)
        eval_field_set(&o, EVAL_F_BAD, json_true());
    *record = o;
    return rc == APP_OK && !o ? eval_no_memory("a result") : rc;
}
