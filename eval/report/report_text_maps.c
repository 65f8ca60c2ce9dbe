/* SPDX-License-Identifier: MIT */
/* Questions and maps as text for a terminal. */
#include "eval/report/report_text.h"
#include "eval/results/heat.h"
#include "eval/results/turns.h"

#include <math.h>

static void put_turns(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                      int32_t task, int width)
{
    double mean[EVAL_MAX_TURNS];
    const int32_t n_all = eval_turn_means(mean, t->run, b, task, -1), n_turns = eval_turns_shown(n_all);
    if (n_turns < 2)
        return;
    eval_doc_put(d, "\n%s, %s, by question", b->mode, t->run->tasks[task]);
    if (n_turns < n_all)
        eval_doc_put(d, " (the first %d of %d)", n_turns, n_all);
    eval_doc_put(d, "\n%-*s", width + 1, "METHOD");
    for (int32_t i = 0; i < n_turns; i++)
        eval_doc_put(d, " %6d", i + 1);
    eval_doc_put(d, "  first - last\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        char text[EVAL_MAX_NUMBER];
        eval_turn_means(mean, t->run, b, task, b->rows[i].variant);
        eval_text_label(d, t->run, &t->run->variants[b->rows[i].variant], true, width + 1);
        for (int32_t k = 0; k < n_turns; k++)
            eval_doc_put(d, " %6s", eval_format(text, mean[k], 1));
        eval_doc_put(d, " %13s\n", eval_format_signed(text, mean[0] - mean[n_turns - 1], 1));
    }
}

/* One character for a cell: tens of points, # for 100, a blank for none. */
static char shade(double value)
{
    return isnan(value) ? ' ' : value > 99.5 ? '#' : (char)('0' + (int)(value / 10.0));
}

static void put_map(struct eval_doc *d, const struct eval_run *run, int32_t task, int32_t variant,
                    const struct eval_heat_score *score)
{
    struct eval_heat h;
    char mean[EVAL_MAX_NUMBER], share[EVAL_MAX_INTERVAL];
    if (!eval_heat_make(&h, run, task, variant, score->measure))
        d->no_memory = true;
    if (h.n_depths > 0) {
        eval_text_label(d, run, &run->variants[variant], true, 0);
        eval_doc_put(d, ": mean %s", eval_format(mean, h.mean, 1));
        if (h.binary)
            eval_doc_put(d, " %s", eval_words_share(share, h.wilson, 1));
        if (h.has_protected)
            eval_doc_put(d, ", unprotected %s", eval_format(mean, h.unprotected, 1));
        eval_doc_put(d, "\n");
    }
    for (int32_t i = 0; i < h.n_depths; i++) {
        eval_doc_put(d, "  %3.0f %% ", h.depth[i]);
        for (int32_t k = 0; k < h.n_lengths; k++)
            eval_doc_put(d, "%c", shade(h.value[i * h.n_lengths + k]));
        eval_doc_put(d, "\n");
    }
    eval_heat_clear(&h);
}

static void put_maps(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                     int32_t task, const struct eval_heat_score *score)
{
    bool any = false;
    for (int32_t i = 0; i < b->n_rows; i++)
        any = any || eval_heat_has(t->run, task, b->rows[i].variant, score->measure);
    if (!any || !eval_heat_is_on_grid(t->run->tasks[task]))
        return;
    eval_doc_put(d, "\n%s, %s, %s by depth (rows) and length (columns:", b->mode, t->run->tasks[task],
                 score->about);
    for (int32_t k = 0; k < b->n_strata; k++)
        if (b->strata[k].task == task)
            eval_doc_put(d, " %d", b->strata[k].n_target);
    eval_doc_put(d, "); 0 to 9: tens of points, #: 100\n");
    for (int32_t i = 0; i < b->n_rows; i++)
        put_map(d, t->run, task, b->rows[i].variant, score);
}

void eval_text_maps(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width,
                    const char *shown)
{
    for (int32_t task = 0; task < t->run->n_tasks; task++) {
        put_turns(d, t, b, task, width);
        for (int k = 0; k < EVAL_N_HEAT_SCORES; k++)
            if (eval_heat_shows(shown ? shown : "score", &eval_heat_scores[k]))
                put_maps(d, t, b, task, &eval_heat_scores[k]);
    }
}
