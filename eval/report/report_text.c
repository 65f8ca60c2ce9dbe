/* SPDX-License-Identifier: MIT */
/* The summary as text for a terminal. */
#include "eval/report/report_impl.h"
#include "eval/results/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Width in columns of a text in UTF-8. */
static int width_of(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* The widest label of a run, at least as wide as the heading. */
static int label_width(struct eval_doc *d, const struct eval_run *run)
{
    struct app_text label = {0};
    int widest = 6;
    for (int32_t i = 0; i < run->n_variants; i++) {
        if (!eval_variant_label(&label, run, &run->variants[i], true)) {
            d->no_memory = true;
            break;
        }
        widest = width_of(label.s) > widest ? width_of(label.s) : widest;
    }
    free(label.s);
    return widest;
}

void eval_text_label(struct eval_doc *d, const struct eval_run *run, const struct eval_variant *v, bool size,
                     int width)
{
    struct app_text label = {0};
    if (!eval_variant_label(&label, run, v, size))
        d->no_memory = true;
    else
        eval_doc_put(d, "%s%*s", label.s, width > width_of(label.s) ? width - width_of(label.s) : 0, "");
    free(label.s);
}

static void put_number(struct eval_doc *d, int width, double value, int decimals)
{
    char text[EVAL_MAX_NUMBER];
    eval_doc_put(d, " %*s", width, eval_format(text, value, decimals));
}

/* ---- One block ---- */

static void put_row(struct eval_doc *d, const struct eval_run *run, const struct eval_row *row, int width)
{
    const struct eval_cell *c = &row->macro;
    const struct eval_variant *v = &run->variants[row->variant];
    char text[EVAL_MAX_NUMBER], interval[EVAL_MAX_INTERVAL], first[EVAL_MAX_INTERVAL];
    char counts[EVAL_MAX_COUNTS];
    eval_text_label(d, run, v, true, width);
    eval_doc_put(d, "%s %5zu", row->off_target ? "*" : " ", c->n);
    put_number(d, 6, c->mean, 1);
    put_number(d, 6, c->full, 1);
    eval_doc_put(d, " %6s %-26s %1s", eval_format_signed(text, c->delta.delta, 1),
                 eval_words_interval(interval, &c->delta), eval_cell_verdict(c));
    put_number(d, 6, eval_cell_retention(c), 1);
    put_number(d, 5, c->m[EVAL_M_FGT], 2);
    eval_doc_put(d, " %-12s", eval_words_share(first, c->first, 2));
    put_number(d, 6, c->m[EVAL_M_KL], 3);
    put_number(d, 7, v->full ? NAN : row->removed, 3);
    put_number(d, 8, c->m[EVAL_M_BYTES] / 1048576.0, 2);
    put_number(d, 8, c->m[EVAL_M_COMPRESS], 1);
    put_number(d, 7, eval_words_decode_rate(c), 1);
    if (c->delta.spread == EVAL_SPREAD_NONE && *eval_words_counts(counts, c))
        eval_doc_put(d, "  %s", counts);
    eval_doc_put(d, "\n");
}

/* A column holds its whole heading, because names of tasks differ at their ends, and a score with its marks. */
static int column_width(const char *name)
{
    const int least = 9;
    return width_of(name) > least ? width_of(name) : least;
}

/* Scores: a row for each method, a column for each task, domain or bucket. */
static void put_by(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b, int width,
                   enum eval_by by)
{
    static const char *const titles[EVAL_N_BY] = {"BY TASK", "BY DOMAIN", "BY WORDS OF THE CONTEXT"};
    const int32_t n = eval_by_n(b, by);
    const int wide = width_of(titles[by]) > width + 1 ? width_of(titles[by]) : width + 1;
    eval_doc_put(d, "\n%-*s", wide, titles[by]);
    for (int32_t k = 0; k < n; k++) {
        const char *name = eval_by_name(run, b, by, k);
        eval_doc_put(d, " %*s%s", column_width(name) - width_of(name), "", name);
    }
    eval_doc_put(d, "\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_row *row = &b->rows[i];
        eval_text_label(d, run, &run->variants[row->variant], true, wide);
        for (int32_t k = 0; k < n; k++) {
            const struct eval_cell *c = eval_by_cell(row, by, k);
            const bool grey = !eval_by_counts(b, by, k);
            char text[EVAL_MAX_NUMBER];
            eval_doc_put(d, " %*s%s%s", column_width(eval_by_name(run, b, by, k)) - (grey ? 3 : 1),
                         eval_format(text, c->mean, 1), *eval_cell_verdict(c) ? eval_cell_verdict(c) : " ",
                         grey ? " u" : "");
        }
        eval_doc_put(d, "\n");
    }
}

static void put_block(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width)
{
    char length[32];
    eval_doc_put(d, "\n%s, %s: %d tasks, %d of them informative\n", b->mode,
                 eval_words_length(length, b->n_target), b->n_strata, b->n_informative);
    eval_doc_put(d, "%-*s %5s %6s %6s %6s %-26s %1s %6s %5s %-12s %6s %7s %8s %8s %7s\n", width + 1, "METHOD",
                 "n", "mean", "full", "delta", "95 % interval", "", "kept %", "fgt", "95 %", "kl", "removed",
                 "KV MiB", "ms", "tok/s");
    for (int32_t i = 0; i < b->n_rows; i++)
        put_row(d, t->run, &b->rows[i], width);
    if (b->n_target != EVAL_ALL_LENGTHS)
        put_by(d, t->run, b, width, EVAL_BY_TASK);
    for (enum eval_by by = EVAL_BY_DOMAIN; by < EVAL_N_BY; by++)
        if (eval_by_n(b, by) > 0)
            put_by(d, t->run, b, width, by);
    eval_text_predictions(d, t, b, width);
    eval_text_costs(d, t, b, width);
}

/* ---- Questions and maps ---- */

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
                    const struct eval_map_score *score)
{
    struct eval_map h;
    char mean[EVAL_MAX_NUMBER], share[EVAL_MAX_INTERVAL];
    if (!eval_map_make(&h, run, task, variant, score->measure))
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
    eval_map_clear(&h);
}

static void put_maps(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                     int32_t task, const struct eval_map_score *score)
{
    bool any = false;
    for (int32_t i = 0; i < b->n_rows; i++)
        any = any || eval_map_has(t->run, task, b->rows[i].variant, score->measure);
    if (!any || !eval_map_is_on_grid(t->run->tasks[task]))
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
        for (int k = 0; k < EVAL_N_MAP_SCORES; k++)
            if (eval_map_shows(shown ? shown : "score", &eval_map_scores[k]))
                put_maps(d, t, b, task, &eval_map_scores[k]);
    }
}

/* ---- Curves, two policies ---- */

static void put_curves(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width)
{
    struct eval_curve *curves;
    int32_t n;
    bool any = false;
    if (!eval_curves_make(&curves, &n, t, b))
        d->no_memory = true;
    for (int32_t i = 0; i < n; i++) {
        const struct eval_curve *c = &curves[i];
        if (!c->has_auc)
            continue;
        if (!any)
            eval_doc_put(d, "\n%-*s %7s %7s %7s  %s\n", width + 1, "CURVE", "AUC", "AUC %", "AUC0",
                         "share that can go at a loss of 1, 5, 10, 20 %");
        any = true;
        eval_text_label(d, t->run, &t->run->variants[b->rows[c->first].variant], false, width + 1);
        put_number(d, 7, c->auc, 2);
        put_number(d, 7, c->auc_rel, 2);
        put_number(d, 7, c->auc_one, 2);
        for (int k = 0; k < EVAL_N_LOSSES; k++) {
            const bool beyond = isinf(c->tolerance[k]);
            char text[EVAL_MAX_NUMBER];
            eval_doc_put(d, "  %s%s", beyond ? ">=" : "",
                         eval_format(text, beyond ? c->r[c->n - 1] : c->tolerance[k], 3));
        }
        eval_doc_put(d, "  r = 0 to %.3g, %d points\n", c->r[c->n - 1], c->n);
    }
    free(curves);
}

static void put_versus(struct eval_doc *d, const struct eval_report *r, int32_t i)
{
    const struct eval_run *run = &r->runs.run[i];
    char length[32], text[EVAL_MAX_NUMBER], interval[EVAL_MAX_INTERVAL];
    eval_doc_put(d, "\n%s minus %s, on the same samples\n", r->names[0], r->names[1]);
    for (int32_t k = 0; k < r->n_versus[i]; k++) {
        const struct eval_versus *v = &r->versus[i][k];
        eval_doc_put(d, "%-12s %-24s %-16s %-6s n = %zu", v->block->mode,
                     eval_words_length(length, v->block->n_target),
                     run->variants[v->a].full ? run->variants[v->b].size : run->variants[v->a].size,
                     run->variants[v->a].kv_type, v->n);
        put_number(d, 6, v->mean_a, 1);
        put_number(d, 6, v->mean_b, 1);
        eval_doc_put(d, " %6s %s %s\n", eval_format_signed(text, v->delta.delta, 1),
                     eval_words_interval(interval, &v->delta),
                     isnan(v->delta.delta) ? "" : eval_verdict(&v->delta));
    }
    if (r->n_versus[i] == 0)
        eval_doc_put(d, "no size, protocol and type of cache that both have\n");
}

static void put_run(struct eval_doc *d, const struct eval_report *r, int32_t i)
{
    const struct eval_tables *t = &r->tables[i];
    const struct eval_run *run = t->run;
    const int width = label_width(d, run);
    eval_doc_put(d, "%s%s: %zu answers", i > 0 ? "\n" : "", run->model, run->n);
    for (int32_t k = 0; k < run->n_folders; k++)
        eval_doc_put(d, "%s%s", k == 0 ? " in " : ", ", run->folders[k]);
    eval_doc_put(d, "\n");
    for (int32_t k = 0; k < t->n; k++) {
        const struct eval_block *b = &t->blocks[k];
        if (!eval_block_is_extra(t, b))
            put_block(d, t, b, width);
        if (b->n_target == EVAL_ALL_LENGTHS) {
            put_curves(d, t, b, width);
            eval_text_maps(d, t, b, width, r->options->niah_score);
        }
    }
    if (r->names[0])
        put_versus(d, r, i);
    eval_doc_put(d, "\n");
    eval_words_notes(d, t);
}

void eval_report_text(struct eval_doc *d, const struct eval_report *r)
{
    for (int32_t i = 0; i < r->runs.n; i++)
        put_run(d, r, i);
    eval_doc_put(
        d,
        "\nScores are points of 100; delta: against the full cache on the same samples, with a paired 95 %% "
        "bootstrap interval, + better, - worse,\n~ not told apart; kept %%: share of the full cache's score; "
        "fgt: share of the first tokens that are the full cache's, with Wilson's 95 %% interval where tasks "
        "have equally many answers;\n"
        "u: uninformative task.\n");
}
