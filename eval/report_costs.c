/* SPDX-License-Identifier: MIT */
/* Time and memory against length. */
#include "eval/report_html.h"

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

static double first_token_s(const struct eval_block *b, const struct eval_row *row)
{
    const double compress = mean_of(b, row, EVAL_M_COMPRESS), question = mean_of(b, row, EVAL_M_QUESTION);
    return 1e-3 * (mean_of(b, row, EVAL_M_PREFILL) + (isnan(compress) ? 0.0 : compress) +
                   (isnan(question) ? 0.0 : question));
}

static double decode_ms(const struct eval_block *b, const struct eval_row *row)
{
    const double n = mean_of(b, row, EVAL_M_GENERATED);
    return n > 0 ? mean_of(b, row, EVAL_M_DECODE) / n : NAN;
}

static double kept_mib(const struct eval_block *b, const struct eval_row *row)
{
    return mean_of(b, row, EVAL_M_BYTES) / 1048576.0;
}

static double peak_mib(const struct eval_block *b, const struct eval_row *row)
{
    return mean_of(b, row, EVAL_M_PEAK) / 1048576.0;
}

static double compress_ms(const struct eval_block *b, const struct eval_row *row)
{
    return mean_of(b, row, EVAL_M_COMPRESS);
}

static const struct {
    const char *what, *y;
    double (*of)(const struct eval_block *, const struct eval_row *);
    int decimals;
} costs[] = {{"Time to the first token (reading, compressing, question)", "seconds", first_token_s, 3},
             {"Time to compress", "milliseconds", compress_ms, 1},
             {"Time of a generated token", "milliseconds", decode_ms, 2},
             {"Keys and values that stay", "MiB", kept_mib, 2},
             {"Peak of keys and values", "MiB", peak_mib, 2}};
enum { N_COSTS = sizeof costs / sizeof *costs };

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
            if (row && !isnan(costs[which].of(b, row))) {
                eval_chart_point(&chart, tokens(b, row), costs[which].of(b, row), NAN, NAN);
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
        eval_doc_put(d, "<tr><th class=\"left\">");
        eval_html_label(d, t->run, &t->run->variants[b->rows[i].variant], true);
        eval_doc_put(d, "</th>");
        eval_html_number(d, tokens(b, &b->rows[i]), 0);
        for (int k = 0; k < N_COSTS; k++)
            eval_html_number(d, costs[k].of(b, &b->rows[i]), costs[k].decimals);
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

void eval_html_costs(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t)
{
    eval_doc_put(
        d,
        "<h3>Time and memory against length</h3><p class=\"soft\">A context is read once for all methods of "
        "a "
        "protocol, so that the time to read it is the same for them unless a method reads by itself.</p>\n");
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
