/* SPDX-License-Identifier: MIT */
/*
 * The state of a sequence's recurrent layers, where a model has some: what they keep of all tokens read so far in place of
 * entries. It belongs to the sequence and is of use to its engine alone. It can be copied and emptied, and not taken back
 * to an earlier token. All functions take NULL, the state of a model without such layers.
 */
#ifndef WNW_RECURRENT_H
#define WNW_RECURRENT_H

#include <stdbool.h>

struct wnw_engine;
struct wnw__executor;

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

#endif
