/* SPDX-License-Identifier: MIT */
/* A timeline: making, copying, reading and forgetting it, without any policy. */
#ifndef WNW_TIMELINE_H
#define WNW_TIMELINE_H

#include "session/timeline/eviction.h"
#include "session/timeline/token_log.h"
#include "winnow.h"
#include "winnow_study.h"

/* Query heads that are switched off. The struct starts as {0}, which masks nothing, and is freed by wnw__masks_free. */
struct wnw__masks {
    uint8_t *head; /* [n_layer][n_head] as in struct wnw__attend_slice; NULL = none is masked */
    wnw_mask_phase phase;
    wnw_mask_form form;
};

/* Forgets all tokens; what was said of the prompt stays. */
int wnw__session_forget(wnw_session *s);

/* Check whether the session can read n tokens next: _ids that they are of the vocabulary (E_ARG for n < 1,
 * E_RANGE), _room that n more fit the context (E_FULL), _tokens both. */
int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n);
int wnw__session_check_room(const wnw_session *s, int32_t n);

/* wnw_session_copy, whose copy computes on an engine of the same model; NULL = one of its own (copy.c). */
int wnw__session_copy_on(wnw_session **out, const wnw_session *s, wnw_engine *e);

/* ---- Masks (masks.c) ---- */

void wnw__masks_free(struct wnw__masks *m);
/* `to` is {0} before. n = n_layer x n_head. Nothing is allocated on failure. */
int wnw__masks_copy(struct wnw__masks *to, const struct wnw__masks *from, size_t n);
/* The masks that hold for tokens of a prompt, or for one that is generated. NULL = none. Borrowed. */
const uint8_t *wnw__masks_for(const struct wnw__masks *m, bool generated);

#endif
