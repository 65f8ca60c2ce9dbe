/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"

#include "serve/config.h"

bool serve_asks_quality(const struct serve_want *want)
{
    double q;
    return wnw_automatic_is(want->recipe, &q) && q > 0;
}

wnw_automatic serve_automatic_of(wnw_policy_facts *facts, const struct serve_want *want, bool fed)
{
    const struct serve_config *c = serve_settings();
    *facts = c->facts;
    facts->feeds_again = fed;
    return (wnw_automatic){WNW_INIT(wnw_automatic), .recipe = want->recipe, .facts = facts,
                           .profile = c->profile,   .size = want->size,     .n_most = want->n_most};
}

int serve_automatic_each(const struct serve_want *want, bool feeds, wnw_automatic_what *row, void *user)
{
    int rc = WNW_OK;
    for (int fed = 0; fed <= feeds; fed++)
        for (int shared = 0; rc == WNW_OK && shared < 2; shared++) {
            wnw_policy_facts facts;
            const wnw_automatic of = serve_automatic_of(&facts, want, fed);
            facts.queries_unknown = shared;
            rc = wnw_automatic_each(&of, row, user);
        }
    return rc;
}

static int add_needs(const char *recipe, const wnw_policy_choice *row, void *user)
{
    struct serve_want one = {0}, *want = user;
    wnw_policy *policy = NULL;
    (void)row;
    int rc = serve_want_set(&one, recipe, &policy);
    if (rc == WNW_OK &&
        serve_asks_quality(want)) /* for a size, "auto" chooses among the available profiles */
        rc = serve_check_policy(policy);
    wnw_policy_free(policy);
    want->needs |= one.needs;
    return rc;
}

int serve_automatic_settle(struct serve_want *want)
{
    if (!serve_is_automatic(want))
        return WNW_OK;
    want->needs = 0;
    return serve_automatic_each(want, true, add_needs, want);
}
