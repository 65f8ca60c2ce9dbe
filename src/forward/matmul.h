/* SPDX-License-Identifier: MIT */
/* Products with weights as nodes of a graph, by our own kernels (kernel/matmul.h) where they are faster than ggml's. */
#ifndef WNW_FORWARD_MATMUL_H
#define WNW_FORWARD_MATMUL_H

#include "base/err.h"

#include <ggml.h>

/* Scratch of the nodes, one after the other. */
struct wnw__matmul_scratch;

int wnw__matmul_new(struct wnw__matmul_scratch **out, int32_t n_threads);
void wnw__matmul_free(struct wnw__matmul_scratch *p);

/* Whether products of a weight of this type and shape with n_tok tokens are ours. */
bool wnw__matmul_takes(const struct ggml_tensor *w, int64_t n_tok);

/* x [k, n_tok] as bytes, which several products may share. */
struct ggml_tensor *wnw__matmul_input(struct ggml_context *ctx, struct ggml_tensor *x);
/* w [k, n_row], as the file has it, times that input: [n_row, n_tok]. p must outlive every run of the graph. */
struct ggml_tensor *wnw__matmul_node(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                     struct ggml_tensor *w, struct ggml_tensor *input, int64_t n_tok);

#endif
