/* SPDX-License-Identifier: MIT */
/*
 * The engine (wnw_engine) computes. It owns graphs, activations, scratch memory and threads. It knows no
 * sequence beyond the present batch, so sequences can share one engine, and a decode step of several
 * sequences is one pass over the weights. An engine belongs to one thread at a time, together with all
 * sequences that use it.
 */
#ifndef WNW_ENGINE_H
#define WNW_ENGINE_H

#include "base/parallel.h"
#include "forward/batch.h"
#include "model/model.h"
#include "winnow_batch.h"

const struct wnw_model *wnw__engine_model(const wnw_engine *e);
/* The parameters it was made with, defaults in place of zeros; n_threads is the number of threads that could
 * be started, at most the number asked for. Borrowed. */
const wnw_engine_params *wnw__engine_params(const wnw_engine *e);
/* The threads that compute its graphs, for loops that run between graphs. Borrowed. */
struct wnw__pool *wnw__engine_pool(wnw_engine *e);

/* Runs the batch. Afterwards the keys and values of its rows are entries of the caches, and recorders have
 * taken and counted what they want. The caller counts the tokens of each sequence. On failure the caches hold
 * the same entries as before; if the graph had begun, recorders have been told so (WNW_EVENT_PASS_FAILED). */
int wnw__engine_run(wnw_engine *e, const struct wnw__batch *batch);
/* Logits [n_vocab] of the i-th row that the last run was asked for. That run must have succeeded and reached
 * the last layer. Borrowed until the next run or release. */
const float *wnw__engine_logits(const wnw_engine *e, int32_t i);
/* Frees the activations of the last prompt, the largest piece of memory after weights and caches. */
void wnw__engine_release(wnw_engine *e);

#endif
