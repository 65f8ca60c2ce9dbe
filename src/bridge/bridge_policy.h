/* SPDX-License-Identifier: MIT */
/* The policy of a backend: from a program or the environment, with its size and its profile. */
#ifndef WNW_BRIDGE_POLICY_H
#define WNW_BRIDGE_POLICY_H

#include "bridge/bridge.h"

/* Sets the policy. E_UNSUPPORTED: it needs what cannot be had here; E_MISMATCH: it needs a profile. The message says what. */
int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself);
/* Adds the results of a file to the profile; NULL takes the profile away. E_IO, E_FORMAT, E_MISMATCH. */
int wnw__bridge_watch_profile(struct wnw__bridge_watch *w, const char *path);
/* The same from WINNOW_PROFILE, WINNOW_POLICY, WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES; without the second it does
 * nothing. */
int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w);
/* Takes the policy away, with what was noted for it. */
void wnw__bridge_watch_clear(struct wnw__bridge_watch *w);
void wnw__bridge_watch_free(struct wnw__bridge_watch *w);

#endif
