/* SPDX-License-Identifier: MIT */
/*
 * A context of libllama that a winnow engine drives: libllama builds the graphs, and keys and values are those of the
 * engine's batch. Nodes that store or attend become the engine's operations, and recorders are called at their points.
 * libllama's cells and masks are not used. A check makes sure that its masks mean what winnow's attention does.
 */
#ifndef WNW_BRIDGE_DRIVE_H
#define WNW_BRIDGE_DRIVE_H

#include "bridge/bridge.h"
#include "winnow_batch.h"
#include "winnow_bridge.h"

/* A layer with a cache, as a graph shows it. */
struct wnw__drive_layer {
    int32_t il; /* its number in the model */
    int32_t n_head, n_head_kv, d_k, d_v;
    int32_t n_reader;      /* attentions that read its cache: its own, and those of later layers */
    bool sliding, chunked; /* queries see a window; that of their own chunk */
    float scale;           /* of the attention */
    float q_scale;         /* of queries between RoPE and attention */
    float cap, max_bias;
    char sinks[GGML_MAX_NAME]; /* the tensor of sinks; "" = none */
    bool queries;              /* what comes before RoPE has been found */
    int32_t n_input;           /* numbers of what the attention reads of a token; 0: not found */
    bool rotates;              /* with the parameters that follow, which are plain RoPE where `plain` */
    bool plain;
    int32_t n_rot, mode;
    float base, freq_scale;
    char factors[GGML_MAX_NAME]; /* the tensor that divides frequencies; "" = none */
};

struct wnw_engine;
struct wnw__drive;

/* Contexts that the calling thread makes while it expects them to be driven take nothing from the environment, which is for those of
 * other programs. */
void wnw__drive_expect(bool driven);
bool wnw__drive_expected(void);
/* Takes the context over whose backend `of` is. Until there is an engine, graphs are looked at and not run: those of one
 * sequence's rows in an empty context. */
int wnw__drive_new(struct wnw__drive **out, wnw_bridge *of);
/* To be called after the context is freed. */
void wnw__drive_free(struct wnw__drive *d);
/* The layers of the graphs that were looked at. Whether they slide, and in chunks, is known if more rows came than a window
 * has. E_UNSUPPORTED: there was one that an engine cannot drive; the message says
 * why. */
int wnw__drive_layers(const struct wnw__drive *d, const struct wnw__drive_layer **layers, int32_t *n);
/* Whether one of them computes logits, n_vocab each, of rows that were not asked for. */
bool wnw__drive_gives_all(const struct wnw__drive *d, int32_t n_vocab);
/* Graphs run for the engine's present batch from now on. */
int wnw__drive_set_engine(struct wnw__drive *d, struct wnw_engine *e);
/* The status of the last graph; where it is an error, wnw_last_error says which. */
int wnw__drive_status(const struct wnw__drive *d);

/* Why the engine's present batch cannot be driven, before libllama reads it: WNW_OK, or E_UNSUPPORTED. */
int wnw__drive_check(const struct wnw__drive *d);

/* For device/run.c: looks at a graph before it runs, E_CANCELLED if it need not run; the most tensors that are added to it;
 * adds what comes before a node; adds what takes the place of a node, or false if nothing does. */
int wnw__drive_begin(struct wnw__drive *d, struct ggml_cgraph *graph);
int wnw__drive_tensors(const struct wnw__drive *d);
void wnw__drive_before(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                       const struct ggml_tensor *node);
bool wnw__drive_add(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                    struct ggml_tensor *node);

#endif
