/* SPDX-License-Identifier: MIT */
/* One line of results.jsonl: checked, and kept without its texts. */
#include "eval/results/results.h"

#include "app/console.h"
#include "app/values.h"
#include "eval/base/bucket.h"
#include "eval/base/stats.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, MAX_NAME = 1024 };

/* Where a measure stands: a member, or a member of a member. */
static const struct {
    const char *outer, *name;
    double min, max;
    const char *column; /* what tables call it; NULL = name */
} measures[EVAL_N_MEASURES] = {
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
};

const char *eval_measure_name(enum eval_measure m)
{
    return measures[m].column ? measures[m].column : measures[m].name;
}

/* Makes room for one more element of list[n]. The memory is of the next power of two. Returns the list, NULL if
 * memory runs out, in which case the old list stays. */
static void *grow(void *list, size_t n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0)
        return list;
    return n < SIZE_MAX / 2 / size ? realloc(list, (n > 0 ? 2 * n : 1) * size) : NULL;
}

static int no_memory(const struct eval_jsonl *j)
{
    return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
}

/* Reads the name under `key`: a text without control characters, and not empty. */
static int read_name(const char **out, const struct eval_jsonl *j, const json_t *o, const char *key)
{
    const json_t *text;
    const int rc = eval_jsonl_text(&text, j, o, key);
    if (rc != APP_OK)
        return rc;
    *out = json_string_value(text);
    const size_t len = json_string_length(text);
    if (len == 0 || len > MAX_NAME)
        return eval_jsonl_bad(j, "\"%s\" has %zu bytes; allowed are 1 to %d", key, len, MAX_NAME);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)(*out)[i] < 0x20 || (*out)[i] == 0x7f)
            return eval_jsonl_bad(j, "\"%s\" has a control character", key);
    return APP_OK;
}

/* Reads a whole number of 0 to 2^31 - 1. Where there is none it is `otherwise`, if that is not negative. */
static int read_int(int32_t *out, const struct eval_jsonl *j, const json_t *o, const char *key,
                    int32_t otherwise)
{
    const json_t *number = json_object_get(o, key);
    *out = otherwise;
    if (!number && otherwise >= 0)
        return APP_OK;
    if (!json_is_integer(number) || json_integer_value(number) < 0 || json_integer_value(number) > INT32_MAX)
        return eval_jsonl_bad(j, "\"%s\" is not a whole number of 0 to %d", key, INT32_MAX);
    *out = (int32_t)json_integer_value(number);
    return APP_OK;
}

static int read_measure(double *out, const struct eval_jsonl *j, const json_t *o, enum eval_measure which)
{
    const char *outer = measures[which].outer, *name = measures[which].name;
    const json_t *number = json_object_get(outer ? json_object_get(o, outer) : o, name);
    *out = NAN;
    if (!number || json_is_null(number))
        return APP_OK;
    if (json_is_boolean(number)) {
        *out = json_is_true(number) ? 1.0 : 0.0;
        return APP_OK;
    }
    if (!json_is_number(number))
        return eval_jsonl_bad(j, "\"%s\" is not a number", name);
    *out = json_number_value(number);
    if (!(*out >= measures[which].min && *out <= measures[which].max))
        return eval_jsonl_bad(j, "\"%s\" is %.9g, which is outside %g to %g", name, *out, measures[which].min,
                              measures[which].max);
    return APP_OK;
}

/* A line whose score was not a number, or that says so itself, is bad: it scores 0. A line without a score, which is that
 * of a text, only has other numbers and gets none. */
static int read_measures(struct eval_result *r, const struct eval_jsonl *j, const json_t *o)
{
    for (int m = 0; m < EVAL_N_MEASURES; m++) {
        const int rc = read_measure(&r->m[m], j, o, (enum eval_measure)m);
        if (rc != APP_OK)
            return rc;
    }
    const json_t *score = json_object_get(o, "score");
    if (json_is_true(json_object_get(o, "bad")) || json_is_null(score)) {
        r->flags |= EVAL_R_BAD;
        r->m[EVAL_M_SCORE] = score ? 0.0 : NAN;
    }
    r->bucket = eval_bucket_find(json_string_value(json_object_get(o, "bucket")));
    r->flags |= json_is_true(json_object_get(o, "protected")) ? EVAL_R_PROTECTED : 0;
    r->flags |= json_is_true(json_object_get(o, "truncated")) ? EVAL_R_TRUNCATED : 0;
    const double uncut = json_number_value(json_object_get(o, "ctx_uncut"));
    r->flags |= r->flags & EVAL_R_TRUNCATED && r->m[EVAL_M_CONTEXT] < 0.5 * uncut ? EVAL_R_HALVED : 0;
    return APP_OK;
}

/* ---- Lists of names ---- */

static int find_task(int32_t *out, struct eval_run *run, const struct eval_jsonl *j, const char *name)
{
    for (*out = 0; *out < run->n_tasks; (*out)++)
        if (strcmp(run->tasks[*out], name) == 0)
            return APP_OK;
    char **grown = grow(run->tasks, (size_t)run->n_tasks, sizeof *grown);
    run->tasks = grown ? grown : run->tasks;
    char *copy = grown ? strdup(name) : NULL;
    if (!copy)
        return no_memory(j);
    run->tasks[run->n_tasks++] = copy;
    return APP_OK;
}

/* The number in a size such as "ratio=0.5"; NaN for other sizes. */
static double removed_of(const char *size)
{
    double ratio;
    const bool good = strncmp(size, "ratio=", 6) == 0 && app_parse_real(&ratio, size + 6);
    return good && ratio >= 0 && ratio <= 1 ? ratio : NAN;
}

static bool add_variant(struct eval_run *run, const char *id, const char *policy, const char *mode,
                        const char *size, const char *kv_type)
{
    struct eval_variant *grown = grow(run->variants, (size_t)run->n_variants, sizeof *grown);
    if (!grown)
        return false;
    run->variants = grown;
    struct eval_variant *c = &grown[run->n_variants++];
    *c = (struct eval_variant){.id = strdup(id),
                               .policy = strdup(policy),
                               .mode = strdup(mode),
                               .size = strdup(size),
                               .kv_type = strdup(kv_type),
                               .more = strdup(""),
                               .removed = removed_of(size),
                               .full = strcmp(policy, "full") == 0};
    return c->id && c->policy && c->mode && c->size && c->kv_type && c->more;
}

static int find_variant(int32_t *out, struct eval_run *run, const struct eval_jsonl *j, const json_t *o)
{
    static const char *const keys[] = {"config", "policy", "mode", "size", "kv_type"};
    const char *name[5];
    for (int i = 0; i < 5; i++) {
        const int rc = read_name(&name[i], j, o, keys[i]);
        if (rc != APP_OK)
            return rc;
    }
    for (*out = 0; *out < run->n_variants; (*out)++) {
        const struct eval_variant *c = &run->variants[*out];
        if (strcmp(c->id, name[0]) != 0)
            continue;
        const char *const known[] = {c->id, c->policy, c->mode, c->size, c->kv_type};
        for (int i = 1; i < 5; i++)
            if (strcmp(known[i], name[i]) != 0)
                return eval_jsonl_bad(j, "config %s has the %s '%.200s' here and '%.200s' before", name[0],
                                      keys[i], name[i], known[i]);
        return APP_OK;
    }
    return add_variant(run, name[0], name[1], name[2], name[3], name[4]) ? APP_OK : no_memory(j);
}

static int append(struct eval_result **list, size_t *n, const struct eval_jsonl *j,
                  const struct eval_result *r)
{
    struct eval_result *grown = grow(*list, *n, sizeof *grown);
    if (!grown)
        return no_memory(j);
    *list = grown;
    grown[(*n)++] = *r;
    return APP_OK;
}

int eval_results_add(struct eval_run *run, const struct eval_jsonl *j, int32_t folder, const json_t *line)
{
    struct eval_result r = {.folder = folder, .at = j->begin, .line = j->number};
    const char *task;
    int32_t version;
    int rc = read_int(&version, j, line, "v", -1);
    if (rc == APP_OK && version != VERSION)
        rc = eval_jsonl_bad(j, "version %d of the format; this program reads version %d", version, VERSION);
    if (rc == APP_OK && (rc = read_name(&task, j, line, "task")) == APP_OK)
        rc = find_task(&r.task, run, j, task);
    if (rc == APP_OK)
        rc = find_variant(&r.variant, run, j, line);
    if (rc == APP_OK)
        rc = read_int(&r.n_target, j, line, "N", 0);
    if (rc == APP_OK)
        rc = read_int(&r.index, j, line, "index", -1);
    if (rc == APP_OK)
        rc = read_int(&r.turn, j, line, "turn", 0);
    if (rc == APP_OK)
        rc = read_measures(&r, j, line);
    if (rc != APP_OK)
        return rc;
    return r.index >= EVAL_GATE_FIRST ? append(&run->probes, &run->n_probes, j, &r)
                                      : append(&run->results, &run->n, j, &r);
}
