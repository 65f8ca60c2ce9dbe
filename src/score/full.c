/* SPDX-License-Identifier: MIT */
/* Keeps everything: the reference that every other policy is compared with. */
#include "policy/part.h"

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    (void)opts;
    out->n_first = n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++)
        score[i] = 0;
    return WNW_OK;
}

extern const struct wnw__scorer wnw__scorer_full;
const struct wnw__scorer wnw__scorer_full = {
    .pub = {.name = "full",
            .about = "Keeps every entry: the uncompressed cache.",
            .paper = "",
            .details = "Every score is 0 and everything is protected: nothing goes, whatever the size.",
            .protect = protect,
            .score = score},
    .layout = "uniform",
};
