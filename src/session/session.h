/* SPDX-License-Identifier: MIT */
/*
 * One timeline: its cache, recorders and logits. A session belongs to one thread at a time.
 *
 * Rooms of this folder; each calls functions of rooms above it in this list alone (scripts/check_layers.sh):
 *
 *     timeline/  a session made, fed with tokens, copied, gone back, forgotten; the state of its rules.
 *     compact/   a plan applied: entries kept, contents written, new positions.
 *     planning/  what a policy sees of a session, second passes and looks ahead; plans.
 *     rules/     when entries go, and how many, by the kind of policy.
 *     run/       what programs do: begin, read, decode, generate.
 *
 * Each room has a header, ROOM/ROOM.h, with what others may call, and some files have their own. This one has the state that the
 * rooms share, and no function.
 */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "forward/engine.h"
#include "forward/executor.h"
#include "observe/source.h"
#include "plan/compress.h"
#include "session/timeline/timeline.h"

/* A field that belongs to the timeline, not to the computation, must be copied by wnw_session_copy
 * (timeline/copy.c), and stored (timeline/state.h) or named there as what is not. */
struct wnw_session {
    const struct wnw_model *m;
    wnw_session_params params; /* resolved: 0 no longer means a default */
    wnw_engine *engine;
    bool owns_engine; /* false: the engine is shared with other sessions */
    bool in_batch;    /* set while wnw_decode_batch checks its sessions, to find one that is named twice */
    struct wnw__cache cache;
    struct wnw__recurrent *recurrent; /* NULL = the model has no recurrent layers */
    struct wnw__recorders recorders;
    struct wnw__record_shape shape; /* borrowed by the recorders */
    struct wnw__token_log token_log;
    const wnw_profile *profile; /* borrowed; NULL = none */
    struct wnw__proj *proj[2];  /* projected norms, made at first use: [0] of KV heads, [1] of query heads */
    int32_t n_past;
    int32_t n_prefix;     /* number of first tokens that the chat template wrote; 0 = none or unknown */
    int64_t pos_shift;    /* tokens read less n_past: positions that renumbering has taken back */
    int32_t n_renumbered; /* positions below it were assigned by the last renumbering, not by reading */
    /* first tokens that a compression has judged: the session cannot go back before the end of them */
    int32_t n_judged;
    int32_t n_run;      /* last tokens that were decoded one after the other */
    int32_t n_question; /* number of last prompt tokens that are the question; 0 = unknown */
    struct wnw__rules rules;
    struct wnw__masks masks;
    float *logits; /* [n_vocab] */
    bool has_logits;
};

#endif
