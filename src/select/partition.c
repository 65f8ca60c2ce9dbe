/* SPDX-License-Identifier: MIT */
/*
 * LagKV's selection: after S protected sinks the entries form blocks of L. Of every block but the last
 * complete one the k best survive; the last complete block and the remainder stay whole. Paper: "LagKV:
 * Lag-Relative Information of the KV Cache Tells Which Tokens Are Important" (arXiv 2504.04704, eq. 12, 13).
 *
 *     N = floor((n - S) / L), m = (n - S) mod L       n < S + 2 L: everything stays
 *     kept = S + k (N - 1) + L + m
 * Without a size k = floor(retain L). With a size, k is the largest that fits, so up to N - 2 entries of the
 * size stay unused. k is never less than 1: without any entry of its blocks the method would be
 * StreamingLLM. Entries that an earlier compression settled stay for good: blocks begin after them, and
 * they, the last blocks and one entry of every other block stay even where the size cannot hold them.
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

struct opts {
    double retain;
};

static int32_t own_size(const void *opts, const wnw_blocks *b, int32_t n, wnw_rounding rounding)
{
    const struct opts *o = opts;
    const int32_t thinned = wnw__blocks_thinned(b, n), k = wnw__round_count(o->retain * b->lag, rounding);
    return n - thinned * (b->lag - (k > 1 ? k : 1));
}

/* The entries that every thinned block of n entries keeps where n_keep stay in all. */
static int32_t per_block(const wnw_blocks *b, int32_t n, int32_t n_keep)
{
    const int32_t thinned = wnw__blocks_thinned(b, n);
    const int32_t k = thinned > 0 ? (n_keep - (n - thinned * b->lag)) / thinned : b->lag;
    if (k < 1)
        return 1;
    if (k < b->lag)
        return k;
    return b->lag;
}

/* Sets retain for a whole number k of entries per block: (k + 0.5) / L, so that rounding down gives k. */
static void fit(void *opts, const wnw_blocks *b, int32_t n, int32_t n_keep)
{
    struct opts *o = opts;
    const int32_t k = per_block(b, n, n_keep);
    if (wnw__blocks_thinned(b, n) > 0)
        o->retain = k < b->lag ? (k + 0.5) / b->lag : 1;
}

/* The number of kept entries that are settled: those settled before, and the choice from thinned blocks. */
static int32_t settled(const void *opts, const wnw_blocks *b, int32_t n, int32_t n_keep)
{
    (void)opts;
    const int32_t thinned = wnw__blocks_thinned(b, n);
    if (n < b->sink || n_keep < wnw__blocks_least(b, n))
        return 0;
    return b->sink + thinned * per_block(b, n, n_keep);
}

static const wnw_recursive recursive = {.own_size = own_size, .fit = fit, .settled = settled};

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    (void)opts;
    (void)scratch;
    const wnw_blocks b = p->blocks;
    const int32_t thinned = wnw__blocks_thinned(&b, p->n), sink = b.sink < p->n ? b.sink : p->n;
    const int32_t k = per_block(&b, p->n, p->n_keep);
    int32_t m = 0;
    for (int32_t i = 0; i < sink; i++)
        keep[m++] = i;
    for (int32_t t = 0; t < thinned; t++) {
        const int32_t at = b.sink + t * b.lag;
        m += wnw__topk(p->score + at, b.lag, k, at, keep + m);
    }
    for (int32_t i = sink + thinned * b.lag; i < p->n; i++)
        keep[m++] = i;
    return m;
}

static const wnw_option options[] = {{.name = "retain",
                                      .help = "share of a block that survives, where no size is given",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, retain),
                                      .def = 0.5,
                                      .min = 1e-6,
                                      .max = 1},
                                     {0}};

const wnw_selector wnw__selector_partition = {
    .part = {WNW_SELECTOR_INIT, .name = "partition",
             .about = "The same number of best scores from every block of the scorer; sinks and the last "
                      "blocks stay.",
             .paper = "LagKV, arXiv 2504.04704",
             .details =
                 "With `N = floor((n - S) / L)` blocks and a remainder of `m` entries, the `k` best of"
                 " every block but the last complete one survive; that one and the remainder stay: `S "
                 "+ k (N - 1) + L + m` entries. Shorter than `S + 2 L`: everything stays.\n\nWithout a"
                 " size `k = floor(retain L)`. With one, `k` is the largest that fits, so up to `N - "
                 "2` entries of it stay unused. `k` is at least 1: a smaller budget is refused, and with a "
                 "ratio the "
                 "blocks are halved, down to 4, and then sinks given up, with a warning; where no blocks are "
                 "small "
                 "enough, those that keep least exceed the size, and the warning says by how much.\n\nWhat "
                 "an earlier compression settled is not "
                 "chosen among again; a size that cannot hold it is not reached, with a warning. When the "
                 "session "
                 "follows rules (`--evict`), `L` is never shortened and nothing happens before `S + 2 L` "
                 "entries; a size, with all tokens of all turns counted, gives the `k` of the blocks that a "
                 "turn adds, and a ratio R the `k = floor((1 - R) L)` of a block that decoding completes. A "
                 "full budget "
                 "grows by one entry for each further block.",
             .options = options, .options_size = sizeof(struct opts)},
    .recursive = &recursive,
    .select = select_entries,
    .by_block = true,
};
