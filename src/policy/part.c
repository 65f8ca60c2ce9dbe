/* SPDX-License-Identifier: MIT */
/* The list of parts. A new part is one line in parts.def. */
#include "policy/parts.h"

#include "base/strings.h"

#include <string.h>

#define SCORER(x)       &wnw__scorer_##x.part,
#define AGGREGATION(x)  &wnw__aggregation_##x.part,
#define LAYER_BUDGET(x) &wnw__layer_budget_##x.part,
#define HEAD_BUDGET(x)  &wnw__head_budget_##x.part,
#define SELECTOR(x)     &wnw__selector_##x.part,
#define POSITIONS(x)    &wnw__positions_##x.part,
#define CONTENTS(x)     &wnw__contents_##x.part,
#ifdef WNW_MORE_METHODS
#define MORE(row) row
#else
#define MORE(row)
#endif
static const wnw_part *const parts[] = {
#include "policy/parts.def"
};

#define FLAGS_ANY (WNW_FLAG_PROMPT_ONLY | WNW_FLAG_MATCHES_HEADS | WNW_FLAG_MATCHES_LAYERS)
static const struct {
    const char *name;
    size_t size;
    uint32_t flags;
    bool gathers;
} kinds[WNW_N_PART_KINDS] = {
    [WNW_PART_SCORER] = {"scorer", sizeof(wnw_scorer),
                         FLAGS_ANY | WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION | WNW_FLAG_UNIFORM |
                             WNW_FLAG_ONE_LIST | WNW_FLAG_SHRINKS | WNW_FLAG_WINDOW_BY_HEAD |
                             WNW_FLAG_SECOND_LOOK,
                         true},
    [WNW_PART_AGGREGATION] = {"head aggregation", sizeof(wnw_aggregation),
                              FLAGS_ANY | WNW_FLAG_QUERY_HEADS | WNW_FLAG_ONE_LIST, false},
    [WNW_PART_LAYER_BUDGET] = {"layer budget", sizeof(wnw_layer_budget),
                               FLAGS_ANY | WNW_FLAG_RAGGED | WNW_FLAG_ALL_LAYERS | WNW_FLAG_COMPETES, true},
    [WNW_PART_HEAD_BUDGET] = {"head budget", sizeof(wnw_head_budget),
                              FLAGS_ANY | WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_OWN_SIZE |
                                  WNW_FLAG_BLIND | WNW_FLAG_SECOND_LOOK,
                              true},
    [WNW_PART_SELECTOR] = {"selector", sizeof(wnw_selector),
                           FLAGS_ANY | WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, true},
    [WNW_PART_POSITIONS] = {"position rule", sizeof(wnw_positions), 0, false},
    [WNW_PART_CONTENTS] = {"content rule", sizeof(wnw_contents), FLAGS_ANY, false},
};

const wnw_part *wnw__part_get(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof parts / sizeof *parts ? parts[i] : NULL;
}

const wnw_part *wnw__part_find(const char *name, size_t len)
{
    const wnw_part *part;
    for (int32_t i = 0; (part = wnw__part_get(i)); i++)
        if (wnw__is_name(name, len, part->name))
            return part;
    return NULL;
}

size_t wnw__part_size(wnw_part_kind kind)
{
    return (unsigned)kind < WNW_N_PART_KINDS ? kinds[kind].size : 0;
}

const char *wnw__part_kind_name(wnw_part_kind kind)
{
    return kinds[kind].name;
}

uint32_t wnw__part_flags(wnw_part_kind kind)
{
    return kinds[kind].flags;
}

bool wnw__part_gathers(wnw_part_kind kind)
{
    return kinds[kind].gathers;
}

void wnw_part_warn(char *warning, const char *sentence)
{
    if (warning && sentence)
        wnw__warn(warning, "%s", sentence);
}

bool wnw__part_is_ours(const wnw_part *part)
{
    return wnw__part_find(part->name, strlen(part->name)) != NULL;
}

int wnw__part_status(const wnw_part *part, int rc)
{
    if (rc == WNW_OK || wnw__part_is_ours(part))
        return rc;
    return wnw__fail(rc < 0 && rc >= WNW_E_NOT_FINITE ? rc : WNW_E_ARG, "%s %s failed: %s (%d)",
                     wnw__part_kind_name(part->kind), part->name, wnw_strerror(rc), rc);
}
