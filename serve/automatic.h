/* SPDX-License-Identifier: MIT */
/*
 * The recipe "auto": what a prompt is compressed by is chosen when it was read, by its length and the size that is wanted, from the table of
 * wnw_policy_choose and the profiles that there are. So all that may be chosen is observed while it is read.
 */
#ifndef WNW_SERVE_AUTOMATIC_H
#define WNW_SERVE_AUTOMATIC_H

#include "serve/want.h"

#ifdef __cplusplus
extern "C" {
#endif

bool serve_is_automatic(const struct serve_want *want);
/* The row for prompts of that many tokens, 1 or more; was_read: what was noted while they were read is not there, as of slots that come from
 * a file. Returns a wnw_status. */
int serve_automatic_choose(wnw_policy_choice *out, const struct serve_want *want, int32_t n_tokens,
                           bool was_read);
/* Calls what for the rows of prompts of any length up to want->n_most, shortest first, until one returns no WNW_OK; returns what that was. */
int serve_automatic_each(const struct serve_want *want, int (*what)(const wnw_policy_choice *row, void *user),
                         void *user);
/* Notes what all these rows need, in a want that is automatic; to be called once its size is known, and again with a better n_most.
 * Returns a wnw_status. */
int serve_automatic_settle(struct serve_want *want);

#ifdef __cplusplus
}
#endif

#endif
