/* SPDX-License-Identifier: MIT */
/* Presets: named recipes, as rows of data. presets.txt has them; the build makes wnw__presets of it. */
#include "base/strings.h"
#include "policy/policy.h"

const struct wnw__preset *wnw__preset_get(int32_t i)
{
    return i >= 0 && i < wnw__n_presets ? &wnw__presets[i] : NULL;
}

const struct wnw__preset *wnw__preset_find(const char *name, size_t len)
{
    for (int32_t i = 0; i < wnw__n_presets; i++)
        if (wnw__is_name(name, len, wnw__presets[i].name))
            return &wnw__presets[i];
    return NULL;
}
