/* SPDX-License-Identifier: MIT */
/* Keep-plans that were made elsewhere, one file per sample: the policy `plan:DIR`. */
#ifndef WNW_EVAL_PLANS_H
#define WNW_EVAL_PLANS_H

#include "eval/run/entry.h"

/* The folder that a word of --policies names; NULL where it is a recipe. */
const char *eval_plans_folder(const char *word);
/* Hashes the plans of a folder, those of its files that end in .json, so that results of other plans have another id. Returns an exit code: bad input where there is no
 * plan. */
int eval_plans_hash(uint64_t *out, const char *folder);
/* Reads the entry's plan, DIR/TASK-LENGTH-INDEX.json, which must be of the first n_part tokens of the sample's prompt. Returns an exit code. */
int eval_plans_load(struct eval_entry *e, const struct eval_reading *r, const wnw_model *m,
                    const wnw_model_info *info);

#endif
