/* SPDX-License-Identifier: MIT */
/* What tasks show that have no scores, or none that tell methods apart: how the predictions of the full cache's answer, or of a
 * text, change. In text and in HTML. */
#include "eval/report_html.h"
#include "eval/report_text.h"

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
    if (!eval_gather_measure(&g, run, s, variant, other, m) ||
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
    char kl[MAX_ESTIMATE], ppl[MAX_ESTIMATE];
    char more[MAX_ESTIMATE]; /* ppl over that of the full cache */
    double agree, first, dnll;
};

static struct predictions predictions_of(struct eval_doc *d, const struct eval_tables *t,
                                         const struct eval_block *b, int32_t row, int32_t k)
{
    const struct eval_stratum *s = &b->strata[k];
    const struct eval_cell *c = &b->rows[row].cell[k];
    const int32_t variant = b->rows[row].variant;
    struct predictions p = {
        .agree = 100.0 * c->m[EVAL_M_AGREE], .first = 100.0 * c->m[EVAL_M_FGT], .dnll = c->m[EVAL_M_DNLL]};
    if (s->scored) {
        eval_format(p.kl, c->m[EVAL_M_KL], 4);
        return p;
    }
    format(p.kl, estimate_of(d, t->run, s, variant, -1, EVAL_M_KL), 4);
    format(p.ppl, perplexity(estimate_of(d, t->run, s, variant, -1, EVAL_M_NLL)), 2);
    if (b->baseline >= 0 && variant != b->baseline)
        format(p.more, perplexity(estimate_of(d, t->run, s, variant, b->baseline, EVAL_M_NLL)), 3);
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
            char share[EVAL_MAX_INTERVAL];
            const struct eval_interval of_first = {100.0 * b->rows[i].cell[k].first.lo,
                                                   100.0 * b->rows[i].cell[k].first.hi};
            eval_text_label(d, t->run, &t->run->variants[b->rows[i].variant], true, width + 1);
            eval_doc_put(d, " %5zu  %-26s", b->rows[i].cell[k].n, p.kl);
            if (s->scored)
                eval_doc_put(d, " %7s %7s %-14s %8s\n", eval_format(agree, p.agree, 1),
                             eval_format(first, p.first, 1), eval_words_share(share, of_first, 1),
                             eval_format_signed(dnll, p.dnll, 3));
            else
                eval_doc_put(d, *p.more ? " %-32s %s\n" : " %s\n", p.ppl, p.more);
        }
    }
}

static void put_cell(struct eval_doc *d, const char *text)
{
    eval_doc_put(d, "<td>");
    eval_html_text(d, text);
    eval_doc_put(d, "</td>");
}

static void put_table(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int32_t k)
{
    const struct eval_stratum *s = &b->strata[k];
    char length[32];
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(d, ", %s: ", eval_words_length(length, s->n_target));
    eval_doc_xml(d, t->run->tasks[s->task]);
    eval_doc_put(d, "</p><div class=\"scroll\"><table><thead><tr><th class=\"left\">Method</th>"
                    "<th title=\"samples\">n</th>"
                    "<th title=\"divergence of predictions from the full cache's, nats\">KL</th>");
    eval_doc_put(d, "%s",
                 s->scored
                     ? "<th title=\"share of the full cache's answer that is predicted alike\">Agree %</th>"
                       "<th title=\"first generated token as with the full cache\">First token %</th>"
                       "<th title=\"nats per token that the right answer loses\">Answer's loss</th>"
                     : "<th title=\"of the second half, with its 95 % interval\">Perplexity</th><th "
                       "title=\"on the same pieces\">Over the full cache's</th>");
    eval_doc_put(d, "</tr></thead><tbody>\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct predictions p = predictions_of(d, t, b, i, k);
        eval_doc_put(d, "<tr%s><th class=\"left\">",
                     b->rows[i].variant == b->baseline ? " class=\"full\"" : "");
        eval_html_label(d, t->run, &t->run->variants[b->rows[i].variant], true);
        eval_doc_put(d, "</th><td>%zu</td>", b->rows[i].cell[k].n);
        put_cell(d, p.kl);
        if (s->scored) {
            eval_html_number(d, p.agree, 1);
            eval_html_first(d, &b->rows[i].cell[k]);
            eval_html_number(d, p.dnll, 3);
        } else {
            put_cell(d, p.ppl);
            put_cell(d, p.more);
        }
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

void eval_html_predictions(struct eval_doc *d, const struct eval_tables *t)
{
    bool any = false;
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->blocks[i].n_strata; k++) {
            if (!is_wanted(&t->blocks[i], &t->blocks[i].strata[k]))
                continue;
            if (!any)
                eval_doc_put(d, "<h3>Predictions</h3>\n<p>Tasks whose scores do not tell methods apart, and "
                                "texts, which have none.</p>\n");
            any = true;
            put_table(d, t, &t->blocks[i], k);
        }
}
