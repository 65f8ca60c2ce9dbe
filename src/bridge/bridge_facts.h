/* SPDX-License-Identifier: MIT */
/* What a graph shows of the attentions over layers that policies act on. */
#ifndef WNW_BRIDGE_FACTS_H
#define WNW_BRIDGE_FACTS_H

#include "bridge/bridge.h"

/* Lists the attentions of a graph over layers that policies act on, and learns of each such layer what the graph shows.
 * E_NOMEM. */
int wnw__bridge_facts_find(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* The place of an attention's node; NULL if policies do not act on its layer. */
const struct wnw__bridge_place *wnw__bridge_place_of(const struct wnw__bridge_backend *b,
                                                     const struct ggml_tensor *node);
/* The rotation's mode for a text. Where a token has several positions, for images, those of a text are equal, and pairs are
 * turned as with one. */
int32_t wnw__bridge_rope_mode(const struct ggml_tensor *rope);
/* Whether the rotation is that of ggml_rope_ext with one frequency per pair and no mixing of scales. */
bool wnw__bridge_is_plain_rope(const struct ggml_tensor *rope);
/* Writes the angle of each pair in radians per position to theta[n_rot / 2]; the layer's queries turn by plain RoPE. */
void wnw__bridge_theta(const struct wnw__bridge_facts *f, float *theta);
#endif
