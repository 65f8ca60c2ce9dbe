/* SPDX-License-Identifier: MIT */
/* Which rule a policy is followed by, what is refused, and the start of following. */
#include "base/system.h"
#include "policy/policy.h"
#include "session/compact/compact.h"
#include "session/rules/rules.h"
#include "session/session.h"

#include <math.h>

const struct wnw__rule *wnw__rule_of(const wnw_policy *p)
{
    if (wnw__policy_is_recursive(p))
        return &wnw__rule_blocks;
    return wnw__policy_slides(p) ? &wnw__rule_slide : &wnw__rule_every;
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

/* ---- While decoding ---- */

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
