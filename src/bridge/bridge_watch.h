/* SPDX-License-Identifier: MIT */
/*
 * Which sequences a batch belongs to, when their prompts have ended, and what a policy sees of them. The mask of a row
 * names the entries of its sequence (bridge_watch.c); a policy chooses among them (bridge_plan.c).
 */
#ifndef WNW_BRIDGE_WATCH_H
#define WNW_BRIDGE_WATCH_H

#include "bridge/bridge.h"

/* Looks at the rows of a graph that is about to run, and compresses sequences that it is time for. */
void wnw__bridge_watch_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* After a graph that was looked at and has failed. */
void wnw__bridge_watch_fail(struct wnw__bridge_backend *b);
/* Whether a layer has a sliding window, as far as it can be told: policies leave it alone. */
bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
#endif
