/* SPDX-License-Identifier: MIT */
/* Recorder of the newest generated token: the queries that its attention read, and the output of every head before the
 * output projection. */
#ifndef WNW_OUTPUTS_H
#define WNW_OUTPUTS_H

#include "forward/recorder.h"

struct wnw__outputs;

/* The queries after RoPE and the outputs in front of the projection in layer il, both [n_head][d]; *out is the
 * output. Returns NULL and *out = NULL if the newest token was not generated, or if entries have changed since.
 * Borrowed until the next pass. */
const float *wnw__outputs_of(const struct wnw__outputs *w, int32_t il, const float **out);

#endif
