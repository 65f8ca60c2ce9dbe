/* SPDX-License-Identifier: MIT */
/* LongBench-E's buckets: contexts sorted by how many words they have. */
#ifndef WNW_EVAL_BUCKET_H
#define WNW_EVAL_BUCKET_H

#include <stdint.h>

/* Buckets have the numbers 1 to EVAL_N_BUCKETS, so that 0 can stand for none. */
enum { EVAL_N_BUCKETS = 3 };

/* The number of the bucket of a context, and that of a name; 0 for NULL and for a name that is unknown. */
int32_t eval_bucket_of(int64_t n_words);
int32_t eval_bucket_find(const char *name);
/* "0-4k", "4-8k" or "8k+". */
const char *eval_bucket_name(int32_t bucket);

#endif
