/* SPDX-License-Identifier: MIT */
/* Recorder of the newest generated token's hidden state after every layer. */
#ifndef WNW_STATES_H
#define WNW_STATES_H

#include "forward/recorder.h"

struct wnw__states;

/* The hidden state [n_embd] after layer il: the residual stream, in front of the next layer's norm. Returns NULL if
 * the newest token was not generated or if entries have moved since. Borrowed until the next pass. */
const float *wnw__states_of(const struct wnw__states *w, int32_t il);

#endif
