/* SPDX-License-Identifier: MIT */
/* Limits that a run must keep. */
#include "eval/results/limit.h"

#include "app/console.h"
#include "app/values.h"
#include "base/strings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Measures ---- */

/* What has no index of eval_cell's numbers. */
enum { DELTA = EVAL_N_MEASURES, MEAN, RETENTION };
static const struct {
    const char *name;
    int of;
} measures[] = {{"macro_delta", DELTA},  {"macro", MEAN},   {"retention", RETENTION}, {"fgt", EVAL_M_FGT},
                {"agree", EVAL_M_AGREE}, {"kl", EVAL_M_KL}, {"dnll", EVAL_M_DNLL}};
enum { N_LIMIT_MEASURES = sizeof measures / sizeof *measures };

/* What is compared with the bound; NaN where there is no number, or no interval, which a difference needs to be judged by. */
static double value_of(const struct eval_limit *l, const struct eval_cell *c)
{
    const int of = measures[l->measure].of;
    return of == DELTA       ? (l->below ? c->delta.over.hi : c->delta.over.lo)
           : of == MEAN      ? c->mean
           : of == RETENTION ? eval_cell_retention(c)
                             : c->m[of];
}

/* ---- Reading ---- */

static int unknown_measure(const char *name, const char *text)
{
    const char *names[N_LIMIT_MEASURES + 1] = {NULL};
    for (int i = 0; i < N_LIMIT_MEASURES; i++)
        names[i] = measures[i].name;
    const char *near = wnw__nearest(name, names);
    return near
               ? app_fail(APP_BAD_INPUT, "--fail-if '%.200s': no measure '%.100s'; did you mean %s?", text,
                          name, near)
               : app_fail(
                     APP_BAD_INPUT,
                     "--fail-if '%.200s': no measure '%.100s'; there are macro_delta, macro, retention, fgt, "
                     "agree, kl and dnll",
                     text, name);
}

static int read_filter(struct eval_limit *l, const char *key, const char *value, const char *text)
{
    double *number = strcmp(key, "r") == 0 ? &l->removed : strcmp(key, "N") == 0 ? &l->n_target : NULL;
    const char **name = strcmp(key, "policy") == 0 ? &l->policy
                        : strcmp(key, "mode") == 0 ? &l->mode
                        : strcmp(key, "kv") == 0   ? &l->kv_type
                                                   : NULL;
    if (!number && !name)
        return app_fail(APP_BAD_INPUT,
                        "--fail-if '%.200s': no key '%.100s'; there are r, policy, mode, kv and N", text,
                        key);
    if (number && !app_parse_real(number, value))
        return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not a number", text, value);
    if (name)
        *name = value;
    return APP_OK;
}

/* Reads KEY=VALUE[,KEY=VALUE]... in place. An item without a key belongs to the value before it: recipes have
 * commas. */
static int read_filters(struct eval_limit *l, char *at, const char *text)
{
    static const char *const keys[] = {"r=", "policy=", "mode=", "kv=", "N="};
    int rc = APP_OK;
    while (rc == APP_OK && at) {
        char *equals = strchr(at, '='), *next = at;
        if (!equals)
            return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not KEY=VALUE", text, at);
        for (bool found = false; !found && (next = strchr(next, ','));) {
            next++;
            for (int i = 0; i < 5; i++)
                found = found || strncmp(next, keys[i], strlen(keys[i])) == 0;
        }
        *equals = '\0';
        if (next)
            next[-1] = '\0';
        rc = read_filter(l, at, equals + 1, text);
        at = next;
    }
    return rc;
}

int eval_limit_read(struct eval_limit *l, const char *text)
{
    *l = (struct eval_limit){.text = strdup(text), .removed = NAN, .n_target = NAN};
    if (!l->text)
        return app_fail(APP_FAILED, "out of memory");
    char *sign = strpbrk(l->text, "<>"), *filters = strchr(l->text, '@');
    if (!sign || (filters && filters < sign))
        return app_fail(
            APP_BAD_INPUT,
            "--fail-if '%.200s': write MEASURE<NUMBER or MEASURE>NUMBER, e.g. macro_delta<-5@r=.5", text);
    l->below = *sign == '<';
    *sign = '\0';
    if (filters)
        *filters++ = '\0';
    for (l->measure = 0; l->measure < N_LIMIT_MEASURES; l->measure++)
        if (strcmp(measures[l->measure].name, l->text) == 0)
            break;
    if (l->measure == N_LIMIT_MEASURES)
        return unknown_measure(l->text, text);
    if (!app_parse_real(&l->bound, sign + 1) || !isfinite(l->bound))
        return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not a number", text, sign + 1);
    return read_filters(l, filters, text);
}

void eval_limit_clear(struct eval_limit *l)
{
    free(l->text);
    *l = (struct eval_limit){0};
}

/* ---- Checking ---- */

/* Whether the limit is about a row. Without N it is about the table over all lengths. */
static bool is_meant(const struct eval_limit *l, const struct eval_run *run, const struct eval_block *b,
                     const struct eval_row *row)
{
    const struct eval_variant *v = &run->variants[row->variant];
    if (isnan(l->n_target) ? b->n_target != EVAL_ALL_LENGTHS : (double)b->n_target != l->n_target)
        return false;
    return row->variant != b->baseline && (isnan(l->removed) || fabs(v->removed - l->removed) < 1e-9) &&
           (!l->policy || strcmp(l->policy, v->policy) == 0) && (!l->mode || strcmp(l->mode, v->mode) == 0) &&
           (!l->kv_type || strcmp(l->kv_type, v->kv_type) == 0);
}

static const char *why_unknown(const struct eval_limit *l, const struct eval_cell *c)
{
    const bool is_delta = measures[l->measure].of == DELTA;
    return is_delta && !isnan(c->delta.delta) ? "it has too few samples for an interval"
                                              : "it has no such number";
}

static int check_row(const struct eval_limit *l, const struct eval_run *run, const struct eval_row *row)
{
    const struct eval_variant *v = &run->variants[row->variant];
    const double value = value_of(l, &row->macro);
    if (isnan(value))
        app_note("--fail-if: %s of %s at %s (%s, %s) is not checked: %s", measures[l->measure].name,
                 v->policy, v->size, v->mode, v->kv_type, why_unknown(l, &row->macro));
    if (isnan(value) || (l->below ? value >= l->bound : value <= l->bound))
        return APP_OK;
    return app_fail(EVAL_LIMIT_HIT, "--fail-if: %s of %s at %s (%s, %s) is %.6g, %s the limit of %.6g",
                    measures[l->measure].name, v->policy, v->size, v->mode, v->kv_type, value,
                    l->below ? "below" : "above", l->bound);
}

int eval_limit_check(const struct eval_limit *l, const struct eval_tables *tables, int32_t n)
{
    int32_t n_meant = 0;
    int rc = APP_OK;
    for (int32_t t = 0; t < n; t++)
        for (int32_t b = 0; b < tables[t].n; b++)
            for (int32_t i = 0; rc == APP_OK && i < tables[t].blocks[b].n_rows; i++) {
                const struct eval_row *row = &tables[t].blocks[b].rows[i];
                if (!is_meant(l, tables[t].run, &tables[t].blocks[b], row))
                    continue;
                n_meant++;
                rc = check_row(l, tables[t].run, row);
            }
    if (rc == APP_OK && n_meant == 0)
        return app_fail(APP_BAD_INPUT,
                        "--fail-if: no result is meant by what stands behind '@'; the summary lists "
                        "policies and sizes");
    return rc;
}
