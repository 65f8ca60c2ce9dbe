/* SPDX-License-Identifier: MIT */
/* Sentences that every form of a report has. */
#include "eval/base/info.h"
#include "eval/report/report_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *eval_words_length(char out[32], int32_t n_target)
{
    if (n_target == EVAL_ALL_LENGTHS)
        return strcpy(out, "all lengths");
    if (n_target == 0)
        return strcpy(out, "texts of their own length");
    snprintf(out, 32, "N = %d", n_target);
    return out;
}

static bool has_interval(const struct eval_cell *c)
{
    return c->delta.spread == EVAL_SPREAD_OK && !isnan(c->delta.delta);
}

/* The number of intervals in a block: rows other than the full cache's, once for every task, domain and for the mean. */
static int32_t n_intervals_of(const struct eval_block *b)
{
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_row *row = &b->rows[i];
        n += has_interval(&row->macro);
        for (enum eval_by by = EVAL_BY_TASK; by < EVAL_N_BY; by++)
            for (int32_t k = 0; k < eval_by_n(b, by); k++)
                n += has_interval(eval_by_cell(row, by, k));
    }
    return n;
}

/* What the number of samples can show. Answers that move together, those of one context and the trials of one cell of a grid,
 * are one sample here, because they tell as little as one if they all change alike. */
static void put_power(struct eval_doc *d, const struct eval_tables *t)
{
    size_t most = 0, of = 0;
    int32_t n_intervals = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        if (b->n_target == EVAL_ALL_LENGTHS && b->n_clusters > most) {
            most = b->n_clusters;
            of = b->n_samples;
        }
        n_intervals += eval_block_is_extra(t, b) ? 0 : n_intervals_of(b);
    }
    if (most > 0 && most < of)
        eval_doc_put(
            d,
            "The %zu answers are of %zu contexts or cells of a grid, whose answers move together. "
            "Intervals of differences draw contexts and cells; Wilson's intervals and the sign test (p) "
            "take each answer for itself, so that they are narrower and surer than they should be.\n",
            of, most);
    if (most > 0)
        eval_doc_put(d,
                     "With n = %zu %s a 95 %% interval is about %.0f points to either side where 5 %% "
                     "of the answers "
                     "change, and %.0f where 20 %% do; smaller differences cannot be seen here.\n",
                     most, most < of ? "contexts or cells" : "samples", eval_half_width(0.05, (int64_t)most),
                     eval_half_width(0.2, (int64_t)most));
    if (n_intervals > 20)
        eval_doc_put(d,
                     "These tables have %d intervals; where nothing differs, about %.0f of them exclude 0 by "
                     "chance (5 %%). "
                     "One interval picked out of many proves nothing.\n",
                     n_intervals, 0.05 * n_intervals);
}

/* Names the tasks of a protocol that cannot tell methods apart. */
static void put_uninformative(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b)
{
    bool any = false;
    for (int32_t k = 0; k < b->n_strata; k++) {
        const struct eval_stratum *s = &b->strata[k];
        char length[32];
        if (s->informative || !s->scored)
            continue;
        if (!any)
            eval_doc_put(d, "Uninformative (%s), and left out of the means: ", b->mode);
        eval_doc_put(d, "%s%s at %s (%.1f points on %zu separate samples)", any ? ", " : "",
                     t->run->tasks[s->task], eval_words_length(length, s->n_target), s->probes, s->n_probes);
        any = true;
    }
    if (any)
        eval_doc_put(d, ". The full cache needs %d points there.\n", EVAL_GATE_POINTS);
}

/* Tasks that cannot tell methods apart, and tasks that nobody tested for it. */
static void put_gate(struct eval_doc *d, const struct eval_tables *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        int32_t n_unprobed = 0;
        if (b->n_target != EVAL_ALL_LENGTHS)
            continue;
        for (int32_t k = 0; k < b->n_strata; k++)
            n_unprobed += b->strata[k].scored && b->strata[k].n_probes == 0;
        put_uninformative(d, t, b);
        if (n_unprobed > 0 && !t->no_gate)
            eval_doc_put(
                d, "%d of %d tasks (%s) were not probed on separate samples and count as informative.\n",
                n_unprobed, b->n_strata, b->mode);
        if (b->n_informative == 0)
            eval_doc_put(d, "No task of %s is informative for this model: there are no means.\n", b->mode);
    }
    if (t->no_gate)
        eval_doc_put(d, "Every task counts, whether the full cache can solve it or not (--no-gate).\n");
}

/* What stood in for data of benchmarks. run.json has a sentence for each kind, which ends with the names of tasks in
 * parentheses. */
static void put_stand_ins(struct eval_doc *d, const json_t *info)
{
    const json_t *list = json_object_get(info, "stand_ins");
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text) {
            eval_doc_put(d, "%s%s", any ? "; " : "Stand-ins: ", text);
            any = true;
        }
    }
    if (any)
        eval_doc_put(d, ". The numbers are not the benchmarks' own.\n");
}

/* Names sets of which the median context lost more than half. */
static void put_halved(struct eval_doc *d, const struct eval_run *run)
{
    for (size_t i = 0, end; i < run->n; i = end) {
        const struct eval_result *first = &run->results[i];
        size_t n = 0;
        for (end = i; end < run->n && run->results[end].task == first->task &&
                      run->results[end].n_target == first->n_target;
             end++)
            n += run->results[end].flags & EVAL_R_HALVED ? 1 : 0;
        if (2 * n > end - i)
            eval_doc_put(d,
                         "%s: more than half of most contexts was cut, because they do not fit the model.\n",
                         run->tasks[first->task]);
    }
}

void eval_words_notes(struct eval_doc *d, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    bool off_target = false;
    if (json_is_true(json_object_get(run->info, "closed_book")))
        eval_doc_put(d,
                     "Closed book: the questions were asked without their contexts (--closed-book), so that "
                     "scores are what can be known or guessed.\n");
    put_power(d, t);
    put_gate(d, t);
    put_stand_ins(d, run->info);
    put_halved(d, run);
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->blocks[i].n_rows; k++)
            off_target = off_target || t->blocks[i].rows[k].off_target;
    if (off_target)
        eval_doc_put(
            d, "*: what was removed differs by more than 0.01 from what was asked for; curves use what was "
               "achieved.\n");
    if (run->n_too_long > 0)
        eval_doc_put(d, "%lld samples were left out: they are longer than the model's context.\n",
                     (long long)run->n_too_long);
    if (run->n_unmade > 0)
        eval_doc_put(d, "%lld samples were left out: " EVAL_WHY_UNMADE ".\n", (long long)run->n_unmade);
    if (run->n_bad > 0)
        eval_doc_put(d, "%zu answers have a number that is not finite; questions among them score 0.\n",
                     run->n_bad);
    if (run->n_twice > 0)
        eval_doc_put(d, "%zu answers are there more than once and count once.\n", run->n_twice);
    if (run->n_torn > 0)
        eval_doc_put(d, "%zu file%s with an unfinished last line, which was skipped.\n", run->n_torn,
                     run->n_torn > 1 ? "s end" : " ends");
}
