/* SPDX-License-Identifier: MIT */
/* The page of reports: share/pages/report.html with the data that its script draws. */
#ifndef WNW_EVAL_PAGE_H
#define WNW_EVAL_PAGE_H

#include "eval/report/doc.h"

#include <jansson.h>

/* Adds the page to an empty document. data is an object with "runs" (report_json.c) or "perturbation" (perturb_forms.c).
 * Returns an exit code: bad input where the page is not where it was installed, or is another file. */
int eval_page_make(struct eval_doc *d, const json_t *data);

/* Adds JSON as the text of an element <script type="application/json">: no byte of it can end the element, or mean anything
 * but JSON to any reader. */
void eval_page_data(struct eval_doc *d, const char *json);

#endif
