/* SPDX-License-Identifier: MIT */
/* The inside of a driven context: drive/drive_look.c finds what a graph shows, drive/drive.c makes its nodes those of
 * an engine. */
#ifndef WNW_BRIDGE_DRIVE_IMPL_H
#define WNW_BRIDGE_DRIVE_IMPL_H

#include "bridge/drive/drive.h"
#include "forward/engine_impl.h"

/* An attention of the current graph, and what was found above it. */
struct wnw__attention_site {
    struct wnw__drive_layer layer;
    const struct wnw__bridge_layer *of;
    int32_t il, reader; /* the layer of the engine; which of the attentions that read it */
    int32_t n_packed;   /* KV heads in one of the engine's */
    bool chain;         /* several nodes were the attention */
    const struct ggml_tensor *node, *store; /* store: the node that writes the keys */
    const struct ggml_tensor *rope;         /* the node that turns queries; NULL = nothing turns them */
    const struct ggml_tensor *product;      /* makes keys of what the attention reads; NULL: not found */
};

struct wnw__drive {
    struct wnw__bridge_backend *b;
    wnw_engine *e; /* NULL: graphs are looked at */
    int rc;
    struct wnw__drive_layer *layers; /* [n_layer] of the graphs that were looked at */
    int64_t *first_cell;             /* [n_layer] of their first row */
    int32_t n_layer;
    int32_t n_looked; /* rows of the graphs that were looked at */
    int64_t n_logits; /* columns of logits that were computed for all rows of a graph; 0 = none were */
    struct wnw__attention_site *sites; /* [n_site] of the current graph, in its order */
    int32_t n_site, cap_site;
    bool found;     /* they are those of the last graph, which can be recognised */
    float *rows[4]; /* keys, values, queries and results of the current attention, [n_row][heads][d] */
    struct wnw__record_op *records;
    int32_t n_record, cap_record;
};

/* Finds the sites of a graph. E_UNSUPPORTED: one that the engine's attention cannot compute. */
int wnw__drive_find(struct wnw__drive *d, struct ggml_cgraph *graph);
/* Keeps the layers that they show. */
int wnw__drive_look(struct wnw__drive *d, struct ggml_cgraph *graph);
/* Whether the graph's masks say what the engine's attention does with its present batch. */
int wnw__drive_check_masks(const struct wnw__drive *d);

#endif
