/* SPDX-License-Identifier: MIT */
/* From a policy to a smaller cache: plan, apply the plan, and give new positions where the policy wants
 * them. */
#ifndef WNW_APPLY_H
#define WNW_APPLY_H

#include "winnow.h"

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

#endif
