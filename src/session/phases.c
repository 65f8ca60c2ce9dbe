/* SPDX-License-Identifier: MIT */
/*
 * A session follows rules by itself, while it reads and while it decodes. They say when entries are dropped:
 *
 *     END     the piece is read, then compressed once
 *     LAYER   each layer is compressed after it has read the piece (layer_major.c)
 *     CHUNK   a chunk is read and compressed, then the next is read, which does not see dropped entries
 *     decode  the cache is compressed every `every` tokens; a recursive policy (LagKV) compresses whenever a
 *             block is complete; heads that slide (DuoAttention) drop an entry with every token
 *
 * The rules also say how much may stay. A budget or a number of bytes is the same at every compression; a
 * ratio R counts the T tokens read under the rules so far and leaves T (1 - R). A recursive policy keeps its
 * blocks and its settled entries; the size decides k, the entries that stay of each block that is not settled
 * yet. For a piece that is read, k is chosen so that all turns together reach the size; a block that decoding
 * completes keeps its share by the ratio. k is at least 1: a block that kept nothing would make another method
 * of it. So a budget that can never hold two blocks is refused when the rules begin, one that cannot hold the
 * first piece before that is read, and later turns and decoded tokens exceed a full one by an entry for each
 * block, with a warning.
 */
#include "base/sized.h"
#include "base/system.h"
#include "plan/compress.h"
#include "policy/count.h"
#include "policy/policy.h"
#include "session/apply.h"
#include "session/declare.h"
#include "session/feed.h"
#include "session/layer_major.h"
#include "session/renumber.h"
#include "session/session.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- The rules ---- */

void wnw__rules_free(struct wnw__rules *r)
{
    wnw_policy_free(r->fixed);
    free(r->held);
    *r = (struct wnw__rules){0};
}

void wnw__rules_reset(struct wnw__rules *r)
{
    const struct wnw__eviction ev = r->ev;
    wnw__rules_free(r);
    r->ev = ev;
}

int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from)
{
    wnw_policy *fixed = NULL;
    const size_t bytes = (size_t)from->n_held * sizeof *from->held;
    int32_t *held = from->held ? malloc(bytes) : NULL;
    int rc = from->held && !held
                 ? wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", from->n_held)
                 : WNW_OK;
    if (rc == WNW_OK && from->fixed)
        rc = wnw__policy_copy(&fixed, from->fixed);
    if (rc != WNW_OK) {
        free(held);
        return rc;
    }
    if (held)
        memcpy(held, from->held, bytes);
    wnw__rules_free(to);
    *to = *from;
    to->fixed = fixed;
    to->held = held;
    return WNW_OK;
}

/* ---- How much may stay ---- */

/* Number of layers that take part in compression, as the driver counts them. */
static int32_t n_part(const wnw_session *s, const wnw_policy *p)
{
    int32_t n = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        n += s->cache.layers[il].n_swa == 0 && !wnw__policy_skips(p, il);
    return n;
}

/* Entries per layer and head that the size of the rules leaves of n tokens; more than n where the size holds
 * them all. */
static int32_t asked_of(const wnw_session *s, const struct wnw__eviction *ev, int32_t n)
{
    const double ratio = ev->size.kind == WNW_SIZE_RATIO ? ev->size.ratio : 0.5;
    const uint64_t heads = (uint64_t)s->cache.n_head_kv * (uint64_t)n_part(s, ev->policy);
    const struct wnw__entry_bytes entry = {.each = 2 * s->cache.row_bytes,
                                           .exact = 2 * s->cache.tail_row_bytes,
                                           .n_exact = wnw__cache_most_exact(&s->cache)};
    uint64_t asked = 0;
    if (ev->size.kind == WNW_SIZE_BUDGET)
        asked = ev->size.budget > 0 ? (uint64_t)ev->size.budget : 0;
    else if (ev->size.kind == WNW_SIZE_BYTES)
        asked = heads > 0 ? wnw__compress_entries_in(ev->size.bytes / heads, &entry) : 0;
    else
        asked = (uint64_t)wnw__round_count(n * (1 - ratio), ev->policy->rounding);
    return asked < 1 ? 1 : asked < INT32_MAX ? (int32_t)asked : INT32_MAX;
}

/* ---- What is refused ---- */

static int check_phase(const wnw_policy *p, wnw_phase phase)
{
    const char *reason;
    if (wnw_policy_allows(p, phase, &reason))
        return WNW_OK;
    return wnw__fail(WNW_E_ARG, "%s cannot compress in phase %s: %s", wnw__policy_name(p),
                     wnw_phase_name(phase), reason);
}

/* Whether the policy itself decides when and what to drop while decoding. */
static bool has_own_rule(const wnw_policy *p)
{
    return wnw__policy_is_recursive(p) || wnw__policy_slides(p);
}

/* Refuses a target below what the policy protects now, because compressing to it would fail in mid-answer. */
static int check_target(const struct wnw__eviction *ev)
{
    if (ev->target == 0 || has_own_rule(ev->policy))
        return WNW_OK;
    const int64_t n = ev->target < INT32_MAX - ev->every ? ev->target + ev->every : INT32_MAX;
    const wnw_protected p = wnw__policy_keep(
        ev->policy, &(wnw_keep_problem){.n = (int32_t)n,
                                        .budget = ev->target < n ? (int32_t)ev->target : (int32_t)n,
                                        .sized = true});
    if ((int64_t)p.n_first + p.n_last <= ev->target)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "a target of %lld entries cannot hold what %s always keeps: the first %d and the last %d",
        (long long)ev->target, wnw__policy_name(ev->policy), p.n_first, p.n_last);
}

/* Refuses a budget for a recursive policy that no two blocks fit into: as soon as there are two, every turn
 * would exceed it. */
static int check_blocks(const wnw_session *s, const struct wnw__eviction *ev)
{
    if (!wnw__policy_is_recursive(ev->policy) ||
        (ev->size.kind != WNW_SIZE_BUDGET && ev->size.kind != WNW_SIZE_BYTES))
        return WNW_OK;
    const wnw_blocks b = wnw__policy_blocks(ev->policy, 0);
    const int64_t two = b.sink + 2 * (int64_t)b.lag;
    const int32_t asked = asked_of(s, ev, 0);
    if (asked > (int64_t)b.sink + b.lag || s->params.n_ctx < two || n_part(s, ev->policy) == 0)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "the size leaves %d entries per head, but %s always keeps the first %d, a block of %d and one "
        "entry of each block before it; allow at least %lld, give a ratio, or lower sink or lag",
        asked, wnw__policy_name(ev->policy), b.sink, b.lag, (long long)b.sink + b.lag + 1);
}

static int check_rules(const struct wnw__eviction *ev)
{
    if (!ev->policy && (ev->size.kind != WNW_SIZE_NONE || ev->chunk || ev->every || ev->target ||
                        ev->phase != WNW_PHASE_END))
        return wnw__fail(WNW_E_ARG, "a size, a phase, a chunk or a target need a policy");
    if (!ev->policy)
        return WNW_OK;
    if (ev->phase != WNW_PHASE_END && ev->phase != WNW_PHASE_LAYER && ev->phase != WNW_PHASE_CHUNK)
        return wnw__fail(WNW_E_ARG,
                         "a prompt is compressed at its end, by layer or by chunk, not in phase %d",
                         (int)ev->phase);
    if (ev->chunk < 0 || ev->every < 0 || ev->target < 0)
        return wnw__fail(WNW_E_RANGE, "chunk %d, every %d and target %lld must not be negative",
                         (int)ev->chunk, (int)ev->every, (long long)ev->target);
    WNW_TRY(check_phase(ev->policy, ev->phase));
    if (ev->every > 0) {
        WNW_TRY(check_phase(ev->policy, WNW_PHASE_DECODE));
        WNW_TRY(check_target(ev));
    }
    return WNW_OK;
}

bool wnw__rules_replan(const struct wnw__eviction *ev)
{
    return ev->policy && ev->every > 0 && !has_own_rule(ev->policy);
}

static int32_t longest_head(const wnw_session *s)
{
    int32_t n = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && s->cache.layers[il].n_swa == 0; ih++)
            n = wnw_cache_n(s, il, ih) > n ? wnw_cache_n(s, il, ih) : n;
    return n;
}

int wnw__rules_check(const wnw_session *s, const struct wnw__eviction *ev, const wnw_profile *profile)
{
    WNW_TRY(check_rules(ev));
    if (!ev->policy)
        return WNW_OK;
    WNW_TRY(check_blocks(s, ev));
    WNW_TRY(wnw__policy_check_profile(ev->policy, profile));
    return wnw_policy_rerotates(ev->policy) ? wnw__renumber_check(s) : WNW_OK;
}

void wnw__rules_set(wnw_session *s, const struct wnw__eviction *ev)
{
    wnw__rules_free(&s->rules);
    s->rules.ev = *ev;
    s->rules.n_before = ev->policy ? s->n_past - longest_head(s) : 0;
}

/* ---- The size of blocks ---- */

/* Number of entries of the longest head among the layers that take part; *n_final says how many of them are
 * settled. Both are 0 if no layer takes part. A recursive policy holds the same counts in all these
 * layers. */
static int32_t longest_part(const wnw_session *s, const wnw_policy *p, int32_t *n_final)
{
    int32_t n = 0;
    *n_final = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            if (!wnw__policy_takes_layer(p, &s->shape.model, il) || wnw_cache_n(s, il, ih) <= n)
                continue;
            n = wnw_cache_n(s, il, ih);
            *n_final = s->cache.layers[il].n_final;
        }
    return n;
}

/* Sets r->fixed to the recursive policy with the k that the size wants for blocks that are not settled,
 * counting n_coming tokens that are about to be read (0 while decoding). r->fixed is NULL where the size
 * holds everything or there is no block to thin. */
static int fix_blocks(wnw_session *s, int32_t n_coming, char *warning)
{
    struct wnw__rules *r = &s->rules;
    const wnw_policy *p = r->ev.policy;
    const wnw_size *size = &r->ev.size;
    wnw_policy_free(r->fixed);
    r->fixed = NULL;
    if (size->kind == WNW_SIZE_NONE || !wnw__policy_is_recursive(p))
        return WNW_OK;
    struct wnw__due due = {.n_keep = asked_of(s, &r->ev, s->n_past + n_coming - r->n_before),
                           .strict = size->kind != WNW_SIZE_RATIO && n_coming > 0 && r->asked == 0};
    due.n = longest_part(s, p, &due.n_final) + n_coming;
    if (due.n <= due.n_keep)
        return WNW_OK;
    if (size->kind == WNW_SIZE_RATIO && n_coming == 0) {
        /* Sinks and tail of a short text are more than their share; its blocks do not make up for that, and
         * keep the ratio's share alone. */
        const wnw_blocks b = wnw__policy_blocks(p, due.n_final);
        const int32_t k = wnw__round_count(b.lag * (1 - size->ratio), p->rounding);
        due.n_keep = due.n - wnw__blocks_thinned(&b, due.n) * (b.lag - (k > 1 ? k : 1));
    }
    return wnw__policy_fix_size(&r->fixed, p, &due, warning);
}

static const wnw_size everything = {.kind = WNW_SIZE_BUDGET, .budget = INT64_MAX};

/* The policy and size for compressing a prompt of which all but the last n_coming tokens were read. */
static struct wnw__goal prompt_goal(const wnw_session *s, int32_t n_coming)
{
    const struct wnw__rules *r = &s->rules;
    if (r->fixed)
        return (struct wnw__goal){.policy = r->fixed, .size = {.kind = WNW_SIZE_NONE}};
    if (r->ev.size.kind != WNW_SIZE_NONE && wnw__policy_is_recursive(r->ev.policy))
        return (struct wnw__goal){.policy = r->ev.policy, .size = everything};
    return (struct wnw__goal){
        .policy = r->ev.policy, .size = r->ev.size, .ratio_base = s->n_past + n_coming - r->n_before};
}

/* ---- Reading ---- */

/* Plans and applies; `room` is that of wnw__session_apply. */
static int compress(wnw_session *s, const struct wnw__goal *goal, int32_t room, wnw_report *report)
{
    wnw_report one = {0};
    wnw_plan *plan;
    s->rules.n_decoded = 0;
    if (wnw_policy_is_full(goal->policy) || goal->size.budget == everything.budget)
        return WNW_OK;
    WNW_TRY(wnw__session_plan(s, goal->policy, &goal->size, goal->ratio_base, &plan, &one));
    const int rc = wnw__session_follow(s, goal->policy, plan, room, &one);
    const double start = wnw__now_ms();
    wnw_plan_free(plan);
    one.compact_ms += wnw__now_ms() - start;
    wnw__report_add(report, &one);
    return rc;
}

/* Reads tokens at .. at + n - 1 of a prompt of n_all tokens and adds the time to the report. */
static int feed(wnw_session *s, const int32_t *tokens, int32_t n, int32_t at, int32_t n_all,
                wnw_report *report)
{
    const double start = wnw__now_ms();
    WNW_TRY(wnw__feed_prompt(s, tokens, n, at, n_all, NULL, NULL));
    report->read_ms += wnw__now_ms() - start;
    return WNW_OK;
}

/* Tokens until a recursive policy completes its next block, at least 1; 512 for other policies. */
static int32_t own_chunk(const wnw_session *s)
{
    const wnw_policy *p = s->rules.fixed ? s->rules.fixed : s->rules.ev.policy;
    int64_t left = INT32_MAX;
    if (!wnw__policy_is_recursive(p))
        return 512;
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        if (!wnw__policy_takes_layer(p, &s->shape.model, il))
            continue;
        const wnw_blocks b = wnw__policy_blocks(p, s->cache.layers[il].n_final);
        const int64_t due = b.sink + 2 * (int64_t)b.lag - wnw_cache_n(s, il, 0);
        left = due < left ? due : left;
    }
    return left < 1 ? 1 : (int32_t)left;
}

static int32_t next_chunk(const wnw_session *s, int32_t n_left)
{
    const int32_t chunk = s->rules.ev.chunk > 0 ? s->rules.ev.chunk : own_chunk(s);
    return chunk < n_left ? chunk : n_left;
}

static int read_chunks(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = next_chunk(s, n - at);
        WNW_TRY(wnw__session_check_room(s, n_now)); /* only an endless prompt can fail here */
        WNW_TRY(feed(s, tokens + at, n_now, at, n, report));
        at += n_now;
        const struct wnw__goal goal = prompt_goal(s, 0);
        WNW_TRY(compress(s, &goal, at < n ? next_chunk(s, n - at) : -1, report));
    }
    return WNW_OK;
}

static int read_piece(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    const wnw_phase phase = s->rules.ev.phase;
    const bool full = wnw_policy_is_full(s->rules.ev.policy);
    if (phase == WNW_PHASE_CHUNK && !full)
        return read_chunks(s, tokens, n, report);
    if (phase == WNW_PHASE_LAYER) {
        const struct wnw__goal goal = prompt_goal(s, n);
        WNW_TRY(wnw__read_layer_major(s, tokens, n, &goal, report));
        const double start = wnw__now_ms();
        const int rc = wnw_policy_rerotates(goal.policy) ? wnw_session_renumber(s) : WNW_OK;
        report->compact_ms += wnw__now_ms() - start;
        if (rc != WNW_OK)
            (void)wnw_session_reset(s); /* as after any failure in phase LAYER */
        return rc;
    }
    WNW_TRY(feed(s, tokens, n, 0, n, report));
    const struct wnw__goal goal = prompt_goal(s, 0);
    return compress(s, &goal, -1, report);
}

/* Whether prompts may be longer than the context. */
static bool is_endless(const wnw_session *s)
{
    const struct wnw__eviction *ev = &s->rules.ev;
    return ev->policy && ev->phase == WNW_PHASE_CHUNK && wnw_policy_rerotates(ev->policy) &&
           !wnw_policy_is_full(ev->policy);
}

/* Checks that the kept part of a prompt and its next chunk always fit the context. A recursive policy is
 * checked while it reads, because its chunks follow from what it keeps. */
static int check_chunks(const wnw_session *s, int32_t n)
{
    const int64_t n_ctx = s->params.n_ctx, n_seen = (int64_t)s->n_past - s->rules.n_before;
    int64_t have = s->n_past;
    if (n_seen + n > INT32_MAX)
        return wnw__fail(WNW_E_FULL, "more than %d tokens in one timeline", INT32_MAX);
    for (int32_t at = 0; at < n && !wnw__policy_is_recursive(s->rules.ev.policy);) {
        const int32_t n_now = next_chunk(s, n - at);
        if (have + n_now > n_ctx)
            return wnw__fail(
                WNW_E_FULL,
                "%lld kept entries and a chunk of %d do not fit the context of %lld: keep less or "
                "read smaller chunks",
                (long long)have, (int)n_now, (long long)n_ctx);
        at += n_now;
        have += n_now;
        const int32_t asked = asked_of(s, &s->rules.ev, (int32_t)(n_seen + at));
        have = asked < have ? asked : have;
    }
    return WNW_OK;
}

static int check_prompt(const wnw_session *s, const int32_t *tokens, int32_t n)
{
    if (!is_endless(s))
        return wnw__session_check_tokens(s, tokens, n);
    WNW_TRY(wnw__session_check_ids(s, tokens, n));
    return check_chunks(s, n);
}

/* ---- Heads that slide ---- */

/* Remembers which heads the prompt's compression has cut (those shorter than the longest head) and how many
 * entries each has left. */
static int hold_heads(wnw_session *s)
{
    struct wnw__rules *r = &s->rules;
    const struct wnw__cache *c = &s->cache;
    if (!wnw__policy_slides(r->ev.policy))
        return WNW_OK;
    if (!r->held)
        r->held = calloc((size_t)c->n_layer * (size_t)c->n_head_kv, sizeof *r->held);
    if (!r->held)
        return wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", c->n_layer * c->n_head_kv);
    r->n_held = c->n_layer * c->n_head_kv;
    const int32_t longest = longest_head(s);
    for (int32_t il = 0; il < c->n_layer; il++)
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(s, il, ih);
            r->held[il * c->n_head_kv + ih] = c->layers[il].n_swa == 0 && n < longest ? n : 0;
        }
    return WNW_OK;
}

static void slide_heads(wnw_session *s)
{
    struct wnw__cache *c = &s->cache;
    for (int32_t i = 0; i < s->rules.n_held; i++) {
        const int32_t il = i / c->n_head_kv, ih = i % c->n_head_kv, held = s->rules.held[i];
        const int32_t n = wnw_cache_n(s, il, ih);
        if (held == 0 || n <= held)
            continue;
        wnw_protected p = wnw__policy_keep(s->rules.ev.policy, &(wnw_keep_problem){.n = n, .budget = n});
        p = wnw__protected_shrink(wnw__protected_clamp(p, n), held);
        wnw__cache_drop(c, il, ih, p.n_first, n - held);
        s->n_fixed = s->n_past;
    }
}

/* ---- A piece of the prompt ---- */

/* Entries of all layers with (sliding) or without a sliding window; *n_heads is the number of their KV
 * heads. */
static int64_t count_entries(const wnw_session *s, bool sliding, int32_t *n_heads)
{
    int64_t n = 0;
    *n_heads = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && wnw__layer_takes_part(&s->shape.model, il) != sliding;
             ih++) {
            n += wnw_cache_n(s, il, ih);
            ++*n_heads;
        }
    return n;
}

static int read_and_report(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    int32_t n_heads, n_sliding;
    WNW_REQUIRE(s);
    WNW_REQUIRE(tokens || n < 1);
    WNW_TRY(check_prompt(s, tokens, n));
    const int64_t present = count_entries(s, false, &n_heads);
    if (s->rules.ev.policy) {
        WNW_TRY(fix_blocks(s, n, report->warning));
        WNW_TRY(read_piece(s, tokens, n, report));
        const double start = wnw__now_ms();
        wnw__engine_release(s->engine); /* activations are the other large piece of a long prompt */
        report->read_ms += wnw__now_ms() - start;
        s->rules.asked = asked_of(s, &s->rules.ev, s->n_past - s->rules.n_before);
        s->rules.n_decoded = 0;
        WNW_TRY(hold_heads(s));
    } else {
        WNW_TRY(feed(s, tokens, n, 0, n, report));
    }
    const int64_t kept = count_entries(s, false, &n_heads), sliding = count_entries(s, true, &n_sliding);
    report->kept_mean = n_heads > 0 ? (double)kept / n_heads : 0;
    report->entries_before = present + (int64_t)n * n_heads + sliding;
    report->entries_after = kept + sliding;
    report->kv_bytes_after = wnw__cache_bytes(&s->cache);
    if (report->kv_bytes_before < report->kv_bytes_after)
        report->kv_bytes_before = report->kv_bytes_after;
    return WNW_OK;
}

int wnw_session_read(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    wnw_report own = wnw_report_default();
    WNW_TRY(WNW_SIZED_CHECK(wnw_report, report));
    const int rc = read_and_report(s, tokens, n, &own);
    wnw__sized_give(report, &own);
    return rc;
}

/* ---- Decoding ---- */

/* What the rules want after a decoded token; *report gets the warnings of a compression. */
static int follow_after_decode(wnw_session *s, wnw_report *report)
{
    struct wnw__rules *r = &s->rules;
    if (!r->ev.policy || wnw_policy_is_full(r->ev.policy))
        return WNW_OK;
    if (wnw__policy_is_recursive(r->ev.policy)) {
        const wnw_policy *p = r->fixed ? r->fixed : r->ev.policy;
        bool due = false;
        for (int32_t il = 0; il < s->cache.n_layer && !due; il++) {
            const wnw_blocks b = wnw__policy_blocks(p, s->cache.layers[il].n_final);
            due = s->cache.layers[il].n_swa == 0 && !wnw__policy_skips(p, il) &&
                  wnw_cache_n(s, il, 0) >= b.sink + 2 * (int64_t)b.lag;
        }
        if (!due)
            return WNW_OK;
        WNW_TRY(fix_blocks(s, 0, report->warning));
        if (!r->fixed && r->ev.size.kind != WNW_SIZE_NONE)
            return WNW_OK; /* the size still holds everything */
        const struct wnw__goal goal = {.policy = r->fixed ? r->fixed : r->ev.policy};
        return compress(s, &goal, wnw__policy_blocks(goal.policy, 0).lag, report);
    }
    if (wnw__policy_slides(r->ev.policy)) {
        slide_heads(s);
        return WNW_OK;
    }
    if (r->ev.every == 0 || ++r->n_decoded < r->ev.every)
        return WNW_OK;
    if (r->asked == 0)
        r->asked = asked_of(s, &r->ev, s->n_past - r->n_before);
    const int32_t target = r->ev.target == 0          ? r->asked
                           : r->ev.target < INT32_MAX ? (int32_t)r->ev.target
                                                      : INT32_MAX;
    if (r->ev.target == 0 && r->ev.size.kind == WNW_SIZE_NONE && wnw_policy_has_own_size(r->ev.policy)) {
        const struct wnw__goal own = {.policy = r->ev.policy};
        return compress(s, &own, r->ev.every, report);
    }
    /* The target is given as a ratio of 0: a budget must hold the policy's whole window, and the
     * target that a small prompt gives may be smaller than that. */
    const struct wnw__goal goal = {
        .policy = r->ev.policy, .size = {.kind = WNW_SIZE_RATIO}, .ratio_base = target};
    return compress(s, &goal, r->ev.every, report);
}

/* Decoding has no report, so that the log gets the first warning; the others would say the same. */
int wnw__rules_after_decode(wnw_session *s)
{
    wnw_report report = {0};
    const int rc = follow_after_decode(s, &report);
    if (rc != WNW_OK || !report.warning[0] || s->rules.has_warned)
        return rc;
    s->rules.has_warned = true;
    wnw__log(WNW_LOG_WARN, "while decoding: %s", report.warning);
    return WNW_OK;
}
