/* SPDX-License-Identifier: MIT */
/* Scores over what was removed, and over the bytes that were kept. */
#include "eval/report_html.h"

#include <math.h>
#include <stdlib.h>

/* ---- Score over the share removed ---- */

/* Adds the series of a curve: the mean over tasks (stratum -1), or one task. Whiskers are the interval of the
 * difference around the full cache's level. */
static void put_curve(struct eval_chart *chart, const struct eval_tables *t, const struct eval_block *b,
                      const struct eval_curve *c, int32_t stratum)
{
    struct app_text label = {0};
    if (!eval_variant_label(&label, t->run, &t->run->variants[b->rows[c->first].variant], false)) {
        chart->data.no_memory = true;
        free(label.s);
        return;
    }
    eval_chart_series(chart, EVAL_LINE, label.s);
    for (int32_t i = 0; i < c->n; i++) {
        const struct eval_row *row = &b->rows[c->row[i] >= 0 ? c->row[i] : c->first];
        const struct eval_cell *cell = stratum < 0 ? &row->macro : &row->cell[stratum];
        if (c->row[i] < 0) { /* the full cache */
            eval_chart_point(chart, 0.0, cell->full, NAN, NAN);
            continue;
        }
        const bool interval = cell->delta.spread == EVAL_SPREAD_OK;
        eval_chart_point(chart, c->r[i], cell->mean, interval ? cell->full + cell->delta.over.lo : NAN,
                         interval ? cell->full + cell->delta.over.hi : NAN);
    }
    free(label.s);
}

/* The level of the full cache as a dashed line. */
static void put_full(struct eval_chart *chart, const struct eval_block *b, int32_t stratum, double from,
                     double to)
{
    for (int32_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].variant != b->baseline)
            continue;
        const struct eval_cell *c = stratum < 0 ? &b->rows[i].macro : &b->rows[i].cell[stratum];
        eval_chart_series(chart, EVAL_DASHED, "full cache");
        eval_chart_point(chart, from, c->mean, NAN, NAN);
        eval_chart_point(chart, to, c->mean, NAN, NAN);
    }
}

static void put_chart(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                      const struct eval_block *b, const struct eval_curve *curves, int32_t n, int32_t stratum)
{
    struct eval_chart chart;
    char caption[256], length[32] = "";
    double to = 0.0;
    eval_chart_begin(&chart, "share of entries removed", "score", "set yrange [0:100]\nset xrange [0:]");
    for (int32_t i = 0; i < n; i++) {
        if (curves[i].n < 2)
            continue;
        put_curve(&chart, t, b, &curves[i], stratum);
        to = curves[i].r[curves[i].n - 1] > to ? curves[i].r[curves[i].n - 1] : to;
    }
    put_full(&chart, b, stratum, 0.0, to > 0 ? to : NAN);
    if (stratum >= 0)
        eval_words_length(length, b->strata[stratum].n_target);
    snprintf(caption, sizeof caption, "%.100s%s%s%s%.30s",
             stratum < 0 ? "Mean over informative tasks" : t->run->tasks[b->strata[stratum].task],
             stratum < 0 ? "" : ", ", length, ": score over share removed, ", b->mode);
    if (to > 0)
        eval_chart_end(d, charts, &chart, caption);
    else
        eval_chart_drop(&chart);
}

/* ---- Areas and tolerances ---- */

static void put_areas(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                      const struct eval_curve *curves, int32_t n)
{
    const struct eval_curve *first = NULL;
    bool mixed = false;
    for (int32_t i = 0; i < n; i++) {
        if (!curves[i].has_auc)
            continue;
        first = first ? first : &curves[i];
        mixed = mixed || !eval_curves_share_grid(first, &curves[i]);
    }
    if (!first)
        return;
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(
        d,
        ": area under the score over the share removed, divided by the range (AUC), as per cent of the full "
        "cache, and with a point (1, 0) added (AUC0); and the share that can go before the mean relative "
        "loss "
        "reaches 1, 5, 10 and 20 %%, between points along straight lines.%s</p><div "
        "class=\"scroll\"><table><thead><tr>"
        "<th class=\"left\">Method</th><th>AUC</th><th>AUC %%</th><th>AUC0</th><th>1 %%</th><th>5 %%</th>"
        "<th>10 %%</th><th>20 %%</th><th>Points</th></tr></thead><tbody>\n",
        mixed ? " The methods were measured at different shares; compare areas of equal grids only." : "");
    for (int32_t i = 0; i < n; i++) {
        const struct eval_curve *c = &curves[i];
        if (!c->has_auc)
            continue;
        eval_doc_put(d, "<tr><th class=\"left\">");
        eval_html_label(d, t->run, &t->run->variants[b->rows[c->first].variant], false);
        eval_doc_put(d, "</th>");
        eval_html_number(d, c->auc, 2);
        eval_html_number(d, c->auc_rel, 2);
        eval_html_number(d, c->auc_one, 2);
        for (int k = 0; k < EVAL_N_LOSSES; k++) {
            if (isinf(c->tolerance[k]))
                eval_doc_put(d, "<td>≥ %.3f</td>", c->r[c->n - 1]);
            else
                eval_html_number(d, c->tolerance[k], 3);
        }
        eval_doc_put(d, "<td>%d, r ≤ %.3g</td></tr>\n", c->n, c->r[c->n - 1]);
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

/* ---- Equal bytes ---- */

struct kept {
    const struct eval_row *row;
    double bytes;
};

static int compare(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->row->variant > y->row->variant) - (x->row->variant < y->row->variant);
}

/* Rows with bytes and a score, ascending in bytes. The caller frees the list; NULL if memory runs out. */
static struct kept *sort_by_bytes(int32_t *n, const struct eval_block *b)
{
    struct kept *list = malloc(((size_t)b->n_rows + 1) * sizeof *list);
    *n = 0;
    for (int32_t i = 0; list && i < b->n_rows; i++) {
        const double bytes = b->rows[i].macro.m[EVAL_M_BYTES];
        if (bytes > 0 && !isnan(b->rows[i].macro.mean))
            list[(*n)++] = (struct kept){&b->rows[i], bytes};
    }
    if (list && *n > 1)
        qsort(list, (size_t)*n, sizeof *list, compare);
    return list;
}

static void put_bytes_table(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                            const struct kept *list, int32_t n)
{
    double best = -1.0;
    char number[EVAL_MAX_NUMBER], interval[EVAL_MAX_INTERVAL];
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(
        d, ": eviction and quantisation on one scale, by bytes of kept keys and values, the scales of "
           "quantised ones "
           "included; the positions of entries come on top. Bold: no smaller cache has this mean or more; "
           "intervals "
           "may still overlap.</p><div class=\"scroll\"><table><thead><tr><th "
           "class=\"left\">Method</th>"
           "<th>KV MiB</th><th title=\"positions of entries\">Positions MiB</th><th>Score</th><th>Δ</th><th "
           "class=\"left\">95 %% "
           "interval</th></tr></thead><tbody>\n");
    for (int32_t i = 0; i < n; i++) {
        const struct eval_cell *c = &list[i].row->macro;
        const struct eval_variant *v = &t->run->variants[list[i].row->variant];
        const bool ahead = c->mean > best;
        best = ahead ? c->mean : best;
        eval_doc_put(d, "<tr><th class=\"left\">%s", ahead ? "<b>" : "");
        eval_html_label(d, t->run, v, true);
        eval_doc_put(d, "%s</th>", ahead ? "</b>" : "");
        eval_html_number(d, list[i].bytes / 1048576.0, 2);
        eval_html_number(d, c->m[EVAL_M_META] / 1048576.0, 2);
        eval_html_number(d, c->mean, 1);
        eval_doc_put(d, "<td>");
        eval_html_text(d, eval_format_signed(number, c->delta.delta, 1));
        eval_doc_put(d, "</td><td class=\"left\">");
        eval_doc_xml(d, eval_words_interval(interval, &c->delta));
        eval_doc_put(d, "</td></tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

/* Points of the full cache in every type, then each policy's points from small to large. */
static void put_bytes_chart(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                            const struct eval_block *b, const struct eval_curve *curves, int32_t n)
{
    struct eval_chart chart;
    char caption[128];
    eval_chart_begin(&chart, "MiB of kept keys and values (logarithmic)", "score",
                     "set yrange [0:100]\nset logscale x 2");
    for (int32_t i = 0; i < n; i++) {
        struct app_text label = {0};
        if (!eval_variant_label(&label, t->run, &t->run->variants[b->rows[curves[i].first].variant], false))
            d->no_memory = true;
        else
            eval_chart_series(&chart, EVAL_LINE, label.s);
        for (int32_t k = 0; k < curves[i].n; k++)
            if (curves[i].row[k] >= 0)
                eval_chart_point(&chart, b->rows[curves[i].row[k]].macro.m[EVAL_M_BYTES] / 1048576.0,
                                 b->rows[curves[i].row[k]].macro.mean, NAN, NAN);
        free(label.s);
    }
    eval_chart_series(&chart, EVAL_POINTS, "full cache, each type");
    for (int32_t i = 0; i < b->n_rows; i++)
        if (t->run->variants[b->rows[i].variant].full)
            eval_chart_point(&chart, b->rows[i].macro.m[EVAL_M_BYTES] / 1048576.0, b->rows[i].macro.mean, NAN,
                             NAN);
    snprintf(caption, sizeof caption, "Equal bytes: score over the size of the cache, %.30s", b->mode);
    eval_chart_end(d, charts, &chart, caption);
}

/* The charts of a protocol beside each other, then their tables. */
static void put_protocol(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                         const struct eval_block *b, const struct eval_curve *curves, int32_t n_curves)
{
    int32_t n;
    struct kept *list = sort_by_bytes(&n, b);
    d->no_memory = d->no_memory || !list;
    eval_doc_put(d, "<div class=\"charts\">");
    put_chart(d, charts, t, b, curves, n_curves, -1);
    if (n >= 2)
        put_bytes_chart(d, charts, t, b, curves, n_curves);
    eval_doc_put(d, "</div>\n");
    put_areas(d, t, b, curves, n_curves);
    if (n >= 2)
        put_bytes_table(d, t, b, list, n);
    free(list);
}

/* A chart for each informative task, which a click shows. */
static void put_task_charts(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                            const struct eval_block *b, const struct eval_curve *curves, int32_t n_curves)
{
    bool all = true;
    eval_doc_put(d, "<details><summary>Each task over the share removed, ");
    eval_doc_xml(d, b->mode);
    eval_doc_put(d, "</summary><div class=\"charts\">");
    for (int32_t k = 0; k < b->n_strata; k++) {
        const bool room = d->text.len < EVAL_HTML_MOST_CHARTS;
        if (b->strata[k].informative && room)
            put_chart(d, charts, t, b, curves, n_curves, k);
        all = all && room;
    }
    eval_doc_put(d, "</div>%s</details>\n",
                 all ? ""
                     : "<p>More charts would make the page too large; the tables have the same numbers.</p>");
}

void eval_html_curves(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t)
{
    eval_doc_put(d, "<h3>Size against score</h3>\n");
    for (int32_t i = 0; i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        struct eval_curve *curves = NULL;
        int32_t n = 0;
        if (b->n_target != EVAL_ALL_LENGTHS)
            continue;
        if (!eval_curves_make(&curves, &n, t, b))
            d->no_memory = true;
        put_protocol(d, charts, t, b, curves, n);
        if (n > 0)
            put_task_charts(d, charts, t, b, curves, n);
        free(curves);
    }
}
