/* SPDX-License-Identifier: MIT */
/* One timeline: cache, graphs, logits and the queries that policies want to see. Belongs to one thread at a
 * time. */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "attend/attend.h"
#include "cache/cache.h"
#include "forward/forward.h"
#include "model/model.h"
#include "observe/nll.h"
#include "observe/trace.h"
#include "session/phases.h"

/* The last `cap` queries of every layer, after RoPE: q[n_layer][cap][n_head][d]. A ring: position p is row
 * p % cap; those of positions end - n .. end - 1 are there. */
struct wnw__window {
    float *q;
    int32_t cap, n, end;
    bool decode; /* queries of decoded tokens are kept too */
};

/* What belongs to the timeline rather than to the computation must be copied by wnw_session_copy (copy.c). */
struct wnw_session {
    const struct wnw_model *m;
    wnw_session_params params; /* no zeros left */
    struct wnw__cache cache;
    struct wnw__attend_shared *shared;
    struct wnw__attend_op *ops;     /* [n_layer] */
    struct wnw__attend_batch batch; /* what the attention of the pass at hand reads: this session alone */
    struct wnw__attend_slice slice;
    struct wnw__matmul_scratch *matmul; /* of the products with weights */
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

/* Whether n tokens can be read next: whether they are tokens, and whether n more fit the context. */
int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_room(const wnw_session *s, int32_t n);
/* Reads n tokens that were checked, the ones behind `done` of `total` for the progress callback. */
int wnw__session_feed(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                      wnw_logits_fn on_logits, void *user);

#endif
