/* SPDX-License-Identifier: MIT */
/* One timeline: its cache, recorders and logits. A session belongs to one thread at a time. */
#ifndef WNW_SESSION_H
#define WNW_SESSION_H

#include "forward/engine.h"
#include "forward/executor.h"
#include "observe/source.h"
#include "plan/compress.h"
#include "session/rules/rules.h"
#include "session/token_log.h"
#include "winnow_study.h"

/* Query heads that are switched off. The struct starts as {0}, which masks nothing, and is freed by wnw__masks_free. */
struct wnw__masks {
    uint8_t *head; /* [n_layer][n_head] as in struct wnw__attend_slice; NULL = none is masked */
    wnw_mask_phase phase;
    wnw_mask_form form;
};

/* A field that belongs to the timeline, not to the computation, must be copied by wnw_session_copy
 * (copy.c), and stored (state.h) or named there as what is not. */
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
    /* tokens that were read when entries were dropped last: the session cannot go back before */
    int32_t n_fixed;
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
/* The same without tokens to come, for the copy that generates them. */
int wnw__session_source_plain(struct wnw__plan_source *src, wnw_session *s);
/* Whose source it is; both kinds. */
wnw_session *wnw__session_of_source(const struct wnw__plan_source *src);

/* The bytes of keys and values in layers on which policies act, once the plan is applied with tight storage. */
int wnw__session_allocated(uint64_t *bytes, const wnw_session *s, const wnw_plan *plan);

/* Forgets all tokens; what was said of the prompt stays. */
int wnw__session_forget(wnw_session *s);

/* Check whether the session can read n tokens next: _ids that they are of the vocabulary (E_ARG for n < 1,
 * E_RANGE), _room that n more fit the context (E_FULL), _tokens both. */
int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_room(const wnw_session *s, int32_t n);

/* wnw_session_copy, whose copy computes on an engine of the same model; NULL = one of its own (copy.c). */
int wnw__session_copy_on(wnw_session **out, const wnw_session *s, wnw_engine *e);

/* ---- Tokens to come (lookahead.c) ---- */

/* A copy of the session that SnapKV compresses to `budget` entries per KV head on average generates up to n tokens, most
 * likely first (LAQ++, arXiv 2505.20334). Gives their number, fewer where the text or the context ends, and their queries
 * after RoPE [n_layer][n][n_head][d]; the session is as it was. */
int wnw__look_ahead(wnw_session *s, int32_t n, double budget, float *queries, int32_t *made);

/* ---- Masks (masks.c) ---- */

void wnw__masks_free(struct wnw__masks *m);
/* `to` is {0} before. n = n_layer x n_head. Nothing is allocated on failure. */
int wnw__masks_copy(struct wnw__masks *to, const struct wnw__masks *from, size_t n);
/* The masks that hold for tokens of a prompt, or for one that is generated. NULL = none. Borrowed. */
const uint8_t *wnw__masks_for(const struct wnw__masks *m, bool generated);

/* ---- What is recorded: wnw_session_begin gets the policies that will plan (declare.c) ---- */

/* Parses the recipe of the run, or chooses a policy where it is an automatic one (facts.c). was_read: what was observed while the
 * session's tokens were read is not there. E_ARG: the run has a policy too, or no such recipe. */
int wnw__run_policy(wnw_policy **out, const wnw_session *s, const wnw_run *run, bool was_read);

/* From now on nothing is recorded that policies need; rules, profile and what was said of the prompt stay. */
void wnw__session_end_observing(wnw_session *s);
/* Starts or stops the recorder type of this name, which must be one that no policy asks for. Starting a type
 * that is already recording changes nothing. E_ARG: there is no such type, or policies ask for it. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

/* ---- From a policy to a smaller cache: plan (compress.c), apply,
 * and give new positions where the policy wants them (apply.c) ---- */

/* As wnw_session_plan and wnw_session_apply. ratio_base: entries per head that a ratio counts, 0 = the
 * entries there. room: number of coming tokens per head whose place may stay allocated; negative = tight
 * storage. */
int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report);
int wnw__session_apply(wnw_session *s, const wnw_plan *plan, int32_t room, wnw_report *report);

/* Applies a plan of the policy and, if the policy re-rotates keys, renumbers the kept entries. A plan whose
 * entries cannot be renumbered is refused before anything changes. */
int wnw__session_follow(wnw_session *s, const wnw_policy *policy, const wnw_plan *plan, int32_t room,
                        wnw_report *report);

/* ---- New positions (renumber.c) ---- */

/* E_UNSUPPORTED where this session's entries cannot get new positions, no matter which are kept. */
int wnw__renumber_check(const wnw_session *s);
/* E_UNSUPPORTED unless layer il, KV head ih has n = n_first entries, as many as the first head: new positions
 * need equal counts. */
int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first);

/* ---- Contents of kept entries: a plan may write into the cache, too, not only drop entries (rewrite.c) ---- */

/* Keeps entries of layer il as wnw__cache_keep_layer does, or with room >= 0 as wnw__cache_keep_in_place. Writes the merges,
 * pruned channels, biases and values of kept->contents into them. Values are merged in float32 and stored in the cache's
 * type. The first kept->n_settled entries are settled then. Where every entry stays, storage is left as it is. The layer is
 * unchanged on failure. */
int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept, int32_t room);

/* E_MISMATCH unless the cache holds every entry that is merged into another and drops it, the entry merged
 * into stays, and every pruned channel exists. */
int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept);

#endif
