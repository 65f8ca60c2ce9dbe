/* SPDX-License-Identifier: MIT */
/* What a session shows to policies, and what it gathers for them while it reads. */
#ifndef WNW_OBSERVE_H
#define WNW_OBSERVE_H

#include "observe/nll.h"
#include "winnow_method.h"

#include <ggml.h>

struct wnw__observer;
struct wnw__plan_source;
int wnw__observer_new(struct wnw__observer **out, wnw_session *s);
void wnw__observer_free(struct wnw__observer *ob);
/* A source of observations of the session's present cache. Borrowed from the observer. */
const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob);

/* What is gathered while tokens are read. Made empty for policies that agree, then taken in place of what the
 * session gathered before, which cannot fail; graphs built earlier must be freed. */
struct wnw__stats {
    struct wnw__qstats *qstats;
    struct wnw__nll nll;
    bool proj_norm; /* whether anybody asks for projected norms */
};
int wnw__session_stats_new(const wnw_session *s, const wnw_policy *const *policies, int32_t n,
                           struct wnw__stats *out);
void wnw__session_stats_free(struct wnw__stats *stats);
void wnw__session_stats_take(wnw_session *s, const struct wnw__stats *stats);
/* Likelihoods of n tokens that were just read and are not yet counted in n_past; logits are those of the last
 * tokens, s->logits those from before. */
void wnw__session_take_nll(wnw_session *s, const int32_t *tokens, int32_t n,
                           const struct ggml_tensor *logits);

/* Norms of the values of layer il behind the output projection, norm[n_head_kv][n], or of each query head
 * behind its slice, norm[n_head][n], with n at least the entries of every head; 0 behind them. */
int wnw__session_proj_norm(wnw_session *s, int32_t il, wnw_proj_norm kind, bool of_query_heads, int32_t n,
                           float *norm);

#endif
