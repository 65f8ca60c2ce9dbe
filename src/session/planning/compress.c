/* SPDX-License-Identifier: MIT */
/* From a policy to a plan (plan/compress.c), and to a smaller cache (compact/apply.c). */
#include "plan/compress.h"

#include "base/err.h"
#include "base/system.h"
#include "policy/policy.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/session.h"

#include <stdlib.h>

static int plan_many(wnw_session *s, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                     int32_t ratio_base, wnw_plan **plans, wnw_report *reports)
{
    WNW_REQUIRE(plans || n < 1);
    for (int32_t i = 0; i < n; i++) {
        plans[i] = NULL;
        if (reports)
            reports[i] = (wnw_report){0};
    }
    WNW_REQUIRE(s);
    WNW_TRY(wnw__policies_check(policies, n));
    if (s->n_past == 0)
        return wnw__fail(WNW_E_ARG, "nothing to compress: no tokens were read");
    struct wnw__plan_source src;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__session_source(&src, s));
    const double ms = wnw__now_ms() - start;
    src.ratio_base = ratio_base;
    const int rc = wnw__plan_make_many(plans, policies, sizes, n, &src, reports);
    wnw__source_close(&src);
    for (int32_t i = 0; reports && i < n; i++) {
        reports[i].observe_ms += ms;
        reports[i].entries_before = reports[i].entries_after = wnw__cache_entries(&s->cache);
        reports[i].kv_bytes_before = reports[i].kv_bytes_after = wnw__cache_bytes(&s->cache);
    }
    return rc;
}

/* Report i of an array whose elements all have the size that the first one states. */
static wnw_report *report_at(wnw_report *reports, int32_t i)
{
    return (wnw_report *)(void *)((char *)reports + (size_t)i * reports->struct_size);
}

static int check_reports(wnw_report *reports, int32_t n)
{
    for (int32_t i = 0; reports && i < n; i++) {
        WNW_TRY(WNW_SIZED_CHECK(wnw_report, report_at(reports, i)));
        if (report_at(reports, i)->struct_size != reports->struct_size)
            return wnw__fail(WNW_E_ARG, "struct_size of report %d is %u, of the first %u; they must be equal",
                             (int)i, (unsigned)report_at(reports, i)->struct_size,
                             (unsigned)reports->struct_size);
    }
    return WNW_OK;
}

int wnw_session_plan_many(wnw_session *s, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                          wnw_plan **plans, wnw_report *reports)
{
    for (int32_t i = 0; plans && i < n; i++)
        plans[i] = NULL;
    WNW_TRY(check_reports(reports, n));
    wnw_report *own = reports && n > 0 ? calloc((size_t)n, sizeof *own) : NULL;
    if (reports && n > 0 && !own)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d reports", (int)n);
    const int rc = plan_many(s, policies, sizes, n, 0, plans, own);
    for (int32_t i = 0; reports && i < n; i++)
        wnw__sized_give(report_at(reports, i), &own[i]);
    free(own);
    return rc;
}

int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report)
{
    return plan_many(s, &policy, size, 1, ratio_base, plan, report);
}

int wnw_session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_plan **plan,
                     wnw_report *report)
{
    WNW_REQUIRE(plan);
    return wnw_session_plan_many(s, &policy, size, 1, plan, report);
}

static int compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_report *report)
{
    wnw_plan *plan;
    WNW_REQUIRE(s);
    WNW_REQUIRE(policy);
    if (wnw_policy_rerotates(policy))
        WNW_TRY(wnw__renumber_check(s)); /* fails before the work of planning */
    WNW_TRY(wnw__session_plan(s, policy, size, 0, &plan, report));
    const int rc = wnw__session_follow(s, policy, plan, -1, report);
    wnw_plan_free(plan);
    wnw__engine_release(s->engine); /* for the same reason as in wnw_session_apply */
    return rc;
}

int wnw_session_compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_report *report)
{
    wnw_report own = wnw_report_default();
    WNW_TRY(WNW_SIZED_CHECK(wnw_report, report));
    const int rc = compress(s, policy, size, &own);
    wnw__sized_give(report, &own);
    return rc;
}
