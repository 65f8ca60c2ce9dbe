/* SPDX-License-Identifier: MIT */
/* How many entries the size of the rules leaves. */
#ifndef WNW_RULES_SIZE_H
#define WNW_RULES_SIZE_H

#include "session/rules/rules.h"

/* Number of layers that the policy compresses. */
int32_t wnw__rules_n_layers(const wnw_session *s, const wnw_policy *p);
/* Entries per layer and head that the size of the rules leaves of n tokens, at least 1; more than n where the size
 * holds them all. */
int32_t wnw__rules_n_keep(const wnw_session *s, const struct wnw__eviction *ev, int32_t n);
/* Entries of the longest head among the layers without a sliding window. */
int32_t wnw__rules_longest_head(const wnw_session *s);

#endif
