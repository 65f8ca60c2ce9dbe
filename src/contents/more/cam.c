/* SPDX-License-Identifier: MIT */
/*
 * CaM: the value of an entry that goes is spread over the entries after it that stay, more likely the more
 * attention it had next to theirs. Paper: "CaM: Cache Merging for Memory-efficient LLMs Inference" (ICML 2024,
 * openreview LCTmppB165). For every entry e that goes, with T(e) the next m entries after it that stay:
 *
 *     p_e = min(1, A_e / mean of A over T(e)),   A = attention received so far, the group's mean
 *     b_e = 1 with probability p_e, else 0        draw=sample (the paper); b_e = p_e with draw=mean
 *     v_t <- v_t + b_e v_e / |T(e)|  for t in T(e),  keys stay
 *
 * The paper evicts one entry per step of decoding. Here all entries that one compression drops are merged, as
 * kvpress' CAMPress does when an interval passes, where only the best of them take part. A is the sum over
 * all queries since the entry was read (as in H2O); kvpress adds up decoded queries only. Draws depend on
 * seed, layer, head and position alone. Observes attention sums. Cost O(n_dropped m) per KV head, and m d per
 * merge when the plan is applied.
 */
#include "base/random.h"
#include "policy/part.h"

enum draw { DRAW_SAMPLE, DRAW_MEAN };

struct opts {
    int32_t targets;
    int32_t draw;
    int32_t seed;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM;
}

/* Attention received by entry i. */
static double attention(const wnw_contents_problem *p, int32_t i)
{
    const wnw_observation *obs = p->obs;
    const int32_t group = obs->n_head / obs->n_head_kv;
    double sum = 0;
    for (int32_t g = 0; g < group; g++)
        sum += (double)obs->attn_sum[(int64_t)(p->ih * group + g) * obs->n + i];
    return sum / group;
}

/* p_e of entry i, whose next entries that stay are keep[t .. t + m - 1], m > 0. */
static double chance(const wnw_contents_problem *p, int32_t i, int32_t t, int32_t m)
{
    double mean = 0;
    for (int32_t c = t; c < t + m; c++)
        mean += attention(p, p->keep[c]) / m;
    const double own = attention(p, i);
    if (own <= 0)
        return 0;
    if (own >= mean)
        return 1;
    return own / mean;
}

static int32_t merge(const void *opts, const wnw_contents_problem *p, wnw_merge *out, float *scratch)
{
    const struct opts *o = opts;
    const uint64_t stream = wnw__stream(o->seed, p->obs->il, p->ih);
    int32_t n_out = 0;
    (void)scratch;
    for (int32_t i = 0, t = 0; i < p->n; i++) {
        if (t < p->n_keep && p->keep[t] == i) {
            t++;
            continue;
        }
        const int32_t left = p->n_keep - t, m = left < o->targets ? left : o->targets;
        if (m == 0)
            break; /* nothing after it stays */
        const double chance_of = chance(p, i, t, m);
        const uint32_t at = (uint32_t)p->obs->pos[(int64_t)p->ih * p->obs->n + i];
        const bool drawn = (double)wnw__uniform(stream, at) < chance_of;
        const double b = o->draw == DRAW_MEAN ? chance_of : (double)drawn;
        if (b > 0)
            out[n_out++] = (wnw_merge){.from = i, .to = p->keep[t], .n_to = m, .weight = (float)(b / m)};
    }
    return n_out;
}

static const char *const draws[] = {"sample", "mean", NULL};

static const wnw_option options[] = {
    {.name = "targets",
     .help = "entries after it that take a value in",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, targets),
     .def = 32,
     .min = 1,
     .max = 4096},
    {.name = "draw",
     .help = "sample: merged or not, by chance (paper); mean: always, times the probability",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, draw),
     .def = DRAW_SAMPLE,
     .choices = draws},
    {.name = "seed",
     .help = "another seed, other draws",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, seed),
     .def = 0,
     .min = 0,
     .max = 2147483647},
    {0}};

const wnw_contents wnw__contents_cam = {
    .part = {WNW_CONTENTS_INIT, .name = "cam",
             .about = "The value of an entry that goes is spread over the next entries that stay, by chance.",
             .paper = "CaM, ICML 2024",
             .details = "With `T(e)` the next `targets` entries that stay: `p_e = min(1, A_e / mean A over "
                        "T(e))`, a draw "
                        "with "
                        "that probability, and if it is 1 `v_t <- v_t + v_e / |T(e)|` for all of `T(e)`. `A` "
                        "is what an "
                        "entry "
                        "received from all queries so far, the group's mean.\n\n"
                        "The paper evicts one entry per decoded token: `h2o+cam` with `--evict-every 1`. "
                        "Everything that "
                        "goes "
                        "at once is merged; kvpress' CAMPress, which works while decoding only, merges the "
                        "best of it and "
                        "adds "
                        "up decoded queries only. Draws depend on seed, layer, head and position alone, so a "
                        "plan is the "
                        "same "
                        "every time. Values are not divided again, as in the paper: a prompt of which most "
                        "goes at once "
                        "makes "
                        "values longer than any that were read, so prefer small steps. No bytes are saved "
                        "beyond what the "
                        "eviction saves.\n\nCost: O(n_dropped targets d) per KV head.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .merge = merge,
};
