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

/* One map; nothing if it has no cells. Returns whether it has. */
static bool put_map(struct eval_doc *d, const struct eval_run *run, int32_t task, int32_t variant,
                    enum eval_measure m)
{
    struct eval_heat h;
    char share[EVAL_MAX_INTERVAL];
    if (!eval_heat_make(&h, run, task, variant, m))
        d->no_memory = true;
    const bool any = h.n_depths > 0;
    if (any) {
        eval_doc_put(d, "<div class=\"scroll\"><table class=\"heat\"><caption>");
        eval_html_label(d, run, &run->variants[variant], true);
        eval_doc_put(d, ": mean %.1f", h.mean);
        if (h.binary)
            eval_doc_put(d, " <span class=\"even\">%s</span>", eval_words_share(share, h.wilson, 1));
        if (h.has_protected && !isnan(h.unprotected))
            eval_doc_put(d, ", unprotected %.1f", h.unprotected);
        eval_doc_put(d, "</caption>");
        put_rows(d, &h);
        eval_doc_put(d, "</table></div>\n");
    }
    eval_heat_clear(&h);
    return any;
}

/* What is drawn: one number of a task under a protocol, for all methods. */
struct maps {
    const struct eval_run *run;
    const struct eval_block *b;
    int32_t task;
    const struct eval_heat_score *score;
};

static int32_t count(const struct maps *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->b->n_rows; i++)
        n += eval_heat_has(m->run, m->task, m->b->rows[i].variant, m->score->measure);
    return n;
}

static void put_title(struct eval_doc *d, const struct maps *m, const char *before_mode)
{
    eval_doc_xml(d, m->run->tasks[m->task]);
    eval_doc_put(d, ": %s%s, ", m->score->about, before_mode);
    eval_doc_xml(d, m->b->mode);
}

/* Draws the maps as long as the page has room. Returns how many it has not. */
static int32_t put_maps(struct eval_doc *d, const struct maps *m, int32_t n)
{
    int32_t n_drawn = 0;
    if (d->text.len >= EVAL_HTML_MOST_MAPS)
        return n;
    eval_doc_put(d, "<h3>");
    put_title(d, m, " by depth and length");
    eval_doc_put(d, "</h3><p class=\"soft\">Rows: depth of the evidence; columns: tokens. Colours go from 0 "
                    "to 100 in every map. In brackets, where answers are right or wrong: Wilson's 95 %% "
                    "interval of all of a map. "
                    "Unprotected: mean of the samples whose evidence the method does not keep whatever its "
                    "score.</p><div class=\"maps\">\n");
    for (int32_t i = 0; i < m->b->n_rows && d->text.len < EVAL_HTML_MOST_MAPS; i++)
        n_drawn += put_map(d, m->run, m->task, m->b->rows[i].variant, m->score->measure);
    eval_doc_put(d, "</div>\n");
    return n - n_drawn;
}

/* Says which maps the page has no room for. */
static void put_left_out(struct eval_doc *d, const struct eval_doc *list)
{
    d->no_memory = d->no_memory || list->no_memory;
    if (list->text.len > 0)
        eval_doc_put(
            d,
            "<p>These maps would make the page too large and are left out:</p><ul>%s</ul><p>maps.csv, "
            "which <code>winnow report</code> writes beside the results of one run, has them all; "
            "<code>--niah-score</code> draws one score alone.</p>\n",
            list->text.s);
}

void eval_html_heat(struct eval_doc *d, const struct eval_tables *t, const char *only)
{
    struct eval_doc left_out = {0};
    /* Every task's own score comes before further ones, so that these are what a large page lacks. */
    for (int k = 0; k < EVAL_N_HEAT_SCORES; k++)
        for (int32_t i = 0; eval_heat_shows(only, &eval_heat_scores[k]) && i < t->n; i++)
            for (int32_t task = 0; task < t->run->n_tasks; task++) {
                const struct maps m = {t->run, &t->blocks[i], task, &eval_heat_scores[k]};
                const bool wanted =
                    m.b->n_target == EVAL_ALL_LENGTHS && eval_heat_is_on_grid(t->run->tasks[task]);
                const int32_t n = wanted ? count(&m) : 0, n_left = n > 0 ? put_maps(d, &m, n) : 0;
                if (n_left == 0)
                    continue;
                eval_doc_put(&left_out, "<li>");
                put_title(&left_out, &m, "");
                eval_doc_put(&left_out, ": %d of %d maps</li>", n_left, n);
            }
    put_left_out(d, &left_out);
    eval_doc_clear(&left_out);
}
