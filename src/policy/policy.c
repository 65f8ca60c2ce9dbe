/* SPDX-License-Identifier: MIT */
/*
 * Recipes: name[:key=value,...][+name[:...]]...  A recipe is read in three steps: choose one part of each
 * kind, give every part its options, check that the parts go together. The canonical form names the parts of
 * all kinds with all their options and reads back to an equal policy.
 */
#include "policy/policy.h"
#include "base/opt.h"
#include "policy/presets.h"
#include "policy/registry.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECIPE 4096

/* One `name[:options]` of a recipe; not terminated. */
struct item {
    const char *name, *options;
    size_t name_len, options_len;
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
    *at += len + ((*at)[len] == '+');
    return it;
}

/* ---- Step 1: parts ---- */

static int set_part(struct parser *ps, struct wnw__part part)
{
    wnw_policy *p = ps->policy;
    void *opts = calloc(1, part.options_size + 1);
    if (!opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", part.name);
    wnw__opt_defaults(part.options, opts);
    free(p->opts[part.kind]);
    p->opts[part.kind] = opts;
    p->part[part.kind] = part;
    return WNW_OK;
}

static int unknown_name(const struct parser *ps, const struct item *it, bool first)
{
    struct wnw__guess g = {.word = it->name, .len = it->name_len};
    const struct wnw__preset *row;
    struct wnw__part part;
    for (int32_t i = 0; first && (row = wnw__preset_get(i)); i++)
        wnw__guess_name(&g, row->name);
    for (int32_t i = 0; wnw__part_get(i, &part); i++)
        if ((part.kind == WNW_PART_SCORER) == first)
            wnw__guess_name(&g, part.name);
    for (int32_t i = 0; first && ps->registry && i < ps->registry->n; i++)
        wnw__guess_name(&g, ps->registry->scorers[i]->name);
    if (g.best)
        return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; did you mean \"%s\"?",
                         first ? "name" : "part", len_of(it->name_len), it->name, g.best);

    char list[640] = "";
    for (int32_t i = 0; first && (row = wnw__preset_get(i)); i++)
        if (!row->parity)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", row->name);
    for (int32_t i = 0; !first && wnw__part_get(i, &part); i++)
        if (part.kind != WNW_PART_SCORER)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", part.name);
    return wnw__fail(WNW_E_ARG, "unknown policy %s \"%.*s\"; known are: %s", first ? "name" : "part",
                     len_of(it->name_len), it->name, list);
}

/* A part named behind the first name takes the place of the one of its kind. */
static int replace_part(struct parser *ps, const struct item *it)
{
    struct wnw__part part;
    if (!wnw__part_find(&part, it->name, it->name_len)) {
        const wnw_scorer *outside = wnw__registry_find(ps->registry, it->name, it->name_len);
        if (!outside && !wnw__preset_find(it->name, it->name_len))
            return unknown_name(ps, it, false);
        if (!outside)
            return wnw__fail(WNW_E_ARG, "preset \"%.*s\" must come first in a recipe", len_of(it->name_len),
                             it->name);
        part = wnw__part_of_scorer(outside);
    }
    if (part.kind == WNW_PART_SCORER)
        return wnw__fail(WNW_E_ARG, "a recipe has one scorer: \"%s\" cannot follow \"%s\"", part.name,
                         ps->policy->part[WNW_PART_SCORER].name);
    if (ps->explicit_part[part.kind])
        return wnw__fail(WNW_E_ARG, "two parts of one kind: \"%s\" and \"%s\" are both a %s; name one",
                         ps->policy->part[part.kind].name, part.name, wnw__part_kind_name(part.kind));
    ps->explicit_part[part.kind] = true;
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
        for (const wnw_option *o = p->part[k].options; (kind < 0 || k == kind) && o && o->name; o++) {
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

/* kind < 0: the option goes to every part that has it. `given`: count it as given by the recipe. */
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
        const int i = kind < 0 || kind == k ? wnw__opt_find(p->part[k].options, text, key_len) : -1;
        if (i < 0)
            continue;
        if (given && (ps->seen[k] >> i & 1u)) {
            twice = k; /* what a part was told itself stands */
            continue;
        }
        if (given)
            ps->seen[k] |= (uint64_t)1 << i;
        WNW_TRY(
            wnw__opt_parse(&p->part[k].options[i], p->opts[k], p->part[k].name, eq + 1, len - key_len - 1));
        reached++;
    }
    if (reached == 0 && twice >= 0)
        return wnw__fail(WNW_E_ARG, "option %.*s of %s is given twice", len_of(key_len), text,
                         p->part[twice].name);
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

static int32_t kind_of(const struct item *it)
{
    struct wnw__part part;
    return wnw__part_find(&part, it->name, it->name_len) ? (int32_t)part.kind : -1;
}

/* ---- The first name ---- */

static int set_default_parts(struct parser *ps)
{
    static const char *const defaults[] = {"direct", "uniform", "equal", "topk", "original", "plain"};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        struct wnw__part part;
        if (wnw__part_find(&part, defaults[i], strlen(defaults[i])))
            WNW_TRY(set_part(ps, part));
    }
    return WNW_OK;
}

static int set_preset(struct parser *ps, const struct wnw__preset *row)
{
    const char *at = row->recipe;
    while (*at) {
        const struct item it = next_item(&at);
        struct wnw__part part;
        if (!wnw__part_find(&part, it.name, it.name_len))
            return wnw__fail(WNW_E_ARG, "preset %s names an unknown part", row->name);
        WNW_TRY(set_part(ps, part));
        WNW_TRY(set_options(ps, &it, (int32_t)part.kind, false));
    }
    return WNW_OK;
}

/* The head aggregation that the scorer asks for. */
static int set_aggregation(struct parser *ps)
{
    const struct wnw__part *scorer = &ps->policy->part[WNW_PART_SCORER];
    const char *name = scorer->own && scorer->own->aggregation ? scorer->own->aggregation
                       : scorer->scorer->per_query_head        ? "group_mean"
                                                               : "direct";
    struct wnw__part part;
    return wnw__part_find(&part, name, strlen(name)) ? set_part(ps, part) : WNW_OK;
}

static int set_first(struct parser *ps, const struct item *it, bool presets)
{
    struct wnw__part part;
    const struct wnw__preset *row = presets ? wnw__preset_find(it->name, it->name_len) : NULL;
    if (row)
        return set_preset(ps, row);
    const wnw_scorer *outside = wnw__registry_find(ps->registry, it->name, it->name_len);
    if (!outside && !wnw__part_find(&part, it->name, it->name_len))
        return unknown_name(ps, it, true);
    if (outside)
        part = wnw__part_of_scorer(outside);
    if (part.kind != WNW_PART_SCORER)
        return wnw__fail(WNW_E_ARG,
                         "\"%s\" is a %s; a recipe starts with a preset or a scorer, for example snapkv+%s",
                         part.name, wnw__part_kind_name(part.kind), part.name);
    WNW_TRY(set_part(ps, part));
    return set_aggregation(ps);
}

/* ---- Step 3: do the parts go together? ---- */

static int check_aggregation(const wnw_policy *p)
{
    const struct wnw__part *scorer = &p->part[WNW_PART_SCORER];
    const struct wnw__part *part = &p->part[WNW_PART_AGGREGATION];
    if (part->aggregation->of_query_heads && !scorer->scorer->per_query_head)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores KV heads, there are no query heads to put "
                         "together; layer_mean and layer_max go with it",
                         scorer->name, part->name);
    if (!part->aggregation->aggregate && scorer->scorer->per_query_head)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores query heads; name an aggregation such as "
                         "group_mean",
                         scorer->name, part->name);
    return WNW_OK;
}

/* The next token has one position: every head must keep the same count. */
static int check_positions(const wnw_policy *p)
{
    const struct wnw__part *scorer = &p->part[WNW_PART_SCORER], *part = &p->part[WNW_PART_POSITIONS];
    const struct wnw__part *layer = &p->part[WNW_PART_LAYER_BUDGET], *head = &p->part[WNW_PART_HEAD_BUDGET];
    const struct wnw__part *ragged = layer->layer->ragged ? layer : head->head->ragged ? head : NULL;
    if (!part->positions->rerotate)
        return WNW_OK;
    if (ragged)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s: new positions need the same number of entries in every "
            "layer and head, and %s gives them different ones; original positions go with it",
            part->name, ragged->name, ragged->name);
    if (wnw__policy_skips(p, 0))
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s that leaves the first layers whole: new positions need "
            "the same number of entries in every layer; set skip=0",
            part->name, scorer->name);
    return WNW_OK;
}

static int check_parts(const wnw_policy *p)
{
    const struct wnw__part *scorer = &p->part[WNW_PART_SCORER];
    const struct wnw__part *layer = &p->part[WNW_PART_LAYER_BUDGET];
    const struct wnw__part *head = &p->part[WNW_PART_HEAD_BUDGET];
    const struct wnw__part *selector = &p->part[WNW_PART_SELECTOR];
    if (scorer->own && scorer->own->check)
        WNW_TRY(scorer->own->check(p->opts[WNW_PART_SCORER]));
    WNW_TRY(check_aggregation(p));
    WNW_TRY(check_positions(p));
    if (head->head->allocate_model && strcmp(layer->name, "uniform") != 0)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it shares one budget out over all layers and heads",
                         head->name, layer->name);
    if (selector->selector->attention_only && scorer->own && !scorer->own->like_attention)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with selector %s, which weighs attention against value "
                         "norms: its scores are not attention",
                         scorer->name, selector->name);
    const struct wnw__aggregation *agg = p->part[WNW_PART_AGGREGATION].aggregation;
    if (selector->selector->of_query_heads &&
        selector->selector->of_query_heads(p->opts[WNW_PART_SELECTOR]) &&
        (!scorer->scorer->per_query_head || !agg->of_query_heads || agg->choose))
        return wnw__fail(
            WNW_E_ARG,
            "%s+%s cannot be combined with selector %s as its options are: it looks at every query "
            "head of a group, such as snapkv+group_mean has them",
            scorer->name, agg->name, selector->name);
    if (!selector->selector->by_block)
        return WNW_OK;
    if (!scorer->own || !scorer->own->blocks)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with selector %s: its scores do not come in blocks (lagkv's do)",
            scorer->name, selector->name);
    const struct wnw__part *ragged = layer->layer->ragged ? layer : head->head->ragged ? head : NULL;
    if (ragged)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: its selector %s keeps the same number of entries of "
                         "every block in every head; add +topk to let blocks compete",
                         scorer->name, ragged->name, selector->name);
    return WNW_OK;
}

/* ---- Canonical form ---- */

static size_t write_text(const wnw_policy *p, char *out, size_t size)
{
    size_t n = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        /* Recipes that leave contents alone are as long as before there was such a kind of part. */
        if (k == WNW_PART_CONTENTS && !wnw__contents_works(p->part[k].contents))
            continue;
        n +=
            (size_t)snprintf(out ? out + n : NULL, out ? size - n : 0, "%s%s", k ? "+" : "", p->part[k].name);
        const char *sep = ":";
        for (const wnw_option *o = p->part[k].options; o && o->name; o++) {
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
        WNW_TRY(set_options(ps, &it, kind_of(&it), true));
    }
    /* After the others, because a preset's options reach whatever part is there in the end. */
    WNW_TRY(set_options(ps, &first, -1, true));
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
    for (int32_t k = 0; ok && k < WNW_N_PART_KINDS; k++) {
        copy->part[k] = p->part[k];
        copy->opts[k] = calloc(1, p->part[k].options_size + 1);
        ok = copy->opts[k] != NULL;
        if (ok)
            memcpy(copy->opts[k], p->opts[k], p->part[k].options_size);
    }
    if (ok)
        ok = (copy->text = strdup(p->text)) != NULL;
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

/* What the i-th of the parts that may ask for something asks for; false past the last. */
static bool needs_of(const wnw_policy *p, size_t i, wnw_needs *out)
{
    const struct wnw__part *parts = p->part;
    const struct wnw__scorer *own = parts[WNW_PART_SCORER].own;
    const struct {
        void (*needs)(const void *opts, wnw_needs *out);
        wnw_part_kind kind;
    } asks[] = {
        {parts[WNW_PART_SCORER].scorer->needs, WNW_PART_SCORER},
        {own ? own->collect_needs : NULL, WNW_PART_SCORER},
        {parts[WNW_PART_AGGREGATION].aggregation->needs, WNW_PART_AGGREGATION},
        {parts[WNW_PART_LAYER_BUDGET].layer->needs, WNW_PART_LAYER_BUDGET},
        {parts[WNW_PART_HEAD_BUDGET].head->needs, WNW_PART_HEAD_BUDGET},
        {parts[WNW_PART_SELECTOR].selector->needs, WNW_PART_SELECTOR},
        {parts[WNW_PART_CONTENTS].contents->needs, WNW_PART_CONTENTS},
    };
    *out = (wnw_needs){0};
    if (i >= sizeof asks / sizeof *asks)
        return false;
    if (asks[i].needs)
        asks[i].needs(p->opts[asks[i].kind], out);
    return true;
}

wnw_needs wnw_policy_needs(const wnw_policy *p)
{
    wnw_needs needs = {0}, more;
    for (size_t i = 0; p && needs_of(p, i, &more); i++)
        wnw__needs_merge(&needs, &more);
    return needs;
}

int32_t wnw__policy_perplexity_window(const wnw_policy *p)
{
    wnw_needs more;
    int32_t window = 0;
    for (size_t i = 0; needs_of(p, i, &more); i++)
        if (more.flags & WNW_NEED_PERPLEXITY && more.window > window)
            window = more.window;
    return window;
}

enum wnw__matches wnw__policy_matches(const wnw_policy *p)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    const struct wnw__aggregation *agg = p->part[WNW_PART_AGGREGATION].aggregation;
    const enum wnw__matches all[] = {
        own ? own->matches : WNW_MATCH_NONE,
        agg->matches ? agg->matches(p->opts[WNW_PART_AGGREGATION]) : WNW_MATCH_NONE,
        p->part[WNW_PART_LAYER_BUDGET].layer->matches,
        p->part[WNW_PART_SELECTOR].selector->matches,
    };
    enum wnw__matches most = WNW_MATCH_NONE;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        most = all[i] > most ? all[i] : most;
    return most;
}

bool wnw__policy_counts_age(const wnw_policy *p)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    return own && own->counts_age && own->counts_age(p->opts[WNW_PART_SCORER]);
}

bool wnw_policy_rerotates(const wnw_policy *p)
{
    return p && p->part[WNW_PART_POSITIONS].positions->rerotate;
}

/* Whether it could not work on what it left behind itself. */
static bool loses_tokens(const wnw_policy *p)
{
    const char *layout = wnw__policy_layout(p);
    const enum wnw__matches matches = wnw__policy_matches(p);
    /* A selector that matches heads does so to keep the same tokens in all of them. */
    const bool one_list =
        strcmp(layout, "layer") == 0 || p->part[WNW_PART_SELECTOR].selector->matches == WNW_MATCH_HEADS;
    return wnw_policy_rerotates(p) && strcmp(layout, "uniform") != 0 &&
           (matches == WNW_MATCH_LAYERS || (matches == WNW_MATCH_HEADS && !one_list));
}

bool wnw_policy_allows(const wnw_policy *p, wnw_phase phase, const char **reason)
{
    if (!p || (int)phase < WNW_PHASE_END || phase > WNW_PHASE_DECODE) {
        if (reason)
            *reason = p ? "there is no such phase" : "there is no policy";
        return false;
    }
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    const uint32_t flags = wnw_policy_needs(p).flags;
    const bool collects = own && own->collect && own->collect_size(p->opts[WNW_PART_SCORER], 1) > 0;
    const bool global = p->part[WNW_PART_LAYER_BUDGET].layer->model_scope ||
                        p->part[WNW_PART_HEAD_BUDGET].head->allocate_model;
    const bool second = flags & WNW_NEED_SECOND_PASS;
    const bool at_end = collects || second || flags & WNW_NEED_PERPLEXITY || (own && own->prompt_only) ||
                        p->part[WNW_PART_CONTENTS].contents->prompt_only;
    const char *why = "";
    if (phase == WNW_PHASE_LAYER && (collects || global || second))
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
    int32_t stats = -1; /* first policy that asks for them */
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
                             (int)first.skip, policies[stats]->part[WNW_PART_SCORER].name, (int)needs.skip,
                             policies[i]->part[WNW_PART_SCORER].name);
    }
    return WNW_OK;
}

int wnw__needs_agree(const wnw_policy *const *policies, int32_t n)
{
    int32_t pass = -1; /* first policy that asks for one */
    WNW_TRY(wnw__observations_agree(policies, n));
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        if (!(needs.flags & WNW_NEED_SECOND_PASS))
            continue;
        pass = pass < 0 ? i : pass;
        if (wnw_policy_needs(policies[pass]).second_pass != needs.second_pass)
            return wnw__fail(
                WNW_E_ARG, "%s and %s feed different tokens in their second pass: plan them one by one",
                policies[pass]->part[WNW_PART_SCORER].name, policies[i]->part[WNW_PART_SCORER].name);
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
                         p->part[WNW_PART_SCORER].name, names);
    return WNW_OK;
}

bool wnw__policy_skips(const wnw_policy *p, int32_t il)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    return own && own->skips && own->skips(p->opts[WNW_PART_SCORER], il);
}

struct wnw__blocks wnw__policy_blocks(const wnw_policy *p, int32_t n_final)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    struct wnw__blocks b = {0};
    if (own && own->blocks)
        own->blocks(p->opts[WNW_PART_SCORER], &b);
    if (b.lag > 0 && n_final > 0)
        b.sink = n_final;
    return b;
}

bool wnw__policy_is_recursive(const wnw_policy *p)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    const struct wnw__selector *selector = p->part[WNW_PART_SELECTOR].selector;
    return own && own->blocks && selector->settled && selector->own_size && selector->fix_size;
}

bool wnw__policy_slides(const wnw_policy *p)
{
    const struct wnw__head_budget *head = p->part[WNW_PART_HEAD_BUDGET].head;
    return head->slides && head->slides(p->opts[WNW_PART_HEAD_BUDGET]);
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
    return p && p->part[WNW_PART_SCORER].own && strcmp(p->part[WNW_PART_SCORER].name, "full") == 0;
}

bool wnw__policy_rewrites_all(const wnw_policy *p)
{
    return p && p->part[WNW_PART_CONTENTS].contents->whole;
}

bool wnw_policy_is_full(const wnw_policy *p)
{
    return wnw__policy_keeps_all(p) && !wnw__policy_rewrites_all(p);
}

bool wnw_policy_has_own_size(const wnw_policy *p)
{
    return p &&
           (p->part[WNW_PART_SELECTOR].selector->own_size || p->part[WNW_PART_HEAD_BUDGET].head->own_size ||
            (wnw__policy_keeps_all(p) && !wnw_policy_is_full(p)));
}

const char *wnw__policy_layout(const wnw_policy *p)
{
    const struct wnw__scorer *own = p->part[WNW_PART_SCORER].own;
    const char *layout = own ? own->layout : "composite";
    if (wnw__policy_keeps_all(p))
        return layout;
    if (p->part[WNW_PART_HEAD_BUDGET].head->ragged)
        return "ragged";
    /* One list of scores is one list of tokens, unless the selector looks at every head by itself. */
    if (strcmp(layout, "composite") == 0 && p->part[WNW_PART_AGGREGATION].aggregation->one_list &&
        !p->part[WNW_PART_SELECTOR].selector->needs)
        return "layer";
    return p->part[WNW_PART_LAYER_BUDGET].layer->ragged && strcmp(layout, "uniform") == 0 ? "layer" : layout;
}

enum wnw__rounding wnw__policy_rounding(const wnw_policy *p)
{
    const struct wnw__layer_opts *o = p->opts[WNW_PART_LAYER_BUDGET];
    return o->rounding == WNW_ROUND_TRUNC ? WNW_ROUND_TRUNC : WNW_ROUND_EXACT;
}
