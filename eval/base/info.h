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

/* The first field that differs between the descriptions, NULL if none does; a text of a or b. Fields about how and when the work
 * was done may differ. Shards may differ in more of them than a run that continues in its own folder. Shards of a run with a
 * time budget may also differ in their numbers of samples. */
const char *eval_info_difference(const json_t *a, const json_t *b, bool shards);

#endif
