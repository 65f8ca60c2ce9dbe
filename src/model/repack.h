/* SPDX-License-Identifier: MIT */
/* Weights in the layouts that ggml computes with fastest. */
#ifndef WNW_REPACK_H
#define WNW_REPACK_H

#include "model/model.h"

/* Moves the weights that ggml can hold in a faster CPU layout there and redirects m's pointers. */
int wnw__repack(struct wnw_model *m);

#endif
