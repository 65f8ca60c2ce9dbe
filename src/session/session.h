/* SPDX-License-Identifier: MIT */
/* One timeline: cache, graphs, logits and the queries that policies want to see. Belongs to one thread at a
 * time. */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "attend/attend.h"
#include "cache/cache.h"
#include "model/model.h"
#include "observe/nll.h"
#include "observe/trace.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

/* The last `cap` queries of every layer, after RoPE: q[n_layer][cap][n_head][d]. A ring: position p is row
 * p % cap; those of positions end - n .. end - 1 are there. */
struct wnw__window {
    float *q;
    int32_t cap, n, end;
    bool decode; /* queries of decoded tokens are kept too */
};

/* A built graph with its memory: layers from .. to - 1 for n tokens. */
struct wnw__graph {
    int32_t from, to, n;
    struct ggml_context *ctx;
    void *arena; /* [arena_size] of ctx, ours because ggml aborts where it cannot have its own */
    size_t arena_size;
    struct ggml_cgraph *gf;
    ggml_gallocr_t alloc;
    struct ggml_cplan plan;
    uint8_t *work;
    size_t work_size;
    struct ggml_tensor *tokens, *pos, *out_ids, *logits;
    struct ggml_tensor *x_in, *x_out; /* hidden states where other layers come before or after, or NULL */
    struct ggml_tensor **q_tail;      /* [n_layer], newest queries of the ubatch, or NULL */
    struct wnw__attend_ggml *ggml;    /* inputs of the ggml attention, or NULL */
};

/* What wnw_session_set_eviction was told, and what became of it. */
struct wnw__rules {
    wnw_eviction ev;   /* policy NULL = no rules */
    wnw_policy *fixed; /* a recursive policy with the k that the size wants at present, owned; or NULL */
    int32_t n_before;  /* tokens read before the rules that no ratio counts */
    int32_t asked;     /* entries per layer and head that the prompt was to keep; 0 = no prompt yet */
    int32_t n_decoded; /* tokens since the last compression */
    int32_t *held;     /* [n_held] = [n_layer * n_head_kv] counts of heads that slide, 0 = grows; or NULL */
    int32_t n_held;
};

/* What belongs to the timeline rather than to the computation must be copied by wnw_session_copy (copy.c). */
struct wnw_session {
    const struct wnw_model *m;
    wnw_session_params params; /* no zeros left */
    struct wnw__cache cache;
    struct wnw__attend_shared *shared;
    struct wnw__attend_op *ops; /* [n_layer] */
    struct wnw__graph prefill, decode;
    struct wnw__window window;
    const wnw_profile *profile; /* borrowed; NULL = none */
    struct wnw__trace trace;
    struct wnw__nll nll;
    struct wnw__qstats *qstats;  /* query statistics, or NULL */
    struct wnw__proj *proj;      /* made when projected norms are asked for, or NULL */
    struct wnw__proj *head_proj; /* the same for those of query heads */
    int32_t n_past;
    int32_t n_prefix;   /* first tokens that the chat template wrote; 0 = none, or not known */
    int64_t n_gone;     /* tokens read whose positions were given away by key re-rotation */
    int32_t n_moved;    /* below it positions were given anew, at the last one */
    int32_t n_question; /* last tokens of the prompt that are the question; 0 = not known */
    struct wnw__rules rules;
    float *logits; /* [n_vocab] */
    bool has_logits;
    /* Test oracle, see wnw__session_mask: [n_layer * n_head_kv][hidden_n], 1 = invisible. */
    uint8_t **hidden;
    int32_t hidden_n;
};

/* Instead of compacting: hides every entry that the plan drops from all later passes. The full cache stays.
 * Needs the ggml attention. The oracle that compaction is tested against. */
int wnw__session_mask(wnw_session *s, const wnw_plan *plan);

/* forward.c: layers from .. to - 1 for the next n tokens, at most n_ubatch. */
struct wnw__span {
    int32_t from, to;
    const int32_t *tokens; /* [n], where from = 0 */
    float *x;              /* [n][n_embd] hidden states: read where from > 0, written where to < n_layer */
    int32_t n;
    int32_t n_out; /* logits wanted behind the last layer: of so many of the last tokens, at least 1 */
    bool decode;   /* one token, through the graph that is kept */
};
/* Runs them and takes the tokens into the cache of these layers; s->n_past and s->window.end do not move, so
 * that every layer sees the same. */
int wnw__forward_span(wnw_session *s, const struct wnw__span *span);
/* Counts the span's tokens as read. */
void wnw__forward_advance(wnw_session *s, const struct wnw__span *span);
/* The logits of the last span that reached the output: of its last token to s->logits, or with on_logits of
 * all n tokens (n_out = n), numbered from `first`, to it. */
int wnw__forward_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                        void *user);
/* All three for all layers. */
int wnw__forward(wnw_session *s, const int32_t *tokens, int32_t n, int32_t first, bool decode,
                 wnw_logits_fn on_logits, void *user);
void wnw__graph_free(struct wnw__graph *g);

/* session.c: reads n tokens that were checked, the ones behind `done` of `total` for the progress callback.
 */
int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n);
/* Its two halves: whether they are tokens, and whether n more fit the context. */
int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_room(const wnw_session *s, int32_t n);
int wnw__session_feed(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                      wnw_logits_fn on_logits, void *user);

/* apply.c: as the public functions. ratio_base: entries that a ratio counts, 0 = those there. room: tokens
 * that come next, whose place may stay allocated; negative = tight. */
int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report);
int wnw__session_apply(wnw_session *s, const wnw_plan *plan, int32_t room, wnw_report *report);

/* apply.c: applies a plan of the policy and lets the kept tokens have the positions that the policy gives
 * them. A plan that cannot have them is refused before anything changes. */
int wnw__session_follow(wnw_session *s, const wnw_policy *policy, const wnw_plan *plan, int32_t room,
                        wnw_report *report);

/* renumber.c: E_UNSUPPORTED where this session's entries cannot get new positions, whatever is kept. */
int wnw__renumber_check(const wnw_session *s);
/* E_UNSUPPORTED unless n = n_first. */
int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first);

/* phases.c: what the rules want done after a decoded token. */
int wnw__rules_after_decode(wnw_session *s);
/* Rules for an empty timeline, as they were set. */
void wnw__rules_reset(struct wnw__rules *r);
int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from);
void wnw__rules_free(struct wnw__rules *r);

/* What a compression is asked for: the policy and size that the rules come down to. */
struct wnw__goal {
    const wnw_policy *policy;
    wnw_size size;
    int32_t ratio_base;
};
/* layer_major.c: reads n checked tokens layer by layer, each compressed as soon as all have been through it.
 * The session is empty after a failure. The report's times are added to, kv_bytes_before is the most that was
 * allocated. */
int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n, const struct wnw__goal *goal,
                          wnw_report *report);

/* attend_ggml.c */
struct wnw__attend_ggml;
int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const wnw_session *s);
void wnw__attend_ggml_free(struct wnw__attend_ggml *ag);
/* Attention of layer il with standard operations; stores k and v first. */
struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, int32_t il, struct ggml_tensor *q,
                                           struct ggml_tensor *k, struct ggml_tensor *v);
/* Fills masks and row indices after the graph got its memory. */
int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag);

/* observe.c */
struct wnw__observer;
struct wnw__plan_source;
int wnw__observer_new(struct wnw__observer **out, wnw_session *s);
void wnw__observer_free(struct wnw__observer *ob);
/* A source of observations of the session's present cache. Borrowed from the observer. */
const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob);

/* observe_stats.c: what is gathered while tokens are read. Made empty for policies that agree, then taken in
 * place of what the session gathered before, which cannot fail; graphs built earlier must be freed. */
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

/* observe_proj.c: norms of the values of layer il behind the output projection, norm[n_head_kv][n], or of
 * each query head behind its slice, norm[n_head][n], with n at least the entries of every head; 0 behind
 * them. */
int wnw__session_proj_norm(wnw_session *s, int32_t il, wnw_proj_norm kind, bool of_query_heads, int32_t n,
                           float *norm);

#endif
