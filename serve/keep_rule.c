/* SPDX-License-Identifier: MIT */
#include "serve/keep_rule.h"

#include "app/chunks.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <string.h>

bool serve_is_automatic(const struct serve_keep_rule *keep_rule)
{
    return wnw_automatic_is(keep_rule->recipe, NULL);
}

static bool can_chunk(const struct serve_keep_rule *keep_rule, const wnw_policy *policy)
{
    if (serve_is_automatic(keep_rule))
        return strcmp(keep_rule->recipe, "auto") == 0;
    return policy && !app_chunk_misfit(policy) && wnw_policy_allows(policy, WNW_PHASE_CHUNK, NULL);
}

int serve_keep_rule_set(struct serve_keep_rule *keep_rule, const char *recipe, wnw_policy **policy)
{
    wnw_policy *parsed = NULL;
    int rc = WNW_OK;
    snprintf(keep_rule->recipe, sizeof keep_rule->recipe, "%s", recipe);
    keep_rule->taken[0] = keep_rule->form[0] = '\0';
    keep_rule->needs = 0;
    keep_rule->chunk = 0;
    if (!serve_keeps_all(keep_rule) && !serve_is_automatic(keep_rule)) {
        rc = wnw_policy_parse(&parsed, recipe, NULL);
        keep_rule->needs = rc == WNW_OK ? wnw_policy_needs(parsed).flags : UINT32_MAX;
    }
    const char *form = parsed ? wnw_policy_string(parsed) : "";
    keep_rule->keeps_quality = strstr(form, "+quality") != NULL;
    keep_rule->chunks = can_chunk(keep_rule, parsed);
    keep_rule->by_blocks = parsed && app_chunk_by_blocks(parsed);
    if (strlen(form) < sizeof keep_rule->form)
        strcpy(keep_rule->form, form);
    if (policy)
        *policy = parsed;
    else
        wnw_policy_free(parsed);
    return rc;
}

const char *serve_keep_rule_taken(const struct serve_keep_rule *keep_rule)
{
    return *keep_rule->taken ? keep_rule->taken : keep_rule->recipe;
}

bool serve_keeps_all(const struct serve_keep_rule *keep_rule)
{
    return strcmp(keep_rule->recipe, "full") == 0;
}

bool serve_same_recipe(const struct serve_keep_rule *a, const struct serve_keep_rule *b)
{
    return strcmp(a->recipe, b->recipe) == 0 || (*a->form && strcmp(a->form, b->form) == 0);
}

bool serve_same_keep_rule(const struct serve_keep_rule *a, const struct serve_keep_rule *b)
{
    return serve_same_recipe(a, b) && a->size.kind == b->size.kind && a->size.budget == b->size.budget &&
           a->size.bytes == b->size.bytes && !(a->size.ratio < b->size.ratio) &&
           !(a->size.ratio > b->size.ratio);
}

bool serve_looks_at_question(const struct serve_keep_rule *keep_rule)
{
    return keep_rule->needs & WNW_NEED_WINDOW_ATTN;
}

bool serve_looks_with_all(const struct serve_keep_rule *keep_rule)
{
    return keep_rule->needs & WNW_NEED_EVERY_QUERY;
}

bool serve_looks_with_queries(const struct serve_keep_rule *keep_rule)
{
    return keep_rule->needs & (WNW_NEED_EVERY_QUERY | WNW_NEED_WINDOW_ATTN);
}

bool serve_rounds_queries(uint32_t needs)
{
    return (needs & (WNW_NEED_QUERIES | WNW_NEED_WINDOW_ATTN)) == 0;
}

bool serve_looks_back(const struct serve_keep_rule *keep_rule)
{
    return keep_rule->needs & (WNW_NEED_NUMBERS | WNW_NEED_QUERY_STATS | WNW_NEED_EVERY_QUERY);
}
