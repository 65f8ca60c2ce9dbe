/* SPDX-License-Identifier: MIT */
/* KeyDiff: a scorer of its own, and one of the numbers from which gates predict scores. */
#ifndef WNW_KEYDIFF_H
#define WNW_KEYDIFF_H

#include "policy/part.h"

/* Fills s[n] with the scores of KV head ih, 0 after its entries. mu[n_embd_head] is scratch memory. */
void wnw__keydiff(const wnw_observation *obs, int32_t ih, float *s, float *mu);

#endif
