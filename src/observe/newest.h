/* SPDX-License-Identifier: MIT */
/* Recorder of the attention of the newest generated token: every query head's softmax over all entries. */
#ifndef WNW_NEWEST_H
#define WNW_NEWEST_H

#include "forward/recorder.h"

struct wnw__newest;

/* Rows [n_head][*n] of layer il: the probability of each entry that the token's KV head held when the token
 * was read, its own as the last; 0 behind a head's entries and outside a sliding window. NULL and *n = 0
 * where the newest token was not generated, or where entries have moved since. Borrowed until the next
 * pass. */
const float *wnw__newest_rows(const struct wnw__newest *w, int32_t il, int32_t *n);

#endif
