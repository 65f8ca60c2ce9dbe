/* SPDX-License-Identifier: MIT */
/* The state of a session without its cache, for files: what it has read, and how far it has followed its rules. */
#ifndef WNW_STATE_H
#define WNW_STATE_H

#include "session/session.h"

/* Pointers are borrowed. Not in it: logits, observations, tasks, template, profile and masked heads. */
struct wnw__session_state {
    int32_t n_past, n_prefix, n_renumbered, n_judged, n_question;
    int32_t n_ambiguous; /* of the token ids */
    int64_t pos_shift;
    const int32_t *ids;         /* [n_past] by position; -1 below n_ambiguous */
    struct wnw__eviction rules; /* policy NULL = none; `every` and `target` are 0 */
    int32_t n_uncounted, n_keep;
    bool is_over;
    const int32_t *slide_counts; /* [n_held], as in struct wnw__rules; NULL = none */
    int32_t n_slide_counts;
    const uint8_t *recurrent; /* [n_recurrent] bytes of the recurrent layers' state; NULL = none */
    size_t n_recurrent;
};

/* Fills *out with the present state of s, borrowed until the next call on s. E_ARG: nothing was read. E_UNSUPPORTED: heads
 * are masked, or the rules compress while decoding at intervals, with what was observed. E_BACKEND, E_NOMEM: recurrent
 * layers. */
int wnw__session_get_state(struct wnw__session_state *out, const wnw_session *s);
/* E_FORMAT with a sentence unless a session of this shape can be in the state. */
int wnw__session_check_state(const struct wnw__session_state *state, const wnw_session *s);
/* Checks that the tokens [n] can be all that a session has read whose ids by position are those of the state. n must be n_past +
 * pos_shift, and tokens must be below n_vocab. Else E_FORMAT with a sentence. */
int wnw__session_check_read(const struct wnw__session_state *state, const int32_t *tokens, int32_t n,
                            int32_t n_vocab);
/* Brings a session that has read nothing, and whose cache has the entries, into a state that was checked. There are no
 * logits. The policy stays borrowed. After a failure the session can only be freed. */
int wnw__session_set_state(wnw_session *s, const struct wnw__session_state *state);
/* Has a session that has read nothing, and whose cache has the entries, count tokens as read and compressed by its rules. There are no
 * logits. E_FULL, E_NOMEM; E_RANGE for a token that is not in the vocabulary. */
int wnw__session_take(wnw_session *s, const int32_t *tokens, int32_t n);
/* Has the rules of s, which were just set by wnw_session_begin, go on with the counts of a state. */
void wnw__session_resume_rules(wnw_session *s, const struct wnw__session_state *state);

#endif
