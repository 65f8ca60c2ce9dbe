/* SPDX-License-Identifier: MIT */
/* From a policy to a plan of a session. */
#ifndef WNW_PLANNING_H
#define WNW_PLANNING_H

#include "plan/compress.h"
#include "winnow_tools.h"

/* ---- What a plan sees (session_source.c, source_ahead.c) ---- */

/* Opens the source of observations of the session's present cache, which wnw__source_close closes. It borrows s and looks
 * at it on the thread that s belongs to. */
int wnw__session_source(struct wnw__plan_source *src, wnw_session *s);
/* The same without tokens to come, for the copy that generates them. */
int wnw__session_source_plain(struct wnw__plan_source *src, wnw_session *s);
/* Whose source it is; both kinds. */
wnw_session *wnw__session_of_source(const struct wnw__plan_source *src);

/* ---- Tokens to come (lookahead.c) ---- */

/* A copy of the session that SnapKV compresses to `budget` entries per KV head on average generates up to n tokens, most
 * likely first (LAQ++, arXiv 2505.20334). Gives their number, fewer where the text or the context ends, and their queries
 * after RoPE [n_layer][n][n_head][d]; the session is as it was. */
int wnw__look_ahead(wnw_session *s, int32_t n, double budget, float *queries, int32_t *made);

/* ---- Plans (compress.c) ---- */

/* As wnw_session_plan. ratio_base: entries per head that a ratio counts, 0 = the entries there. */
int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report);

#endif
