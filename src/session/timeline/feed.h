/* SPDX-License-Identifier: MIT */
/* Reading tokens into a session: the functions that all ways of reading share. */
#ifndef WNW_FEED_H
#define WNW_FEED_H

#include "winnow.h"
#include "winnow_batch.h"

/* The session's next n tokens, at most n_ubatch, on their way through layers from .. to - 1. */
struct wnw__span {
    int32_t from, to;
    const int32_t *tokens; /* [n]; read where from = 0 */
    float *x;              /* [n][n_embd] hidden states: read where from > 0, written where to < n_layer */
    int32_t n;
    int32_t n_out; /* number of last tokens whose logits are computed after the last layer, at least 1 */
};

/* Runs the span's layers and appends its tokens to their caches. s->n_past stays, so that every layer sees
 * the same number. */
int wnw__feed_span(wnw_session *s, const struct wnw__span *span);
/* Takes the logits of the last span that reached the output, after its tokens were counted in s->n_past.
 * Without on_logits the last token's logits go to s->logits; with on_logits (n_out = n) it gets those of all
 * n tokens, numbered from `first`. E_NOT_FINITE, or E_CANCELLED when on_logits returns false. */
int wnw__feed_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                     void *user);
/* Drops entries that have left the sliding windows. Where memory for that is missing they stay until the next
 * call, which is harmless: attention does not read them. */
void wnw__feed_trim(wnw_session *s);

/* Reads n checked prompt tokens. The progress callback counts from `done` of `total` tokens, which were read before
 * them. */
int wnw__feed_prompt(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                     wnw_logits_fn on_logits, void *user);
/* Reads one checked token for each of n sessions in one pass of their engine; tokens[i] continues
 * sessions[i]. Nothing is read on failure. The caller then calls wnw__feed_step_logits for each session. */
int wnw__feed_step(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n);
/* Takes the logits of s, which was the i-th session of the step. E_NOT_FINITE: they are not numbers, and s
 * has no logits. */
int wnw__feed_step_logits(wnw_session *s, int32_t i);

#endif
