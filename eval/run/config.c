/* SPDX-License-Identifier: MIT */
/* What is compared: the product of the lists of policies, sizes, types and modes. */
#include "eval/run/config_impl.h"

#include "app/console.h"
#include "app/job.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/run/items.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 16 };

/* ---- Groups ---- */

/* Whether one session can observe for both policies. */
static bool agree(const wnw_policy *a, const wnw_policy *b)
{
    const wnw_needs x = wnw_policy_needs(a), y = wnw_policy_needs(b);
    const uint32_t both = x.flags & y.flags;
    if ((x.flags ^ y.flags) & WNW_NEED_QUERIES && !wnw_policy_is_full(a) && !wnw_policy_is_full(b))
        return false; /* a session that holds every query is expensive to copy */
    return !((both & WNW_NEED_SECOND_PASS) && !wnw_second_passes_agree(&x, &y)) &&
           !((both & WNW_NEED_QUERY_STATS) && x.skip != y.skip);
}

static void make_groups(struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n_recipes; i++) {
        bool fits = false;
        for (int32_t g = 0; g <= c->n_groups && !fits; g++) {
            fits = true;
            for (int32_t k = 0; k < i && fits; k++)
                fits = c->recipes[k].group != g || agree(c->recipes[i].policy, c->recipes[k].policy);
            c->recipes[i].group = g;
        }
        if (c->recipes[i].group >= c->n_groups)
            c->n_groups = c->recipes[i].group + 1;
    }
}

/* ---- Configs ---- */

static bool masks_reading(const struct eval_mask *mask)
{
    return mask && mask->phase == WNW_MASK_ALL;
}

bool eval_configs_share_reading(const struct eval_config *a, const struct eval_config *b)
{
    const struct eval_mask *x = masks_reading(a->mask) ? a->mask : NULL;
    const struct eval_mask *y = masks_reading(b->mask) ? b->mask : NULL;
    return app_kv_equal(&a->kv, &b->kv) && x == y;
}

bool eval_config_is_uncompressed(const struct eval_config *c)
{
    return c->full && (!c->mask || masks_reading(c->mask));
}

/* Names the config by the hash of what it is. */
static int name_config(struct eval_config *c, const struct eval_lists *l)
{
    char hash[17];
    eval_hash_text(hash, c->plans_hash);
    c->json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:o*}", "policy",
                        eval_config_policy(c), "size", c->size_text, "kv_type", c->kv_text, "mode",
                        eval_mode_name(c->mode), "evict", c->full ? "end" : l->evict, "evict_every",
                        c->every_text ? c->every_text : "", "mask", c->mask ? c->mask->text : NULL,
                        "mask_phase", c->mask && !masks_reading(c->mask) ? "decode" : NULL, "mask_form",
                        c->mask && c->mask->form == WNW_MASK_MEAN ? "mean" : NULL, "plans",
                        c->plans ? hash : NULL, "chunk_slack", c->slack > 1 ? json_real(c->slack) : NULL);
    char *text = c->json ? json_dumps(c->json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (!text)
        return eval_no_memory("the configurations");
    eval_hash_text(c->id, wnw__hash_of(text, strlen(text)));
    free(text);
    return APP_OK;
}

/* Drops the last config if another part has named it already. */
static int drop_twice(struct eval_configs *c)
{
    struct eval_config *last = &c->items[c->n - 1];
    for (int32_t i = 0; i + 1 < c->n; i++) {
        if (strcmp(c->items[i].id, last->id) != 0)
            continue;
        if (!json_equal(c->items[i].json, last->json))
            return app_fail(APP_FAILED, "%s and %s have the same id", c->items[i].recipe, last->recipe);
        json_decref(last->json);
        c->n--;
        return APP_OK;
    }
    return APP_OK;
}

/* Adds a config under rule k. */
static int add_config(struct eval_configs *c, const struct eval_lists *l, struct eval_config config,
                      int32_t k)
{
    if (!eval_grow(&c->items, (size_t)c->n, sizeof *c->items))
        return eval_no_memory("the configurations");
    const wnw_run *rules = &l->rules[k];
    config.full = wnw_policy_is_full(config.policy) && !config.plans;
    config.phase = config.full ? WNW_PHASE_END : rules->phase;
    config.chunk = config.full ? 0 : rules->chunk;
    config.slack = config.full ? 0 : l->slack;
    config.every = config.full ? 0 : rules->every;
    config.every_text = config.full ? NULL : l->every[k];
    config.target = config.full ? 0 : rules->target;
    config.every_ratio = config.full ? 0 : rules->every_ratio;
    config.every_ratio_read = !config.full && rules->every_ratio_read;
    if (config.plans && (config.phase != WNW_PHASE_END || config.every > 0 || eval_recompresses(l->args)))
        return app_fail(
            APP_BAD_INPUT,
            "%s compresses once, at the end of the prompt; leave out --evict, --evict-every and --recompress",
            config.recipe);
    config.own_read = config.phase != WNW_PHASE_END || config.every > 0 ||
                      (l->separate_readings && !config.full && !config.plans);
    if (config.full) {
        config.size = (wnw_size){.kind = WNW_SIZE_NONE};
        snprintf(config.size_text, sizeof config.size_text, "full");
    } else {
        eval_size_text(config.size_text, sizeof config.size_text, &config.size);
    }
    app_kv_word(config.kv_text, &config.kv);
    c->items[c->n++] = config;
    WNW_TRY(name_config(&c->items[c->n - 1], l));
    return drop_twice(c);
}

static bool asks_tasks(const wnw_policy *policy)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

/* A line of what was assumed, once for all types and masks. */
static void note(struct eval_configs *c, const char *line)
{
    if (!c->notes.s || !strstr(c->notes.s, line))
        app_text_put(&c->notes, "%s%s", c->notes.len > 0 ? "\n" : "", line);
}

/* Whether a policy is run in a mode. One that uses the question is not agnostic. In mode "task" the others would do the same
 * as in mode "agnostic". */
static bool fits_mode(struct eval_configs *c, const struct eval_recipe *r, enum eval_mode mode)
{
    const bool tasks = asks_tasks(r->policy);
    if (wnw_policy_is_full(r->policy) || !(tasks ? mode == EVAL_AGNOSTIC : mode == EVAL_TASK))
        return true;
    char line[256];
    snprintf(line, sizeof line, "%.120s is left out of mode %s: %s", r->text, eval_mode_name(mode),
             tasks ? "it is told the question" : "it does not ask for one");
    note(c, line);
    return false;
}

/* Says that a rule of --evict-every means no more than that entries go while answers are generated. */
static void note_own_times(struct eval_configs *c, const struct eval_recipe *r, const wnw_run *rules)
{
    char line[256];
    if (rules->every == 0 || r->plans || !wnw_policy_has_own_times(r->policy))
        return;
    snprintf(line, sizeof line,
             "%.120s drops entries at times of its own while it answers: no number of --evict-every has an "
             "effect on it",
             r->text);
    note(c, line);
}

/* Size i of one policy, under every rule. */
static int add_size(struct eval_configs *c, const struct eval_lists *l, const struct eval_recipe *r,
                    struct eval_config config, int32_t i)
{
    config.policy = r->policy;
    config.recipe = r->text;
    config.asked = r->asked;
    config.plans = r->plans;
    config.plans_hash = r->plans_hash;
    config.has_tasks = asks_tasks(r->policy);
    config.group = r->group;
    config.size = r->plans ? (wnw_size){.kind = WNW_SIZE_NONE} : l->sizes[i];
    if (config.size.kind == WNW_SIZE_NONE && !wnw_policy_is_full(r->policy) &&
        !wnw_policy_has_own_size(r->policy))
        return app_fail(APP_BAD_INPUT, "%s has no size of its own; give it one", r->text);
    for (int32_t k = 0; k < l->n_rules; k++) { /* the full cache has no rule: all but its first are dropped */
        WNW_TRY(app_keep_allowed(r->policy, &l->rules[k], l->evict));
        note_own_times(c, r, &l->rules[k]);
        WNW_TRY(add_config(c, l, config, k));
    }
    return APP_OK;
}

/* All sizes of one policy. */
static int add_sizes(struct eval_configs *c, const struct eval_lists *l, const struct eval_recipe *r,
                     struct eval_config config)
{
    for (int32_t i = 0; i < (wnw_policy_is_full(r->policy) ? 1 : l->n_sizes); i++)
        WNW_TRY(add_size(c, l, r, config, i));
    return APP_OK;
}

/* The mask while reading that goes with a mask: itself, or none where it acts while answers are generated only. */
static int32_t reading_of(const struct eval_configs *c, int32_t mask)
{
    return masks_reading(&c->masks[mask]) ? mask : 0;
}

/* What a part compares under one mask; a mask is also tried with the full cache, which shows what it does alone. */
static int add_masked(struct eval_configs *c, const struct eval_lists *l, int32_t mask,
                      struct eval_config config)
{
    config.mask = mask > 0 ? &c->masks[mask] : NULL;
    for (int32_t i = 0; i < l->n_recipes; i++) {
        const struct eval_recipe *r = &c->recipes[l->recipes[i]];
        if (fits_mode(c, r, config.mode))
            WNW_TRY(add_sizes(c, l, r, config));
    }
    for (int32_t i = 0; l->automatic && i < l->n_sizes; i++)
        WNW_TRY(add_size(c, l, &c->recipes[l->chosen[config.mode][i]], config, i));
    return mask > 0 ? add_sizes(c, l, &c->recipes[0], config) : APP_OK;
}

/* One reading's worth of configs: a type, and the mask of the reading (0 = none), in one mode. The full cache is the
 * first; that of the first reading is what all are compared with, and is there in any case. */
static int make_mode(struct eval_configs *c, const struct eval_lists *l, int32_t n_parts, int32_t type,
                     int32_t of_reading, struct eval_config config)
{
    config.mask = of_reading > 0 ? &c->masks[of_reading] : NULL;
    if (type == 0 && of_reading == 0)
        WNW_TRY(add_sizes(c, &l[0], &c->recipes[0], config));
    for (int32_t i = 0; i < n_parts; i++)
        if (l[i].types[type] && l[i].modes[config.mode] && (of_reading == 0 || l[i].masks[of_reading]))
            WNW_TRY(add_sizes(c, &l[i], &c->recipes[0], config));
    for (int32_t i = 0; i < n_parts; i++)
        for (int32_t m = 0; l[i].types[type] && l[i].modes[config.mode] && m < c->n_masks; m++)
            if (l[i].masks[m] && reading_of(c, m) == of_reading)
                WNW_TRY(add_masked(c, &l[i], m, config));
    return APP_OK;
}

static bool has_mode(const struct eval_lists *l, int32_t n_parts, int mode)
{
    bool any = false;
    for (int32_t i = 0; i < n_parts; i++)
        any = any || l[i].modes[mode];
    return any;
}

static int make_product(struct eval_configs *c, const struct eval_lists *l, int32_t n_parts)
{
    int32_t reference[EVAL_N_MODES] = {0};
    for (int32_t t = 0; t < c->n_types; t++)
        for (int32_t r = 0; r < c->n_masks; r++)
            for (int m = 0; reading_of(c, r) == r && m < EVAL_N_MODES; m++) {
                if (!has_mode(l, n_parts, m))
                    continue;
                if (t == 0 && r == 0)
                    reference[m] = c->n;
                WNW_TRY(make_mode(c, l, n_parts, t, r,
                                  (struct eval_config){.kv = c->types[t],
                                                       .mode = (enum eval_mode)m,
                                                       .reference = reference[m]}));
            }
    return APP_OK;
}

/* The parts that are read, one for each rule of eviction. */
struct reading {
    struct eval_lists l[MAX_PARTS];
    int32_t n;
    struct eval_configs *c;
    const struct eval_args *args;
    const struct eval_suite *suite;
    struct eval_part part; /* that is read now */
};

static int add_part(void *user, const char *evict)
{
    struct reading *r = user;
    if (r->n == MAX_PARTS)
        return app_fail(APP_BAD_INPUT, "more than %d products of lists; each word of --evict makes one",
                        (int)MAX_PARTS);
    r->part.evict = evict;
    return eval_lists_read(&r->l[r->n++], r->c, r->args, r->suite, &r->part);
}

/* Reads all parts. Slack is that of chunks, so one of the rules must be that. */
static int read_parts(struct reading *r, const struct eval_part *parts, int32_t n_parts)
{
    bool chunks = false;
    for (int32_t i = 0; i < n_parts; i++) {
        const char *rules = parts[i].evict ? parts[i].evict : "end";
        if (r->args->app.evict)
            rules = r->args->app.evict;
        r->part = parts[i];
        WNW_TRY(eval_each_word("evict", rules, ',', add_part, r));
    }
    for (int32_t i = 0; i < r->n; i++)
        chunks = chunks || r->l[i].rules[0].phase == WNW_PHASE_CHUNK;
    return !chunks && r->args->app.chunk_slack > 1
               ? app_fail(APP_BAD_INPUT,
                          "--chunk-slack says what stays between chunks; give --evict chunk or chunk:C")
               : APP_OK;
}

/* Options about masks that name none. */
static int check_masks(const struct eval_args *args, const struct eval_suite *suite)
{
    if (args->app.mask_heads || suite)
        return APP_OK;
    if (args->app.mask_phase)
        return app_fail(APP_BAD_INPUT,
                        "--mask-phase says when heads are masked; name them with --mask-heads");
    if (args->app.mask_form)
        return app_fail(APP_BAD_INPUT,
                        "--mask-form says what masked heads give; name them with --mask-heads");
    return APP_OK;
}

/* The caller frees what r->l has in any case. */
static int make_configs(struct reading *r, const struct eval_part *parts, int32_t n_parts)
{
    int32_t full;
    WNW_TRY(eval_lists_recipe(r->c, "full", &full));
    WNW_TRY(check_masks(r->args, r->suite));
    WNW_TRY(read_parts(r, parts, n_parts));
    eval_lists_put_first(r->c, r->l, r->n);
    make_groups(r->c);
    return make_product(r->c, r->l, r->n);
}

int eval_configs_open(struct eval_configs *c, const struct eval_args *args, const struct eval_suite *suite)
{
    static const struct eval_part plain = {.policies = "full,snapkv,lagkv"};
    const struct eval_part *parts = suite ? suite->parts : &plain;
    const int32_t n_parts = suite ? suite->n_parts : 1;
    struct reading r = {.c = c, .args = args, .suite = suite};
    *c = (struct eval_configs){.n_masks = 1, .registry = args->app.registry};
    const int rc = make_configs(&r, parts, n_parts);
    for (int32_t i = 0; i < r.n; i++) {
        free(r.l[i].recipes);
        free(r.l[i].evict);
    }
    return rc;
}

void eval_configs_close(struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        json_decref(c->items[i].json);
        if (c->items[i].owns_profile)
            wnw_profile_free(c->items[i].profile);
    }
    for (int32_t i = 0; i < c->n_recipes; i++) {
        wnw_policy_free(c->recipes[i].policy);
        free(c->recipes[i].text);
        free(c->recipes[i].asked);
    }
    for (int32_t i = 0; i < c->n_masks; i++) {
        free(c->masks[i].text);
        wnw_free(c->masks[i].heads);
    }
    for (int32_t i = 0; i < c->n_every; i++)
        free(c->every[i]);
    free(c->items);
    free(c->recipes);
    free(c->notes.s);
    *c = (struct eval_configs){0};
}
