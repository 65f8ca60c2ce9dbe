/* SPDX-License-Identifier: MIT */
/* The record of one answer, a line of results.jsonl. */
#ifndef WNW_EVAL_RUN_RECORD_H
#define WNW_EVAL_RUN_RECORD_H

#include "eval/run/entry.h"

enum { EVAL_MAX_KEY = 160 };

/* Writes the key of a record: task, length, index, seed, config and turn. */
void eval_record_key(char out[EVAL_MAX_KEY], const struct eval_sample *s, const char *config, int32_t turn);
/* Whether a key is that of a sample's record, and not of a probe's. */
bool eval_record_is_sample(const char *key);
/* Grades the answer to one turn and makes its record, which the caller releases. Returns an exit code. */
int eval_record_make(json_t **record, double *score, const struct eval_reading *r, const struct eval_entry *e,
                     int32_t turn);
/* The record of an entry that is left out, under the key of its first turn. NULL: out of memory. */
json_t *eval_record_left_out(const struct eval_reading *r, const struct eval_entry *e);

#endif
