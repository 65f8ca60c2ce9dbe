/* SPDX-License-Identifier: MIT */
/* Carrying out a plan for a sequence under libllama. */
#ifndef WNW_BRIDGE_APPLY_H
#define WNW_BRIDGE_APPLY_H

#include "bridge/bridge_sequence.h"

/* Checks that a plan can be applied (dry), or applies it. E_MISMATCH, E_UNSUPPORTED; where memory runs out, layers that come
 * later are left as they are. */
int wnw__bridge_apply(struct wnw__bridge_sequence *s, const wnw_plan *plan, bool dry);

#endif
