/* SPDX-License-Identifier: MIT */
/*
 * What runs an engine's batches where the model's graphs are not ours (src/llama has libllama build them), and the state of a
 * sequence's recurrent layers, which such models may have: what these layers keep of all tokens read so far in place of
 * entries.
 */
#ifndef WNW_EXECUTOR_H
#define WNW_EXECUTOR_H

#include "forward/batch.h"
#include "winnow_batch.h"

#include <stdbool.h>

struct wnw_engine;
struct wnw__recurrent;

struct wnw__executor {
    /* Makes what runs batches of the engine, whose parameters and attention are set. The engine calls free for *x, also
     * after a failure; *x may be NULL then. */
    int (*open)(void **x, struct wnw_engine *e);
    void (*free)(void *x);
    /* Runs the engine's present batch, for which room has been made: stores keys and values after the entries of its
     * caches and calls its recorders. On failure recorders have not been told yet. */
    int (*run)(void *x);
    /* As wnw__engine_logits. */
    const float *(*logits)(const void *x, int32_t i);
    /* As wnw__recurrent_new and the others below. Where the model has no recurrent layers, recurrent_new sets NULL, and the
     * others are not called. */
    int (*recurrent_new)(struct wnw__recurrent **out, void *x);
    void (*recurrent_free)(struct wnw__recurrent *r);
    int (*recurrent_copy)(struct wnw__recurrent *to, struct wnw__recurrent *from);
    void (*recurrent_clear)(struct wnw__recurrent *r);
    int (*recurrent_get)(struct wnw__recurrent *r, const uint8_t **bytes, size_t *n);
    int (*recurrent_set)(struct wnw__recurrent *r, const uint8_t *bytes, size_t n, int32_t n_read);
};

/* ---- The state of recurrent layers ----
 * It belongs to the sequence and is of use to its engine alone. It can be copied and emptied, and not taken back to an earlier
 * token. All functions take NULL, the state of a model without such layers. */

/* The beginning of an executor's own struct. */
struct wnw__recurrent {
    const struct wnw__executor *by;
};

/* An empty state; NULL where the engine's model has no recurrent layers. */
int wnw__recurrent_new(struct wnw__recurrent **out, struct wnw_engine *e);
/* To be called before the engine is freed. */
void wnw__recurrent_free(struct wnw__recurrent *r);
/* Makes `to`, which may be another engine's of the same model, the state that `from` is. After a failure `to` is lost:
 * batches that need it fail until it is emptied. */
int wnw__recurrent_copy(struct wnw__recurrent *to, struct wnw__recurrent *from);
void wnw__recurrent_clear(struct wnw__recurrent *r);
/* Sets *bytes, [*n], to the state as bytes, for an engine of the same model and libllama; borrowed until the next call on r.
 * NULL and 0 where r is NULL. */
int wnw__recurrent_get(struct wnw__recurrent *r, const uint8_t **bytes, size_t *n);
/* Makes an empty state the one of these bytes, which n_read tokens came to; copied. Bytes that are no state of the model
 * are noticed in the next batch, which then fails. */
int wnw__recurrent_set(struct wnw__recurrent *r, const uint8_t *bytes, size_t n, int32_t n_read);

#endif
