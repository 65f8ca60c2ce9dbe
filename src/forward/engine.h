/* SPDX-License-Identifier: MIT */
/*
 * What computes: graphs, activations, scratch memory and threads. An engine knows no sequence beyond the batch
 * at hand, so that sequences can share one and a decode step of several is one pass over the weights. It
 * belongs to one thread at a time, together with all sequences that use it.
 */
#ifndef WNW_ENGINE_H
#define WNW_ENGINE_H

#include "base/parallel.h"
#include "forward/batch.h"
#include "model/model.h"

struct wnw__engine_params {
    int32_t n_ubatch; /* most rows of a batch */
    int32_t n_threads;
    wnw_attn attn;
};

struct wnw__engine;
/* The model must outlive the engine. */
int wnw__engine_new(struct wnw__engine **out, const struct wnw_model *m,
                    const struct wnw__engine_params *params);
void wnw__engine_free(struct wnw__engine *e);
/* n_threads: as many as could be started, at most those that were asked for. */
const struct wnw__engine_params *wnw__engine_params_of(const struct wnw__engine *e);
/* The threads of its graphs, for loops between graphs. Borrowed. */
struct wnw__pool *wnw__engine_pool(struct wnw__engine *e);

/* Runs the batch: keys and values of its rows are entries of the caches afterwards, recorders have taken what
 * they want and counted it. The sequences' own count of tokens is the caller's. On failure caches hold the
 * entries of before; recorders have been told (WNW_MOVED_FAILED) where a graph had begun. */
int wnw__engine_run(struct wnw__engine *e, const struct wnw__batch *batch);
/* Logits [n_vocab] of the i-th of the rows asked for in the last run, which reached the last layer. Borrowed
 * until the next run or release. */
const float *wnw__engine_logits(const struct wnw__engine *e, int32_t i);
/* Gives back the activations of the last prompt, the largest piece of memory beside weights and caches. */
void wnw__engine_release(struct wnw__engine *e);

#endif
