/* SPDX-License-Identifier: MIT */
/* One line of results.jsonl: checked, and kept without its texts. */
#include "eval/results/results.h"

#include "app/console.h"
#include "app/text.h"
#include "app/values.h"
#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/stats.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_NAME = 1024 };

/* Reads a name: a text without control characters, and not empty. */
static int read_name(const char **out, const struct eval_jsonl *j, const json_t *o, int field)
{
    const char *key = eval_field_name(field);
    const json_t *text;
    WNW_TRY(eval_jsonl_text(&text, j, o, key));
    *out = json_string_value(text);
    const size_t len = json_string_length(text);
    if (len == 0 || len > MAX_NAME)
        return eval_jsonl_bad(j, "\"%s\" has %zu bytes; allowed are 1 to %d", key, len, MAX_NAME);
    for (size_t i = 0; i < len; i++)
        if (app_control_bytes(*out + i) > 0 || (*out)[i] == '\0')
            return eval_jsonl_bad(j, "\"%s\" has a control character", key);
    return APP_OK;
}

/* Reads a whole number of 0 to 2^31 - 1. Where there is none it is `otherwise`, if that is not negative. */
static int read_int(int32_t *out, const struct eval_jsonl *j, const json_t *o, int field, int32_t otherwise)
{
    const json_t *number = eval_field_get(o, field);
    *out = otherwise;
    if (!number && otherwise >= 0)
        return APP_OK;
    if (!json_is_integer(number) || json_integer_value(number) < 0 || json_integer_value(number) > INT32_MAX)
        return eval_jsonl_bad(j, "\"%s\" is not a whole number of 0 to %d", eval_field_name(field),
                              INT32_MAX);
    *out = (int32_t)json_integer_value(number);
    return APP_OK;
}

static int read_measure(double *out, const struct eval_jsonl *j, const json_t *o, enum eval_measure which)
{
    const json_t *number = eval_field_get(o, (int)which);
    double min, max;
    *out = NAN;
    if (!number || json_is_null(number))
        return APP_OK;
    if (!json_is_number(number) && !json_is_boolean(number))
        return eval_jsonl_bad(j, "\"%s\" is not a number", eval_field_name((int)which));
    *out = json_is_boolean(number) ? json_is_true(number) : json_number_value(number);
    return eval_measure_allows(which, *out, &min, &max)
               ? APP_OK
               : eval_jsonl_bad(j, "\"%s\" is %.9g, which is outside %g to %g", eval_field_name((int)which),
                                *out, min, max);
}

/* The number of a text. Lines have it as a hash; other names are hashed here. */
static uint64_t text_of(const char *name)
{
    return name ? wnw__hash_of(name, strlen(name)) : 0;
}

/* A line whose score was not a number, or that says so itself, is bad: it scores 0. A line without a score, which is that
 * of a text, only has other numbers and gets none. */
static int read_measures(struct eval_result *r, const struct eval_jsonl *j, const json_t *o)
{
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        WNW_TRY(read_measure(&r->m[m], j, o, (enum eval_measure)m));
    const json_t *score = eval_field_get(o, EVAL_M_SCORE);
    if (json_is_true(eval_field_get(o, EVAL_F_BAD)) || json_is_null(score)) {
        r->flags |= EVAL_R_BAD;
        r->m[EVAL_M_SCORE] = score ? 0.0 : NAN;
    }
    r->text = text_of(json_string_value(eval_field_get(o, EVAL_F_TEXT)));
    r->bucket = eval_bucket_find(json_string_value(eval_field_get(o, EVAL_F_BUCKET)));
    r->flags |= json_is_true(eval_field_get(o, EVAL_F_PROTECTED)) ? EVAL_R_PROTECTED : 0;
    r->flags |= json_is_true(eval_field_get(o, EVAL_F_TRUNCATED)) ? EVAL_R_TRUNCATED : 0;
    const double uncut = json_number_value(eval_field_get(o, EVAL_F_UNCUT));
    r->flags |= r->flags & EVAL_R_TRUNCATED && r->m[EVAL_M_CONTEXT] < 0.5 * uncut ? EVAL_R_HALVED : 0;
    return APP_OK;
}

/* ---- Lists of names ---- */

static int find_task(int32_t *out, struct eval_run *run, const struct eval_jsonl *j, const char *name)
{
    for (*out = 0; *out < run->n_tasks; (*out)++)
        if (strcmp(run->tasks[*out], name) == 0)
            return APP_OK;
    if (!eval_grow(&run->tasks, (size_t)run->n_tasks, sizeof *run->tasks))
        return eval_no_memory(j->path);
    run->tasks[run->n_tasks] = strdup(name);
    return run->tasks[run->n_tasks] && ++run->n_tasks > 0 ? APP_OK : eval_no_memory(j->path);
}

/* The number in a size such as "ratio=0.5"; NaN for other sizes. */
static double removed_of(const char *size)
{
    double ratio;
    const bool good = strncmp(size, "ratio=", 6) == 0 && app_parse_real(&ratio, size + 6);
    return good && ratio >= 0 && ratio <= 1 ? ratio : NAN;
}

/* Adds the variant that has the names; *out is its index. */
static int add_variant(int32_t *out, struct eval_run *run, const struct eval_jsonl *j,
                       const char *const name[EVAL_N_NAMES])
{
    if (!eval_grow(&run->variants, (size_t)run->n_variants, sizeof *run->variants))
        return eval_no_memory(j->path);
    struct eval_variant *v = &run->variants[ *out = run->n_variants++];
    *v = (struct eval_variant){.canonical = eval_recipe_canonical(name[EVAL_V_POLICY], NULL),
                               .more = strdup(""),
                               .removed = removed_of(name[EVAL_V_SIZE]),
                               .full = strcmp(name[EVAL_V_POLICY], "full") == 0};
    bool good = v->canonical && v->more;
    for (int i = 0; i < EVAL_N_NAMES; i++)
        good = (v->name[i] = strdup(name[i])) && good;
    return good ? APP_OK : eval_no_memory(j->path);
}

static int find_variant(int32_t *out, struct eval_run *run, const struct eval_jsonl *j, const json_t *o)
{
    const char *name[EVAL_N_NAMES];
    for (int i = 0; i < EVAL_N_NAMES; i++)
        WNW_TRY(read_name(&name[i], j, o, EVAL_F_CONFIG + i));
    for (*out = 0; *out < run->n_variants; (*out)++) {
        char *const *known = run->variants[*out].name;
        if (strcmp(known[EVAL_V_ID], name[EVAL_V_ID]) != 0)
            continue;
        for (int i = 1; i < EVAL_N_NAMES; i++)
            if (strcmp(known[i], name[i]) != 0)
                return eval_jsonl_bad(j, "config %s has the %s '%.200s' here and '%.200s' before", name[0],
                                      eval_field_name(EVAL_F_CONFIG + i), name[i], known[i]);
        return APP_OK;
    }
    return add_variant(out, run, j, name);
}

static int append(struct eval_result **list, size_t *n, const struct eval_jsonl *j,
                  const struct eval_result *r)
{
    if (!eval_grow(list, *n, sizeof **list))
        return eval_no_memory(j->path);
    (*list)[(*n)++] = *r;
    return APP_OK;
}

/* Counts a line that says why there is no answer. Returns an exit code. */
static int leave_out(struct eval_variant *v, const struct eval_jsonl *j, const char *why)
{
    v->n_left_out++;
    if (!v->why)
        v->why = strndup(why, MAX_NAME);
    return v->why ? APP_OK : eval_no_memory(j->path);
}

int eval_results_add(struct eval_run *run, const struct eval_jsonl *j, int32_t folder, const json_t *line)
{
    struct eval_result r = {.folder = folder, .at = j->begin, .line = j->number};
    const char *task;
    int32_t version;
    WNW_TRY(read_int(&version, j, line, EVAL_F_VERSION, -1));
    if (version != EVAL_RECORD_VERSION)
        return eval_jsonl_bad(j, "version %d of the format; this program reads version %d", version,
                              EVAL_RECORD_VERSION);
    WNW_TRY(read_name(&task, j, line, EVAL_F_TASK));
    WNW_TRY(find_task(&r.task, run, j, task));
    WNW_TRY(find_variant(&r.variant, run, j, line));
    WNW_TRY(read_int(&r.n_target, j, line, EVAL_F_LENGTH, 0));
    WNW_TRY(read_int(&r.index, j, line, EVAL_F_INDEX, -1));
    WNW_TRY(read_int(&r.turn, j, line, EVAL_F_TURN, 0));
    WNW_TRY(read_measures(&r, j, line));
    const char *why = json_string_value(eval_field_get(line, EVAL_F_LEFT_OUT));
    if (why)
        return leave_out(&run->variants[r.variant], j, why);
    return r.index >= EVAL_GATE_FIRST ? append(&run->probes, &run->n_probes, j, &r)
                                      : append(&run->results, &run->n, j, &r);
}
