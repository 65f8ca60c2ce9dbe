/* SPDX-License-Identifier: MIT */
/* Tasks with several questions on one context: does a method last beyond the first? */
#include "eval/report_html.h"
#include "eval/turns.h"

#include <math.h>
#include <stdlib.h>

static void put_table(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                      int32_t task, int32_t n_all)
{
    const int32_t n_turns = eval_turns_shown(n_all);
    eval_doc_put(d, "<p class=\"caption\">");
    eval_doc_xml(d, t->run->tasks[task]);
    eval_doc_put(d, ", ");
    eval_doc_xml(d, b->mode);
    eval_doc_put(d, ": mean score by question");
    if (n_turns < n_all)
        eval_doc_put(d, "; only the first %d of %d questions are shown", n_turns, n_all);
    eval_doc_put(d, "</p><div class=\"scroll\"><table><thead><tr><th class=\"left\">Method</th>");
    for (int32_t i = 0; i < n_turns; i++)
        eval_doc_put(d, "<th>%d</th>", i + 1);
    eval_doc_put(d, "<th>first − last</th></tr></thead><tbody>\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        double mean[EVAL_MAX_TURNS];
        eval_turn_means(mean, t->run, b, task, b->rows[i].variant);
        eval_doc_put(d, "<tr><th class=\"left\">");
        eval_html_label(d, t->run, &t->run->variants[b->rows[i].variant], true);
        eval_doc_put(d, "</th>");
        for (int32_t k = 0; k < n_turns; k++)
            eval_html_number(d, mean[k], 1);
        eval_html_number(d, mean[0] - mean[n_turns - 1], 1);
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody></table></div>\n");
}

static void put_chart(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t,
                      const struct eval_block *b, int32_t task, int32_t n_all)
{
    const int32_t n_turns = eval_turns_shown(n_all);
    struct eval_chart chart;
    char caption[256];
    eval_chart_begin(&chart, "question", "score", "set yrange [0:100]\nset xtics 1\nset xrange [0.5:]");
    for (int32_t i = 0; i < b->n_rows; i++) {
        double mean[EVAL_MAX_TURNS];
        struct app_text label = {0};
        if (!eval_html_is_drawn(t, b, i))
            continue;
        eval_turn_means(mean, t->run, b, task, b->rows[i].variant);
        if (!eval_variant_label(&label, t->run, &t->run->variants[b->rows[i].variant], true))
            d->no_memory = true;
        else
            eval_chart_series(&chart, EVAL_LINE, label.s);
        free(label.s);
        for (int32_t k = 0; k < n_turns; k++)
            eval_chart_point(&chart, k + 1, mean[k], NAN, NAN);
    }
    snprintf(caption, sizeof caption, "%.100s: score by question, %.30s%s", t->run->tasks[task], b->mode,
             eval_html_drawn(b));
    eval_chart_end(d, charts, &chart, caption);
}

void eval_html_turns(struct eval_doc *d, struct eval_charts *charts, const struct eval_tables *t)
{
    bool any = false;
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t task = 0; t->blocks[i].n_target == EVAL_ALL_LENGTHS && task < t->run->n_tasks; task++) {
            double mean[EVAL_MAX_TURNS];
            const int32_t n_turns = eval_turn_means(mean, t->run, &t->blocks[i], task, -1);
            if (n_turns < 2)
                continue;
            eval_doc_put(d, "%s", any ? "" : "<h3>Several questions on one context</h3>\n");
            any = true;
            eval_doc_put(d, "<div class=\"charts\">");
            put_chart(d, charts, t, &t->blocks[i], task, n_turns);
            eval_doc_put(d, "</div>\n");
            put_table(d, t, &t->blocks[i], task, n_turns);
        }
}
