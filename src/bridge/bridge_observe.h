/* SPDX-License-Identifier: MIT */
/* What a policy sees of a sequence under libllama. */
#ifndef WNW_BRIDGE_OBSERVE_H
#define WNW_BRIDGE_OBSERVE_H

#include "bridge/bridge_sequence.h"
#include "plan/source.h"

/* Makes a source of observations of the sequence, which is borrowed; the caller closes it. E_NOMEM. */
int wnw__bridge_source(struct wnw__plan_source *src, struct wnw__bridge_sequence *s);

#endif
