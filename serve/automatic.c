/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"

#include "serve/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTO        "auto"
#define AND_QUALITY "+quality:q="

/* What stands behind "auto", NULL where the recipe is another one. */
static const char *behind_auto(const struct serve_want *want)
{
    return strncmp(want->recipe, AUTO, strlen(AUTO)) == 0 ? want->recipe + strlen(AUTO) : NULL;
}

/* The quality that is asked for; 0 = none. */
static double quality_of(const struct serve_want *want)
{
    const char *text = behind_auto(want);
    if (!text || strncmp(text, AND_QUALITY, strlen(AND_QUALITY)) != 0)
        return 0;
    char *end;
    const double q = strtod(text + strlen(AND_QUALITY), &end);
    return *end == '\0' && q > 0 && q < 1 ? q : 0;
}

bool serve_asks_quality(const struct serve_want *want)
{
    return quality_of(want) > 0;
}

bool serve_is_automatic(const struct serve_want *want)
{
    const char *text = behind_auto(want);
    return text && (*text == '\0' || serve_asks_quality(want));
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

static int choose(wnw_policy_choice *out, const struct serve_want *want, int32_t n_tokens, bool was_read)
{
    const double q = quality_of(want);
    wnw_policy_facts facts = serve_settings()->facts;
    facts.was_read = was_read;
    facts.n_tokens = n_tokens;
    *out = wnw_policy_choice_default();
    if (q > 0)
        return wnw_policy_choose_quality(out, &facts, serve_settings()->profile, q);
    facts.kept = kept_of(want, n_tokens, facts.shares_least);
    return wnw_policy_choose(out, &facts);
}

static void write_recipe(char recipe[SERVE_RECIPE], const struct serve_want *want,
                         const wnw_policy_choice *row)
{
    snprintf(recipe, SERVE_RECIPE, "%s%s", row->recipe, behind_auto(want));
}

int serve_automatic_choose(char recipe[SERVE_RECIPE], const struct serve_want *want, int32_t n_tokens,
                           bool was_read)
{
    wnw_policy_choice row;
    const int rc = choose(&row, want, n_tokens, was_read);
    if (rc == WNW_OK)
        write_recipe(recipe, want, &row);
    return rc;
}

int serve_automatic_each(const struct serve_want *want, serve_automatic_what *what, void *user)
{
    char recipe[SERVE_RECIPE];
    wnw_policy_choice row, next;
    const int32_t most = want->n_most > 0 ? want->n_most : INT32_MAX;
    int rc = choose(&row, want, 1, false);
    while (rc == WNW_OK && row.until_tokens < most) {
        write_recipe(recipe, want, &row);
        rc = choose(&next, want, row.until_tokens + 1, false);
        if (rc == WNW_OK && next.recipe != row.recipe)
            rc = what(recipe, &row, user);
        row = next;
    }
    if (rc != WNW_OK)
        return rc;
    write_recipe(recipe, want, &row);
    return what(recipe, &row, user);
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
    return serve_automatic_each(want, add_needs, want);
}
