/* SPDX-License-Identifier: MIT */
/*
 * The rule of all other policies: while decoding, the cache is compressed every `every` tokens.
 *
 * With a target, or the count N that the prompt's size came to, the cache has as many entries after each compression.
 * With a ratio R it has a share: (1 - R) n of the n entries there, or (1 - R) T of the T tokens read under the rules. The
 * first forgets an old entry by degrees, and the cache stays near every (1 - R) / R entries. The second grows with the
 * text (kvpress' CompressionRatioDecodingPress).
 */
#include "method/count.h"
#include "policy/policy.h"
#include "session/rules/rules.h"
#include "session/session.h"

#include <limits.h>

/* Refuses a target below what the policy protects now, because compressing to it would fail in mid-answer. */
static int check(const wnw_session *s, const struct wnw__eviction *ev)
{
    (void)s;
    if (ev->every == 0 || ev->target == 0)
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

/* The compression to a share. */
static struct wnw__compression share_of(const struct wnw__rules *r, int32_t n_past)
{
    return (struct wnw__compression){.policy = r->ev.policy,
                                     .size = {.kind = WNW_SIZE_RATIO, .ratio = r->ev.every_ratio},
                                     .ratio_base = r->ev.every_ratio_read ? n_past - r->n_uncounted : 0};
}

/* Entries per layer and head that a compression while decoding leaves. */
static int32_t target_of(wnw_session *s)
{
    struct wnw__rules *r = &s->rules;
    if (r->n_keep == 0)
        r->n_keep = wnw__rules_n_keep(s, &r->ev, s->n_past - r->n_uncounted);
    if (r->ev.target == 0)
        return r->n_keep;
    return r->ev.target < INT32_MAX ? (int32_t)r->ev.target : INT32_MAX;
}

static int after_token(wnw_session *s, wnw_report *report)
{
    struct wnw__rules *r = &s->rules;
    if (r->ev.every == 0 || ++r->n_decoded < r->ev.every)
        return WNW_OK;
    if (r->ev.every_ratio > 0) {
        const struct wnw__compression share = share_of(r, s->n_past);
        return wnw__rules_compress(s, &share, r->ev.every, report);
    }
    /* The target is given as a ratio of 0: a budget must hold the policy's whole window, and the target that a small
     * prompt gives may be smaller than that. */
    struct wnw__compression due = {
        .policy = r->ev.policy, .size = {.kind = WNW_SIZE_RATIO}, .ratio_base = target_of(s)};
    if (r->ev.target == 0 && r->ev.size.kind == WNW_SIZE_NONE && wnw_policy_has_own_size(r->ev.policy))
        due = (struct wnw__compression){.policy = r->ev.policy};
    return wnw__rules_compress(s, &due, r->ev.every, report);
}

const struct wnw__rule wnw__rule_every = {.check = check,
                                          .replans = true,
                                          .compression = wnw__rules_compression,
                                          .next_chunk = wnw__rules_chunk,
                                          .after_token = after_token};
