/* SPDX-License-Identifier: MIT */
/* A chart as inline SVG in an HTML document, with a legend in HTML, which stays readable where the chart is small. */
#ifndef WNW_EVAL_CHART_H
#define WNW_EVAL_CHART_H

#include "eval/doc.h"

/* Numbers the charts of a document, so that their ids differ, and says what became of gnuplot. */
struct eval_charts {
    int n;
    bool missing, failed; /* there is no gnuplot; it could not make a chart */
};

struct eval_chart {
    struct eval_doc data, plot, legend;
    int n_series, n_lines, n_points;
    const char *x, *y,
        *settings; /* titles of the axes, further gnuplot commands; borrowed and not from outside */
};

/* Begins a chart. */
void eval_chart_begin(struct eval_chart *c, const char *x, const char *y, const char *settings);
enum eval_series { EVAL_LINE, EVAL_POINTS, EVAL_DASHED };
/* Begins a series; the label stands in the legend and may be from outside. */
void eval_chart_series(struct eval_chart *c, enum eval_series kind, const char *label);
/* Adds a point with whiskers from lo to hi, which may be NaN. */
void eval_chart_point(struct eval_chart *c, double x, double y, double lo, double hi);
/* Adds the chart as a figure to the document and releases it. Where gnuplot cannot make it, `all` says so; the tables
 * have the same numbers.
 * A chart without points adds nothing. */
void eval_chart_end(struct eval_doc *d, struct eval_charts *all, struct eval_chart *c, const char *caption);

/* Releases a chart that is not added. */
void eval_chart_drop(struct eval_chart *c);

#endif
