/* SPDX-License-Identifier: MIT */
/* The lists of parts. A new part is one line in parts.def. */
#include "policy/part.h"

#include <string.h>

/* parts.def has one line per part; here it becomes the declarations and the lists. */
#define SCORER(x)       extern const struct wnw__scorer wnw__scorer_##x;
#define AGGREGATION(x)  extern const struct wnw__aggregation wnw__aggregation_##x;
#define LAYER_BUDGET(x) extern const struct wnw__layer_budget wnw__layer_budget_##x;
#define HEAD_BUDGET(x)  extern const struct wnw__head_budget wnw__head_budget_##x;
#define SELECTOR(x)     extern const struct wnw__selector wnw__selector_##x;
#define POSITIONS(x)    extern const struct wnw__positions wnw__positions_##x;
#define CONTENTS(x)     extern const struct wnw__contents wnw__contents_##x;
#include "policy/parts.def"
#undef SCORER
#undef AGGREGATION
#undef LAYER_BUDGET
#undef HEAD_BUDGET
#undef SELECTOR
#undef POSITIONS
#undef CONTENTS

#define AGGREGATION(x)
#define LAYER_BUDGET(x)
#define HEAD_BUDGET(x)
#define SELECTOR(x)
#define POSITIONS(x)
#define CONTENTS(x)
#define SCORER(x) &wnw__scorer_##x,
static const struct wnw__scorer *const scorers[] = {
#include "policy/parts.def"
};
#undef SCORER
#define SCORER(x)
#undef AGGREGATION
#define AGGREGATION(x) &wnw__aggregation_##x,
static const struct wnw__aggregation *const aggregations[] = {
#include "policy/parts.def"
};
#undef AGGREGATION
#define AGGREGATION(x)
#undef LAYER_BUDGET
#define LAYER_BUDGET(x) &wnw__layer_budget_##x,
static const struct wnw__layer_budget *const layer_budgets[] = {
#include "policy/parts.def"
};
#undef LAYER_BUDGET
#define LAYER_BUDGET(x)
#undef HEAD_BUDGET
#define HEAD_BUDGET(x) &wnw__head_budget_##x,
static const struct wnw__head_budget *const head_budgets[] = {
#include "policy/parts.def"
};
#undef HEAD_BUDGET
#define HEAD_BUDGET(x)
#undef SELECTOR
#define SELECTOR(x) &wnw__selector_##x,
static const struct wnw__selector *const selectors[] = {
#include "policy/parts.def"
};
#undef SELECTOR
#define SELECTOR(x)
#undef POSITIONS
#define POSITIONS(x) &wnw__positions_##x,
static const struct wnw__positions *const all_positions[] = {
#include "policy/parts.def"
};
#undef POSITIONS
#define POSITIONS(x)
#undef CONTENTS
#define CONTENTS(x) &wnw__contents_##x,
static const struct wnw__contents *const all_contents[] = {
#include "policy/parts.def"
};
#undef CONTENTS

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))

struct wnw__part wnw__part_of_scorer(const wnw_scorer *s)
{
    return (struct wnw__part){.kind = WNW_PART_SCORER,
                              .name = s->name,
                              .about = s->about ? s->about : "",
                              .paper = s->paper ? s->paper : "",
                              .details = s->details ? s->details : "",
                              .options = s->options,
                              .options_size = s->options_size,
                              .scorer = s};
}

/* What every descriptor but a scorer's calls by the same names. */
#define PART_COMMON(d)                                                                    \
    .name = (d)->name, .about = (d)->about, .paper = (d)->paper, .options = (d)->options, \
    .options_size = (d)->options_size, .details = (d)->details ? (d)->details : ""

bool wnw__part_get(int32_t i, struct wnw__part *out)
{
    if (i < 0)
        return false;
    if (i < COUNT(scorers)) {
        *out = wnw__part_of_scorer(&scorers[i]->pub);
        out->own = scorers[i];
        return true;
    }
    i -= COUNT(scorers);
    if (i < COUNT(aggregations)) {
        const struct wnw__aggregation *d = aggregations[i];
        *out = (struct wnw__part){.kind = WNW_PART_AGGREGATION, PART_COMMON(d), .aggregation = d};
        return true;
    }
    i -= COUNT(aggregations);
    if (i < COUNT(layer_budgets)) {
        const struct wnw__layer_budget *d = layer_budgets[i];
        *out = (struct wnw__part){.kind = WNW_PART_LAYER_BUDGET, PART_COMMON(d), .layer = d};
        return true;
    }
    i -= COUNT(layer_budgets);
    if (i < COUNT(head_budgets)) {
        const struct wnw__head_budget *d = head_budgets[i];
        *out = (struct wnw__part){.kind = WNW_PART_HEAD_BUDGET, PART_COMMON(d), .head = d};
        return true;
    }
    i -= COUNT(head_budgets);
    if (i < COUNT(selectors)) {
        const struct wnw__selector *d = selectors[i];
        *out = (struct wnw__part){.kind = WNW_PART_SELECTOR, PART_COMMON(d), .selector = d};
        return true;
    }
    i -= COUNT(selectors);
    if (i < COUNT(all_positions)) {
        const struct wnw__positions *d = all_positions[i];
        *out = (struct wnw__part){.kind = WNW_PART_POSITIONS, PART_COMMON(d), .positions = d};
        return true;
    }
    i -= COUNT(all_positions);
    if (i < COUNT(all_contents)) {
        const struct wnw__contents *d = all_contents[i];
        *out = (struct wnw__part){.kind = WNW_PART_CONTENTS, PART_COMMON(d), .contents = d};
        return true;
    }
    return false;
}

bool wnw__part_find(struct wnw__part *out, const char *name, size_t len)
{
    for (int32_t i = 0; wnw__part_get(i, out); i++)
        if (strlen(out->name) == len && memcmp(out->name, name, len) == 0)
            return true;
    return false;
}

const char *wnw__part_kind_name(wnw_part_kind kind)
{
    static const char *const names[] = {"scorer",   "head aggregation", "layer budget", "head budget",
                                        "selector", "position rule",    "content rule"};
    return names[kind];
}
