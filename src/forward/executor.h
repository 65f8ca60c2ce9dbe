/* SPDX-License-Identifier: MIT */
/* What runs an engine's batches where the model's graphs are not ours: src/llama has libllama build them. */
#ifndef WNW_EXECUTOR_H
#define WNW_EXECUTOR_H

#include "forward/batch.h"
#include "forward/recurrent.h"

struct wnw_engine;

struct wnw__executor {
    /* Makes what runs batches of the engine, whose parameters and attention are set. The engine calls free for *x, also
     * after a failure; *x may be NULL then. */
    int (*open)(void **x, struct wnw_engine *e);
    void (*free)(void *x);
    /* Runs the engine's present batch, for which room has been made: stores keys and values behind the entries of its
     * caches and calls its recorders. On failure recorders have not been told yet. */
    int (*run)(void *x);
    /* As wnw__engine_logits. */
    const float *(*logits)(const void *x, int32_t i);
    /* As forward/recurrent.h. Where the model has no recurrent layers, recurrent_new sets NULL, and the others are not
     * called. */
    int (*recurrent_new)(struct wnw__recurrent **out, void *x);
    void (*recurrent_free)(struct wnw__recurrent *r);
    int (*recurrent_copy)(struct wnw__recurrent *to, struct wnw__recurrent *from);
    void (*recurrent_clear)(struct wnw__recurrent *r);
};

#endif
