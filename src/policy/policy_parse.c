/* SPDX-License-Identifier: MIT */
/*
 * Recipes: name[:key=value,...][+name[:...]]...  A recipe is read in three steps: they choose one part of
 * each kind, give every part its options, and check that the parts go together (policy_check.c). The canonical form names the
 * parts of all kinds with all their options and reads back to an equal policy; policy_short.c makes the
 * shortest one. A name may say its slot, the kind of part it is: head=adakv (decision 026).
 */
#include "base/err.h"
#include "base/opt.h"
#include "base/strings.h"
#include "policy/parts.h"
#include "policy/policy.h"

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
    bool explicit_part[WNW_N_PART_KINDS]; /* named after the first name */
    int32_t named[WNW_N_PART_KINDS];      /* their kinds in the order of the recipe */
    int32_t n_named;
    uint64_t seen[WNW_N_PART_KINDS]; /* options given by the recipe itself */
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
        if (wnw__is_name(it->slot, it->slot_len, slots[k]))
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
    if (!it->slot || wnw__is_name(it->slot, it->slot_len, slot))
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

/* The known name that a mistyped one meant, NULL if there is none: a preset or scorer where it is the recipe's first. */
static const char *meant(const struct parser *ps, const struct item *it, bool first)
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
    return g.best;
}

/* Adds a name to the first `at` letters of a list, and returns how many there are then: as many as there is room for. */
static size_t add_name(char *list, size_t size, size_t at, const char *name)
{
    const int n = snprintf(list + at, size - at, "%s%s", at > 0 ? ", " : "", name);
    return n > 0 && (size_t)n < size - at ? at + (size_t)n : size - 1;
}

/* Lists what may come first in a recipe, presets, or after it, parts. */
static void list_known(char *list, size_t size, bool first)
{
    const struct wnw__preset *row;
    const wnw_part *part;
    size_t at = 0;
    for (int32_t i = 0; first && (row = wnw__preset_get(i)); i++)
        if (!row->parity)
            at = add_name(list, size, at, row->name);
    for (int32_t i = 0; !first && (part = wnw__part_get(i)); i++)
        if (part->kind != WNW_PART_SCORER)
            at = add_name(list, size, at, part->name);
}

static int unknown_name(const struct parser *ps, const struct item *it, bool first)
{
    char list[640] = "";
    const char *name = meant(ps, it, first);
    if (name)
        return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; did you mean \"%s\"?",
                         first ? "name" : "part", len_of(it->name_len), it->name, name);
    list_known(list, sizeof list, first);
    return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; known are: %s", first ? "name" : "part",
                     len_of(it->name_len), it->name, list);
}

/* A part named after the first name replaces the part of its kind. */
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
    ps->named[ps->n_named++] = (int32_t)part->kind;
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
        return wnw__fail(WNW_E_ARG, "\"%.*s\" after %.*s is not of the form key=value", len_of(len), text,
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

/* ---- The first name ---- */

static int set_default_parts(struct parser *ps)
{
    static const wnw_part *const defaults[] = {&wnw__aggregation_direct.part, &wnw__layer_budget_uniform.part,
                                               &wnw__head_budget_equal.part,  &wnw__selector_topk.part,
                                               &wnw__positions_original.part, &wnw__contents_plain.part};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        WNW_TRY(set_part(ps, defaults[i]));
    return WNW_OK;
}

/* Sets the head aggregation that the scorer asks for. */
static int set_aggregation(struct parser *ps)
{
    const wnw_scorer *scorer = wnw__scorer_of(ps->policy);
    const bool query_heads = scorer->part.flags & WNW_FLAG_QUERY_HEADS;
    const char *usual = query_heads ? "group_mean" : "direct",
               *name = scorer->aggregation ? scorer->aggregation : usual;
    const wnw_part *part = find_part(ps, name, strlen(name));
    if (!part || part->kind != WNW_PART_AGGREGATION)
        return wnw__fail(WNW_E_ARG, "%s asks for the head aggregation \"%s\", which is not known",
                         scorer->part.name, name);
    return set_part(ps, part);
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
        if (part->kind == WNW_PART_SCORER)
            WNW_TRY(set_aggregation(ps));
    }
    return WNW_OK;
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

/* ---- Facts ---- */

/* Sets the facts that follow from the options, once all options are set. */
static void set_facts(wnw_policy *p)
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

/* Writes what out[size] holds of it, and returns the length of all. */
static size_t write_text(const wnw_policy *p, char *out, size_t size)
{
    size_t n = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        /* A recipe that leaves contents alone does not name this kind, which came later than the others. */
        if (k == WNW_PART_CONTENTS && !wnw__contents_works(wnw__contents_of(p)))
            continue;
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%s%s", k ? "+" : "",
                              p->part[k].head.name);
        const char *sep = ":";
        for (const wnw_option *o = p->part[k].head.options; o && o->name; o++) {
            char value[WNW_OPT_TEXT];
            wnw__opt_format(o, p->opts[k], value, sizeof value);
            n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%s%s=%s", sep, o->name,
                                  value);
            sep = ",";
        }
    }
    return n;
}

static int set_text(wnw_policy *p)
{
    char most[1024]; /* that recipes of the library take: numbers are written once */
    const size_t n = write_text(p, most, sizeof most);
    p->text = malloc(n + 1);
    if (!p->text)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a policy");
    if (n < sizeof most)
        memcpy(p->text, most, n + 1);
    else
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
    for (int32_t i = 0; i < ps->n_named; i++) {
        const struct item it = next_item(&at);
        WNW_TRY(set_options(ps, &it, ps->named[i], true));
    }
    /* The first name's options come last, because a preset's options apply to the final parts. */
    WNW_TRY(set_options(ps, &first, -1, true));
    set_facts(ps->policy);
    WNW_TRY(wnw__policy_check_parts(ps->policy));
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
