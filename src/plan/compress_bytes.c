/* SPDX-License-Identifier: MIT */
/*
 * Sizes in bytes count what is allocated. The size of a draft is a number of entries, and what these are allocated in depends on where they
 * are: heads grow in blocks, arenas in pages, and entries of a tail are larger than others. So a plan is measured and made again with more or
 * fewer entries until it is as large as was asked for.
 */
#include "plan/compress_impl.h"
#include "winnow.h"

enum { MOST_TRIES = 8 };
static const double enough = 0.99; /* of the bytes that were asked for */
static const double most_bytes = 1e18;

/* A plan with what it is allocated in. */
struct tried {
    wnw_plan *plan;
    wnw_report report;
    uint64_t size, allocated, entries; /* size: what was asked of the draft */
};

struct search {
    const struct wnw__plan_source *src;
    const wnw_policy *policy;
    uint64_t asked, low, high; /* sizes between which the best one lies; 0 = not known yet */
    uint64_t entry, all;       /* bytes of one entry in every head; entries of the cache */
    int32_t n_large;           /* plans that were too large */
    struct tried best;
};

static uint64_t entries_of(const wnw_plan *plan)
{
    const int32_t *unused;
    uint64_t n = 0;
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++)
            n += (uint64_t)wnw_plan_head(plan, il, ih, &unused);
    return n;
}

/* Counts what the source holds. */
static void count_source(struct search *s)
{
    const struct wnw__plan_source *src = s->src;
    for (int32_t il = 0; il < src->shape.n_layer; il++) {
        const struct wnw__plan_layer l = src->layer(src, il);
        for (int32_t ih = 0; ih < src->shape.n_head_kv; ih++)
            s->all += (uint64_t)l.n_entry[ih];
        if (wnw__layer_takes_part(&src->shape, il))
            s->entry += (uint64_t)src->shape.n_head_kv * src->entry_bytes.each;
    }
}

static bool fits(const struct search *s, const struct tried *t)
{
    return t->allocated <= s->asked;
}

static void narrow(struct search *s, const struct tried *t)
{
    if (fits(s, t) && t->size > s->low)
        s->low = t->size;
    if (!fits(s, t) && (s->high == 0 || t->size < s->high))
        s->high = t->size;
    s->n_large += fits(s, t) ? 0 : 1;
}

/* Takes a plan over: as the best, where it fits and has more entries than one that does, or where none fits and it misses by less; or
 * not at all. */
static void take(struct search *s, struct tried *t)
{
    const bool better =
        fits(s, &s->best) ? fits(s, t) && t->entries > s->best.entries : t->allocated < s->best.allocated;
    struct tried worse = better ? s->best : *t;
    s->best = better ? *t : s->best;
    s->best.report.observe_ms += worse.report.observe_ms;
    s->best.report.score_ms += worse.report.score_ms;
    s->best.report.select_ms += worse.report.select_ms;
    wnw_plan_free(worse.plan);
    *t = (struct tried){.size = t->size, .allocated = t->allocated, .entries = t->entries};
}

/* The size to try next: between those known, or in the proportion that the last one missed by, and by an entry of every head at
 * least. Fewer entries need not take fewer blocks and pages, so after a second plan that is too large sizes are halved. */
static uint64_t next_size(const struct search *s, const struct tried *last)
{
    if (s->high > 0 && (s->low > 0 || s->n_large > 1))
        return s->low + (s->high - s->low) / 2;
    const double missed = (double)last->size * (double)s->asked / (double)last->allocated;
    const uint64_t next = (uint64_t)(missed < most_bytes ? missed : most_bytes);
    if (fits(s, last))
        return next > last->size && next - last->size > s->entry ? next : last->size + s->entry;
    const uint64_t less = last->size > s->entry ? last->size - s->entry : 0;
    return next < less ? next : less;
}

/* Makes and measures a plan of a size. */
static int try_size(struct tried *t, const struct search *s, uint64_t size)
{
    const wnw_size bytes = {.kind = WNW_SIZE_BYTES, .bytes = size};
    *t = (struct tried){.size = size, .report = s->best.report};
    WNW_TRY(wnw__plan_again(&t->plan, s->policy, &bytes, s->src, &t->report));
    t->entries = entries_of(t->plan);
    const int rc = s->src->allocated(s->src, t->plan, &t->allocated);
    if (rc != WNW_OK)
        wnw_plan_free(t->plan);
    return rc;
}

/* Whether another size can give a better plan than the last ones. */
static bool goes_on(const struct search *s, const struct tried *last, uint64_t next)
{
    const uint64_t step = next > last->size ? next - last->size : last->size - next;
    const bool near = fits(s, &s->best) && (double)s->best.allocated >= enough * (double)s->asked;
    const bool whole = fits(s, &s->best) && s->best.entries == s->all;
    return last->allocated > 0 && !near && !whole && step >= s->entry && next >= s->entry;
}

static int search(struct search *s)
{
    struct tried last = s->best;
    for (int i = 0; i < MOST_TRIES; i++) {
        const uint64_t next = last.allocated > 0 ? next_size(s, &last) : 0;
        if (!goes_on(s, &last, next))
            break;
        const int rc = try_size(&last, s, next);
        if (rc == WNW_E_RANGE)
            break; /* so few entries are refused */
        WNW_TRY(rc);
        narrow(s, &last);
        take(s, &last);
    }
    return WNW_OK;
}

int wnw__plan_fit_bytes(wnw_plan **plan, const wnw_policy *policy, const wnw_size *size,
                        const struct wnw__plan_source *src, wnw_report *report)
{
    if (size->kind != WNW_SIZE_BYTES || !src->allocated || wnw_policy_is_full(policy) ||
        wnw_policy_needs(policy).flags & WNW_NEED_LOOKAHEAD)
        return WNW_OK;
    struct search s = {.src = src,
                       .policy = policy,
                       .asked = size->bytes,
                       .best = {.plan = *plan, .size = size->bytes, .entries = entries_of(*plan)}};
    if (report)
        s.best.report = *report;
    WNW_TRY(src->allocated(src, *plan, &s.best.allocated));
    count_source(&s);
    narrow(&s, &s.best);
    const int rc = search(&s);
    *plan = s.best.plan;
    if (report)
        *report = s.best.report;
    return rc;
}
