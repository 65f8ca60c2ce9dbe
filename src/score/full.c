/* SPDX-License-Identifier: MIT */
/* Keeps everything: the reference that every other policy is compared with. */
#include "policy/part.h"

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)opts;
    out->n_first = p->n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++)
        score[i] = 0;
    return WNW_OK;
}

const wnw_scorer wnw__scorer_full = {
    .part = {WNW_SCORER_INIT, .name = "full", .about = "Keeps every entry: the uncompressed cache.",
             .details = "Every score is 0 and everything is protected: nothing goes, regardless of the size.",
             .flags = WNW_FLAG_UNIFORM, .keep = keep},
    .score = score,
};
