/* SPDX-License-Identifier: MIT */
/* Recorder of the attention of the newest generated token: the softmax of every query head over all
 * entries. */
#ifndef WNW_NEWEST_H
#define WNW_NEWEST_H

#include "forward/recorder.h"

struct wnw__newest;

/* Rows [n_head][*n] of layer il. The row of a query head holds the probability of each entry that its KV head
 * held when the token was read, the token's own entry last; it is 0 after a head's entries and outside a
 * sliding window. Returns NULL and *n = 0 if the newest token was not generated or if entries have moved
 * since. Borrowed until the next pass. */
const float *wnw__newest_rows(const struct wnw__newest *w, int32_t il, int32_t *n);

#endif
