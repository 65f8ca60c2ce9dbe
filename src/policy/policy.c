/* SPDX-License-Identifier: MIT */
/*
 * Recipes: name[:key=value,...][+name[:...]]...  A recipe is read in three steps: they choose one part of
 * each kind, give every part its options, and check that the parts go together. The canonical form names the
 * parts of all kinds with all their options and reads back to an equal policy; policy_short.c makes the
 * shortest one. A name may say its slot, the kind of part it is: head=adakv (decision 026).
 */
#include "policy/policy.h"
#include "base/nearest.h"
#include "base/opt.h"
#include "base/sized.h"
#include "policy/presets.h"
#include "policy/registry.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECIPE 4096

/* One `[slot=]name[:options]` of a recipe. Its texts are not NUL-terminated; slot NULL = none given. */
struct item {
    const char *slot, *name, *options;
    size_t slot_len, name_len, options_len;
};

struct parser {
    wnw_policy *policy;
    const wnw_registry *registry;
    bool explicit_part[WNW_N_PART_KINDS]; /* named behind the first name */
    uint64_t seen[WNW_N_PART_KINDS];      /* options given by the recipe itself */
};

static int len_of(size_t n)
{
    return n > 80 ? 80 : (int)n;
}

static struct item next_item(const char **at)
{
    struct item it = {.name = *at};
    const size_t len = strcspn(*at, "+");
    const char *colon = memchr(*at, ':', len);
    it.name_len = colon ? (size_t)(colon - *at) : len;
    if (colon) {
        it.options = colon + 1;
        it.options_len = len - it.name_len - 1;
    }
    const char *eq = memchr(it.name, '=', it.name_len);
    if (eq) {
        it.slot = it.name;
        it.slot_len = (size_t)(eq - it.name);
        it.name = eq + 1;
        it.name_len -= it.slot_len + 1;
    }
    *at += len + ((*at)[len] == '+');
    return it;
}

/* ---- Slots ---- */

static const char *const slots[WNW_N_PART_KINDS] = {
    [WNW_PART_SCORER] = "score",     [WNW_PART_AGGREGATION] = "aggregate", [WNW_PART_LAYER_BUDGET] = "layer",
    [WNW_PART_HEAD_BUDGET] = "head", [WNW_PART_SELECTOR] = "select",       [WNW_PART_POSITIONS] = "positions",
    [WNW_PART_CONTENTS] = "contents"};

const char *wnw__slot_name(int32_t kind)
{
    return kind >= 0 && kind < WNW_N_PART_KINDS ? slots[kind] : NULL;
}

/* E_ARG where the item names a slot that does not exist. */
static int check_slot_exists(const struct item *it)
{
    struct wnw__guess g = {.word = it->slot, .len = it->slot_len};
    char list[160] = "";
    for (int32_t k = 0; it->slot && k < WNW_N_PART_KINDS; k++) {
        if (strlen(slots[k]) == it->slot_len && memcmp(slots[k], it->slot, it->slot_len) == 0)
            return WNW_OK;
        wnw__guess_name(&g, slots[k]);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", slots[k]);
    }
    if (!it->slot)
        return WNW_OK;
    if (g.best)
        return wnw__fail(WNW_E_ARG, "a policy has no slot \"%.*s\"; did you mean \"%s\"?",
                         len_of(it->slot_len), it->slot, g.best);
    return wnw__fail(WNW_E_ARG, "a policy has no slot \"%.*s\"; it has %s. Options of a part follow a colon",
                     len_of(it->slot_len), it->slot, list);
}

/* E_ARG where the part does not belong into the slot that the item names. */
static int check_slot(const struct item *it, const wnw_part *part)
{
    const char *slot = slots[part->kind];
    if (!it->slot || (strlen(slot) == it->slot_len && memcmp(slot, it->slot, it->slot_len) == 0))
        return WNW_OK;
    return wnw__fail(WNW_E_ARG, "%s is a %s and no part for the slot %.*s; write %s=%s", part->name,
                     wnw__part_kind_name(part->kind), len_of(it->slot_len), it->slot, slot, part->name);
}

/* ---- Step 1: parts ---- */

static int set_part(struct parser *ps, const wnw_part *part)
{
    wnw_policy *p = ps->policy;
    void *opts = calloc(1, part->options_size + 1);
    if (!opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", part->name);
    wnw__opt_defaults(part->options, opts);
    free(p->opts[part->kind]);
    p->opts[part->kind] = opts;
    memset(&p->part[part->kind], 0, sizeof p->part[part->kind]);
    memcpy(&p->part[part->kind], part, part->struct_size);
    return WNW_OK;
}

/* The part of this name, registered or of the library; NULL if there is none. */
static const wnw_part *find_part(const struct parser *ps, const char *name, size_t len)
{
    const wnw_part *outside = wnw__registry_find(ps->registry, name, len);
    return outside ? outside : wnw__part_find(name, len);
}

static int unknown_name(const struct parser *ps, const struct item *it, bool first)
{
    struct wnw__guess g = {.word = it->name, .len = it->name_len};
    const struct wnw__preset *row;
    const wnw_part *part;
    for (int32_t i = 0; first && (row = wnw__preset_get(i)); i++)
        wnw__guess_name(&g, row->name);
    for (int32_t i = 0; (part = wnw__part_get(i)); i++)
        if ((part->kind == WNW_PART_SCORER) == first)
            wnw__guess_name(&g, part->name);
    for (int32_t i = 0; ps->registry && i < ps->registry->n; i++)
        if ((ps->registry->parts[i]->kind == WNW_PART_SCORER) == first)
            wnw__guess_name(&g, ps->registry->parts[i]->name);
    if (g.best)
        return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; did you mean \"%s\"?",
                         first ? "name" : "part", len_of(it->name_len), it->name, g.best);

    char list[640] = "";
    for (int32_t i = 0; first && (row = wnw__preset_get(i)); i++)
        if (!row->parity)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", row->name);
    for (int32_t i = 0; !first && (part = wnw__part_get(i)); i++)
        if (part->kind != WNW_PART_SCORER)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", part->name);
    return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; known are: %s", first ? "name" : "part",
                     len_of(it->name_len), it->name, list);
}

/* A part named behind the first name replaces the part of its kind. */
static int replace_part(struct parser *ps, const struct item *it)
{
    WNW_TRY(check_slot_exists(it));
    const wnw_part *part = find_part(ps, it->name, it->name_len);
    if (!part && !wnw__preset_find(it->name, it->name_len))
        return unknown_name(ps, it, false);
    if (!part)
        return wnw__fail(WNW_E_ARG, "preset \"%.*s\" must come first in a recipe", len_of(it->name_len),
                         it->name);
    WNW_TRY(check_slot(it, part));
    if (part->kind == WNW_PART_SCORER)
        return wnw__fail(WNW_E_ARG, "a recipe has one scorer: \"%s\" cannot follow \"%s\"", part->name,
                         wnw__policy_name(ps->policy));
    if (ps->explicit_part[part->kind])
        return wnw__fail(WNW_E_ARG, "two parts of one kind: \"%s\" and \"%s\" are both a %s; name one",
                         ps->policy->part[part->kind].head.name, part->name, wnw__part_kind_name(part->kind));
    ps->explicit_part[part->kind] = true;
    return set_part(ps, part);
}

/* ---- Step 2: options ---- */

static int unknown_option(const struct parser *ps, const struct item *it, const char *key, size_t len,
                          int32_t kind)
{
    const wnw_policy *p = ps->policy;
    struct wnw__guess g = {.word = key, .len = len};
    char list[320] = "";
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        for (const wnw_option *o = p->part[k].head.options; (kind < 0 || k == kind) && o && o->name; o++) {
            wnw__guess_name(&g, o->name);
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", o->name);
        }
    }
    if (g.best)
        return wnw__fail(WNW_E_ARG, "%.*s has no option \"%.*s\"; did you mean \"%s\"?", len_of(it->name_len),
                         it->name, len_of(len), key, g.best);
    return wnw__fail(WNW_E_ARG, "%.*s has no option \"%.*s\"; it has %s", len_of(it->name_len), it->name,
                     len_of(len), key, *list ? list : "none");
}

/* Sets an option of the part of this kind; kind < 0: of every part that has it. given: the recipe itself gave
 * it. */
static int set_option(struct parser *ps, const struct item *it, const char *text, size_t len, int32_t kind,
                      bool given)
{
    wnw_policy *p = ps->policy;
    const char *eq = memchr(text, '=', len);
    const size_t key_len = eq ? (size_t)(eq - text) : len;
    if (!eq || key_len == 0)
        return wnw__fail(WNW_E_ARG, "\"%.*s\" behind %.*s is not of the form key=value", len_of(len), text,
                         len_of(it->name_len), it->name);
    int32_t twice = -1, reached = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const int i = kind < 0 || kind == k ? wnw__opt_find(p->part[k].head.options, text, key_len) : -1;
        if (i < 0)
            continue;
        if (given && (ps->seen[k] >> i & 1u)) {
            twice = k; /* an option given to the part itself takes precedence */
            continue;
        }
        if (given)
            ps->seen[k] |= (uint64_t)1 << i;
        WNW_TRY(wnw__opt_parse(&p->part[k].head.options[i], p->opts[k], p->part[k].head.name, eq + 1,
                               len - key_len - 1));
        reached++;
    }
    if (reached == 0 && twice >= 0)
        return wnw__fail(WNW_E_ARG, "option %.*s of %s is given twice", len_of(key_len), text,
                         p->part[twice].head.name);
    return reached > 0 ? WNW_OK : unknown_option(ps, it, text, key_len, kind);
}

static int set_options(struct parser *ps, const struct item *it, int32_t kind, bool given)
{
    const char *at = it->options;
    size_t left = it->options_len;
    while (it->options) {
        const char *comma = memchr(at, ',', left);
        const size_t len = comma ? (size_t)(comma - at) : left;
        WNW_TRY(set_option(ps, it, at, len, kind, given));
        if (!comma)
            break;
        at += len + 1;
        left -= len + 1;
    }
    return WNW_OK;
}

static int32_t kind_of(const struct parser *ps, const struct item *it)
{
    const wnw_part *part = find_part(ps, it->name, it->name_len);
    return part ? (int32_t)part->kind : -1;
}

/* ---- The first name ---- */

static int set_default_parts(struct parser *ps)
{
    static const char *const defaults[] = {"direct", "uniform", "equal", "topk", "original", "plain"};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const wnw_part *part = wnw__part_find(defaults[i], strlen(defaults[i]));
        if (part)
            WNW_TRY(set_part(ps, part));
    }
    return WNW_OK;
}

static int set_preset(struct parser *ps, const struct wnw__preset *row)
{
    const char *at = row->recipe;
    while (*at) {
        const struct item it = next_item(&at);
        const wnw_part *part = wnw__part_find(it.name, it.name_len);
        if (!part)
            return wnw__fail(WNW_E_ARG, "preset %s names an unknown part", row->name);
        WNW_TRY(set_part(ps, part));
        WNW_TRY(set_options(ps, &it, (int32_t)part->kind, false));
    }
    return WNW_OK;
}

/* Sets the head aggregation that the scorer asks for. */
static int set_aggregation(struct parser *ps)
{
    const wnw_scorer *scorer = wnw__scorer_of(ps->policy);
    const bool query_heads = scorer->part.flags & WNW_FLAG_QUERY_HEADS;
    const char *name = scorer->aggregation ? scorer->aggregation : query_heads ? "group_mean" : "direct";
    const wnw_part *part = find_part(ps, name, strlen(name));
    if (!part || part->kind != WNW_PART_AGGREGATION)
        return wnw__fail(WNW_E_ARG, "%s asks for the head aggregation \"%s\", which is not known",
                         scorer->part.name, name);
    return set_part(ps, part);
}

static int set_first(struct parser *ps, const struct item *it, bool presets)
{
    /* score=snapkv names the scorer, not the preset of the same name. */
    const struct wnw__preset *row = presets && !it->slot ? wnw__preset_find(it->name, it->name_len) : NULL;
    WNW_TRY(check_slot_exists(it));
    if (row)
        return set_preset(ps, row);
    const wnw_part *part = find_part(ps, it->name, it->name_len);
    if (!part && it->slot && wnw__preset_find(it->name, it->name_len))
        return wnw__fail(WNW_E_ARG, "%.*s is a preset and fills several slots; write it without %.*s=",
                         len_of(it->name_len), it->name, len_of(it->slot_len), it->slot);
    if (!part)
        return unknown_name(ps, it, true);
    if (part->kind != WNW_PART_SCORER)
        return wnw__fail(WNW_E_ARG,
                         "\"%s\" is a %s; a recipe starts with a preset or a scorer, for example snapkv+%s",
                         part->name, wnw__part_kind_name(part->kind), part->name);
    WNW_TRY(check_slot(it, part));
    WNW_TRY(set_part(ps, part));
    return set_aggregation(ps);
}

/* ---- Step 3: do the parts go together? ---- */

static int check_aggregation(const wnw_policy *p)
{
    const bool query_heads = wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_QUERY_HEADS);
    const char *name = wnw__aggregation_of(p)->part.name;
    if (wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_QUERY_HEADS) && !query_heads)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores KV heads, there are no query heads to put "
                         "together; layer_mean and layer_max go with it",
                         wnw__policy_name(p), name);
    if (!wnw__aggregation_of(p)->aggregate && query_heads)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores query heads; name an aggregation such as "
                         "group_mean",
                         wnw__policy_name(p), name);
    return WNW_OK;
}

/* Name of the budget part that makes layers or heads differ in length; NULL if none does. */
static const char *ragged_budget(const wnw_policy *p)
{
    return wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_RAGGED)  ? wnw__layer_budget_of(p)->part.name
           : wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_RAGGED) ? wnw__head_budget_of(p)->part.name
                                                                       : NULL;
}

/* Refuses re-rotation with ragged budgets: the next token has one position, so all heads need equal
 * counts. */
static int check_positions(const wnw_policy *p)
{
    const char *name = p->part[WNW_PART_POSITIONS].head.name, *ragged = ragged_budget(p);
    if (!wnw_policy_rerotates(p))
        return WNW_OK;
    if (ragged)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s: new positions need the same number of entries in every "
            "layer and head, and %s gives them different ones; original positions go with it",
            name, ragged, ragged);
    if (wnw__policy_skips(p, 0))
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s that leaves the first layers whole: new positions need "
            "the same number of entries in every layer; set skip=0",
            name, wnw__policy_name(p));
    return WNW_OK;
}

static int check_selector(const wnw_policy *p)
{
    const char *name = wnw__selector_of(p)->part.name, *ragged = ragged_budget(p);
    if (wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_ATTENTION) &&
        !wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_ATTENTION))
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with selector %s, which weighs attention against value "
                         "norms: its scores are not attention",
                         wnw__policy_name(p), name);
    if (wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_QUERY_HEADS) &&
        (!wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_QUERY_HEADS) ||
         !wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_QUERY_HEADS) || wnw__aggregation_of(p)->choose))
        return wnw__fail(
            WNW_E_ARG,
            "%s+%s cannot be combined with selector %s as its options are: it looks at every query "
            "head of a group, such as snapkv+group_mean has them",
            wnw__policy_name(p), wnw__aggregation_of(p)->part.name, name);
    if (!wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_BY_BLOCK))
        return WNW_OK;
    if (!wnw__scorer_of(p)->blocks)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with selector %s: its scores do not come in blocks (lagkv's do)",
            wnw__policy_name(p), name);
    if (ragged)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: its selector %s keeps the same number of entries of "
                         "every block in every head; add +topk to let blocks compete",
                         wnw__policy_name(p), ragged, name);
    return WNW_OK;
}

static int check_parts(const wnw_policy *p)
{
    const char *layer = wnw__layer_budget_of(p)->part.name;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        WNW_TRY(wnw__part_check(&p->part[k].head, p->opts[k]));
    WNW_TRY(check_aggregation(p));
    WNW_TRY(check_positions(p));
    if (wnw__head_budget_of(p)->allocate_model && strcmp(layer, "uniform") != 0)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it shares one budget out over all layers and heads",
                         wnw__head_budget_of(p)->part.name, layer);
    return check_selector(p);
}

/* Sets the facts that follow from the options, once all options are set. */
static void settle_facts(wnw_policy *p)
{
    const wnw_option *o = wnw__layer_budget_of(p)->part.options;
    const int i = wnw__opt_find(o, "rounding", strlen("rounding"));
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_part *part = &p->part[k].head;
        p->flags[k] = part->flags | (part->flags_of ? part->flags_of(p->opts[k]) : 0u);
        p->flags[k] &= wnw__part_flags((wnw_part_kind)k);
    }
    int32_t rounding = WNW_ROUND_EXACT;
    if (i >= 0 && o[i].type == WNW_OPT_ENUM && strcmp(o[i].choices[0], wnw__rounding_choices[0]) == 0)
        memcpy(&rounding, (const char *)p->opts[WNW_PART_LAYER_BUDGET] + o[i].offset, sizeof rounding);
    p->rounding = rounding == WNW_ROUND_TRUNC ? WNW_ROUND_TRUNC : WNW_ROUND_EXACT;
}

/* ---- Canonical form ---- */

static size_t write_text(const wnw_policy *p, char *out, size_t size)
{
    size_t n = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        /* A recipe that leaves contents alone does not name this kind, which came later than the others. */
        if (k == WNW_PART_CONTENTS && !wnw__contents_works(wnw__contents_of(p)))
            continue;
        n += (size_t)snprintf(out ? out + n : NULL, out ? size - n : 0, "%s%s", k ? "+" : "",
                              p->part[k].head.name);
        const char *sep = ":";
        for (const wnw_option *o = p->part[k].head.options; o && o->name; o++) {
            char value[128];
            wnw__opt_format(o, p->opts[k], value, sizeof value);
            n += (size_t)snprintf(out ? out + n : NULL, out ? size - n : 0, "%s%s=%s", sep, o->name, value);
            sep = ",";
        }
    }
    return n;
}

static int set_text(wnw_policy *p)
{
    const size_t n = write_text(p, NULL, 0);
    p->text = malloc(n + 1);
    if (!p->text)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a policy");
    write_text(p, p->text, n + 1);
    return WNW_OK;
}

/* ---- Public ---- */

static int parse(struct parser *ps, const char *recipe, bool presets)
{
    const char *at = recipe;
    const struct item first = next_item(&at);
    const char *const rest = at;
    WNW_TRY(set_default_parts(ps));
    WNW_TRY(set_first(ps, &first, presets));
    while (*at) {
        const struct item it = next_item(&at);
        WNW_TRY(replace_part(ps, &it));
    }
    at = rest;
    while (*at) {
        const struct item it = next_item(&at);
        WNW_TRY(set_options(ps, &it, kind_of(ps, &it), true));
    }
    /* The first name's options come last, because a preset's options apply to the final parts. */
    WNW_TRY(set_options(ps, &first, -1, true));
    settle_facts(ps->policy);
    WNW_TRY(check_parts(ps->policy));
    return set_text(ps->policy);
}

static int policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry, bool presets)
{
    *out = NULL;
    const size_t len = recipe ? strnlen(recipe, MAX_RECIPE + 1) : 0;
    if (len == 0)
        return wnw__fail(WNW_E_ARG, "the policy is empty; give a recipe such as snapkv");
    if (len > MAX_RECIPE)
        return wnw__fail(WNW_E_ARG, "the policy is longer than %d characters", MAX_RECIPE);
    if (recipe[len - 1] == '+')
        return wnw__fail(WNW_E_ARG, "policy \"%.*s\" ends with \"+\"; name the part that is missing",
                         len_of(len), recipe);
    struct parser ps = {.policy = calloc(1, sizeof *ps.policy), .registry = registry};
    if (!ps.policy)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a policy");
    const int rc = parse(&ps, recipe, presets);
    if (rc != WNW_OK) {
        wnw_policy_free(ps.policy);
        return rc;
    }
    *out = ps.policy;
    return WNW_OK;
}

int wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry)
{
    WNW_REQUIRE(out);
    return policy_parse(out, recipe, registry, true);
}

int wnw__policy_parse_parts(wnw_policy **out, const char *recipe)
{
    return policy_parse(out, recipe, NULL, false);
}

void wnw_policy_free(wnw_policy *p)
{
    if (!p)
        return;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(p->opts[k]);
    free(p->text);
    free(p);
}

int wnw__policy_copy(wnw_policy **out, const wnw_policy *p)
{
    *out = NULL;
    wnw_policy *copy = calloc(1, sizeof *copy);
    bool ok = copy != NULL;
    if (ok) {
        *copy = *p;
        memset(copy->opts, 0, sizeof copy->opts);
        ok = (copy->text = strdup(p->text)) != NULL;
    }
    for (int32_t k = 0; ok && k < WNW_N_PART_KINDS; k++) {
        const size_t size = p->part[k].head.options_size;
        ok = (copy->opts[k] = calloc(1, size + 1)) != NULL;
        if (ok)
            memcpy(copy->opts[k], p->opts[k], size);
    }
    if (!ok) {
        wnw_policy_free(copy);
        return wnw__fail(WNW_E_NOMEM, "out of memory for a policy");
    }
    *out = copy;
    return WNW_OK;
}

const char *wnw_policy_string(const wnw_policy *p)
{
    return p ? p->text : "";
}

/* What the part of kind k asks for, both while it works and while it gathers. */
static wnw_needs needs_of(const wnw_policy *p, int32_t k)
{
    const wnw_part *part = &p->part[k].head;
    wnw_needs needs = {0}, more = {0};
    if (part->needs)
        part->needs(p->opts[k], &needs);
    if (part->gather && part->gather->needs && wnw__policy_gathers(p, k))
        part->gather->needs(p->opts[k], &more);
    wnw__needs_merge(&needs, &more);
    return needs;
}

int wnw_policy_get_needs(const wnw_policy *p, wnw_needs *out)
{
    wnw_needs needs = {0};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_needs, out));
    wnw__sized_give(out, &needs);
    WNW_REQUIRE(p);
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_needs more = needs_of(p, k);
        wnw__needs_merge(&needs, &more);
    }
    wnw__sized_give(out, &needs);
    return WNW_OK;
}

int32_t wnw__policy_perplexity_window(const wnw_policy *p)
{
    int32_t window = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_needs more = needs_of(p, k);
        if (more.flags & WNW_NEED_PERPLEXITY && more.window > window)
            window = more.window;
    }
    return window;
}

bool wnw__policy_gathers(const wnw_policy *p, int32_t k)
{
    const wnw_gather *gather = p->part[k].head.gather;
    return gather && gather->size(p->opts[k], &(wnw_shape){1, 1, 1, 1, 1}) > 0;
}

uint32_t wnw__policy_matches(const wnw_policy *p)
{
    uint32_t all = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        all |= p->flags[k];
    return all & WNW_FLAG_MATCHES_LAYERS ? WNW_FLAG_MATCHES_LAYERS : all & WNW_FLAG_MATCHES_HEADS;
}

bool wnw__policy_counts_age(const wnw_policy *p)
{
    return wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_COUNTS_AGE);
}

wnw_protected wnw__policy_keep(const wnw_policy *p, const wnw_keep_problem *problem)
{
    return wnw__policy_keep_with(p, p->opts[WNW_PART_SCORER], problem);
}

wnw_protected wnw__policy_keep_with(const wnw_policy *p, const void *scorer_opts,
                                    const wnw_keep_problem *problem)
{
    wnw_protected kept = {0};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        if (p->part[k].head.keep)
            p->part[k].head.keep(k == WNW_PART_SCORER ? scorer_opts : p->opts[k], problem, &kept);
    kept.n_first = kept.n_first > 0 ? kept.n_first : 0;
    kept.n_last = kept.n_last > 0 ? kept.n_last : 0;
    return kept;
}

bool wnw_policy_rerotates(const wnw_policy *p)
{
    return p && wnw__policy_has(p, WNW_PART_POSITIONS, WNW_FLAG_REROTATES);
}

/* Whether the policy could not compress again a cache that it has compressed itself. */
static bool loses_tokens(const wnw_policy *p)
{
    const char *layout = wnw__policy_layout(p);
    const uint32_t matches = wnw__policy_matches(p);
    /* A selector that matches heads keeps the same tokens in all of them. */
    const bool one_list =
        strcmp(layout, "layer") == 0 || wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_MATCHES_HEADS);
    return wnw_policy_rerotates(p) && strcmp(layout, "uniform") != 0 &&
           (matches == WNW_FLAG_MATCHES_LAYERS || (matches == WNW_FLAG_MATCHES_HEADS && !one_list));
}

bool wnw__policy_sees_all_layers(const wnw_policy *p)
{
    const bool model = wnw__head_budget_of(p)->allocate_model;
    return wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_ALL_LAYERS) ||
           (model && !wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_BLIND)) ||
           wnw__policy_gathers(p, WNW_PART_LAYER_BUDGET) || wnw__policy_gathers(p, WNW_PART_HEAD_BUDGET) ||
           wnw__policy_gathers(p, WNW_PART_SELECTOR);
}

bool wnw_policy_allows(const wnw_policy *p, wnw_phase phase, const char **reason)
{
    if (!p || (int)phase < WNW_PHASE_END || phase > WNW_PHASE_DECODE) {
        if (reason)
            *reason = p ? "there is no such phase" : "there is no policy";
        return false;
    }
    const uint32_t flags = wnw_policy_needs(p).flags;
    const bool gathers = wnw__policy_gathers(p, WNW_PART_SCORER), second = flags & WNW_NEED_SECOND_PASS;
    uint32_t facts = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        facts |= p->flags[k];
    const bool at_end = gathers || second || flags & WNW_NEED_PERPLEXITY || facts & WNW_FLAG_PROMPT_ONLY;
    const char *why = "";
    if (phase == WNW_PHASE_LAYER && (gathers || wnw__policy_sees_all_layers(p) || second))
        why = "it must see all layers before it knows what any of them keeps";
    else if (phase == WNW_PHASE_LAYER && flags & WNW_NEED_PERPLEXITY)
        why = "it needs the prompt's perplexity, which is known after the last layer";
    else if (phase == WNW_PHASE_CHUNK && second)
        why = "it feeds the whole prompt a second time";
    else if ((phase == WNW_PHASE_CHUNK || phase == WNW_PHASE_DECODE) && at_end)
        why = "its statistics belong to the end of a prompt";
    else if (phase == WNW_PHASE_DECODE && flags & WNW_NEED_QUERIES)
        why = "it needs every query of the prompt";
    else if (phase == WNW_PHASE_CHUNK || phase == WNW_PHASE_DECODE) {
        if (loses_tokens(p))
            why = "it compares heads by position, and with new positions each head has another token there";
        else if (wnw_policy_rerotates(p) && wnw__policy_counts_age(p))
            why = "it counts queries by position, and new positions no longer say how many an entry has seen";
    }
    if (reason)
        *reason = why;
    return *why == '\0';
}

int wnw__policies_check(const wnw_policy *const *policies, int32_t n)
{
    if (n < 0)
        return wnw__fail(WNW_E_ARG, "%d policies; give at least 0", (int)n);
    for (int32_t i = 0; i < n; i++)
        if (!policies || !policies[i])
            return wnw__fail(WNW_E_ARG, "policy %d of %d is NULL", (int)i, (int)n);
    return WNW_OK;
}

int wnw__observations_agree(const wnw_policy *const *policies, int32_t n)
{
    int32_t stats = -1; /* first policy that asks for query statistics */
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        if (!(needs.flags & WNW_NEED_QUERY_STATS))
            continue;
        stats = stats < 0 ? i : stats;
        const wnw_needs first = wnw_policy_needs(policies[stats]);
        if (first.skip != needs.skip)
            return wnw__fail(WNW_E_ARG,
                             "query statistics without the first %d tokens (%s) and without the first %d "
                             "(%s) cannot be gathered in one run",
                             (int)first.skip, wnw__policy_name(policies[stats]), (int)needs.skip,
                             wnw__policy_name(policies[i]));
    }
    return WNW_OK;
}

int wnw__needs_agree(const wnw_policy *const *policies, int32_t n)
{
    int32_t pass = -1; /* first policy that asks for a second pass */
    WNW_TRY(wnw__observations_agree(policies, n));
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        if (!(needs.flags & WNW_NEED_SECOND_PASS))
            continue;
        pass = pass < 0 ? i : pass;
        if (wnw_policy_needs(policies[pass]).second_pass != needs.second_pass)
            return wnw__fail(WNW_E_ARG,
                             "%s and %s feed different tokens in their second pass: plan them one by one",
                             wnw__policy_name(policies[pass]), wnw__policy_name(policies[i]));
    }
    return WNW_OK;
}

int wnw__policy_check_profile(const wnw_policy *p, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(p);
    const uint32_t missing =
        needs.flags & WNW_NEED_PROFILE ? needs.profiles & ~wnw_profile_kinds(profile) : 0;
    char names[64] = "";
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (missing >> kind & 1u)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? " and " : "",
                     wnw_profile_kind_name(kind));
    if (missing)
        return wnw__fail(WNW_E_MISMATCH,
                         "%s needs a calibration profile of kind %s for this model; none was given",
                         wnw__policy_name(p), names);
    return WNW_OK;
}

bool wnw__policy_skips(const wnw_policy *p, int32_t il)
{
    const wnw_scorer *scorer = wnw__scorer_of(p);
    return scorer->skips && scorer->skips(p->opts[WNW_PART_SCORER], il);
}

wnw_blocks wnw__policy_blocks(const wnw_policy *p, int32_t n_final)
{
    return wnw__policy_blocks_with(p, p->opts[WNW_PART_SCORER], n_final);
}

wnw_blocks wnw__policy_blocks_with(const wnw_policy *p, const void *scorer_opts, int32_t n_final)
{
    const wnw_block_rule *rule = wnw__scorer_of(p)->blocks;
    wnw_blocks b = {0};
    if (rule)
        rule->of(scorer_opts, &b);
    if (b.lag > 0 && n_final > 0)
        b.sink = n_final;
    return b;
}

bool wnw__policy_is_recursive(const wnw_policy *p)
{
    return wnw__scorer_of(p)->blocks && wnw__selector_of(p)->recursive;
}

bool wnw__policy_slides(const wnw_policy *p)
{
    return wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_SLIDES);
}

void wnw__needs_merge(wnw_needs *needs, const wnw_needs *more)
{
    needs->flags |= more->flags;
    needs->profiles |= more->profiles;
    needs->profiles_optional |= more->profiles_optional;
    if (more->window > needs->window)
        needs->window = more->window;
    if (more->flags & WNW_NEED_QUERY_STATS)
        needs->skip = more->skip;
    if (more->flags & WNW_NEED_SECOND_PASS)
        needs->second_pass = more->second_pass;
}

bool wnw__policy_keeps_all(const wnw_policy *p)
{
    return p && wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_KEEPS_ALL);
}

bool wnw__policy_rewrites_all(const wnw_policy *p)
{
    return p && wnw__policy_has(p, WNW_PART_CONTENTS, WNW_FLAG_REWRITES_ALL);
}

bool wnw_policy_is_full(const wnw_policy *p)
{
    return wnw__policy_keeps_all(p) && !wnw__policy_rewrites_all(p);
}

bool wnw_policy_has_own_size(const wnw_policy *p)
{
    return p &&
           (wnw__selector_of(p)->recursive || wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_OWN_SIZE) ||
            (wnw__policy_keeps_all(p) && !wnw_policy_is_full(p)));
}

const char *wnw__policy_layout(const wnw_policy *p)
{
    const bool uniform = wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_UNIFORM);
    if (wnw__policy_keeps_all(p))
        return uniform ? "uniform" : "composite";
    if (wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_RAGGED))
        return "ragged";
    if (uniform)
        return wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_RAGGED) ? "layer" : "uniform";
    if (wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_ONE_LIST))
        return "layer";
    /* One list of scores gives one list of tokens, unless the selector looks at each head by itself. */
    return wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_ONE_LIST) && !wnw__selector_of(p)->part.needs
               ? "layer"
               : "composite";
}
