/* SPDX-License-Identifier: MIT */
/* What tasks show that have no scores, or none that tell methods apart: how the predictions of the full cache's answer, or of a
 * text, change. As text and as JSON. */
#include "eval/report/report_impl.h"

#include "app/json.h"

#include <math.h>
#include <string.h>

/* A number with its interval. */
struct estimate {
    double mean;
    struct eval_interval over; /* NaN where there is none */
};

/* A measure of a variant, or what it is more than that of `other`. */
static struct estimate estimate_of(struct eval_doc *d, const struct eval_run *run,
                                   const struct eval_stratum *s, int32_t variant, int32_t other,
                                   enum eval_measure m)
{
    struct eval_gather g;
    struct eval_paired p = {.delta = NAN, .over = {NAN, NAN}};
    if (!eval_gather(&g, &(struct eval_compared){run, s, 1, false, variant, other, m}) ||
        (g.n > 0 &&
         !eval_gather_interval(&p, &g, run, run->tasks[s->task], s->n_target, run->variants[variant].id)))
        d->no_memory = true;
    eval_gather_clear(&g);
    return (struct estimate){p.delta, p.over};
}

/* From nats per token to perplexity, and from their difference to its ratio. */
static struct estimate perplexity(struct estimate nll)
{
    return (struct estimate){exp(nll.mean), {exp(nll.over.lo), exp(nll.over.hi)}};
}

enum { MAX_ESTIMATE = 3 * EVAL_MAX_NUMBER + 8 };

/* "12.41 [11.90, 12.98]" */
static const char *format(char out[MAX_ESTIMATE], struct estimate e, int decimals)
{
    char mean[EVAL_MAX_NUMBER], lo[EVAL_MAX_NUMBER], hi[EVAL_MAX_NUMBER];
    if (isnan(e.over.lo))
        snprintf(out, MAX_ESTIMATE, "%s", eval_format(mean, e.mean, decimals));
    else
        snprintf(out, MAX_ESTIMATE, "%s [%s, %s]", eval_format(mean, e.mean, decimals),
                 eval_format(lo, e.over.lo, decimals), eval_format(hi, e.over.hi, decimals));
    return out;
}

/* A table: a task at a length whose scores say nothing. */
static bool is_wanted(const struct eval_block *b, const struct eval_stratum *s)
{
    return b->n_target != EVAL_ALL_LENGTHS && !s->informative;
}

/* A row of the table; texts have no question and no answer. */
struct predictions {
    struct estimate kl, ppl;
    struct estimate more; /* ppl over that of the full cache */
    double agree, dnll;
};

static struct predictions predictions_of(struct eval_doc *d, const struct eval_tables *t,
                                         const struct eval_block *b, int32_t row, int32_t k)
{
    static const struct estimate none = {NAN, {NAN, NAN}};
    const struct eval_stratum *s = &b->strata[k];
    const struct eval_cell *c = &b->rows[row].cell[k];
    const int32_t variant = b->rows[row].variant;
    struct predictions p = {.kl = {c->m[EVAL_M_KL], {NAN, NAN}},
                            .ppl = none,
                            .more = none,
                            .agree = 100.0 * c->m[EVAL_M_AGREE],
                            .dnll = c->m[EVAL_M_DNLL]};
    if (s->scored)
        return p;
    p.kl = estimate_of(d, t->run, s, variant, -1, EVAL_M_KL);
    p.ppl = perplexity(estimate_of(d, t->run, s, variant, -1, EVAL_M_NLL));
    if (b->baseline >= 0 && variant != b->baseline)
        p.more = perplexity(estimate_of(d, t->run, s, variant, b->baseline, EVAL_M_NLL));
    return p;
}

void eval_text_predictions(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                           int width)
{
    for (int32_t k = 0; k < b->n_strata; k++) {
        const struct eval_stratum *s = &b->strata[k];
        if (!is_wanted(b, s))
            continue;
        eval_doc_put(d, "\n%-*s %5s  %-26s", width + 1, t->run->tasks[s->task], "n", "KL to the full cache");
        if (s->scored)
            eval_doc_put(d, " %7s %7s %-14s %8s\n", "agree %", "first %", "95 %", "dnll");
        else
            eval_doc_put(d, " %-32s over the full cache's\n", "perplexity");
        for (int32_t i = 0; i < b->n_rows; i++) {
            const struct predictions p = predictions_of(d, t, b, i, k);
            char agree[EVAL_MAX_NUMBER], first[EVAL_MAX_NUMBER], dnll[EVAL_MAX_NUMBER];
            char share[EVAL_MAX_INTERVAL], kl[MAX_ESTIMATE], ppl[MAX_ESTIMATE], more[MAX_ESTIMATE];
            const struct eval_interval of_first = {100.0 * b->rows[i].cell[k].first.lo,
                                                   100.0 * b->rows[i].cell[k].first.hi};
            eval_text_label(d, t->run, &t->run->variants[b->rows[i].variant], true, width + 1);
            eval_doc_put(d, " %5zu  %-26s", b->rows[i].cell[k].n, format(kl, p.kl, 4));
            if (s->scored)
                eval_doc_put(d, " %7s %7s %-14s %8s\n", eval_format(agree, p.agree, 1),
                             eval_format(first, 100.0 * b->rows[i].cell[k].m[EVAL_M_FGT], 1),
                             eval_words_share(share, of_first, 1), eval_format_signed(dnll, p.dnll, 3));
            else if (isnan(p.more.mean))
                eval_doc_put(d, " %s\n", format(ppl, p.ppl, 2));
            else
                eval_doc_put(d, " %-32s %s\n", format(ppl, p.ppl, 2), format(more, p.more, 3));
        }
    }
}

/* ---- JSON ---- */

static void set_estimate(json_t **o, const char *key, struct estimate e)
{
    const double of[] = {e.mean, e.over.lo, e.over.hi};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        app_json_append(&list, app_json_number(of[i]));
    app_json_set(o, key, list);
}

static json_t *row_json(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                        int32_t row, int32_t k)
{
    const struct predictions p = predictions_of(d, t, b, row, k);
    json_t *o = json_object();
    app_json_set(&o, "config", app_json_text(t->run->variants[b->rows[row].variant].id));
    app_json_set(&o, "n", json_integer((json_int_t)b->rows[row].cell[k].n));
    set_estimate(&o, "kl", p.kl);
    if (!b->strata[k].scored) {
        set_estimate(&o, "perplexity", p.ppl);
        set_estimate(&o, "over_full", p.more);
    }
    return o;
}

json_t *eval_predictions_json(const struct eval_tables *t, const struct eval_block *b)
{
    struct eval_doc d = {0};
    json_t *list = json_array();
    for (int32_t k = 0; k < b->n_strata; k++) {
        if (!is_wanted(b, &b->strata[k]))
            continue;
        json_t *rows = json_array();
        for (int32_t i = 0; i < b->n_rows; i++)
            app_json_append(&rows, row_json(&d, t, b, i, k));
        app_json_append(&list,
                        json_pack("{s:o,s:b,s:o}", "task", app_json_text(t->run->tasks[b->strata[k].task]),
                                  "scored", (int)b->strata[k].scored, "rows", rows));
    }
    if (d.no_memory)
        app_json_append(&list, NULL);
    return list;
}
