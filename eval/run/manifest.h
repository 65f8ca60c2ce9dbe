/* SPDX-License-Identifier: MIT */
/* run.json: what a run is, so that it can be reported, and goes on only as the same run. */
#ifndef WNW_EVAL_MANIFEST_H
#define WNW_EVAL_MANIFEST_H

#include "eval/run/config.h"
#include "eval/run/entry.h"
#include "eval/run/journal.h"
#include "eval/run/setup.h"

/* The description of a run; NULL if memory runs out. */
json_t *eval_manifest_make(const struct eval_setup *s, const struct eval_configs *c,
                           const struct eval_runtime *m);
/* Sentences that explain names in a report's tables. They are a study's notes, unless an option replaces its policies, sizes or modes.
 * For policies that follow retrieval heads, one says how many of a layer's n_head query heads choose. *out is an array; NULL if there is
 * none. Returns an exit code. */
int eval_manifest_remarks(json_t **out, const struct eval_args *args, const struct eval_suite *suite,
                          const struct eval_configs *c, int32_t n_head);
/* The run.json of a folder; NULL if it is not there, is damaged, or memory runs out. The caller releases it. */
json_t *eval_manifest_load(const char *dir);
/* Whether the folder has a run.json: a run goes on there. */
bool eval_manifest_exists(const char *dir);
/* Takes over the numbers of samples that DIR/run.json has, if it is there with the same --time-budget: they follow
 * from how fast the machine was when the run began. Returns whether it is. */
bool eval_manifest_samples(struct eval_setup *s, const char *dir);
/* Compares with DIR/run.json, if it is there, and changes nothing. Returns an exit code: bad input where the folder holds
 * another run, the message names the first field that differs, or results without a description. */
int eval_manifest_check(const char *dir, const json_t *run);
/* The same, and writes DIR/run.json if it is not there. The folder is locked. */
int eval_manifest_claim(const char *dir, const json_t *run);
/* Opens the journal of the folder, which the caller closes, where the folder is this run's: DIR/run.json is compared before
 * anything is changed there, and written if it is not there. Takes over run. Returns an exit code. */
int eval_manifest_open(struct eval_journal *j, const char *dir, json_t *run);

/* Notes in run.json how many samples were left out: those longer than the model's context, and those that could not be made.
 * Returns an exit code. */
int eval_manifest_left_out(const char *dir, int64_t n_too_long, int64_t n_unmade);

#endif
