/* SPDX-License-Identifier: MIT */
/* Products with weights as nodes of a graph. Our own kernels (kernel/matmul.h) compute them where they are
 * faster than ggml's. */
#ifndef WNW_FORWARD_MATMUL_H
#define WNW_FORWARD_MATMUL_H

#include "base/err.h"

#include <ggml.h>

/* Scratch memory of the nodes, which share it because they run one after the other. */
struct wnw__matmul_scratch;

/* For weights with rows of up to max_k columns, and norms with this epsilon. */
int wnw__matmul_new(struct wnw__matmul_scratch **out, int32_t n_threads, int64_t max_k, float rms_eps);
void wnw__matmul_free(struct wnw__matmul_scratch *p);

/* Whether our kernels compute products of a weight of this type and shape with n_tok tokens. ggml has a copy of the
 * weight in its own layout if it is `repacked`. */
bool wnw__matmul_takes(const struct ggml_tensor *w, int64_t n_tok, bool repacked);
/* The same of a weight that is there in ggml's layout alone, eight rows by eight (kernel/matmul_by_eight.c). */
bool wnw__matmul_takes_by_eight(const struct ggml_tensor *w, int64_t n_tok);

/* The most weights of one node. */
enum { WNW_MATMUL_TOGETHER = 3 };

/* What products multiply, float32, [k, n_tok]. Norms and gates are computed where rows are converted to bytes, so that they are
 * not written to memory and no thread waits for them. */
enum wnw__operand_kind {
    WNW_OPERAND_PLAIN,    /* a */
    WNW_OPERAND_RMS_NORM, /* the RMS norm of a, times b [k] */
    WNW_OPERAND_SWIGLU,   /* silu(a) b */
    WNW_OPERAND_READY,    /* a is what wnw__matmul_input returned; only inside of nodes */
};
struct wnw__operand {
    enum wnw__operand_kind kind;
    struct ggml_tensor *a, *b;
};

/* What nodes take for an operand: for one token the operand itself, which every thread converts to bytes, since that is faster
 * than to wait until one has done it; otherwise a node that converts it. Several products may share it. p must outlive every run
 * of the graph. */
struct wnw__operand wnw__matmul_input(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                      const struct wnw__operand *x);
/* A node that multiplies n_w weights [k, rows], as the file has them, with what wnw__matmul_input returned. Its result has the
 * products one after the other, [sum of the rows, n_tok]. p must outlive every run of the graph. */
struct ggml_tensor *wnw__matmul_node(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                     struct ggml_tensor *const *w, int n_w, const struct wnw__operand *input);
/* The same with each result in a tensor of the caller's, y[i] [rows of w[i], n_tok], contiguous. What the node itself is given as
 * memory is not written. */
struct ggml_tensor *wnw__matmul_node_apart(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                           struct ggml_tensor *const *w, struct ggml_tensor *const *y,
                                           int n_w, const struct wnw__operand *input);
/* The same of one weight whose rows lie by eight, with more than one token. */
struct ggml_tensor *wnw__matmul_node_by_eight(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                              struct ggml_tensor *w, struct ggml_tensor *y,
                                              const struct wnw__operand *input);

#endif
