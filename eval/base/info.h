/* SPDX-License-Identifier: MIT */
/* What run.json says: whether two of them describe the same run. */
#ifndef WNW_EVAL_INFO_H
#define WNW_EVAL_INFO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Why a sample is left out that could not be made. */
#define EVAL_WHY_UNMADE "their text has other tokens once the needle is in it"

/* Writes a hash as 16 hexadecimal digits. */
void eval_hash_text(char out[17], uint64_t hash);

/* The first field in which the descriptions differ, NULL if there is none; a text of a or b. Fields that say how and when
 * the work was done may differ: more of them between shards than where a run goes on in its own folder. So may, between
 * shards of a run with a budget of time, the numbers of samples. */
const char *eval_info_difference(const json_t *a, const json_t *b, bool shards);

#endif
