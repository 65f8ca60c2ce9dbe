/* SPDX-License-Identifier: MIT */
/* SVG by gnuplot inside a page. */
#ifndef WNW_EVAL_CHART_SVG_H
#define WNW_EVAL_CHART_SVG_H

#include "eval/doc.h"

/* Adds the <svg> element of a document by gnuplot. All its ids begin with "cNUMBER-", so that they differ from those of
 * other charts; titles, which browsers show as tooltips, empty groups and attributes with their default are left out. */
void eval_svg_add(struct eval_doc *d, const char *svg, int number);

#endif
