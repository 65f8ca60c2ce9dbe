/* SPDX-License-Identifier: MIT */
/* Presets: named recipes, as rows of data. */
#ifndef WNW_PRESETS_H
#define WNW_PRESETS_H

#include "policy/part.h"

struct wnw__preset {
    const char *name, *about, *paper;
    const char *details; /* facts that the parts' own texts do not state; NULL = none */
    const char *recipe;  /* canonical; its first name is a scorer */
    bool parity;         /* reproduces another program's or paper's setting */
};

/* Preset i; NULL past the end. */
const struct wnw__preset *wnw__preset_get(int32_t i);
const struct wnw__preset *wnw__preset_find(const char *name, size_t len);

#endif
