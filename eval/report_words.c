/* SPDX-License-Identifier: MIT */
/* Sentences that every form of a report has. */
#include "eval/report_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const eval_words_measures[EVAL_N_MEASURES] = {
    [EVAL_M_SCORE] = "score",
    [EVAL_M_PARTIAL] = "partial",
    [EVAL_M_WORDSET] = "wordset_recall",
    [EVAL_M_ROUGE1] = "rouge1_recall",
    [EVAL_M_ROUGE_PKG] = "rouge_pkg_1_r",
    [EVAL_M_FGT] = "fgt",
    [EVAL_M_AGREE] = "agree",
    [EVAL_M_KL] = "kl",
    [EVAL_M_DNLL] = "dnll",
    [EVAL_M_NLL] = "nll",
    [EVAL_M_RATIO] = "removed",
    [EVAL_M_BYTES] = "kv_bytes",
    [EVAL_M_META] = "meta_bytes",
    [EVAL_M_PEAK] = "peak_bytes",
    [EVAL_M_CONTEXT] = "ctx_tokens",
    [EVAL_M_GENERATED] = "gen_tokens",
    [EVAL_M_DEPTH] = "depth",
    [EVAL_M_PREFILL] = "prefill_ms",
    [EVAL_M_COMPRESS] = "compress_ms",
    [EVAL_M_QUESTION] = "question_ms",
    [EVAL_M_DECODE] = "decode_ms",
};

const char *eval_words_length(char out[32], int32_t n_target)
{
    if (n_target == EVAL_ALL_LENGTHS)
        return strcpy(out, "all lengths");
    if (n_target == 0)
        return strcpy(out, "texts of their own length");
    snprintf(out, 32, "N = %d", n_target);
    return out;
}

const char *eval_words_interval(char out[EVAL_MAX_INTERVAL], const struct eval_paired *p)
{
    char lo[EVAL_MAX_NUMBER], hi[EVAL_MAX_NUMBER];
    if (isnan(p->delta))
        return strcpy(out, "");
    if (p->spread == EVAL_SPREAD_FEW)
        return strcpy(out, "n<6");
    snprintf(out, EVAL_MAX_INTERVAL, "[%.20s, %.20s]%s", eval_format_signed(lo, p->over.lo, 1),
             eval_format_signed(hi, p->over.hi, 1), p->spread == EVAL_SPREAD_NONE ? " (no variation)" : "");
    return out;
}

double eval_words_decode_rate(const struct eval_cell *c)
{
    return c->m[EVAL_M_DECODE] > 0 ? 1000.0 * c->m[EVAL_M_GENERATED] / c->m[EVAL_M_DECODE] : NAN;
}

static bool has_interval(const struct eval_cell *c)
{
    return c->delta.spread == EVAL_SPREAD_OK && !isnan(c->delta.delta);
}

int32_t eval_words_n_intervals(const struct eval_block *b)
{
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_row *row = &b->rows[i];
        n += has_interval(&row->macro);
        for (int32_t k = 0; k < b->n_strata; k++)
            n += has_interval(&row->cell[k]);
        for (int32_t k = 0; k < b->n_domains; k++)
            n += has_interval(&row->domain[k]);
    }
    return n;
}

/* What the number of samples can show. */
static void put_power(struct eval_doc *d, const struct eval_tables *t)
{
    size_t most = 0;
    int32_t n_intervals = 0;
    for (int32_t i = 0; i < t->n; i++) {
        if (t->blocks[i].n_target == EVAL_ALL_LENGTHS && t->blocks[i].n_samples > most)
            most = t->blocks[i].n_samples;
        n_intervals += eval_block_is_extra(t, &t->blocks[i]) ? 0 : eval_words_n_intervals(&t->blocks[i]);
    }
    if (most > 0)
        eval_doc_put(d,
                     "With n = %zu samples a 95 %% interval is about %.0f points to either side where 5 %% "
                     "of the answers "
                     "change, and %.0f where 20 %% do; smaller differences cannot be seen here.\n",
                     most, eval_half_width(0.05, (int64_t)most), eval_half_width(0.2, (int64_t)most));
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

/* Names what stands in for data of benchmarks. */
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

void eval_words_notes(struct eval_doc *d, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    bool off_target = false;
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
    if (run->n_bad > 0)
        eval_doc_put(d, "%zu answers have a number that is not finite; they score 0.\n", run->n_bad);
    if (run->n_twice > 0)
        eval_doc_put(d, "%zu answers are there more than once and count once.\n", run->n_twice);
    if (run->n_torn > 0)
        eval_doc_put(d, "%zu file%s with an unfinished last line, which was skipped.\n", run->n_torn,
                     run->n_torn > 1 ? "s end" : " ends");
}
