/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"

#include "serve/config.h"

#include <string.h>

bool serve_is_automatic(const struct serve_want *want)
{
    return strcmp(want->recipe, "auto") == 0;
}

/* The share of a prompt that is to stay. */
static double kept_of(const struct serve_want *want, int32_t n_tokens, double least)
{
    if (want->size.kind == WNW_SIZE_RATIO)
        return 1 - want->size.ratio;
    if (want->size.kind != WNW_SIZE_BUDGET)
        return 0;
    /* A budget is any share, by the prompt's length: what must be observed would depend on a length that is not known yet. So
     * sizes that shares were not measured at are taken for the smallest one that they were. */
    const double kept = (double)want->size.budget / n_tokens;
    return kept > 1 ? 1 : kept > least ? kept : least;
}

int serve_automatic_choose(wnw_policy_choice *out, const struct serve_want *want, int32_t n_tokens,
                           bool was_read)
{
    wnw_policy_facts facts = serve_settings()->facts;
    facts.was_read = was_read;
    facts.n_tokens = n_tokens;
    facts.kept = kept_of(want, n_tokens, facts.shares_least);
    *out = wnw_policy_choice_default();
    return wnw_policy_choose(out, &facts);
}

int serve_automatic_each(const struct serve_want *want, int (*what)(const wnw_policy_choice *row, void *user),
                         void *user)
{
    wnw_policy_choice row, next;
    const int32_t most = want->n_most > 0 ? want->n_most : INT32_MAX;
    int rc = serve_automatic_choose(&row, want, 1, false);
    while (rc == WNW_OK && row.until_tokens < most) {
        rc = serve_automatic_choose(&next, want, row.until_tokens + 1, false);
        if (rc == WNW_OK && next.recipe != row.recipe)
            rc = what(&row, user);
        row = next;
    }
    return rc == WNW_OK ? what(&row, user) : rc;
}

static int add_needs(const wnw_policy_choice *row, void *user)
{
    struct serve_want one = {0}, *want = user;
    const int rc = serve_want_set(&one, row->recipe, NULL);
    want->needs |= one.needs;
    return rc;
}

int serve_automatic_settle(struct serve_want *want)
{
    if (!serve_is_automatic(want))
        return WNW_OK;
    want->needs = 0;
    return serve_automatic_each(want, add_needs, want);
}
