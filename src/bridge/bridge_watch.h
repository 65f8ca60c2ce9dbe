/* SPDX-License-Identifier: MIT */
/*
 * Which sequences a batch belongs to, when their prompts have ended, and what a policy sees of them. The mask of a row
 * names the entries of its sequence (bridge_watch.c); a policy chooses among them (bridge_plan.c).
 */
#ifndef WNW_BRIDGE_WATCH_H
#define WNW_BRIDGE_WATCH_H

#include "bridge/bridge.h"

/* Sets the policy. E_UNSUPPORTED: it needs what cannot be had here; the message says what. */
int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself);
/* The same from WINNOW_POLICY, WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES; without the first it does nothing. */
int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w);
void wnw__bridge_watch_free(struct wnw__bridge_watch *w);
/* Looks at the rows of a graph that is about to run, and compresses sequences that it is time for. */
void wnw__bridge_watch_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Keeps the queries of an attention, whose node is about to run. */
void wnw__bridge_watch_queries(struct wnw__bridge_backend *b, const struct wnw__cells_op *op,
                               struct wnw__bridge_layer *l);
/* Whether a layer has a sliding window, as far as it can be told: policies leave it alone. */
bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
#endif
