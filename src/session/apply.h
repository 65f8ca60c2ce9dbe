/* SPDX-License-Identifier: MIT */
/* From a policy to a smaller cache: plan, apply, and both with what the policy says of positions. */
#ifndef WNW_APPLY_H
#define WNW_APPLY_H

#include "winnow.h"

/* As the public functions. ratio_base: entries that a ratio counts, 0 = those there. room: tokens
 * that come next, whose place may stay allocated; negative = tight. */
int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report);
int wnw__session_apply(wnw_session *s, const wnw_plan *plan, int32_t room, wnw_report *report);

/* Applies a plan of the policy and lets the kept tokens have the positions that the policy gives
 * them. A plan that cannot have them is refused before anything changes. */
int wnw__session_follow(wnw_session *s, const wnw_policy *policy, const wnw_plan *plan, int32_t room,
                        wnw_report *report);

#endif
