/* SPDX-License-Identifier: MIT */
/* One text of the perturbation study: it is read once, and the token that the model continues it with shows what every
 * policy and size would change. */
#ifndef WNW_PERTURB_RECORD_H
#define WNW_PERTURB_RECORD_H

#include "eval/run/config.h"
#include "eval/run/entry.h"
#include "perturb/numbers.h"

/* The configs of a study: all but the full cache, sizes of the first policy, then of the next. */
struct perturb_work {
    const struct eval_runtime *runtime;
    const struct eval_config *config; /* [n_policies x n_sizes] */
    int32_t n_policies, n_sizes;
};

/* Reads ids[n] and makes the record, which the caller releases: "token", the one that was measured, "changes" for each
 * config and "bounds" for each size (perturb.h), "ms". Returns an exit code. */
int perturb_record(json_t **record, const struct perturb_work *w, const int32_t *ids, int32_t n);

/* Adds a record to the numbers, where there is room for its text; false if it does not have those of this study. */
bool perturb_record_add(struct perturb_numbers *p, const json_t *record);

#endif
