/* SPDX-License-Identifier: MIT */
/* Query heads of a session whose output is 0. */
#ifndef WNW_MASKS_H
#define WNW_MASKS_H

#include "base/err.h"

/* The struct starts as {0}, which masks nothing, and is freed by wnw__masks_free. */
struct wnw__masks {
    uint8_t *head; /* [n_layer][n_head] 1 = masked; NULL = none is */
    wnw_mask_phase phase;
};

void wnw__masks_free(struct wnw__masks *m);
/* `to` is {0} before. n = n_layer x n_head. Nothing is allocated on failure. */
int wnw__masks_copy(struct wnw__masks *to, const struct wnw__masks *from, size_t n);
/* The masks that hold for tokens of a prompt, or for one that is generated. NULL = none. Borrowed. */
const uint8_t *wnw__masks_for(const struct wnw__masks *m, bool generated);

#endif
