/* SPDX-License-Identifier: MIT */
/* Norms with weights as nodes of a graph. */
#ifndef WNW_FORWARD_NORM_H
#define WNW_FORWARD_NORM_H

#include <ggml.h>

/* A node with the RMS norms of the rows of x, float32, times w [x->ne[0]]. It gives the bits of ggml's RMS_NORM and MUL, one after
 * the other, and saves the threads the time in which they wait between the two. Where its memory is that of x, it has the same
 * strides. *eps is a float, which is read when the graph runs. */
struct ggml_tensor *wnw__norm_node(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *w,
                                   const void *eps);

#endif
