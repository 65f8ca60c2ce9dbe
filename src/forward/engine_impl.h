/* SPDX-License-Identifier: MIT */
/* The inside of an engine: engine.c runs batches, graph.c builds the graphs that they run through. */
#ifndef WNW_ENGINE_IMPL_H
#define WNW_ENGINE_IMPL_H

#include "forward/engine.h"
#include "forward/executor.h"
#include "forward/graph.h"
#include "forward/team.h"
#include "forward/times.h"

/* The graphs that are kept: that of the last prompt, and those of decode steps of four shapes. */
enum { WNW_GRAPH_PROMPT, WNW_GRAPH_DECODE, WNW_N_GRAPHS = WNW_GRAPH_DECODE + 4 };

struct wnw_engine {
    const struct wnw_model *m;
    wnw_engine_params params; /* with defaults in place of zeros */
    struct wnw__team *team;
    struct wnw__attend_shared *shared;
    struct wnw__attend_op *ops;         /* [n_layer] */
    struct wnw__matmul_scratch *matmul; /* scratch of the products with weights */
    struct wnw__graph graphs[WNW_N_GRAPHS];
    struct wnw__times times;
    void *run_by;                 /* the model's executor's; graphs and matmul are unused then */
    uint64_t n_run;               /* runs so far, from which graphs get their age */
    const struct wnw__graph *ran; /* the graph of the last run, or NULL if that run failed */

    /* The present batch. Graphs reach it through the engine when they run. */
    const struct wnw__batch *batch;
    struct wnw__attend_batch attend;  /* the same batch as the attention reads it */
    struct wnw__attend_slice *slices; /* [cap_slices] */
    struct wnw__record_pass *passes;  /* [cap_slices] the slices as recorders see them */
    int32_t cap_slices;
    uint8_t *stages; /* [n_layer][WNW_N_POINTS] number of stages that recorders of the batch want */
    bool masks;      /* a slice of the batch masks heads */
};

#endif
