/* SPDX-License-Identifier: MIT */
/* The page of the perturbation study: the summary, a map of layers and heads, and curves over depth and size. */
#include "eval/perturb_forms.h"
#include "eval/report_html.h"

#include <math.h>

/* ---- The map ---- */

/* One cell: by how much the head's mean change is larger (red) or smaller (green) than the base's. */
static void put_cell(struct eval_doc *d, const struct eval_perturb *p, int32_t size, int32_t policy,
                     int32_t unit)
{
    const double base = eval_perturb_mean(p, EVAL_HEADS, size, 0, unit);
    const double other = eval_perturb_mean(p, EVAL_HEADS, size, policy, unit);
    char colour[8];
    if (!eval_perturb_counts(p, EVAL_HEADS, unit) || !(base > 0)) {
        eval_doc_put(d, "<td></td>");
        return;
    }
    eval_html_colour(colour, 50 - 100 * (other / base - 1)); /* -50 % is all green, +50 % all red */
    eval_doc_put(d, "<td style=\"background:%s\" title=\"%.4g, base %.4g\">%+.0f</td>", colour, other, base,
                 100 * (other / base - 1));
}

static void put_map(struct eval_doc *d, const struct eval_perturb_study *s, int32_t size, int32_t policy)
{
    const struct eval_perturb *p = s->numbers;
    eval_doc_put(d, "<h3>By layer and query head, ");
    eval_doc_xml(d, s->sizes[size]);
    eval_doc_put(
        d,
        "</h3><p class=\"soft\">Mean change of a head's output, in per cent of the base's less 100: green is "
        "less than the base, red is more. Rows: layers; columns: query heads.</p>"
        "<div class=\"scroll\"><table class=\"heat\"><caption>");
    eval_doc_xml(d, s->policies[policy]);
    eval_doc_put(d, "</caption><thead><tr><th class=\"left\">layer</th>");
    for (int32_t h = 0; h < p->n_head; h++)
        eval_doc_put(d, "<th>%d</th>", (int)h);
    eval_doc_put(d, "</tr></thead><tbody>");
    for (int32_t il = 0; il < p->n_layer; il++) {
        eval_doc_put(d, "<tr><th class=\"left\">%d</th>", (int)il);
        for (int32_t h = 0; h < p->n_head; h++)
            put_cell(d, p, size, policy, il * p->n_head + h);
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

/* ---- Curves ---- */

/* A level's means by layer. */
static void put_depth(struct eval_doc *d, struct eval_charts *charts, const struct eval_perturb_study *s,
                      enum eval_level level, int32_t size, const char *caption)
{
    const struct eval_perturb *p = s->numbers;
    struct eval_chart c;
    eval_chart_begin(&c, "layer", "mean change", "");
    for (int32_t k = 0; k < p->n_policies; k++) {
        eval_chart_series(&c, EVAL_LINE, s->policies[k]);
        for (int32_t il = 0; il < p->n_layer; il++)
            if (eval_perturb_counts(p, level, il))
                eval_chart_point(&c, il, eval_perturb_mean(p, level, size, k, il), NAN, NAN);
    }
    eval_chart_end(d, charts, &c, caption);
}

/* The mean over heads by share that stays, in the order of that share. */
static void put_budgets(struct eval_doc *d, struct eval_charts *charts, const struct eval_perturb_study *s)
{
    const struct eval_perturb *p = s->numbers;
    struct eval_chart c;
    eval_chart_begin(&c, "entries that stay, per cent", "mean change of a head", "");
    for (int32_t k = 0; k < p->n_policies && p->n_texts > 0; k++) {
        double last = -1;
        eval_chart_series(&c, EVAL_LINE, s->policies[k]);
        for (int32_t n = 0; n < p->n_sizes; n++) {
            int32_t next = -1;
            for (int32_t i = 0; i < p->n_sizes; i++) {
                const double at = p->kept[i * p->n_policies + k];
                if (at > last && (next < 0 || at < p->kept[next * p->n_policies + k]))
                    next = i;
            }
            struct eval_beside b;
            if (next < 0)
                break;
            if (!eval_perturb_beside(&b, p, EVAL_HEADS, next, k, s->seed))
                d->no_memory = true;
            last = p->kept[next * p->n_policies + k];
            eval_chart_point(&c, 100 * last / p->n_texts, b.other, NAN, NAN);
        }
    }
    eval_chart_end(d, charts, &c, "Mean change of a query head's output over what stays");
}

void eval_perturb_html(struct eval_doc *d, const struct eval_perturb_study *s)
{
    struct eval_charts charts = {0};
    struct eval_doc text = {0};
    eval_doc_put(
        d,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta "
        "charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
        "<title>Perturbation study</title><style>\n%s</style></head><body>\n<h1>How far evicting entries "
        "moves "
        "what a model computes</h1>\n<pre class=\"scroll\">",
        eval_html_style);
    eval_perturb_text(&text, s);
    d->no_memory = d->no_memory || text.no_memory;
    if (!text.no_memory)
        eval_doc_xml_n(d, text.text.s, text.text.len);
    eval_doc_clear(&text);
    eval_doc_put(d, "</pre>\n<div class=\"charts\">\n");
    put_budgets(d, &charts, s);
    put_depth(d, &charts, s, EVAL_LAYERS, 0, "Change of the attention block's output by layer, first size");
    put_depth(d, &charts, s, EVAL_STATES, 0, "Change of the hidden state behind each layer, first size");
    eval_doc_put(d, "</div>\n");
    for (int32_t k = 1; k < s->numbers->n_policies; k++)
        put_map(d, s, 0, k);
    if (charts.missing || charts.failed)
        eval_doc_put(
            d,
            "<p class=\"soft\">There are no charts, because the program gnuplot %s; the numbers are in "
            "perturbation.csv.</p>\n",
            charts.missing ? "was not found" : "failed");
    eval_doc_put(d, "</body></html>\n");
}
