/* SPDX-License-Identifier: MIT */
/* The numbers of an entry from which a gate predicts its score: calibration and scorer compute them here. */
#ifndef WNW_GATE_FEATURES_H
#define WNW_GATE_FEATURES_H

#include "policy/part.h"

/* First entries whose expected attention is not computed, and positions whose queries are expected. */
enum { WNW_GATE_SINKS = 4, WNW_GATE_FUTURE = 512 };

/* Sets what must be observed of a layer. */
void wnw__gate_needs(wnw_needs *out);
/* Floats of the memory that the functions below work in. */
size_t wnw__gate_room(const wnw_observation *obs);
/* Begins a layer: computes what all of its heads share, in the room. */
int wnw__gate_begin(const wnw_observation *obs, float *room);
/* Fills f[n_entry[ih]][n_feature] of KV head ih: all features, or the last WNW_GATE_SCALARS of them. */
int wnw__gate_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *room, float *f);

/* The same of all KV heads, on the session's threads, a few heads at a time: calls take(ih, f, user) with the features
 * f[n_entry[ih]][n_feature] of each, from any thread. wnw__gate_begin is part of it. */
size_t wnw__gate_room_all(const wnw_observation *obs, int32_t n_feature);
int wnw__gate_all_heads(const wnw_observation *obs, int32_t n_feature, float *room,
                        void (*take)(int32_t ih, const float *f, void *user), void *user);

#endif
