/* SPDX-License-Identifier: MIT */
/*
 * Readings that a folder keeps (--store): the whole cache of a sample's first piece, which many configs go on from
 * (entry_read.c). Such a file does not have what policies observe during prefill. So policies that need it are refused, and
 * configs that drop entries during prefill too.
 */
#ifndef WNW_EVAL_READING_STORE_H
#define WNW_EVAL_READING_STORE_H

#include "eval/run/entry_impl.h"

/* Refuses what does not go with a folder. Returns an exit code, like the others. */
int eval_reading_store_check(const struct eval_args *args, const struct eval_configs *c);
/* Loads the first n tokens of the sample from the folder into the base, and sets the same rules as before. The base has read nothing
 * yet. Does nothing if the folder does not have them, or if there is no folder. */
int eval_reading_store_take(struct eval_shared_reading *rd, int32_t n);
/* Puts the base, which has read the first n tokens, into the folder; a warning says where that fails. */
void eval_reading_store_add(const struct eval_shared_reading *rd, int32_t n);

#endif
