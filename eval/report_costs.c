/* SPDX-License-Identifier: MIT */
/* Time and memory against length. */
#include "eval/report_html.h"
#include "eval/report_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What a row costs at a length ---- */

/* Mean of a number over all strata of a row: costs do not depend on whether a task is informative. */
static double mean_of(const struct eval_block *b, const struct eval_row *row, enum eval_measure m)
{
    double sum = 0.0;
    size_t n = 0;
    for (int32_t i = 0; i < b->n_strata; i++)
        if (!isnan(row->cell[i].m[m])) {
            sum += row->cell[i].m[m] * (double)row->cell[i].n;
            n += row->cell[i].n;
        }
    return n > 0 ? sum / (double)n : NAN;
}

static double tokens(const struct eval_block *b, const struct eval_row *row)
{
    return mean_of(b, row, EVAL_M_CONTEXT);
}

static const struct {
    const char *what, *y;
    int decimals;
    const char *column; /* of the table in text */
} costs[] = {{"Time to the first token (reading, compressing, question)", "seconds", 3, "first s"},
             {"Time to compress", "milliseconds", 1, "compress ms"},
             {"Time of a generated token", "milliseconds", 2, "ms/token"},
             {"Keys and values that stay", "MiB", 2, "kept MiB"},
             {"Peak of keys and values", "MiB", 2, "peak MiB"}};
enum { N_COSTS = sizeof costs / sizeof *costs };

/* Fills in what a row costs, in the order of `costs`; NaN where nothing was measured. */
static void find_costs(double out[N_COSTS], const struct eval_run *run, const struct eval_block *b,
                       const struct eval_row *row)
{
    const double compress = mean_of(b, row, EVAL_M_COMPRESS), question = mean_of(b, row, EVAL_M_QUESTION);
    /* The first token of an answer costs no step, and the one that ends it costs one but is not part of it; answers
     * of a given length have no such end. */
    const double steps = mean_of(b, row, EVAL_M_GENERATED) - !!json_object_get(run->info, "answer_tokens");
    out[0] = 1e-3 * (mean_of(b, row, EVAL_M_PREFILL) + (isnan(compress) ? 0.0 : compress) +
                     (isnan(question) ? 0.0 : question));
    out[1] = compress;
    out[2] = steps > 0 ? mean_of(b, row, EVAL_M_DECODE) / steps : NAN;
    out[3] = mean_of(b, row, EVAL_M_BYTES) / 1048576.0;
    out[4] = mean_of(b, row, EVAL_M_PEAK) / 1048576.0;
}

/* Whether every method read by itself, so that all times are its own. */
static bool is_alone(const struct eval_run *run)
{
    return json_is_true(json_object_get(run->info, "alone"));
}

void eval_text_costs(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width)
{
    if (!is_alone(t->run) || b->n_target == EVAL_ALL_LENGTHS)
        return;
    eval_doc_put(d, "\n%-*s %8s", width + 1, "COSTS, each by itself", "context");
    for (int k = 0; k < N_COSTS; k++)
        eval_doc_put(d, " %12s", costs[k].column);
    eval_doc_put(d, "\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        char text[EVAL_MAX_NUMBER];
        double cost[N_COSTS];
        find_costs(cost, t->run, b, &b->rows[i]);
        eval_text_label(d, t->run, &t->run->variants[b->rows[i].variant], true, width + 1);
        eval_doc_put(d, " %8s", eval_format(text, tokens(b, &b->rows[i]), 0));
        for (int k = 0; k < N_COSTS; k++)
            eval_doc_put(d, " %12s", eval_format(text, cost[k], costs[k].decimals));
        eval_doc_put(d, "\n");
    }
}

/* ---- Charts and a table ---- */

static const struct eval_row *find_row(const struct eval_block *b, int32_t variant)
{
    for (int32_t i = 0; i < b->n_rows; i++)
        if (b->rows[i].variant == variant)
            return &b->rows[i];
    return NULL;
}

/* A chart of one cost: a line for each method, a point for each length. */
static void put_chart(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                      const struct eval_block *whole, int which)
{
    struct eval_chart chart;
    char caption[160];
    int n_points = 0;
    eval_chart_begin(&chart, "tokens of the context", costs[which].y, "set yrange [0:]\nset xrange [0:]");
    for (int32_t i = 0; i < whole->n_rows; i++) {
        struct app_text label = {0};
        if (!eval_html_is_drawn(t, whole, i))
            continue;
        if (!eval_variant_label(&label, t->run, &t->run->variants[whole->rows[i].variant], true))
            d->no_memory = true;
        else
            eval_chart_series(&chart, EVAL_LINE, label.s);
        free(label.s);
        for (int32_t k = 0; k < t->n; k++) {
            const struct eval_block *b = &t->blocks[k];
            const struct eval_row *row = strcmp(b->mode, whole->mode) == 0 && b->n_target != EVAL_ALL_LENGTHS
                                             ? find_row(b, whole->rows[i].variant)
                                             : NULL;
            double cost[N_COSTS];
            if (!row)
                continue;
            find_costs(cost, t->run, b, row);
            if (!isnan(cost[which])) {
                eval_chart_point(&chart, tokens(b, row), cost[which], NAN, NAN);
                n_points++;
            }
        }
    }
    snprintf(caption, sizeof caption, "%s, %.30s%s", costs[which].what, whole->mode, eval_html_drawn(whole));
    if (n_points > 0)
        eval_chart_end(d, charts, &chart, caption);
    else
        eval_chart_drop(&chart);
}

static void put_table(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b)
{
    char length[32];
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(
        d,
        ", %s: means over all tasks</p><div class=\"scroll\"><table><thead><tr><th "
        "class=\"left\">Method</th><th>Context tokens</th>"
        "<th>First token s</th><th>Compress ms</th><th>ms per token</th><th>Kept MiB</th><th>Peak MiB</th>"
        "</tr></thead><tbody>\n",
        eval_words_length(length, b->n_target));
    for (int32_t i = 0; i < b->n_rows; i++) {
        double cost[N_COSTS];
        find_costs(cost, t->run, b, &b->rows[i]);
        eval_doc_put(d, "<tr><th class=\"left\">");
        eval_html_label(d, t->run, &t->run->variants[b->rows[i].variant], true);
        eval_doc_put(d, "</th>");
        eval_html_number(d, tokens(b, &b->rows[i]), 0);
        for (int k = 0; k < N_COSTS; k++)
            eval_html_number(d, cost[k], costs[k].decimals);
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

void eval_html_costs(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t)
{
    eval_doc_put(d,
                 "<h3>Time and memory against length</h3><p class=\"soft\">%s Where lines lie on each other, "
                 "the one that "
                 "is listed last is seen.</p>\n",
                 is_alone(t->run)
                     ? "Each method reads every context by itself and answers alone."
                     : "A context is read once for all methods of a protocol, so that the time to read it is "
                       "the same for them unless a method reads by itself.");
    for (int32_t i = 0; i < t->n; i++) {
        if (t->blocks[i].n_target != EVAL_ALL_LENGTHS || eval_block_is_extra(t, &t->blocks[i]))
            continue;
        eval_doc_put(d, "<div class=\"charts\">");
        for (int k = 0; k < N_COSTS; k++)
            put_chart(d, charts, t, &t->blocks[i], k);
        eval_doc_put(d, "</div>\n");
    }
    eval_doc_put(d, "<details><summary>Numbers</summary>\n");
    for (int32_t i = 0; i < t->n; i++)
        if (t->blocks[i].n_target != EVAL_ALL_LENGTHS)
            put_table(d, t, &t->blocks[i]);
    eval_doc_put(d, "</details>\n");
}
