/* SPDX-License-Identifier: MIT */
/* Some entries are protected: they stay regardless of their score. Here they are made to fit into the size. */
#include "method/count.h"
#include "plan/compress_impl.h"

/* What is known of the first entries of a head. */
struct first {
    int32_t n_here; /* the chat template wrote */
    int32_t n_left; /* the last compression has left */
};

/* The protected entries of a head of n entries. */
static wnw_protected protected_of(const struct wnw__draft *draft, int32_t n, struct first first)
{
    const wnw_keep_problem problem = {.n = n,
                                      .budget = draft->size.budget,
                                      .sized = draft->size.rule == WNW_SIZE_RULE_MEAN,
                                      .n_prefix = draft->src->n_prefix,
                                      .n_here = first.n_here,
                                      .n_left = first.n_left};
    const wnw_protected p = wnw__policy_keep_with(draft->policy, draft->scorer_opts, &problem);
    return wnw__protected_clamp(draft->size.room > 0 ? wnw__protected_make_room(p, draft->size.room) : p, n);
}

/* Number of entries of the head before position `end`. */
static int32_t count_before(const struct wnw__draft *draft, int32_t il, int32_t ih, int32_t end)
{
    const int32_t *pos = wnw__draft_positions(draft, il, ih);
    int32_t lo = 0, hi = end > 0 ? wnw__draft_entries(draft, il)[ih] : 0;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (pos[mid] < end)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct first first_of(const struct wnw__draft *draft, int32_t il, int32_t ih)
{
    return (struct first){.n_here = count_before(draft, il, ih, draft->src->n_prefix),
                          .n_left = count_before(draft, il, ih, draft->src->n_judged)};
}

wnw_protected wnw__draft_protected(const struct wnw__draft *draft, int32_t n)
{
    struct first most = {0};
    for (int32_t i = 0; i < draft->cache.n_part; i++)
        for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
            const struct first f = first_of(draft, draft->cache.il[i], ih);
            most.n_here = f.n_here > most.n_here ? f.n_here : most.n_here;
            most.n_left = f.n_left > most.n_left ? f.n_left : most.n_left;
        }
    return protected_of(draft, n, most);
}

wnw_protected wnw__draft_protected_head(const struct wnw__draft *draft, int32_t il, int32_t ih)
{
    return protected_of(draft, wnw__draft_entries(draft, il)[ih], first_of(draft, il, ih));
}

/* Where an earlier compression settled blocks, entries that the size cannot hold are kept, with a warning.
 * False if nothing was settled. */
static bool fit_settled(struct wnw__draft *draft)
{
    int32_t most = 0, most_n = 0;
    bool settled = false, thins = false;
    if (!wnw__policy_is_recursive(draft->policy))
        return false;
    for (int32_t i = 0; i < draft->cache.n_part; i++) {
        const int32_t il = draft->cache.il[i], n_settled = draft->src->layer(draft->src, il).n_settled;
        const wnw_blocks b = wnw__policy_blocks(draft->policy, n_settled);
        settled = settled || n_settled > 0;
        for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
            const int32_t n = wnw__draft_entries(draft, il)[ih];
            const int32_t least = wnw__blocks_least(&b, n);
            thins = thins || wnw__blocks_thinned(&b, n) > 0;
            most_n = least > most ? n : most_n;
            most = least > most ? least : most;
        }
    }
    if (settled && most > draft->size.budget && thins)
        wnw__warn(draft->report->warning,
                  "the size leaves %d entries per head, but %d of %d stay: what is settled, one of each "
                  "further block, "
                  "and the last blocks",
                  draft->size.budget, most, most_n);
    else if (settled && most > draft->size.budget)
        wnw__warn(draft->report->warning,
                  "the size leaves %d entries per head, but nothing can be thinned: all %d are settled or in "
                  "the last blocks",
                  draft->size.budget, most);
    return settled;
}

/* The length of a head that the size cannot leave one entry of each block; 0 if it can in all heads. */
static int32_t head_over_budget(const struct wnw__draft *draft)
{
    const wnw_blocks b = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, 0);
    for (int32_t i = 0; i < draft->cache.n_part; i++)
        for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
            const int32_t n = wnw__draft_entries(draft, draft->cache.il[i])[ih];
            if (n > draft->size.budget && wnw__blocks_least(&b, n) > draft->size.budget)
                return n;
        }
    return 0;
}

/* Makes the scorer's blocks *b smaller, so that n_keep of n entries hold some of each. false if it cannot. */
static bool shrink_blocks(struct wnw__draft *draft, int32_t n, int32_t n_keep, wnw_blocks *b)
{
    const wnw_block_rule *rule = draft->scorer->blocks;
    const wnw_blocks old = *b;
    if (!rule->fit || !rule->fit(draft->scorer_opts, n, n_keep))
        return false;
    *b = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, 0);
    return b->lag <= old.lag && b->sink <= old.sink && (b->lag < old.lag || b->sink < old.sink);
}

/* Shrinks the blocks of a recursive policy, if it may, until every block of every head keeps an entry. Where no
 * blocks are small enough, those that keep least exceed the size. */
static int fit_blocks(struct wnw__draft *draft)
{
    const char *name = wnw__policy_name(draft->policy);
    const wnw_blocks asked = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, 0);
    wnw_blocks b = asked;
    int32_t n;
    while ((n = head_over_budget(draft)) > 0) {
        if (!draft->size.may_shrink)
            return wnw__blocks_refuse(name, &b, n, draft->size.budget);
        if (shrink_blocks(draft, n, draft->size.budget, &b))
            continue;
        for (int32_t more = draft->size.budget + 1; more < n && !shrink_blocks(draft, n, more, &b);)
            more++;
        break;
    }
    WNW_TRY(wnw__blocks_check(name, &b));
    if (n > 0)
        wnw__warn(
            draft->report->warning,
            "the size leaves %d entries per head, but %s keeps %d of %d even with blocks of %d after the "
            "first %d",
            draft->size.budget, name, wnw__blocks_least(&b, n), n, b.lag, b.sink);
    else if (b.lag != asked.lag || b.sink != asked.sink)
        wnw__warn(
            draft->report->warning,
            "the size leaves %d entries per head, too few for blocks of %d after the first %d: %s's blocks "
            "shrink to %d after the first %d",
            draft->size.budget, asked.lag, asked.sink, name, b.lag, b.sink);
    return WNW_OK;
}

/* The protected entries of the longest head after shrinking to the size; *what names what shrank. */
static wnw_protected shrink(struct wnw__draft *draft, wnw_protected p, const char **what)
{
    const wnw_block_rule *rule = draft->scorer->blocks;
    const int32_t budget = draft->size.budget;
    const bool blocks = rule && rule->fit && rule->fit(draft->scorer_opts, draft->cache.n_max, budget);
    *what = p.n_last > 0 ? "window shrinks" : "sinks shrink";
    if (blocks)
        *what = "blocks shrink";
    if (wnw__policy_has(draft->policy, WNW_PART_SCORER, WNW_FLAG_SHRINKS))
        draft->size.room = budget;
    return blocks || draft->size.room > 0 ? wnw__draft_protected(draft, draft->cache.n_max)
                                          : wnw__protected_shrink(p, budget);
}

int wnw__draft_fit_protected(struct wnw__draft *draft)
{
    const wnw_protected p = wnw__draft_protected(draft, draft->cache.n_max);
    const int32_t need = p.n_first + p.n_last, budget = draft->size.budget;
    const bool makes_room = wnw__policy_has(draft->policy, WNW_PART_SCORER, WNW_FLAG_SHRINKS);
    const char *what;
    if (fit_settled(draft))
        return WNW_OK;
    if (wnw__policy_is_recursive(draft->policy))
        return fit_blocks(draft);
    if (need < budget || (need == budget && !makes_room))
        return WNW_OK;
    if (!draft->size.may_shrink)
        return wnw__fail(
            WNW_E_RANGE,
            "%s always keeps the first %d and the last %d of %d entries, but the size leaves %d per "
            "head; allow at least %d, give a ratio, or lower what the policy protects",
            wnw__policy_name(draft->policy), p.n_first, p.n_last, draft->cache.n_max, budget, need);
    const wnw_protected s = shrink(draft, p, &what);
    if (draft->scorer->blocks) {
        const wnw_blocks b = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, 0);
        WNW_TRY(wnw__blocks_check(wnw__policy_name(draft->policy), &b));
    }
    wnw__warn(draft->report->warning,
              "the size leaves %d entries per head and %s protects %d: its %s, to the first %d and the last "
              "%d",
              budget, wnw__policy_name(draft->policy), need, what, s.n_first, s.n_last);
    return WNW_OK;
}

/* The entries of a head that stay regardless of their score: those that are protected, or, of a recursive policy, what is
 * settled and the blocks that are not thinned yet. */
static wnw_protected protected_ends(const struct wnw__draft *draft, const struct wnw__scored_layer *l,
                                    int32_t ih)
{
    if (!wnw__policy_is_recursive(draft->policy))
        return draft->kept.prot[ih];
    const wnw_blocks b = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, l->n_settled);
    const int32_t n = l->n_entry[ih];
    return (wnw_protected){.n_first = b.sink, .n_last = n - b.sink - wnw__blocks_thinned(&b, n) * b.lag};
}

void wnw__draft_note_protected(struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
        const wnw_protected p = protected_ends(draft, l, ih);
        if (draft->kept.n_keep[ih] >= l->n_entry[ih])
            continue;
        draft->min_protected.n_first = !draft->drops || p.n_first < draft->min_protected.n_first
                                           ? p.n_first
                                           : draft->min_protected.n_first;
        draft->min_protected.n_last =
            !draft->drops || p.n_last < draft->min_protected.n_last ? p.n_last : draft->min_protected.n_last;
        draft->drops = true;
    }
}
