/* SPDX-License-Identifier: MIT */
/* What the ways of following rules (every.c, blocks.c, slide.c) have in common. */
#include "session/rules/rules.h"

#include "base/system.h"
#include "plan/compress.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/session.h"

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
