/* SPDX-License-Identifier: MIT */
/* Sentences on what names in a report's tables stand for. */
#ifndef WNW_EVAL_REMARKS_H
#define WNW_EVAL_REMARKS_H

#include "eval/run/config.h"

/* The notes of a study, as long as no option replaces its policies, sizes or modes, and how many of a layer's n_head query heads
 * choose under policies that listen to retrieval heads. *out is an array; NULL where there is nothing to say. Returns an exit
 * code. */
int eval_remarks_make(json_t **out, const struct eval_args *args, const struct eval_suite *suite,
                      const struct eval_configs *c, int32_t n_head);

#endif
