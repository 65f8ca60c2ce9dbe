/* SPDX-License-Identifier: MIT */
#include "profile.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

const char *wnw_profile_kind_name(int32_t kind)
{
    static const char *const names[WNW_N_PROFILE_KINDS] = {"srh", "layers", "compiler", "heads", "stats"};
    return kind >= 0 && kind < WNW_N_PROFILE_KINDS ? names[kind] : NULL;
}

uint32_t wnw_profile_kinds(const wnw_profile *p)
{
    return p ? p->kinds : 0;
}
