/* SPDX-License-Identifier: MIT */
/* Limits that a run must keep. */
#include "eval/results/limit.h"

#include "app/console.h"
#include "app/values.h"
#include "base/strings.h"
#include "eval/base/grow.h"

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
    if (of == DELTA)
        return (l->below ? c->delta.over.hi : c->delta.over.lo);
    if (of == MEAN)
        return c->mean;
    if (of == RETENTION)
        return eval_cell_retention(c);
    return c->m[of];
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

/* The conditions allowed after the '@': names of a variant, and two numbers. */
enum { REMOVED = EVAL_N_NAMES, LENGTH };
static const struct {
    const char *key;
    int of;
} filters[] = {
    {"r", REMOVED}, {"policy", EVAL_V_POLICY}, {"mode", EVAL_V_MODE}, {"kv", EVAL_V_KV_TYPE}, {"N", LENGTH}};
enum { N_FILTERS = sizeof filters / sizeof *filters };

/* The filter whose key `text` begins with, with a '=' after it; N_FILTERS if there is none. */
static int find_filter(const char *text)
{
    const size_t len = strcspn(text, "=");
    int i = 0;
    while (i < N_FILTERS &&
           (text[len] != '=' || strlen(filters[i].key) != len || strncmp(filters[i].key, text, len) != 0))
        i++;
    return i;
}

/* Reads KEY=VALUE in place. */
static int read_filter(struct eval_limit *l, char *item, const char *text)
{
    char *equals = strchr(item, '=');
    const int i = find_filter(item);
    if (!equals)
        return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not KEY=VALUE", text, item);
    *equals = '\0';
    if (i == N_FILTERS)
        return app_fail(APP_BAD_INPUT,
                        "--fail-if '%.200s': no key '%.100s'; there are r, policy, mode, kv and N", text,
                        item);
    const int of = filters[i].of;
    if (of < EVAL_N_NAMES)
        l->name[of] = equals + 1;
    else if (!app_parse_real(of == REMOVED ? &l->removed : &l->n_target, equals + 1))
        return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not a number", text, equals + 1);
    return APP_OK;
}

/* Reads KEY=VALUE[,KEY=VALUE]... in place. An item without a key belongs to the value before it: recipes have
 * commas. */
static int read_filters(struct eval_limit *l, char *rest, const char *text)
{
    while (rest) {
        char *next = rest;
        while ((next = strchr(next, ',')) && find_filter(++next) == N_FILTERS)
            ;
        if (next)
            next[-1] = '\0';
        WNW_TRY(read_filter(l, rest, text));
        rest = next;
    }
    return APP_OK;
}

int eval_limit_read(struct eval_limit *l, const char *text)
{
    *l = (struct eval_limit){.text = strdup(text), .removed = NAN, .n_target = NAN};
    if (!l->text)
        return app_fail(APP_FAILED, "out of memory");
    char *sign = strpbrk(l->text, "<>"), *rest = strchr(l->text, '@');
    if (!sign || (rest && rest < sign))
        return app_fail(
            APP_BAD_INPUT,
            "--fail-if '%.200s': write MEASURE<NUMBER or MEASURE>NUMBER, e.g. macro_delta<-5@r=.5", text);
    l->below = *sign == '<';
    *sign = '\0';
    if (rest)
        *rest++ = '\0';
    for (l->measure = 0; l->measure < N_LIMIT_MEASURES; l->measure++)
        if (strcmp(measures[l->measure].name, l->text) == 0)
            break;
    if (l->measure == N_LIMIT_MEASURES)
        return unknown_measure(l->text, text);
    if (!app_parse_real(&l->bound, sign + 1) || !isfinite(l->bound))
        return app_fail(APP_BAD_INPUT, "--fail-if '%.200s': '%.100s' is not a number", text, sign + 1);
    return read_filters(l, rest, text);
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
    bool meant = row->variant != b->baseline && (isnan(l->removed) || fabs(v->removed - l->removed) < 1e-9);
    for (int i = 0; i < EVAL_N_NAMES; i++)
        meant = meant && (!l->name[i] || strcmp(l->name[i], v->name[i]) == 0);
    return meant;
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

/* Calls check (NULL = nothing) for the rows that a limit is about, up to the first that fails; bad input if there is none. */
static int visit(const struct eval_limit *l, const struct eval_tables *tables, int32_t n,
                 int (*check)(const struct eval_limit *, const struct eval_run *, const struct eval_row *))
{
    bool any = false;
    for (int32_t t = 0; t < n; t++)
        for (int32_t b = 0; b < tables[t].n; b++)
            for (int32_t i = 0; i < tables[t].blocks[b].n_rows; i++) {
                const struct eval_row *row = &tables[t].blocks[b].rows[i];
                if (!is_meant(l, tables[t].run, &tables[t].blocks[b], row))
                    continue;
                any = true;
                if (check)
                    WNW_TRY(check(l, tables[t].run, row));
            }
    return any ? APP_OK
               : app_fail(APP_BAD_INPUT,
                          "--fail-if: no result is meant by what stands after '@'; the summary lists "
                          "policies and sizes");
}

int eval_limit_find(const struct eval_limit *l, const struct eval_tables *tables, int32_t n)
{
    return visit(l, tables, n, NULL);
}

int eval_limit_check(const struct eval_limit *l, const struct eval_tables *tables, int32_t n)
{
    return visit(l, tables, n, check_row);
}
