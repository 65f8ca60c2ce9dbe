/* SPDX-License-Identifier: MIT */
/*
 * What computes (wnw_engine): graphs, activations, scratch memory and threads. An engine knows no sequence
 * beyond the batch at hand, so that sequences can share one and a decode step of several is one pass over the
 * weights. It belongs to one thread at a time, together with all sequences that use it.
 */
#ifndef WNW_ENGINE_H
#define WNW_ENGINE_H

#include "base/parallel.h"
#include "forward/batch.h"
#include "model/model.h"

const struct wnw_model *wnw__engine_model(const wnw_engine *e);
/* What it was made with, no zeros left; n_threads: as many as could be started, at most those asked for. */
const wnw_engine_params *wnw__engine_params(const wnw_engine *e);
/* The threads of its graphs, for loops between graphs. Borrowed. */
struct wnw__pool *wnw__engine_pool(wnw_engine *e);

/* Runs the batch: keys and values of its rows are entries of the caches afterwards, recorders have taken what
 * they want and counted it. The sequences' own count of tokens is the caller's. On failure caches hold the
 * entries of before; recorders have been told (WNW_MOVED_FAILED) where a graph had begun. */
int wnw__engine_run(wnw_engine *e, const struct wnw__batch *batch);
/* Logits [n_vocab] of the i-th of the rows asked for in the last run, which reached the last layer. Borrowed
 * until the next run or release. */
const float *wnw__engine_logits(const wnw_engine *e, int32_t i);
/* Gives back the activations of the last prompt, the largest piece of memory beside weights and caches. */
void wnw__engine_release(wnw_engine *e);

#endif
