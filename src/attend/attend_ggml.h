/* SPDX-License-Identifier: MIT */
/* Attention with standard ggml operations: the oracle of our own. */
#ifndef WNW_ATTEND_GGML_H
#define WNW_ATTEND_GGML_H

#include "winnow.h"

#include <ggml.h>

struct wnw__attend_ggml;
int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const wnw_session *s);
void wnw__attend_ggml_free(struct wnw__attend_ggml *ag);
/* Attention of layer il with standard operations; stores k and v first. */
struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, int32_t il, struct ggml_tensor *q,
                                           struct ggml_tensor *k, struct ggml_tensor *v);
/* Fills masks and row indices after the graph got its memory. */
int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag);

#endif
