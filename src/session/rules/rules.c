/* SPDX-License-Identifier: MIT */
/* The rules of a session: their check, their state, and what the ways of following them (every.c, blocks.c, slide.c) have
 * in common. */
#include "session/rules/rules.h"

#include "base/system.h"
#include "plan/compress.h"
#include "policy/policy.h"
#include "session/session.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct wnw__rule *wnw__rule_of(const wnw_policy *p)
{
    if (wnw__policy_is_recursive(p))
        return &wnw__rule_blocks;
    return wnw__policy_slides(p) ? &wnw__rule_slide : &wnw__rule_every;
}

/* ---- State ---- */

void wnw__rules_free(struct wnw__rules *r)
{
    wnw_policy_free(r->own);
    wnw_policy_free(r->sized_policy);
    free(r->slide_counts);
    *r = (struct wnw__rules){0};
}

void wnw__rules_reset(struct wnw__rules *r)
{
    const struct wnw__eviction ev = r->ev;
    wnw_policy *const own = r->own;
    r->own = NULL;
    wnw__rules_free(r);
    r->ev = ev;
    r->own = own;
}

int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from)
{
    wnw_policy *sized_policy = NULL, *own = NULL;
    const size_t bytes = (size_t)from->n_slide_counts * sizeof *from->slide_counts;
    int32_t *slide_counts = from->slide_counts ? malloc(bytes) : NULL;
    int rc = from->slide_counts && !slide_counts
                 ? wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", from->n_slide_counts)
                 : WNW_OK;
    if (rc == WNW_OK && from->sized_policy)
        rc = wnw__policy_copy(&sized_policy, from->sized_policy);
    if (rc == WNW_OK && from->own)
        rc = wnw__policy_copy(&own, from->own);
    if (rc != WNW_OK) {
        wnw_policy_free(sized_policy);
        free(slide_counts);
        return rc;
    }
    if (slide_counts)
        memcpy(slide_counts, from->slide_counts, bytes);
    wnw__rules_free(to);
    *to = *from;
    to->sized_policy = sized_policy;
    to->own = own;
    if (own)
        to->ev.policy = own;
    to->slide_counts = slide_counts;
    return WNW_OK;
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

/* Whether any field says something that only a policy can follow. */
static bool needs_policy(const struct wnw__eviction *ev)
{
    return ev->size.kind != WNW_SIZE_NONE || ev->chunk || ev->every || ev->target || ev->once ||
           ev->every_ratio != 0 || ev->slack != 0 || ev->phase != WNW_PHASE_END;
}

static int check_slack(const struct wnw__eviction *ev)
{
    if (ev->slack == 0 || ev->slack == 1)
        return WNW_OK;
    if (!(ev->slack > 1 && isfinite(ev->slack)))
        return wnw__fail(WNW_E_RANGE, "%g times the size stays between chunks; give 1 or more", ev->slack);
    if (ev->phase != WNW_PHASE_CHUNK)
        return wnw__fail(WNW_E_ARG, "%g times the size stays between chunks, but nothing is read in chunks",
                         ev->slack);
    if (ev->size.kind == WNW_SIZE_NONE)
        return wnw__fail(WNW_E_ARG, "%g times the size stays between chunks, but there is no size; give one",
                         ev->slack);
    if (wnw__policy_is_recursive(ev->policy))
        return wnw__fail(WNW_E_ARG,
                         "%s judges each block once, so that no more than its size can stay between chunks; "
                         "leave the %g times out",
                         wnw__policy_name(ev->policy), ev->slack);
    return WNW_OK;
}

static int check_every_ratio(const struct wnw__eviction *ev)
{
    if (ev->every_ratio == 0)
        return WNW_OK;
    if (!(ev->every_ratio > 0 && ev->every_ratio < 1))
        return wnw__fail(
            WNW_E_RANGE,
            "ratio %g while decoding is out of range; it is the fraction removed, above 0 and below 1",
            ev->every_ratio);
    if (ev->target != 0)
        return wnw__fail(WNW_E_ARG,
                         "a ratio while decoding takes the place of a target; leave out one of %g and %lld",
                         ev->every_ratio, (long long)ev->target);
    return WNW_OK;
}

static int check_rules(const struct wnw__eviction *ev)
{
    if (!ev->policy && needs_policy(ev))
        return wnw__fail(WNW_E_ARG, "a size, a phase, a chunk, a target or `once` need a policy");
    if (!ev->policy)
        return WNW_OK;
    if (ev->phase != WNW_PHASE_END && ev->phase != WNW_PHASE_LAYER && ev->phase != WNW_PHASE_CHUNK)
        return wnw__fail(WNW_E_ARG,
                         "a prompt is compressed at its end, by layer or by chunk, not in phase %d",
                         (int)ev->phase);
    if (ev->chunk < 0 || ev->every < 0 || ev->target < 0)
        return wnw__fail(WNW_E_RANGE, "chunk %d, every %d and target %lld must not be negative",
                         (int)ev->chunk, (int)ev->every, (long long)ev->target);
    WNW_TRY(check_every_ratio(ev));
    WNW_TRY(check_phase(ev->policy, ev->phase));
    WNW_TRY(check_slack(ev));
    return ev->every > 0 ? check_phase(ev->policy, WNW_PHASE_DECODE) : WNW_OK;
}

bool wnw__rules_replan(const struct wnw__eviction *ev)
{
    return ev->policy && ev->every > 0 && wnw__rule_of(ev->policy)->replans;
}

int wnw__rules_check(const wnw_session *s, const struct wnw__eviction *ev, const wnw_profile *profile)
{
    WNW_TRY(check_rules(ev));
    if (!ev->policy)
        return WNW_OK;
    const struct wnw__rule *rule = wnw__rule_of(ev->policy);
    WNW_TRY(rule->check ? rule->check(s, ev) : WNW_OK);
    WNW_TRY(wnw__policy_check_profile(ev->policy, profile));
    return wnw_policy_rerotates(ev->policy) ? wnw__renumber_check(s) : WNW_OK;
}

void wnw__rules_set(wnw_session *s, const struct wnw__eviction *ev, wnw_policy *own, bool goes_on)
{
    struct wnw__rules *r = &s->rules;
    if (goes_on) {
        wnw_policy_free(r->sized_policy); /* made again when it is needed */
        r->sized_policy = NULL;
        wnw_policy_free(r->own);
        r->own = own;
        r->is_over = false;
        r->ev = *ev;
        if (ev->policy && r->n_keep > 0) /* of another size */
            r->n_keep = wnw__rules_n_keep(s, ev, s->n_past - r->n_uncounted);
        return;
    }
    wnw__rules_free(r);
    r->ev = *ev;
    r->own = own;
    r->n_uncounted = ev->policy ? s->n_past - wnw__rules_longest_head(s) : 0;
}

/* ---- What the rules have in common ---- */

struct wnw__compression wnw__rules_compression(const wnw_session *s, int32_t n_coming)
{
    const struct wnw__rules *r = &s->rules;
    return (struct wnw__compression){
        .policy = r->ev.policy, .size = r->ev.size, .ratio_base = s->n_past + n_coming - r->n_uncounted};
}

int32_t wnw__rules_chunk(const wnw_session *s)
{
    (void)s;
    return 512;
}

int wnw__rules_compress(wnw_session *s, const struct wnw__compression *compression, int32_t room,
                        wnw_report *report)
{
    wnw_report one = {0};
    wnw_plan *plan;
    s->rules.n_decoded = 0;
    if (wnw_policy_is_full(compression->policy) || compression->size.budget == WNW_KEEP_ALL)
        return WNW_OK;
    WNW_TRY(
        wnw__session_plan(s, compression->policy, &compression->size, compression->ratio_base, &plan, &one));
    const int rc = wnw__session_follow(s, compression->policy, plan, room, &one);
    const double start = wnw__now_ms();
    wnw_plan_free(plan);
    one.compact_ms += wnw__now_ms() - start;
    wnw__report_add(report, &one);
    return rc;
}

/* Decoding has no report, so that the log gets the first warning; the others would say the same. */
int wnw__rules_after_decode(wnw_session *s)
{
    const wnw_policy *p = s->rules.ev.policy;
    wnw_report report = {0};
    if (!p || wnw_policy_is_full(p))
        return WNW_OK;
    const int rc = wnw__rule_of(p)->after_token(s, &report);
    if (rc != WNW_OK || !report.warning[0] || s->rules.has_warned)
        return rc;
    s->rules.has_warned = true;
    wnw__log(WNW_LOG_WARN, "while decoding: %s", report.warning);
    return WNW_OK;
}
