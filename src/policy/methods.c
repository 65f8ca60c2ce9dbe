/* SPDX-License-Identifier: MIT */
/* The lists of parts, the registry of parts from outside, and the method list for help and documentation.
 * A new part is one line in parts.def. */
#include "base/opt.h"
#include "policy/method.h"
#include "policy/policy.h"

#include <stdlib.h>
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

/* ---- Parts from outside
 * ------------------------------------------------------------------------------------ */

int wnw_registry_new(wnw_registry **out)
{
    WNW_REQUIRE(out);
    *out = calloc(1, sizeof **out);
    return *out ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for a registry");
}

void wnw_registry_free(wnw_registry *r)
{
    if (!r)
        return;
    free(r->scorers);
    free(r);
}

const wnw_scorer *wnw__registry_find(const wnw_registry *r, const char *name, size_t len)
{
    for (int32_t i = 0; r && i < r->n; i++)
        if (strlen(r->scorers[i]->name) == len && memcmp(r->scorers[i]->name, name, len) == 0)
            return r->scorers[i];
    return NULL;
}

int wnw_registry_add_scorer(wnw_registry *r, const wnw_scorer *s)
{
    struct wnw__part taken;
    if (!r || !s || !s->name)
        return wnw__fail(WNW_E_ARG, "a scorer needs a registry and a name");
    const size_t len = strlen(s->name);
    if (!wnw__name_ok(s->name, len) || len > 64)
        return wnw__fail(WNW_E_ARG, "scorer name \"%.80s\" is not 1 to 64 letters of [a-z0-9_-]", s->name);
    if (!s->score)
        return wnw__fail(WNW_E_ARG, "scorer %s has no score function", s->name);
    if (wnw__part_find(&taken, s->name, len) || wnw__preset_find(s->name, len) ||
        wnw__registry_find(r, s->name, len))
        return wnw__fail(WNW_E_ARG, "the name \"%s\" is taken; choose another for your scorer", s->name);
    WNW_TRY(wnw__opt_check_table(s->options, s->options_size, s->name));
    if (r->n == r->cap) {
        const int32_t cap = r->cap ? 2 * r->cap : 8;
        const wnw_scorer **grown = realloc(r->scorers, (size_t)cap * sizeof *grown);
        if (!grown)
            return wnw__fail(WNW_E_NOMEM, "out of memory for %d scorers", cap);
        r->scorers = grown;
        r->cap = cap;
    }
    r->scorers[r->n++] = s;
    return WNW_OK;
}

/* ---- The method list
 * --------------------------------------------------------------------------------------- */

const char *wnw_need_name(int32_t bit)
{
    static const char *const names[] = {
        "window attention", "keys",
        "values",           "attention sums",
        "attention maxima", "projected value norms",
        "query statistics", "all queries",
        "perplexity",       "second pass",
        "profile",
    };
    return bit >= 0 && (size_t)bit < sizeof names / sizeof *names ? names[bit] : NULL;
}

const char *wnw_phase_name(wnw_phase phase)
{
    static const char *const names[] = {"end", "layer", "chunk", "decode"};
    return (size_t)phase < sizeof names / sizeof *names ? names[phase] : "?";
}

/* What only a policy can say, from a recipe of ours. Static texts; empty when memory is short. */
static void describe(const char *recipe, wnw_method_info *out)
{
    wnw_policy *p = NULL;
    if (wnw__policy_parse_parts(&p, recipe) != WNW_OK)
        return;
    out->needs = wnw_policy_needs(p).flags;
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE; phase++)
        out->phases |= (uint32_t)wnw_policy_allows(p, (wnw_phase)phase, NULL) << phase;
    out->layout = wnw__policy_layout(p);
    wnw_policy_free(p);
}

bool wnw_method_get(int32_t i, wnw_method_info *out)
{
    if (!out)
        return false;
    *out = (wnw_method_info){
        .name = "", .kind = "", .about = "", .paper = "", .details = "", .recipe = "", .layout = ""};
    if (i < 0)
        return false;
    int32_t n_preset = 0;
    while (wnw__preset_get(n_preset))
        n_preset++;
    if (i < n_preset) {
        const struct wnw__preset *row = wnw__preset_get(i);
        struct wnw__part scorer;
        out->name = row->name;
        out->kind = row->parity ? "parity preset" : "preset";
        out->about = row->about;
        out->paper = row->paper;
        out->details = row->details ? row->details : "";
        out->recipe = row->recipe;
        if (wnw__part_find(&scorer, row->recipe, strcspn(row->recipe, ":+")))
            out->options = scorer.options;
        describe(row->recipe, out);
        return true;
    }
    struct wnw__part part;
    if (!wnw__part_get(i - n_preset, &part))
        return false;
    out->name = part.name;
    out->kind = wnw__part_kind_name(part.kind);
    out->about = part.about;
    out->paper = part.paper;
    out->details = part.details;
    out->options = part.options;
    if (part.kind == WNW_PART_SCORER) {
        describe(part.name, out);
        out->layout = "";
    }
    return true;
}
