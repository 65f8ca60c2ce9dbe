/* SPDX-License-Identifier: MIT */
/*
 * The recipe "auto", or "auto+quality:q=Q": what a prompt is compressed by is chosen when it was read (wnw_automatic_choose). So all that may
 * be chosen is observed while it is read.
 */
#ifndef WNW_SERVE_AUTOMATIC_H
#define WNW_SERVE_AUTOMATIC_H

#include "serve/keep_rule.h"
#include "winnow_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a rule is automatic (serve_is_automatic) and asks for a quality. */
bool serve_asks_quality(const struct serve_keep_rule *keep_rule);
/* The facts that "auto" chooses by, with the server's profiles. fed: whether a sample of the prompt was fed again (serve/sample.h).
 * *facts belongs to the caller, who may add what it knows about the prompt. */
wnw_automatic serve_automatic_of(wnw_policy_facts *facts, const struct serve_keep_rule *keep_rule, bool fed);
/* Tokens of a chunk that an automatic rule reads a prompt of n_tokens in because it is long (wnw_policy_chunk); else 0. */
int32_t serve_automatic_chunk(const struct serve_keep_rule *keep_rule, int64_t n_tokens);
/* Calls wnw_automatic_each for each choice that is possible for prompts without a sample, and if `feeds` also for prompts with one.
 * Covers models whose layers share caches, and others. */
int serve_automatic_each(const struct serve_keep_rule *keep_rule, bool feeds, wnw_automatic_what *row,
                         void *user);
/* Records in an automatic rule what all these recipes need. Call it once the size is known, and again with a better n_most.
 * Returns a wnw_status: a quality that the available profiles cannot keep is an error. */
int serve_automatic_settle(struct serve_keep_rule *keep_rule);

#ifdef __cplusplus
}
#endif

#endif
