/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"

#include "serve/config.h"

bool serve_is_automatic(const struct serve_want *want)
{
    return wnw_automatic_is(want->recipe, NULL);
}

bool serve_asks_quality(const struct serve_want *want)
{
    double q;
    return wnw_automatic_is(want->recipe, &q) && q > 0;
}

wnw_automatic serve_automatic_of(const struct serve_want *want, bool fed)
{
    const struct serve_config *c = serve_settings();
    return (wnw_automatic){
        WNW_INIT(wnw_automatic), .recipe = want->recipe, .facts = fed ? &c->facts_fed : &c->facts,
        .profile = c->profile,   .size = want->size,     .n_most = want->n_most};
}

static int add_needs(const char *recipe, const wnw_policy_choice *row, void *user)
{
    struct serve_want one = {0}, *want = user;
    wnw_policy *policy = NULL;
    (void)row;
    int rc = serve_want_set(&one, recipe, &policy);
    if (rc == WNW_OK && serve_asks_quality(want)) /* sizes are chosen for by what there is */
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
    for (int fed = 0; fed < 2; fed++) {
        const wnw_automatic of = serve_automatic_of(want, fed);
        const int rc = wnw_automatic_each(&of, add_needs, want);
        if (rc != WNW_OK)
            return rc;
    }
    return WNW_OK;
}
