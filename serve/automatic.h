/* SPDX-License-Identifier: MIT */
/*
 * The recipe "auto", or "auto+quality:q=Q": what a prompt is compressed by is chosen when it was read (wnw_automatic_choose). So all that may
 * be chosen is observed while it is read.
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
/* What it is chosen by, with the server's profiles, of prompts of which a sample was fed again (serve/sample.h), or none was. facts are the
 * caller's, who may know more of a prompt. */
wnw_automatic serve_automatic_of(wnw_policy_facts *facts, const struct serve_want *want, bool fed);
/* Calls wnw_automatic_each for what may be chosen of prompts of which no sample is fed, and of those where one is if `feeds`; in models
 * whose layers share caches, and in others. */
int serve_automatic_each(const struct serve_want *want, bool feeds, wnw_automatic_what *row, void *user);
/* Notes what all these recipes need, in a want that is automatic; to be called once its size is known, and again with a better n_most.
 * Returns a wnw_status: a quality that cannot be kept with the profiles that there are is refused. */
int serve_automatic_settle(struct serve_want *want);

#ifdef __cplusplus
}
#endif

#endif
