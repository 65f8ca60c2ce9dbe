/* SPDX-License-Identifier: MIT */
/* In which phases a policy can compress. */
#include "policy/policy.h"

#include <string.h>

/* Whether the policy could not compress again a cache that it has compressed itself. */
static bool loses_tokens(const wnw_policy *p)
{
    const char *layout = wnw__policy_layout(p);
    const uint32_t matches = wnw__policy_matches(p);
    /* A selector that matches heads keeps the same tokens in all of them. */
    const bool one_list =
        strcmp(layout, "layer") == 0 || wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_MATCHES_HEADS);
    return wnw_policy_rerotates(p) && strcmp(layout, "uniform") != 0 &&
           (matches == WNW_FLAG_MATCHES_LAYERS || (matches == WNW_FLAG_MATCHES_HEADS && !one_list));
}

static bool has_need(const wnw_policy *p, uint32_t need)
{
    return wnw_policy_needs(p).flags & need;
}

static bool sees_all_layers(const wnw_policy *p)
{
    return wnw__policy_gathers(p, WNW_PART_SCORER) || wnw__policy_sees_all_layers(p) ||
           has_need(p, WNW_NEED_SECOND_PASS | WNW_NEED_LOOKAHEAD);
}

static bool looks_ahead(const wnw_policy *p)
{
    return has_need(p, WNW_NEED_LOOKAHEAD);
}

static bool needs_perplexity(const wnw_policy *p)
{
    return has_need(p, WNW_NEED_PERPLEXITY);
}

static bool reads_twice(const wnw_policy *p)
{
    return has_need(p, WNW_NEED_SECOND_PASS);
}

static bool judges_the_end(const wnw_policy *p)
{
    uint32_t facts = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        facts |= p->flags[k];
    return wnw__policy_gathers(p, WNW_PART_SCORER) || reads_twice(p) || needs_perplexity(p) ||
           facts & WNW_FLAG_PROMPT_ONLY;
}

static bool needs_queries(const wnw_policy *p)
{
    return has_need(p, WNW_NEED_EVERY_QUERY);
}

static bool loses_ages(const wnw_policy *p)
{
    return wnw_policy_rerotates(p) && wnw__policy_counts_age(p);
}

enum { LAYER = 1 << WNW_PHASE_LAYER, CHUNK = 1 << WNW_PHASE_CHUNK, DECODE = 1 << WNW_PHASE_DECODE };

/* The first row that holds in a phase is the reason. */
static const struct {
    unsigned phases;
    bool (*holds)(const wnw_policy *p);
    const char *why;
} refused[] = {
    {LAYER, sees_all_layers, "it must see all layers before it knows what any of them keeps"},
    {LAYER, needs_perplexity, "it needs the prompt's perplexity, which is known after the last layer"},
    {CHUNK, reads_twice, "it feeds the whole prompt a second time"},
    {CHUNK | DECODE, looks_ahead, "it generates what follows the whole prompt"},
    {CHUNK | DECODE, judges_the_end, "its statistics belong to the end of a prompt"},
    {DECODE, needs_queries, "it needs every query of the prompt"},
    {CHUNK | DECODE, loses_tokens,
     "it compares heads by position, and with new positions each head has another token there"},
    {CHUNK | DECODE, loses_ages,
     "it counts queries by position, and new positions no longer say how many an entry has seen"},
};

static const char *why_not(const wnw_policy *p, wnw_phase phase)
{
    if (!p)
        return "there is no policy";
    if ((int)phase < WNW_PHASE_END || phase > WNW_PHASE_DECODE)
        return "there is no such phase";
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].phases & 1u << phase && refused[i].holds(p))
            return refused[i].why;
    return "";
}

bool wnw_policy_allows(const wnw_policy *p, wnw_phase phase, const char **reason)
{
    const char *why = why_not(p, phase);
    if (reason)
        *reason = why;
    return *why == '\0';
}
