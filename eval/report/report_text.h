/* SPDX-License-Identifier: MIT */
/* What report_text.c shares with report_text_maps.c. */
#ifndef WNW_EVAL_REPORT_TEXT_H
#define WNW_EVAL_REPORT_TEXT_H

#include "eval/report/report_impl.h"

/* Adds a variant's label, with its size if so asked, and blanks up to a width in columns. */
void eval_text_label(struct eval_doc *d, const struct eval_run *run, const struct eval_variant *v, bool size,
                     int width);
/* Adds what tasks of a block without informative scores show. */
void eval_text_predictions(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                           int width);
/* Adds times and memory at a block's length, where every method read by itself. */
void eval_text_costs(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width);
/* Adds scores by question and maps by depth and length of the tasks of a block that have them. shown: what maps show
 * (heat.h); NULL = the score. */
void eval_text_maps(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width,
                    const char *shown);

#endif
