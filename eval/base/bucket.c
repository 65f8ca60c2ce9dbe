/* SPDX-License-Identifier: MIT */
/* LongBench-E's buckets. */
#include "eval/base/bucket.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t below; /* words */
} buckets[EVAL_N_BUCKETS] = {{"0-4k", 4000}, {"4-8k", 8000}, {"8k+", INT64_MAX}};

int32_t eval_bucket_of(int64_t n_words)
{
    int32_t i = 0;
    while (i < EVAL_N_BUCKETS - 1 && n_words >= buckets[i].below)
        i++;
    return i + 1;
}

int32_t eval_bucket_find(const char *name)
{
    for (int32_t i = 0; name && i < EVAL_N_BUCKETS; i++)
        if (strcmp(buckets[i].name, name) == 0)
            return i + 1;
    return 0;
}

const char *eval_bucket_name(int32_t bucket)
{
    return buckets[bucket - 1].name;
}
