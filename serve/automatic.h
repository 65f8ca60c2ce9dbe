/* SPDX-License-Identifier: MIT */
/*
 * The recipe "auto": what a prompt is compressed by is chosen when it was read, by its length and the size that is wanted, from the table of
 * wnw_policy_choose and the profiles that there are. So all that may be chosen is observed while it is read. "auto+quality:q=Q" chooses the
 * scorer with which the fewest entries keep that quality, by wnw_policy_choose_quality.
 */
#ifndef WNW_SERVE_AUTOMATIC_H
#define WNW_SERVE_AUTOMATIC_H

#include "serve/want.h"

#ifdef __cplusplus
extern "C" {
#endif

bool serve_is_automatic(const struct serve_want *want);
/* Whether that asks for a quality. */
bool serve_asks_quality(const struct serve_want *want);
/* The recipe for prompts of that many tokens, 1 or more; was_read: what was noted while they were read is not there, as of slots that come from
 * a file. Returns a wnw_status. */
int serve_automatic_choose(char recipe[SERVE_RECIPE], const struct serve_want *want, int32_t n_tokens,
                           bool was_read);
/* Calls what for the recipes of prompts of any length up to want->n_most, shortest first, until one returns no WNW_OK; returns what that
 * was. The row's own recipe is without the quality. */
typedef int serve_automatic_what(const char *recipe, const wnw_policy_choice *row, void *user);
int serve_automatic_each(const struct serve_want *want, serve_automatic_what *what, void *user);
/* Notes what all these recipes need, in a want that is automatic; to be called once its size is known, and again with a better n_most.
 * Returns a wnw_status: a quality that cannot be kept with the profiles that there are is refused. */
int serve_automatic_settle(struct serve_want *want);

#ifdef __cplusplus
}
#endif

#endif
