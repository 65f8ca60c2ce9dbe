/* SPDX-License-Identifier: MIT */
/* What the table of "auto" knows (choose.c). */
#ifndef WNW_CHOOSER_H
#define WNW_CHOOSER_H

#include "winnow_tools.h"

/* The recipe that a quality is kept by with a scorer, WNW_QUALITY_REPLAY and so on, without its head budget. Static. */
const char *wnw__quality_recipe(int32_t scorer);
/* The largest share of the entries, at most what the facts keep, below which another row of the table may hold; 0 where none is. */
double wnw__choice_share_below(const wnw_policy_facts *f);

#endif
