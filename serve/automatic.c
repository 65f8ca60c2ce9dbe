/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"

#include "serve/config.h"

bool serve_asks_quality(const struct serve_keep_rule *keep_rule)
{
    double q;
    return wnw_automatic_is(keep_rule->recipe, &q) && q > 0;
}

wnw_automatic serve_automatic_of(wnw_policy_facts *facts, const struct serve_keep_rule *keep_rule, bool fed)
{
    const struct serve_config *c = serve_settings();
    *facts = c->facts;
    facts->feeds_again = fed;
    return (wnw_automatic){WNW_INIT(wnw_automatic), .recipe = keep_rule->recipe, .facts = facts,
                           .profile = c->profile,   .size = keep_rule->size,     .n_most = keep_rule->n_most};
}

int32_t serve_automatic_chunk(const struct serve_keep_rule *keep_rule, int64_t n_tokens)
{
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, keep_rule, true);
    const bool known = serve_is_automatic(keep_rule) && n_tokens > 0 && n_tokens <= INT32_MAX;
    return known ? wnw_automatic_chunk(&of, (int32_t)n_tokens) : 0;
}

int serve_automatic_each(const struct serve_keep_rule *keep_rule, bool feeds, wnw_automatic_what *row,
                         void *user)
{
    int rc = WNW_OK;
    for (int fed = 0; fed <= feeds; fed++)
        for (int shared = 0; rc == WNW_OK && shared < 2; shared++) {
            wnw_policy_facts facts;
            const wnw_automatic of = serve_automatic_of(&facts, keep_rule, fed);
            facts.queries_unknown = shared;
            rc = wnw_automatic_each(&of, row, user);
        }
    return rc;
}

static int add_needs(const char *recipe, const wnw_policy_choice *row, void *user)
{
    struct serve_keep_rule one = {0}, *keep_rule = user;
    wnw_policy *policy = NULL;
    (void)row;
    int rc = serve_keep_rule_set(&one, recipe, &policy);
    if (rc == WNW_OK &&
        serve_asks_quality(keep_rule)) /* for a size, "auto" chooses among the available profiles */
        rc = serve_check_policy(policy);
    wnw_policy_free(policy);
    keep_rule->needs |= one.needs;
    return rc;
}

int serve_automatic_settle(struct serve_keep_rule *keep_rule)
{
    if (!serve_is_automatic(keep_rule))
        return WNW_OK;
    keep_rule->needs = 0;
    return serve_automatic_each(keep_rule, true, add_needs, keep_rule);
}
