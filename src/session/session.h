/* SPDX-License-Identifier: MIT */
/* One timeline: its cache, recorders and logits. A session belongs to one thread at a time. */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "forward/engine.h"
#include "forward/recurrent.h"
#include "observe/source.h"
#include "session/ids.h"
#include "session/masks.h"
#include "session/rules/rules.h"

/* A field that belongs to the timeline, not to the computation, must be copied by wnw_session_copy
 * (copy.c). */
struct wnw_session {
    const struct wnw_model *m;
    wnw_session_params params; /* resolved: no 0 stands for a default any more */
    wnw_engine *engine;
    bool owns_engine; /* false: the engine is shared with other sessions */
    bool in_batch;    /* set while wnw_decode_batch checks its sessions, to find one that is named twice */
    struct wnw__cache cache;
    struct wnw__recurrent *recurrent; /* NULL = the model has no recurrent layers */
    struct wnw__recorders recorders;
    struct wnw__record_shape shape; /* borrowed by the recorders */
    struct wnw__ids ids;
    const wnw_profile *profile; /* borrowed; NULL = none */
    struct wnw__proj *proj[2];  /* projected norms, made at first use: [0] of KV heads, [1] of query heads */
    int32_t n_past;
    int32_t n_prefix;     /* number of first tokens that the chat template wrote; 0 = none or unknown */
    int64_t pos_shift;    /* tokens read less n_past: positions that renumbering has taken back */
    int32_t n_renumbered; /* positions below it were assigned by the last renumbering, not by reading */
    int32_t
        n_fixed; /* tokens that were read when entries were dropped last: the session cannot go back before */
    int32_t n_run;      /* last tokens that were decoded one after the other */
    int32_t n_question; /* number of last prompt tokens that are the question; 0 = unknown */
    struct wnw__rules rules;
    struct wnw__masks masks;
    float *logits; /* [n_vocab] */
    bool has_logits;
};

/* Opens the source of observations of the session's present cache, which wnw__source_close closes. It borrows s and looks
 * at it on the thread that s belongs to. */
int wnw__session_source(struct wnw__plan_source *src, wnw_session *s);

/* Forgets all tokens; what was said of the prompt stays. */
int wnw__session_forget(wnw_session *s);

/* Check whether the session can read n tokens next: _ids that they are of the vocabulary (E_ARG for n < 1,
 * E_RANGE), _room that n more fit the context (E_FULL), _tokens both. */
int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_room(const wnw_session *s, int32_t n);

#endif
