/* SPDX-License-Identifier: MIT */
/* One timeline: cache, recorders, logits. Belongs to one thread at a time. */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "forward/engine.h"
#include "observe/projnorm.h"
#include "session/ids.h"
#include "session/phases.h"

/* What belongs to the timeline rather than to the computation must be copied by wnw_session_copy (copy.c). */
struct wnw_session {
    const struct wnw_model *m;
    wnw_session_params params; /* no zeros left */
    wnw_engine *engine;
    bool owns_engine; /* or it is shared with other sessions */
    bool in_batch;    /* while wnw_decode_batch looks through its sessions */
    struct wnw__cache cache;
    struct wnw__recorders recorders;
    struct wnw__record_shape shape; /* borrowed by the recorders */
    bool *sliding;                  /* [n_layer] of shape */
    struct wnw__ids ids;
    const wnw_profile *profile; /* borrowed; NULL = none */
    struct wnw__proj *proj[2];  /* made when projected norms are asked for: of KV heads, of query heads */
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

#endif
