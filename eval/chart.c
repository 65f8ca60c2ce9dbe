/* SPDX-License-Identifier: MIT */
/* Charts as inline SVG. */
#include "eval/chart.h"

#include "eval/chart_svg.h"
#include "eval/gnuplot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Colours that stay apart for people who see few of them, on white and on black. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#b8860b", "#56b4e9", "#8c6bb1"};
enum { N_COLOURS = sizeof colours / sizeof *colours };
/* Shapes of points: gnuplot's number, and the same shape as a character. */
static const struct {
    int type;
    const char *glyph;
} shapes[] = {{7, "●"}, {5, "■"}, {9, "▲"}, {13, "◆"}, {11, "▼"}, {6, "○"}, {4, "□"}, {8, "△"}, {15, "⬟"}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, OF_POINTS = N_SHAPES - 1 };
/* The full cache, which is no method, is grey. */
static const char *const grey = "#808080";

void eval_chart_begin(struct eval_chart *c, const char *x, const char *y, const char *settings)
{
    *c = (struct eval_chart){.x = x, .y = y, .settings = settings};
}

static void end_data(struct eval_chart *c)
{
    if (c->n_series > 0)
        eval_doc_put(&c->data, "EOD\n");
}

void eval_chart_series(struct eval_chart *c, enum eval_series kind, const char *label)
{
    const int i = c->n_series;
    const int look = kind == EVAL_LINE ? c->n_lines++ : 0;
    const char *colour = kind == EVAL_LINE ? colours[look % N_COLOURS] : grey;
    const int shape = kind == EVAL_LINE ? look % OF_POINTS : OF_POINTS;
    end_data(c);
    eval_doc_put(&c->data, "$d%d << EOD\n", i);
    eval_doc_put(&c->plot, "%s", i > 0 ? ", " : "plot ");
    if (kind == EVAL_DASHED)
        eval_doc_put(&c->plot, "$d%d using 1:2 with lines dt 2 lw 2 lc rgb '%s' notitle", i, colour);
    else
        eval_doc_put(
            &c->plot,
            "$d%d using 1:3:(0):($4-$3) with vectors nohead lw 1 lc rgb '%s' notitle, $d%d using 1:2 with "
            "%s pt %d ps 0.7 lw 2 lc rgb '%s' notitle",
            i, colour, i, kind == EVAL_LINE ? "linespoints" : "points", shapes[shape].type, colour);
    eval_doc_put(&c->legend, "<li><span style=\"color:%s\">%s</span> ", colour,
                 kind == EVAL_DASHED ? "╌╌" : shapes[shape].glyph);
    eval_doc_xml(&c->legend, label);
    eval_doc_put(&c->legend, "</li>");
    c->n_series++;
}

void eval_chart_point(struct eval_chart *c, double x, double y, double lo, double hi)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    if (isfinite(lo) && isfinite(hi))
        eval_doc_put(&c->data, "%.9g %.9g %.9g %.9g\n", x, y, lo, hi);
    else
        eval_doc_put(&c->data, "%.9g %.9g %.9g %.9g\n", x, y, y, y);
    c->n_points++;
}

void eval_chart_drop(struct eval_chart *c)
{
    eval_doc_clear(&c->data);
    eval_doc_clear(&c->plot);
    eval_doc_clear(&c->legend);
}

static void add_figure(struct eval_doc *d, const struct eval_chart *c, const char *caption,
                       const struct app_text *svg, int number)
{
    eval_doc_put(d, "<figure><div class=\"chart\" role=\"img\" aria-label=\"");
    eval_doc_xml(d, caption);
    eval_doc_put(d, "\">");
    eval_svg_add(d, svg->s, number);
    eval_doc_put(d, "</div><ul class=\"legend\">%s</ul><figcaption>", c->legend.text.s);
    eval_doc_xml(d, caption);
    eval_doc_put(d, "</figcaption></figure>\n");
}

void eval_chart_end(struct eval_doc *d, struct eval_charts *all, struct eval_chart *c, const char *caption)
{
    struct eval_doc script = {0};
    struct app_text svg = {0};
    end_data(c);
    d->no_memory = d->no_memory || c->data.no_memory || c->plot.no_memory || c->legend.no_memory;
    if (c->n_points > 0 && !all->missing && !d->no_memory) {
        eval_doc_put(
            &script,
            "set terminal svg size 520,330 dynamic font 'sans-serif,16' noenhanced\nset border 3 lw 1\n"
            "set tics nomirror\nset grid lc rgb '#999999' dt 3 lw 0.5\nset bars small\nset pointintervalbox "
            "0\nset offsets graph "
            "0.02, "
            "graph 0.02, 0, 0\nset xlabel '%s'\nset ylabel '%s'\n%s\n%s%s\n",
            c->x, c->y, c->settings, c->data.text.s, c->plot.text.s);
        const enum eval_gnuplot_status status = script.no_memory
                                                    ? EVAL_GNUPLOT_NO_MEMORY
                                                    : eval_gnuplot_run(&svg, script.text.s, script.text.len);
        all->missing = all->missing || status == EVAL_GNUPLOT_MISSING;
        all->failed = all->failed || status == EVAL_GNUPLOT_FAILED;
        d->no_memory = d->no_memory || status == EVAL_GNUPLOT_NO_MEMORY;
        if (status == EVAL_GNUPLOT_OK && strstr(svg.s, "<svg"))
            add_figure(d, c, caption, &svg, ++all->n);
    }
    eval_doc_clear(&script);
    free(svg.s);
    eval_chart_drop(c);
}
