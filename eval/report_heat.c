/* SPDX-License-Identifier: MIT */
/* Heat maps by depth and length as tables with coloured cells, whose colours always mean the same. */
#include "eval/heat.h"
#include "eval/report_html.h"

#include <math.h>
#include <stdlib.h>

/* Three stops, straight lines between them. */
void eval_html_colour(char out[8], double value)
{
    static const double stops[3][3] = {{0xd7, 0x42, 0x5f}, {0xe8, 0xbd, 0x4b}, {0x2f, 0xae, 0x7d}};
    const double at = fmin(fmax(value, 0.0), 100.0) / 50.0;
    const int from = at >= 1.0 ? 1 : 0;
    int c[3];
    for (int i = 0; i < 3; i++)
        c[i] = (int)lround(stops[from][i] + (at - from) * (stops[from + 1][i] - stops[from][i]));
    snprintf(out, 8, "#%02x%02x%02x", c[0] & 0xff, c[1] & 0xff, c[2] & 0xff);
}

static void put_rows(struct eval_doc *d, const struct eval_heat *h)
{
    eval_doc_put(d, "<thead><tr><th class=\"left\">depth</th>");
    for (int32_t k = 0; k < h->n_lengths; k++)
        eval_doc_put(d, "<th>%d</th>", h->length[k]);
    eval_doc_put(d, "</tr></thead><tbody>");
    for (int32_t i = 0; i < h->n_depths; i++) {
        eval_doc_put(d, "<tr><th class=\"left\">%.0f %%</th>", h->depth[i]);
        for (int32_t k = 0; k < h->n_lengths; k++) {
            const size_t cell = (size_t)i * (size_t)h->n_lengths + (size_t)k;
            char colour[8];
            if (h->n[cell] == 0) {
                eval_doc_put(d, "<td></td>");
                continue;
            }
            eval_html_colour(colour, h->value[cell]);
            eval_doc_put(d, "<td style=\"background:%s\" title=\"n = %d\">%.0f</td>", colour, h->n[cell],
                         h->value[cell]);
        }
        eval_doc_put(d, "</tr>\n");
    }
    eval_doc_put(d, "</tbody>");
}

/* One map; nothing if it has no cells. */
static void put_map(struct eval_doc *d, const struct eval_run *run, int32_t task, int32_t variant,
                    enum eval_measure m)
{
    struct eval_heat h;
    if (!eval_heat_make(&h, run, task, variant, m))
        d->no_memory = true;
    if (h.n_depths > 0) {
        eval_doc_put(d, "<div class=\"scroll\"><table class=\"heat\"><caption>");
        eval_html_label(d, run, &run->variants[variant], true);
        eval_doc_put(d, ": mean %.1f", h.mean);
        if (h.has_protected && !isnan(h.unprotected))
            eval_doc_put(d, ", unprotected %.1f", h.unprotected);
        eval_doc_put(d, "</caption>");
        put_rows(d, &h);
        eval_doc_put(d, "</table></div>\n");
    }
    eval_heat_clear(&h);
}

static bool has_measure(const struct eval_run *run, int32_t task, int32_t variant, enum eval_measure m)
{
    for (size_t i = 0; i < run->n; i++)
        if (run->results[i].task == task && run->results[i].variant == variant &&
            !isnan(run->results[i].m[m]) && !isnan(run->results[i].m[EVAL_M_DEPTH]))
            return true;
    return false;
}

/* The maps of a task and a protocol, for one number. */
static void put_maps(struct eval_doc *d, const struct eval_block *b, const struct eval_run *run, int32_t task,
                     enum eval_measure m, const char *what)
{
    bool any = false;
    for (int32_t i = 0; i < b->n_rows; i++)
        any = any || has_measure(run, task, b->rows[i].variant, m);
    if (!any)
        return;
    eval_doc_put(d, "<h3>");
    eval_doc_xml(d, run->tasks[task]);
    eval_doc_put(d, ": %s by depth and length, ", what);
    eval_doc_xml(d, b->mode);
    eval_doc_put(d, "</h3><p class=\"soft\">Rows: depth of the evidence; columns: tokens. Colours go from 0 "
                    "to 100 in every map. "
                    "Unprotected: mean of the samples whose evidence the method does not keep whatever its "
                    "score.</p><div class=\"maps\">\n");
    for (int32_t i = 0; i < b->n_rows; i++)
        put_map(d, run, task, b->rows[i].variant, m);
    eval_doc_put(d, "</div>\n");
}

void eval_html_heat(struct eval_doc *d, const struct eval_tables *t, const char *only)
{
    for (int32_t i = 0; i < t->n; i++) {
        if (t->blocks[i].n_target != EVAL_ALL_LENGTHS)
            continue;
        for (int32_t task = 0; task < t->run->n_tasks; task++) {
            if (!eval_heat_is_on_grid(t->run->tasks[task]))
                continue;
            for (int k = 0; k < EVAL_N_HEAT_SCORES; k++)
                if (eval_heat_shows(only, &eval_heat_scores[k]))
                    put_maps(d, &t->blocks[i], t->run, task, eval_heat_scores[k].measure,
                             eval_heat_scores[k].about);
        }
    }
}
