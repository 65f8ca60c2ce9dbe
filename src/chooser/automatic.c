/* SPDX-License-Identifier: MIT */
/* "auto" where a prompt's length is known only once it was read: which recipe it is then, and which ones are possible before.
 * What the possible ones need must be observed meanwhile. */
#include "chooser/chooser.h"

#include "base/err.h"
#include "base/strings.h"
#include "policy/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTO        "auto"
#define AND_QUALITY "+quality:q="

enum { RECIPE = 256 }; /* bytes of one of the table, with a quality */

/* What comes after "auto"; NULL where the recipe is another one. */
static const char *after_auto(const char *recipe)
{
    return recipe && strncmp(recipe, AUTO, strlen(AUTO)) == 0 ? recipe + strlen(AUTO) : NULL;
}

bool wnw_automatic_is(const char *recipe, double *quality)
{
    const char *text = after_auto(recipe);
    double q = 0;
    bool good = text && *text == '\0';
    if (text && strncmp(text, AND_QUALITY, strlen(AND_QUALITY)) == 0) {
        char *end;
        q = wnw__to_double(text + strlen(AND_QUALITY), &end);
        good = strlen(text) < RECIPE / 2 && *end == '\0' && q > 0 && q < 1;
    }
    if (quality)
        *quality = good ? q : 0;
    return good;
}

/* The share of a prompt that is to stay; 0 = not known. */
static double kept_of(const wnw_size *size, int32_t n_tokens, double least)
{
    if (size->kind == WNW_SIZE_RATIO)
        return 1 - size->ratio;
    if (size->kind != WNW_SIZE_BUDGET)
        return 0;
    /* A budget is any share, by the prompt's length: what must be observed would depend on a length that is not known yet. So
     * sizes that shares were not measured at are taken for the smallest one that they were. */
    const double kept = (double)size->budget / n_tokens;
    return kept > 1 ? 1 : fmax(kept, least);
}

/* A budget is a smaller share of a longer prompt. So the choice is valid up to the length where that share falls below a threshold of the
 * table. kept_of never gives less than f->shares_least. */
static void end_with_share(wnw_policy_choice *out, const wnw_size *size, const wnw_policy_facts *f)
{
    const double share = wnw__choice_share_below(f);
    if (size->kind != WNW_SIZE_BUDGET || share <= f->shares_least)
        return;
    /* Rounding must not end the row before the length that it was chosen for. */
    const double last = fmax(floor((double)size->budget / share), f->n_tokens);
    if (last < out->until_tokens)
        out->until_tokens = (int32_t)last;
}

/* The facts of a prompt of n_tokens. *quality: what the recipe asks for, else 0. */
static int facts_of(wnw_policy_facts *facts, double *quality, const wnw_automatic *a, int32_t n_tokens)
{
    *facts = wnw_policy_facts_default();
    if (a->facts)
        WNW_TRY(WNW_SIZED_TAKE(wnw_policy_facts, facts, a->facts));
    if (!wnw_automatic_is(a->recipe, quality))
        return wnw__fail(WNW_E_ARG,
                         "'%.60s' chooses nothing: it is \"auto\", or \"auto+quality:q=Q\" with a Q above 0 "
                         "and below 1",
                         a->recipe ? a->recipe : "");
    facts->n_tokens = n_tokens;
    facts->kept = *quality > 0 ? facts->kept : kept_of(&a->size, n_tokens, facts->shares_least);
    return WNW_OK;
}

static int choose(wnw_policy_choice *out, const wnw_automatic *a, int32_t n_tokens, bool was_read)
{
    double q;
    wnw_policy_facts facts;
    WNW_TRY(facts_of(&facts, &q, a, n_tokens));
    facts.was_read = was_read;
    *out = wnw_policy_choice_default();
    if (q > 0)
        return wnw_policy_choose_quality(out, &facts, a->profile, q);
    WNW_TRY(wnw_policy_choose(out, &facts));
    end_with_share(out, &a->size, &facts);
    return WNW_OK;
}

int32_t wnw_automatic_chunk(const wnw_automatic *given, int32_t n_tokens)
{
    double q;
    wnw_automatic a = wnw_automatic_default();
    wnw_policy_facts facts;
    if (!given || n_tokens < 1 || WNW_SIZED_TAKE(wnw_automatic, &a, given) != WNW_OK ||
        facts_of(&facts, &q, &a, n_tokens) != WNW_OK)
        return 0;
    return q > 0 ? 0 : wnw_policy_chunk(&facts);
}

static void write_recipe(char recipe[RECIPE], const wnw_automatic *a, const wnw_policy_choice *row)
{
    snprintf(recipe, RECIPE, "%s%s", row->recipe, after_auto(a->recipe));
}

static int take(wnw_automatic *a, const wnw_automatic *given)
{
    *a = wnw_automatic_default();
    WNW_REQUIRE(given);
    return WNW_SIZED_TAKE(wnw_automatic, a, given);
}

int wnw_automatic_choose(char **recipe, const wnw_automatic *given, int32_t n_tokens, bool was_read)
{
    wnw_automatic a;
    wnw_policy_choice row;
    char text[RECIPE];
    WNW_REQUIRE(recipe);
    *recipe = NULL;
    WNW_TRY(take(&a, given));
    WNW_TRY(choose(&row, &a, n_tokens, was_read));
    write_recipe(text, &a, &row);
    *recipe = strdup(text);
    return *recipe ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for a recipe");
}

int wnw_automatic_each(const wnw_automatic *given, wnw_automatic_what *what, void *user)
{
    wnw_automatic a;
    wnw_policy_choice row, next;
    char text[RECIPE];
    WNW_REQUIRE(what);
    WNW_TRY(take(&a, given));
    const int32_t most = a.n_most > 0 ? a.n_most : INT32_MAX;
    WNW_TRY(choose(&row, &a, 1, false));
    while (row.until_tokens < most) {
        WNW_TRY(choose(&next, &a, row.until_tokens + 1, false));
        write_recipe(text, &a, &row);
        if (next.recipe != row.recipe)
            WNW_TRY(what(text, &row, user));
        row = next;
    }
    write_recipe(text, &a, &row);
    return what(text, &row, user);
}
