/* SPDX-License-Identifier: MIT */
/* Plans of several policies from one walk over a source. */
#include "plan/compress.h"
#include "plan/compress_impl.h"
#include "winnow.h"

#include <stdlib.h>

int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports)
{
    struct wnw__draft **drafts = calloc((size_t)n + 1, sizeof(struct wnw__draft *));
    int rc = drafts ? wnw__needs_agree(policies, n) : wnw__fail(WNW_E_NOMEM, "out of memory for %d plans", n);
    for (int32_t k = 0; k < n; k++)
        out[k] = NULL;
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        rc = wnw__draft_new(&drafts[k], policies[k], sizes ? &sizes[k] : NULL, src,
                            reports ? &reports[k] : NULL);
    if (rc == WNW_OK)
        rc = wnw__draft_walk(drafts, n, src, false);
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        out[k] = wnw__draft_finish(drafts[k]);
    for (int32_t k = 0; drafts && k < n; k++)
        wnw__draft_free(drafts[k]);
    free(drafts);
    for (int32_t k = 0; rc == WNW_OK && sizes && k < n; k++)
        rc = wnw__plan_fit_bytes(&out[k], policies[k], &sizes[k], src, reports ? &reports[k] : NULL);
    for (int32_t k = 0; rc != WNW_OK && k < n; k++) {
        wnw_plan_free(out[k]);
        out[k] = NULL;
    }
    return rc;
}

int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    return wnw__plan_make_many(out, &policy, size, 1, src, report);
}
