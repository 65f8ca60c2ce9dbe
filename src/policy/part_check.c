/* SPDX-License-Identifier: MIT */
/* Checks what a part's hooks return, as soon as a recipe has given the part its options. A value out of range
 * would otherwise be found by the driver, in the middle of its work. */
#include "policy/part.h"
#include "winnow_calibrate.h"

enum { MAX_WINDOW = 1 << 20, MAX_LOOKAHEAD = 1024 };

/* A pass; only what repeats the text can be divided by lengths. */
static bool is_second_pass(int32_t pass)
{
    const int32_t kind = pass & ~(int32_t)WNW_PASS_BY_INPUT;
    const bool repeats = kind >= WNW_PASS_REPEAT && kind <= WNW_PASS_REPEAT_ALL;
    return kind >= WNW_PASS_CONTEXT && kind <= WNW_PASS_SAMPLE && (kind == pass || repeats);
}

static int check_needs(const wnw_part *part, const wnw_needs *needs)
{
    const char *kind = wnw__part_kind_name(part->kind);
    uint32_t unknown = needs->flags;
    for (int32_t bit = 0; unknown && wnw_need_name(bit); bit++)
        unknown &= ~(1u << bit);
    if (unknown)
        return wnw__fail(WNW_E_ARG, "%s %s asks for observations 0x%x; this library does not know these bits",
                         kind, part->name, (unsigned)unknown);
    if (needs->flags & (WNW_NEED_WINDOW_ATTN | WNW_NEED_PERPLEXITY) &&
        (needs->window < 1 || needs->window > MAX_WINDOW))
        return wnw__fail(WNW_E_ARG, "%s %s asks for a window of %d tokens, which must be 1 to %d", kind,
                         part->name, needs->window, MAX_WINDOW);
    if (needs->flags & WNW_NEED_QUERY_STATS && needs->skip < 0)
        return wnw__fail(WNW_E_ARG, "%s %s leaves out the first %d positions of query statistics", kind,
                         part->name, needs->skip);
    if (needs->flags & WNW_NEED_SECOND_PASS && !is_second_pass(needs->second_pass))
        return wnw__fail(WNW_E_ARG, "%s %s asks for second pass %d; wnw_second_pass lists them", kind,
                         part->name, needs->second_pass);
    if (needs->flags & WNW_NEED_SECOND_PASS && needs->second_pass == WNW_PASS_SAMPLE &&
        (needs->sample.least < 1 || needs->sample.place < 1))
        return wnw__fail(WNW_E_ARG,
                         "%s %s has %d tokens or more repeated in places of %d; both must be 1 or more", kind,
                         part->name, needs->sample.least, needs->sample.place);
    if (needs->flags & WNW_NEED_LOOKAHEAD && (needs->lookahead < 1 || needs->lookahead > MAX_LOOKAHEAD))
        return wnw__fail(WNW_E_ARG, "%s %s asks for %d tokens to come, which must be 1 to %d", kind,
                         part->name, needs->lookahead, MAX_LOOKAHEAD);
    if ((needs->profiles | needs->profiles_optional) >> WNW_N_PROFILE_KINDS)
        return wnw__fail(WNW_E_ARG, "%s %s asks for profiles 0x%x; this library does not know these bits",
                         kind, part->name, (unsigned)(needs->profiles | needs->profiles_optional));
    return WNW_OK;
}

int wnw__blocks_check(const char *owner, const wnw_blocks *b)
{
    if (b->sink < 0 || b->lag < 1)
        return wnw__fail(WNW_E_ARG, "%s has blocks of %d entries after the first %d; give at least 1 and 0",
                         owner, b->lag, b->sink);
    return WNW_OK;
}

int wnw__part_check(const wnw_part *part, const void *opts)
{
    wnw_needs needs = {0}, gather_needs = {0};
    if (part->check)
        WNW_TRY(wnw__part_status(part, part->check(opts)));
    if (part->needs)
        part->needs(opts, &needs);
    if (part->gather && part->gather->needs)
        part->gather->needs(opts, &gather_needs);
    WNW_TRY(check_needs(part, &needs));
    WNW_TRY(check_needs(part, &gather_needs));
    const wnw_block_rule *rule = part->kind == WNW_PART_SCORER ? ((const wnw_scorer *)part)->blocks : NULL;
    if (!rule)
        return WNW_OK;
    wnw_blocks b = {0};
    rule->of(opts, &b);
    return wnw__blocks_check(part->name, &b);
}
