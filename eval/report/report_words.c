/* SPDX-License-Identifier: MIT */
/* Sentences that every form of a report has. */
#include "eval/report/report_impl.h"

#include "app/json.h"
#include "eval/base/info.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Adds a sentence to a list. */
static void __attribute__((format(printf, 2, 3))) note(json_t **list, const char *fmt, ...)
{
    struct app_text text = {0};
    va_list ap;
    va_start(ap, fmt);
    const bool good = app_text_vput(&text, fmt, ap) && app_text_repair(&text);
    va_end(ap);
    app_json_append(list, good ? json_stringn(text.s, text.len) : NULL);
    free(text.s);
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
        for (int32_t k = 0; k < b->n_groups; k++)
            n += has_interval(&row->group[k]);
        for (int32_t k = 0; k < b->n_strata; k++)
            n += has_interval(&row->cell[k]);
    }
    return n;
}

/* What the number of samples can show. The answers of one context count as one sample here, and so do the trials of one cell of a
 * grid. They may all change together, and then show no more than one answer. */
static void note_power(json_t **list, const struct eval_tables *t)
{
    size_t most = 0, of = 0;
    int32_t n_intervals = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        if (b->n_target == EVAL_ALL_LENGTHS && b->n_clusters > most) {
            most = b->n_clusters;
            of = b->n_samples;
        }
        n_intervals += eval_block_is_extra(b) ? 0 : n_intervals_of(b);
    }
    if (most > 0 && most < of)
        note(list,
             "The %zu answers are of %zu texts or contexts, whose answers move together. "
             "Intervals of differences draw these; Wilson's intervals and the sign test (p) "
             "take each answer for itself, so that they are narrower and surer than they should be.",
             of, most);
    if (most > 0)
        note(list,
             "With n = %zu %s a 95 %% interval is about %.0f points to either side where 5 %% "
             "of the answers "
             "change, and %.0f where 20 %% do; smaller differences cannot be seen here.",
             most, most < of ? "texts or contexts" : "samples", eval_half_width(0.05, (int64_t)most),
             eval_half_width(0.2, (int64_t)most));
    if (n_intervals > 20)
        note(list,
             "These tables have %d intervals; where nothing differs, about %.0f of them exclude 0 by "
             "chance (5 %%). "
             "One interval picked out of many proves nothing.",
             n_intervals, 0.05 * n_intervals);
}

/* How alike answers are that share a text or a context, where some do. */
static void note_alike(json_t **list, const struct eval_tables *t)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; t->blocks[i].n_target == EVAL_ALL_LENGTHS && k < t->blocks[i].n_rows; k++) {
            const double icc = t->blocks[i].rows[k].macro.delta.icc;
            lo = icc < lo ? icc : lo;
            hi = icc > hi ? icc : hi;
        }
    if (lo <= hi)
        note(list,
             "Differences from the full cache that share a text or a context have an intra-class correlation "
             "of %.2f to "
             "%.2f, method by method (0: no more alike than others, 1: the same).",
             lo, hi);
}

/* What the samples are for, and which comparisons were chosen before they were seen. */
static void note_purpose(json_t **list, const json_t *info)
{
    const size_t n = json_array_size(json_object_get(info, "contrasts"));
    const char *split = json_string_value(json_object_get(info, "split"));
    const char *prose = json_string_value(json_object_get(info, "prose"));
    const char *haystack = json_string_value(json_object_get(info, "haystack"));
    if (split && strcmp(split, "dev") == 0)
        note(list, "Samples to choose by (--split dev): what is chosen is to be judged on others (--split "
                   "test), and "
                   "these numbers say too much good of it.");
    if (n > 0)
        note(list, "%zu primary contrast%s listed before the run; every other comparison is exploratory.", n,
             n > 1 ? "s were" : " was");
    else
        note(list, "No contrast was listed before the run (--contrasts): every comparison is exploratory.");
    if (prose && strcmp(prose, "1") == 0 && haystack && strcmp(haystack, "prose") == 0)
        note(list, "All samples of this run share one generated text, as those of older versions did: its "
                   "intervals know "
                   "nothing of other texts.");
}

/* Names the tasks of a protocol that cannot distinguish methods. */
static void note_uninformative(json_t **list, const struct eval_tables *t, const struct eval_block *b)
{
    struct app_text names = {0};
    bool good = true;
    for (int32_t k = 0; k < b->n_strata; k++) {
        const struct eval_stratum *s = &b->strata[k];
        char length[32];
        const bool probed = s->n_probes > 0;
        if (!s->informative && s->scored)
            good = good && app_text_put(&names, "%s%s at %s (%.1f points on %zu %s samples)",
                                        names.len > 0 ? ", " : "", t->run->tasks[s->task],
                                        eval_words_length(length, s->n_target), probed ? s->probes : s->own,
                                        probed ? s->n_probes : s->n_own, probed ? "separate" : "of these");
    }
    if (!good)
        app_json_append(list, NULL);
    else if (names.len > 0)
        note(list,
             "Uninformative (%s), and left out of the means: %s. The full cache needs %d points on separate "
             "samples, or %d on these.",
             b->mode, names.s, EVAL_GATE_POINTS, EVAL_OWN_GATE_POINTS);
    free(names.s);
}

/* Tasks that cannot distinguish methods, and tasks that were not tested for it. */
static void note_gate(json_t **list, const struct eval_tables *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        int32_t n_unprobed = 0;
        if (b->n_target != EVAL_ALL_LENGTHS)
            continue;
        for (int32_t k = 0; k < b->n_strata; k++)
            n_unprobed += b->strata[k].scored && b->strata[k].n_probes == 0;
        note_uninformative(list, t, b);
        if (n_unprobed > 0 && !t->no_gate)
            note(list,
                 "%d of %d tasks (%s) were not probed on separate samples: they count unless the full cache "
                 "has "
                 "fewer than %d points on these.",
                 n_unprobed, b->n_strata, b->mode, EVAL_OWN_GATE_POINTS);
        if (b->n_informative == 0)
            note(list, "No task of %s is informative for this model: there are no means.", b->mode);
    }
    if (t->no_gate)
        note(list, "Every task counts, whether the full cache can solve it or not (--no-gate).");
}

/* What stood in for data of benchmarks. run.json has a sentence for each kind, which ends with the names of tasks in
 * parentheses. */
static void note_stand_ins(json_t **list, const json_t *info)
{
    const json_t *kinds = json_object_get(info, "stand_ins");
    struct app_text all = {0};
    bool good = true;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const char *text = json_string_value(json_array_get(kinds, i));
        good = good && (!text || app_text_put(&all, "%s%s", all.len > 0 ? "; " : "", text));
    }
    if (!good)
        app_json_append(list, NULL);
    else if (all.len > 0)
        note(list, "Stand-ins: %s. The numbers are not the benchmarks' own.", all.s);
    free(all.s);
}

/* Names sets whose median context lost more than half. */
static void note_halved(json_t **list, const struct eval_run *run)
{
    struct app_text names = {0};
    bool good = true;
    for (size_t i = 0, end; i < run->n; i = end) {
        const struct eval_result *first = &run->results[i];
        size_t n = 0;
        for (end = i; end < run->n && run->results[end].task == first->task &&
                      run->results[end].n_target == first->n_target;
             end++)
            n += run->results[end].flags & EVAL_R_HALVED ? 1 : 0;
        if (2 * n > end - i)
            good = good && app_text_put(&names, "%s%s", names.len > 0 ? ", " : "", run->tasks[first->task]);
    }
    if (!good)
        app_json_append(list, NULL);
    else if (names.len > 0)
        note(list,
             "More than half of most contexts was cut to the longest prompt, which is --lb-max-prompt or the "
             "model's context: %s.",
             names.s);
    free(names.s);
}

/* Methods that could not have their size. */
static void note_left_out(json_t **list, const struct eval_run *run)
{
    for (int32_t i = 0; i < run->n_variants; i++) {
        const struct eval_variant *v = &run->variants[i];
        if (v->n_left_out > 0)
            note(list, "%s with %s in mode %s is left out of %lld sample%s: %s.", v->policy, v->size, v->mode,
                 (long long)v->n_left_out, v->n_left_out > 1 ? "s" : "", v->why);
    }
}

/* The meaning of the study's names. */
static void note_remarks(json_t **list, const json_t *info)
{
    const json_t *remarks = json_object_get(info, "remarks");
    for (size_t i = 0; i < json_array_size(remarks); i++) {
        const char *text = json_string_value(json_array_get(remarks, i));
        if (text)
            note(list, "%s", text);
    }
}

json_t *eval_notes_json(const struct eval_tables *t)
{
    json_t *notes = json_array(), **list = &notes;
    const struct eval_run *run = t->run;
    bool off_target = false;
    if (json_is_true(json_object_get(run->info, "closed_book")))
        note(list, "Closed book: the questions were asked without their contexts (--closed-book), so that "
                   "scores are what can be known or guessed.");
    note_remarks(list, run->info);
    note_power(list, t);
    note_alike(list, t);
    note_purpose(list, run->info);
    note_gate(list, t);
    note_stand_ins(list, run->info);
    note_halved(list, run);
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->blocks[i].n_rows; k++)
            off_target = off_target || t->blocks[i].rows[k].off_target;
    if (off_target)
        note(list,
             "*: what was removed differs by more than 0.01 from what was asked for; curves use what was "
             "achieved.");
    if (run->n_too_long > 0)
        note(list, "%lld samples were left out: they are longer than the model's context.",
             (long long)run->n_too_long);
    if (run->n_unmade > 0)
        note(list, "%lld samples were left out: " EVAL_WHY_UNMADE ".", (long long)run->n_unmade);
    note_left_out(list, run);
    if (run->n_bad > 0)
        note(list, "%zu answers have a number that is not finite; questions among them score 0.", run->n_bad);
    if (run->n_twice > 0)
        note(list, "%zu answers are there more than once and count once.", run->n_twice);
    if (run->n_torn > 0)
        note(list, "%zu file%s with an unfinished last line, which was skipped.", run->n_torn,
             run->n_torn > 1 ? "s end" : " ends");
    return notes;
}
