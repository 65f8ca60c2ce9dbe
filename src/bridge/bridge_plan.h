/* SPDX-License-Identifier: MIT */
/* Planning for a sequence under libllama. */
#ifndef WNW_BRIDGE_PLAN_H
#define WNW_BRIDGE_PLAN_H

#include "bridge/bridge.h"

/* Drops what the policy does not keep of a sequence. On failure nothing is dropped, unless memory runs out while entries
 * are. */
int wnw__bridge_compress(struct wnw__bridge_backend *b, const struct wnw__bridge_live *live);

#endif
