/* SPDX-License-Identifier: MIT */
/* Reading tokens into a session: what all ways of reading share. */
#ifndef WNW_FEED_H
#define WNW_FEED_H

#include "winnow.h"

/* The session's next n tokens, at most n_ubatch, on their way through layers from .. to - 1. */
struct wnw__span {
    int32_t from, to;
    const int32_t *tokens; /* [n], where from = 0 */
    float *x;              /* [n][n_embd] hidden states: read where from > 0, written where to < n_layer */
    int32_t n;
    int32_t n_out; /* logits wanted behind the last layer: of so many of the last tokens, at least 1 */
};

/* Runs them and takes the tokens into the cache of these layers; s->n_past does not move, so that every
 * layer sees the same. */
int wnw__feed_span(wnw_session *s, const struct wnw__span *span);
/* The logits of the last span that reached the output, whose tokens are counted: of its last token to
 * s->logits, or with on_logits of all n tokens (n_out = n), numbered from `first`, to it. */
int wnw__feed_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                     void *user);
/* Drops what has left the sliding windows. Without memory for that, entries stay for another time; attention
 * does not look at them. */
void wnw__feed_trim(wnw_session *s);

/* Reads n prompt tokens that were checked, the ones behind `done` of `total` for the progress callback. */
int wnw__feed_prompt(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                     wnw_logits_fn on_logits, void *user);
/* Reads one checked token of each of n sessions, whose text it continues, in one pass of their engine.
 * Nothing is read on failure. wnw__feed_step_logits comes next, for each session. */
int wnw__feed_step(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n);
/* The logits of the i-th session of the step; E_NOT_FINITE: it has none. */
int wnw__feed_step_logits(wnw_session *s, int32_t i);

#endif
