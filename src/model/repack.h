/* SPDX-License-Identifier: MIT */
/* Weights in the layouts that ggml computes with fastest. */
#ifndef WNW_REPACK_H
#define WNW_REPACK_H

#include "model/model.h"

/* Copies weights that ggml can hold in a faster CPU layout to that layout and redirects m's pointers to the
 * copies. */
int wnw__repack(struct wnw_model *m);

#endif
