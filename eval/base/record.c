/* SPDX-License-Identifier: MIT */
/* The fields of records. */
#include "eval/base/record.h"

#include "app/json.h"

#include <string.h>

/* The place of a field in a record: a member, or a member of a member. */
static const struct {
    const char *outer, *name;
    double min, max;    /* of measures */
    const char *column; /* what tables call it; NULL = name */
} fields[EVAL_N_FIELDS] = {
    [EVAL_M_SCORE] = {NULL, "score", 0, 1, NULL},
    [EVAL_M_PARTIAL] = {"scores", "partial", 0, 1, NULL},
    [EVAL_M_CONTAINS] = {"scores", "contains", 0, 1, NULL},
    [EVAL_M_WORDSET] = {"scores", "wordset_recall", 0, 1, NULL},
    [EVAL_M_ROUGE1] = {"scores", "rouge1_recall", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG] = {"scores", "rouge_pkg_1_p", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 1] = {"scores", "rouge_pkg_1_r", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 2] = {"scores", "rouge_pkg_1_f", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 3] = {"scores", "rouge_pkg_2_p", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 4] = {"scores", "rouge_pkg_2_r", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 5] = {"scores", "rouge_pkg_2_f", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 6] = {"scores", "rouge_pkg_l_p", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 7] = {"scores", "rouge_pkg_l_r", 0, 1, NULL},
    [EVAL_M_ROUGE_PKG + 8] = {"scores", "rouge_pkg_l_f", 0, 1, NULL},
    [EVAL_M_FGT] = {NULL, "fgt", 0, 1, NULL},
    [EVAL_M_AGREE] = {NULL, "agree", 0, 1, NULL},
    [EVAL_M_KL] = {NULL, "kl", -1e300, 1e300, NULL},
    [EVAL_M_DNLL] = {NULL, "dnll", -1e300, 1e300, NULL},
    [EVAL_M_NLL] = {"scores", "nll", 0, 1e300, NULL},
    [EVAL_M_RATIO] = {NULL, "ratio_ach", -1e300, 1, "removed"},
    [EVAL_M_BYTES] = {NULL, "kv_bytes", 0, 1e300, NULL},
    [EVAL_M_META] = {NULL, "meta_bytes", 0, 1e300, NULL},
    [EVAL_M_PEAK] = {NULL, "peak_bytes", 0, 1e300, NULL},
    [EVAL_M_CONTEXT] = {NULL, "ctx_tokens", 0, 1e300, NULL},
    [EVAL_M_GENERATED] = {NULL, "gen_tokens", 0, 1e300, NULL},
    [EVAL_M_DEPTH] = {NULL, "depth", 0, 1, NULL},
    [EVAL_M_PREFILL] = {"ms", "prefill", 0, 1e300, "prefill_ms"},
    [EVAL_M_COMPRESS] = {"ms", "compress", 0, 1e300, "compress_ms"},
    [EVAL_M_QUESTION] = {"ms", "question", 0, 1e300, "question_ms"},
    [EVAL_M_DECODE] = {"ms", "decode", 0, 1e300, "decode_ms"},
    [EVAL_F_VERSION] = {.name = "v"},
    [EVAL_F_KEY] = {.name = "key"},
    [EVAL_F_TASK] = {.name = "task"},
    [EVAL_F_LENGTH] = {.name = "N"},
    [EVAL_F_INDEX] = {.name = "index"},
    [EVAL_F_TURN] = {.name = "turn"},
    [EVAL_F_CONFIG] = {.name = "config"},
    [EVAL_F_POLICY] = {.name = "policy"},
    [EVAL_F_MODE] = {.name = "mode"},
    [EVAL_F_SIZE] = {.name = "size"},
    [EVAL_F_KV_TYPE] = {.name = "kv_type"},
    [EVAL_F_KV_ROTATED] = {.name = "kv_rotated"},
    [EVAL_F_MASK] = {.name = "mask"},
    [EVAL_F_Q_TOKENS] = {.name = "q_tokens"},
    [EVAL_F_STOP] = {.name = "stop"},
    [EVAL_F_PROTECTED] = {.name = "protected"},
    [EVAL_F_TRUNCATED] = {.name = "truncated"},
    [EVAL_F_UNCUT] = {.name = "ctx_uncut"},
    [EVAL_F_QUESTION] = {.name = "question"},
    [EVAL_F_PRED] = {.name = "pred"},
    [EVAL_F_REFS] = {.name = "refs"},
    [EVAL_F_PREFIX] = {.name = "prefix"},
    [EVAL_F_SCORES] = {.name = "scores"},
    [EVAL_F_BAD] = {.name = "bad"},
    [EVAL_F_ID] = {.name = "id"},
    [EVAL_F_METRIC] = {.name = "metric"},
    [EVAL_F_BUCKET] = {.name = "bucket"},
    [EVAL_F_ASKED] = {.name = "asked"},
    [EVAL_F_TEXT] = {.name = "text"},
    [EVAL_F_LEFT_OUT] = {.name = "left_out"},
};

const char *eval_field_name(int field)
{
    return fields[field].name;
}

const char *eval_measure_name(enum eval_measure m)
{
    return fields[m].column ? fields[m].column : fields[m].name;
}

json_t *eval_field_get(const json_t *record, int field)
{
    const char *outer = fields[field].outer;
    return json_object_get(outer ? json_object_get(record, outer) : record, fields[field].name);
}

bool eval_field_set(json_t **record, int field, json_t *value)
{
    const char *outer = fields[field].outer;
    json_t *inner = outer ? json_object_get(*record, outer) : NULL;
    if (!outer)
        return app_json_set(record, fields[field].name, value);
    inner = inner ? json_incref(inner) : json_object();
    app_json_set(&inner, fields[field].name, value);
    return app_json_set(record, outer, inner);
}

bool eval_measure_allows(enum eval_measure m, double value, double *min, double *max)
{
    *min = fields[m].min;
    *max = fields[m].max;
    return value >= *min && value <= *max;
}

/* ---- Buckets ---- */

static const struct {
    const char *name;
    int64_t below; /* words */
} buckets[EVAL_N_BUCKETS] = {{"0-4k", 4000}, {"4-8k", 8000}, {"8k+", INT64_MAX}};

int32_t eval_bucket_of(int64_t n_words)
{
    int32_t i = 0;
    while (i < EVAL_N_BUCKETS - 1 && n_words >= buckets[i].below)
        i++;
    return i + 1;
}

int32_t eval_bucket_find(const char *name)
{
    for (int32_t i = 0; name && i < EVAL_N_BUCKETS; i++)
        if (strcmp(buckets[i].name, name) == 0)
            return i + 1;
    return 0;
}

const char *eval_bucket_name(int32_t bucket)
{
    return buckets[bucket - 1].name;
}
