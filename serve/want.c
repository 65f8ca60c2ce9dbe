/* SPDX-License-Identifier: MIT */
#include "serve/want.h"

#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <string.h>

bool serve_is_automatic(const struct serve_want *want)
{
    return wnw_automatic_is(want->recipe, NULL);
}

/* Policies that look with every query would need those of the chunks before, and those that thin blocks would have to know which ones are
 * thinned. A quality is promised of whole prompts. */
static bool can_chunk(const struct serve_want *want, const wnw_policy *policy)
{
    if (serve_is_automatic(want))
        return strcmp(want->recipe, "auto") == 0;
    return policy && !want->keeps_quality && !serve_looks_with_all(want) &&
           !strstr(wnw_policy_string(policy), "+partition") &&
           wnw_policy_allows(policy, WNW_PHASE_CHUNK, NULL);
}

int serve_want_set(struct serve_want *want, const char *recipe, wnw_policy **policy)
{
    wnw_policy *parsed = NULL;
    int rc = WNW_OK;
    snprintf(want->recipe, sizeof want->recipe, "%s", recipe);
    want->taken[0] = want->form[0] = '\0';
    want->needs = 0;
    want->chunk = 0;
    if (!serve_keeps_all(want) && !serve_is_automatic(want)) {
        rc = wnw_policy_parse(&parsed, recipe, NULL);
        want->needs = rc == WNW_OK ? wnw_policy_needs(parsed).flags : UINT32_MAX;
    }
    const char *form = parsed ? wnw_policy_string(parsed) : "";
    want->keeps_quality = strstr(form, "+quality") != NULL;
    want->chunks = can_chunk(want, parsed);
    if (strlen(form) < sizeof want->form)
        strcpy(want->form, form);
    if (policy)
        *policy = parsed;
    else
        wnw_policy_free(parsed);
    return rc;
}

const char *serve_want_taken(const struct serve_want *want)
{
    return *want->taken ? want->taken : want->recipe;
}

bool serve_keeps_all(const struct serve_want *want)
{
    return strcmp(want->recipe, "full") == 0;
}

bool serve_same_recipe(const struct serve_want *a, const struct serve_want *b)
{
    return strcmp(a->recipe, b->recipe) == 0 || (*a->form && strcmp(a->form, b->form) == 0);
}

bool serve_same_want(const struct serve_want *a, const struct serve_want *b)
{
    return serve_same_recipe(a, b) && a->size.kind == b->size.kind && a->size.budget == b->size.budget &&
           a->size.bytes == b->size.bytes && !(a->size.ratio < b->size.ratio) &&
           !(a->size.ratio > b->size.ratio);
}

bool serve_looks_at_question(const struct serve_want *want)
{
    return want->needs & WNW_NEED_WINDOW_ATTN;
}

bool serve_looks_with_all(const struct serve_want *want)
{
    return want->needs & WNW_NEED_EVERY_QUERY;
}

bool serve_looks_with_queries(const struct serve_want *want)
{
    return want->needs & (WNW_NEED_EVERY_QUERY | WNW_NEED_WINDOW_ATTN);
}

bool serve_rounds_queries(uint32_t needs)
{
    return (needs & (WNW_NEED_QUERIES | WNW_NEED_WINDOW_ATTN)) == 0;
}

bool serve_looks_back(const struct serve_want *want)
{
    return want->needs & (WNW_NEED_NUMBERS | WNW_NEED_QUERY_STATS | WNW_NEED_EVERY_QUERY);
}
