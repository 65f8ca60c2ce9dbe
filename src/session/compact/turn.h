/* SPDX-License-Identifier: MIT */
/* Keys get other positions: a key that RoPE has turned is turned further. */
#ifndef WNW_TURN_H
#define WNW_TURN_H

#include "session/session.h"

/* The rotation by one distance (new - old position); it starts with a delta of 0. */
struct wnw__turn {
    const float *theta; /* [n_pair] radians per position */
    float *cs;          /* [n_pair][2] cosine, sine */
    int32_t n_pair, delta;
    bool neox; /* an element is turned with the one n_pair after it, else with the next */
};

/* Writes the angles [n_rot / 2] of a layer of the session's model. */
void wnw__turn_angles(const wnw_session *s, int32_t il, float *theta);
/* Whether the model turns elements in that way, for `neox`. */
bool wnw__turns_halves(const wnw_session *s);
void wnw__turn_set(struct wnw__turn *t, int32_t delta);
void wnw__turn_key(const struct wnw__turn *t, float *k);

#endif
