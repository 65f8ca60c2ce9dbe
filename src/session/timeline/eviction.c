/* SPDX-License-Identifier: MIT */
#include "session/timeline/eviction.h"

#include "base/err.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

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
