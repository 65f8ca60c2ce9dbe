/* SPDX-License-Identifier: MIT */
/* Reading layer by layer. */
#ifndef WNW_LAYER_MAJOR_H
#define WNW_LAYER_MAJOR_H

#include "winnow.h"

/* What a compression is asked for: the policy and size that the rules come down to. */
struct wnw__goal {
    const wnw_policy *policy;
    wnw_size size;
    int32_t ratio_base;
};
/* Reads n checked tokens layer by layer, each compressed as soon as all have been through it.
 * The session is empty after a failure. The report's times are added to, kv_bytes_before is the most that was
 * allocated. */
int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n, const struct wnw__goal *goal,
                          wnw_report *report);

#endif
