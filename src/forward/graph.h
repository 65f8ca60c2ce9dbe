/* SPDX-License-Identifier: MIT */
/* The transformer graph of a batch. */
#ifndef WNW_GRAPH_H
#define WNW_GRAPH_H

#include "forward/batch.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

/* One stage of recording at one point of a layer: a node of the graph. */
struct wnw__record_op {
    const wnw_engine *e;
    enum wnw__point point;
    int32_t il, stage;
};

/* A built graph with its memory. Starts as {0}. */
struct wnw__graph {
    /* What it was built for: with the own attention it is good for every batch of the same shape. */
    int32_t from, to, n_row, n_out;
    uint8_t *stages; /* [n_layer][WNW_N_POINTS] */

    struct ggml_context *ctx; /* NULL: nothing is built */
    void *arena;              /* [arena_size] of ctx, ours because ggml aborts where it cannot have its own */
    size_t arena_size;
    struct ggml_cgraph *gf;
    ggml_gallocr_t alloc;
    struct ggml_cplan plan;
    uint8_t *work;
    size_t work_size;
    struct ggml_tensor *tokens, *pos, *out_ids, *logits;
    struct ggml_tensor *x_in, *x_out; /* hidden states where layers come before or behind, or NULL */
    struct wnw__attend_ggml *ggml;    /* inputs of the ggml attention, or NULL */
    struct wnw__record_op *records;   /* [n_record] userdata of the recording nodes */
    int32_t n_record;
    uint64_t last_run; /* number of the run that used it last */
};

/* Whether it can run the engine's batch as it is. */
bool wnw__graph_fits(const struct wnw__graph *g, const wnw_engine *e);
/* Builds it anew for the engine's batch; memory of the graph before is used again. Empty on failure. */
int wnw__graph_build(struct wnw__graph *g, wnw_engine *e);
void wnw__graph_free(struct wnw__graph *g);

#endif
