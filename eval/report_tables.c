/* SPDX-License-Identifier: MIT */
/* Tables of scores in HTML. */
#include "eval/report_html.h"

#include <math.h>
#include <string.h>

/* A difference with its interval and verdict, as cells of a row. Where nothing varies the interval says little, and what the
 * scores of cell (NULL = none) say beside it follows. */
static void put_delta(struct eval_doc *d, const struct eval_paired *p, const struct eval_cell *cell)
{
    char number[EVAL_MAX_NUMBER], interval[EVAL_MAX_INTERVAL], counts[EVAL_MAX_COUNTS];
    if (isnan(p->delta)) {
        eval_doc_put(d, "<td>–</td><td></td>");
        return;
    }
    const char *verdict = eval_verdict(p);
    eval_doc_put(d, "<td class=\"%s\">", *verdict == '+' ? "plus" : *verdict == '-' ? "minus" : "even");
    eval_html_text(d, eval_format_signed(number, p->delta, 1));
    eval_doc_put(d, " %s</td><td class=\"left\">", *verdict == '-' ? "−" : verdict);
    eval_doc_xml(d, eval_words_interval(interval, p));
    if (cell && p->spread == EVAL_SPREAD_NONE && *eval_words_counts(counts, cell)) {
        eval_html_element(d, "div", "counts", counts);
    }
    eval_doc_put(d, "</td>");
}

static void put_row(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b,
                    const struct eval_row *row)
{
    const struct eval_cell *c = &row->macro;
    const struct eval_variant *v = &run->variants[row->variant];
    eval_doc_put(d, "<tr%s><th class=\"left\">", row->variant == b->baseline ? " class=\"full\"" : "");
    eval_html_label(d, run, v, true);
    eval_doc_put(d, "%s</th><td>%zu</td>", row->off_target ? "*" : "", c->n);
    eval_html_number(d, c->mean, 1);
    put_delta(d, &c->delta, c);
    eval_html_number(d, eval_cell_retention(c), 1);
    eval_html_first(d, c);
    eval_html_number(d, c->m[EVAL_M_KL], 3);
    eval_html_number(d, v->full ? NAN : 100.0 * row->removed, 1);
    eval_html_number(d, c->m[EVAL_M_BYTES] / 1048576.0, 2);
    eval_html_number(d, c->m[EVAL_M_COMPRESS], 1);
    eval_html_number(d, eval_words_decode_rate(c), 1);
    eval_doc_put(d, "</tr>\n");
}

static void put_means(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b)
{
    char length[32];
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(d,
                 ", %s: mean over %d informative of %d tasks</p><div class=\"scroll\"><table><thead><tr><th "
                 "class=\"left\">Method</th>"
                 "<th title=\"samples\">n</th><th>Score</th><th>Δ</th><th class=\"left\">95 %% interval</th>"
                 "<th title=\"share of the full cache's score\">Kept %%</th>"
                 "<th title=\"first generated token as with the full cache, and Wilson's 95 %% interval of "
                 "all answers\">First token %%</th>"
                 "<th title=\"divergence of predictions from the full cache's, nats\">KL</th>"
                 "<th title=\"share of the entries\">Removed %%</th><th>KV MiB</th>"
                 "<th title=\"time to compress\">Compress ms</th><th>tokens/s</th></tr></thead><tbody>\n",
                 eval_words_length(length, b->n_target), b->n_informative, b->n_strata);
    for (int32_t i = 0; i < b->n_rows; i++)
        put_row(d, t->run, b, &b->rows[i]);
    eval_doc_put(d, "</tbody></table></div>\n");
}

/* ---- By task and domain ---- */

/* A score with its verdict; the tooltip has n, the interval, and what scores of 0 and 1 say beside it. */
static void put_score(struct eval_doc *d, bool informative, const struct eval_cell *c)
{
    char number[EVAL_MAX_NUMBER], full[EVAL_MAX_NUMBER], interval[EVAL_MAX_INTERVAL], counts[EVAL_MAX_COUNTS];
    const char *verdict = eval_cell_verdict(c);
    eval_doc_put(d, "<td%s title=\"n = %zu, full cache %s ", informative ? "" : " class=\"grey\"", c->n,
                 eval_format(full, c->full, 1));
    eval_doc_xml(d, eval_words_interval(interval, &c->delta));
    if (*eval_words_counts(counts, c)) {
        eval_doc_put(d, "; ");
        eval_doc_xml(d, counts);
    }
    eval_doc_put(d, "\">%s", isnan(c->mean) ? "–" : eval_format(number, c->mean, 1));
    if (*verdict == '+' || *verdict == '-')
        eval_doc_put(d, " <span class=\"%s\">%s</span>", *verdict == '+' ? "plus" : "minus",
                     *verdict == '+' ? "+" : "−");
    eval_doc_put(d, "</td>");
}

/* A table of scores: a column for each task, domain or bucket. */
static void put_by(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                   enum eval_by by)
{
    static const char *const titles[EVAL_N_BY] = {"scores by task",
                                                  "means of the informative tasks by domain",
                                                  "means of the informative tasks by words of the context"};
    const int32_t n = eval_by_n(b, by);
    char length[32];
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, b->mode);
    eval_doc_put(d,
                 ", %s: %s; + and − where the interval of the difference excludes 0</p><div "
                 "class=\"scroll\"><table><thead><tr>"
                 "<th class=\"left\">Method</th>",
                 eval_words_length(length, b->n_target), titles[by]);
    for (int32_t k = 0; k < n; k++)
        eval_html_element(d, "th", eval_by_counts(b, by, k) ? NULL : "grey", eval_by_name(t->run, b, by, k));
    eval_doc_put(d, "</tr></thead><tbody>\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_row *row = &b->rows[i];
        eval_doc_put(d, "<tr%s><th class=\"left\">", row->variant == b->baseline ? " class=\"full\"" : "");
        eval_html_label(d, t->run, &t->run->variants[row->variant], true);
        eval_doc_put(d, "</th>");
        for (int32_t k = 0; k < n; k++)
            put_score(d, eval_by_counts(b, by, k), eval_by_cell(row, by, k));
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

static void put_block(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b)
{
    put_means(d, t, b);
    if (b->n_target != EVAL_ALL_LENGTHS)
        put_by(d, t, b, EVAL_BY_TASK);
    for (enum eval_by by = EVAL_BY_DOMAIN; by < EVAL_N_BY; by++)
        if (eval_by_n(b, by) > 0)
            put_by(d, t, b, by);
}

void eval_html_tables(struct eval_doc *d, const struct eval_tables *t)
{
    eval_doc_put(d, "<h3>Scores</h3>\n");
    for (int32_t i = 0; i < t->n; i++)
        if (t->blocks[i].n_target == EVAL_ALL_LENGTHS && !eval_block_is_extra(t, &t->blocks[i]))
            put_block(d, t, &t->blocks[i]);
    for (int32_t i = 0; i < t->n; i++)
        if (t->blocks[i].n_target != EVAL_ALL_LENGTHS)
            put_block(d, t, &t->blocks[i]);
}

/* ---- Two policies; several runs ---- */

void eval_html_versus(struct eval_doc *d, const struct eval_report *r, int32_t run)
{
    const struct eval_run *of = &r->runs.run[run];
    char length[32];
    if (!r->names[0])
        return;
    eval_doc_put(d, "<h3>");
    eval_doc_xml(d, r->names[0]);
    eval_doc_put(d, " minus ");
    eval_doc_xml(d, r->names[1]);
    eval_doc_put(
        d,
        "</h3><p class=\"caption\">On the same samples of the informative tasks. Each line "
        "is "
        "an interval of its own: where nothing differs, one in twenty excludes 0.</p><div "
        "class=\"scroll\"><table><thead><tr>"
        "<th class=\"left\">Protocol</th><th>Length</th><th>Size</th><th>Cache</th><th>n</th><th>First</th>"
        "<th>Second</th><th>Δ</th><th class=\"left\">95 %% interval</th></tr></thead><tbody>\n");
    for (int32_t i = 0; i < r->n_versus[run]; i++) {
        const struct eval_versus *v = &r->versus[run][i];
        eval_doc_put(d, "<tr>");
        eval_html_element(d, "th", "left", v->block->mode);
        eval_html_element(d, "td", NULL, eval_words_length(length, v->block->n_target));
        eval_html_element(d, "td", NULL,
                          of->variants[v->a].full ? of->variants[v->b].size : of->variants[v->a].size);
        eval_html_element(d, "td", NULL, of->variants[v->a].kv_type);
        eval_doc_put(d, "<td>%zu</td>", v->n);
        eval_html_number(d, v->mean_a, 1);
        eval_html_number(d, v->mean_b, 1);
        put_delta(d, &v->delta, NULL);
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

void eval_html_side_by_side(struct eval_doc *d, const struct eval_report *r)
{
    if (r->runs.n < 2)
        return;
    eval_doc_put(
        d, "<h3>Side by side</h3><p class=\"caption\">Means over each run's own informative "
           "tasks and "
           "lengths. The samples differ between runs, so the rows of one run are compared, not the runs."
           "</p><div class=\"scroll\"><table><thead><tr><th class=\"left\">Run</th><th "
           "class=\"left\">Protocol</th>"
           "<th class=\"left\">Method</th><th>n</th><th>Score</th><th>Δ</th><th class=\"left\">95 %% "
           "interval</th>"
           "<th>Kept %%</th></tr></thead><tbody>\n");
    for (int32_t i = 0; i < r->runs.n; i++)
        for (int32_t k = 0; k < r->tables[i].n; k++) {
            const struct eval_block *b = &r->tables[i].blocks[k];
            for (int32_t row = 0; b->n_target == EVAL_ALL_LENGTHS && row < b->n_rows; row++) {
                const struct eval_cell *c = &b->rows[row].macro;
                eval_doc_put(d, "<tr%s>", b->rows[row].variant == b->baseline ? " class=\"full\"" : "");
                eval_html_element(d, "th", "left", r->runs.run[i].model);
                eval_html_element(d, "td", "left", b->mode);
                eval_doc_put(d, "<td class=\"left\">");
                eval_html_label(d, &r->runs.run[i], &r->runs.run[i].variants[b->rows[row].variant], true);
                eval_doc_put(d, "</td><td>%zu</td>", c->n);
                eval_html_number(d, c->mean, 1);
                put_delta(d, &c->delta, c);
                eval_html_number(d, eval_cell_retention(c), 1);
                eval_doc_put(d, "</tr>\n");
            }
        }
    eval_doc_put(d, "</tbody></table></div>\n");
}
