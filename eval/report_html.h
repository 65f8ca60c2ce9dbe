/* SPDX-License-Identifier: MIT */
/* Sections of the HTML report. Each adds nothing where the run has nothing of the kind. */
#ifndef WNW_EVAL_REPORT_HTML_H
#define WNW_EVAL_REPORT_HTML_H

#include "eval/chart.h"
#include "eval/report_impl.h"

/* A page that has as many bytes gets no further charts of single tasks, or no further maps, which come behind them. What every
 * page has then fits in 2 MB beside them. */
enum { EVAL_HTML_MOST_CHARTS = 900000, EVAL_HTML_MOST_MAPS = 1400000 };

/* Adds <tag class="...">TEXT</tag> with the text escaped; class may be NULL. */
void eval_html_element(struct eval_doc *d, const char *tag, const char *class_name, const char *text);
/* Adds a variant's label; size: with its size. */
void eval_html_label(struct eval_doc *d, const struct eval_run *run, const struct eval_variant *v, bool size);
/* Adds a number with a proper minus sign; "-" becomes a dash. */
void eval_html_text(struct eval_doc *d, const char *number);
/* Adds a cell of a table with a number, or a dash. */
void eval_html_number(struct eval_doc *d, double value, int decimals);
/* Adds a cell with the share of first tokens that are the full cache's, and its interval. */
void eval_html_first(struct eval_doc *d, const struct eval_cell *c);

/* The colour of 0 (poor) to 100 (good) in maps. */
void eval_html_colour(char out[8], double value);

/* Whether row i of a block has a line of its own in charts: all of a few rows; of many the full cache, and each policy at
 * the size that is listed last, which eval_html_drawn says in words. */
bool eval_html_is_drawn(const struct eval_tables *t, const struct eval_block *b, int32_t i);
const char *eval_html_drawn(const struct eval_block *b);

void eval_html_tables(struct eval_doc *d, const struct eval_tables *t);      /* report_tables.c */
void eval_html_predictions(struct eval_doc *d, const struct eval_tables *t); /* report_predictions.c */
void eval_html_versus(struct eval_doc *d, const struct eval_report *r, int32_t run); /* report_tables.c */
void eval_html_side_by_side(struct eval_doc *d, const struct eval_report *r);        /* report_tables.c */
void eval_html_curves(struct eval_doc *d, struct eval_charts *charts,
                      const struct eval_tables *t); /* report_curves.c */
void eval_html_costs(struct eval_doc *d, struct eval_charts *charts,
                     const struct eval_tables *t); /* report_costs.c */
void eval_html_turns(struct eval_doc *d, struct eval_charts *charts,
                     const struct eval_tables *t); /* report_turns.c */
/* only: the one score that is drawn (heat.h); NULL = the usual ones. report_heat.c */
void eval_html_heat(struct eval_doc *d, const struct eval_tables *t, const char *only);
void eval_html_papers(struct eval_doc *d, const struct eval_tables *t); /* report_papers.c */
int eval_html_cases(struct eval_doc *d, const struct eval_tables *t);   /* report_cases.c */

/* The style sheet (report_style.c). */
extern const char eval_html_style[];

#endif
