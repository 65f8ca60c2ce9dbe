/* SPDX-License-Identifier: MIT */
/* Bit sets and policies of the library in words. */
#include "app/names.h"

#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdio.h>

const char *app_needs_text(uint32_t needs, char *out, size_t size)
{
    size_t n = 0;
    const char *name;
    out[0] = '\0';
    for (int32_t bit = 0; (name = wnw_need_name(bit)) && n < size; bit++)
        if (needs >> bit & 1u)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", name);
    return n > 0 ? out : "nothing";
}

const char *app_phases_text(uint32_t phases, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE && n < size; phase++)
        if (phases >> phase & 1u)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "",
                                  wnw_phase_name((wnw_phase)phase));
    return out;
}

const char *app_policy_text(const wnw_policy *policy, char **own)
{
    return wnw_policy_short(policy, own) == WNW_OK ? *own : wnw_policy_string(policy);
}
