/* SPDX-License-Identifier: MIT */
/*
 * Random: a floor that any method has to beat. The score is a number in [0, 1) that depends on seed, layer, KV head
 * and position alone. So the order of calls, threads and chunks does not matter, and an entry always has the same
 * score. kvpress draws from a generator in sequence; its choices cannot be reproduced. Observes nothing. Cost O(n).
 */
#include "base/random.h"
#include "policy/part.h"

struct opts {
    int32_t seed;
};

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const uint64_t stream = wnw__stream(o->seed, obs->il, ih);
        for (int32_t i = 0; i < obs->n; i++) {
            const int32_t pos = obs->pos[(int64_t)ih * obs->n + i];
            score[(int64_t)ih * obs->n + i] = wnw__uniform(stream, (uint32_t)pos);
        }
    }
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "seed",
                                      .help = "another seed, another choice",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, seed),
                                      .def = 0,
                                      .min = 0,
                                      .max = 2147483647},
                                     {0}};

const wnw_scorer wnw__scorer_random = {
    .part = {WNW_SCORER_INIT, .name = "random", .about = "Chance: the floor any method has to beat.",
             .details = "A number in [0, 1) from seed, layer, KV head and position. `O(n)`.",
             .options = options, .options_size = sizeof(struct opts)},
    .score = score,
};
