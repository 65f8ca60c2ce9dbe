/* SPDX-License-Identifier: MIT */
/* Places of a sample of a text (WNW_PASS_SAMPLE). */
#ifndef WNW_POLICY_SAMPLE_PLACES_H
#define WNW_POLICY_SAMPLE_PLACES_H

#include "winnow_method.h"

/* Which of the sampled tokens a token of the text is, counted over places[n_places] in their order; -1: none. */
int32_t wnw__sample_number(const wnw_sample_place *places, int32_t n_places, int32_t token);

#endif
