/* SPDX-License-Identifier: MIT */
/* The forward pass of a session: graphs over spans of layers. */
#ifndef WNW_FORWARD_H
#define WNW_FORWARD_H

#include "winnow.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

/* A built graph with its memory: layers from .. to - 1 for n tokens. */
struct wnw__graph {
    int32_t from, to, n;
    struct ggml_context *ctx;
    void *arena; /* [arena_size] of ctx, ours because ggml aborts where it cannot have its own */
    size_t arena_size;
    struct ggml_cgraph *gf;
    ggml_gallocr_t alloc;
    struct ggml_cplan plan;
    uint8_t *work;
    size_t work_size;
    struct ggml_tensor *tokens, *pos, *out_ids, *logits;
    struct ggml_tensor *x_in, *x_out; /* hidden states where other layers come before or after, or NULL */
    struct ggml_tensor **q_tail;      /* [n_layer], newest queries of the ubatch, or NULL */
    struct wnw__attend_ggml *ggml;    /* inputs of the ggml attention, or NULL */
};

/* Layers from .. to - 1 for the next n tokens, at most n_ubatch. */
struct wnw__span {
    int32_t from, to;
    const int32_t *tokens; /* [n], where from = 0 */
    float *x;              /* [n][n_embd] hidden states: read where from > 0, written where to < n_layer */
    int32_t n;
    int32_t n_out; /* logits wanted behind the last layer: of so many of the last tokens, at least 1 */
    bool decode;   /* one token, through the graph that is kept */
};
/* Runs them and takes the tokens into the cache of these layers; s->n_past and s->window.end do not move, so
 * that every layer sees the same. */
int wnw__forward_span(wnw_session *s, const struct wnw__span *span);
/* Counts the span's tokens as read. */
void wnw__forward_advance(wnw_session *s, const struct wnw__span *span);
/* The logits of the last span that reached the output: of its last token to s->logits, or with on_logits of
 * all n tokens (n_out = n), numbered from `first`, to it. */
int wnw__forward_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                        void *user);
/* All three for all layers. */
int wnw__forward(wnw_session *s, const int32_t *tokens, int32_t n, int32_t first, bool decode,
                 wnw_logits_fn on_logits, void *user);
void wnw__graph_free(struct wnw__graph *g);

#endif
