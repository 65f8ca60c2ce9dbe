/* SPDX-License-Identifier: MIT */
/* The transformer graph of a batch. */
#ifndef WNW_GRAPH_H
#define WNW_GRAPH_H

#include "forward/times.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

/* One stage of recording at one point of a layer. Each is a node of the graph. */
struct wnw__record_op {
    const wnw_engine *e;
    enum wnw__point point;
    int32_t il, stage, reader;
};

/* A node that calls recorders. q [d, n_head, n_row]; out: the attention's output [d * n_head, n_row], or q where there is
 * none; before: what must run first, or q. */
struct ggml_tensor *wnw__graph_record(struct ggml_context *ctx, struct wnw__record_op *op,
                                      struct ggml_tensor *q, struct ggml_tensor *out,
                                      struct ggml_tensor *before);

/* A built graph with its memory. Starts as {0}. */
struct wnw__graph {
    /* The shape it was built for. With the own attention it can run every batch of this shape. */
    int32_t from, to, n_row, n_out;
    uint8_t *stages; /* [n_layer][WNW_N_POINTS] number of stages of recording */
    bool masks;      /* heads can be masked; other graphs have no nodes for it */

    struct ggml_context *ctx; /* NULL: nothing is built */
    void *arena;              /* [arena_size] memory of ctx; it is ours because ggml aborts if it gets none */
    size_t arena_size;
    struct ggml_cgraph *gf;
    ggml_gallocr_t alloc;
    struct ggml_cplan plan;
    uint8_t *work;
    size_t work_size;
    struct ggml_tensor *tokens, *pos, *out_ids, *logits;
    struct ggml_tensor *x_in, *x_out; /* hidden states; NULL in the first layer, NULL after the last */
    struct wnw__attend_ggml *ggml;    /* inputs of the ggml attention, or NULL */
    struct wnw__record_op *records;   /* [n_record] userdata of the recording nodes */
    int32_t n_record;
    bool timed;                    /* has marks */
    wnw_work products[WNW_N_WORK]; /* the work of the products with weights */
    uint64_t last_run;             /* number of the run that used it last */
};

/* Whether the graph can run the engine's present batch without being built again. */
bool wnw__graph_fits(const struct wnw__graph *g, const wnw_engine *e);
/* Builds the graph for the engine's present batch and reuses the memory of the graph before it. On failure no
 * graph is built in g. */
int wnw__graph_build(struct wnw__graph *g, wnw_engine *e);
void wnw__graph_free(struct wnw__graph *g);

#endif
