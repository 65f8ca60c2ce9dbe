/* SPDX-License-Identifier: MIT */
/* Whether CompilerKV's tables serve a policy: they belong to a model, to a size and to the options of the parts
 * that read them. */
#ifndef WNW_TABLE_FIT_H
#define WNW_TABLE_FIT_H

#include "policy/policy.h"

/* What a table would be used for. */
struct wnw__table_use {
    const struct wnw__shape *model;
    double budget; /* average entries per head */
};
/* E_MISMATCH where the profile's table does not serve a part of the policy that reads it. A table that was only
 * found (wnw_profile_set_found) is left out instead: *without becomes a copy of the profile that lacks it, which
 * borrows all arrays and is freed with free(), and `warning` gets the reason. *without is NULL where there is
 * nothing to leave out. A budget that differs by less than a factor of 2 is noted in `warning` too. */
int wnw__table_fit(wnw_profile **without, const wnw_policy *p, const wnw_profile *profile,
                   const struct wnw__table_use *use, char *warning);

#endif
