/* SPDX-License-Identifier: MIT */
/*
 * KVzip: an entry matters if it is attended to while the model repeats its context. Paper: "KVzip:
 * Query-Agnostic KV Cache Compression with Context Reconstruction" (arXiv 2505.23416).
 *
 *     S(h,c) = max over tokens t of the repeat input of p(h,t,c);   S(j,c) = max over the query heads of KV
 * head j The second pass feeds "repeat the previous context" and the text, chunk by chunk; p is softmaxed
 * over the sinks, the chunk being repeated and the repeat input, so that scores of all chunks can be
 * compared. The authors keep the whole chat header in front of the context; kvpress protects its first 4
 * tokens and gives the rest of it score 0, and protects nothing where there is no template. Here `sinks`
 * first tokens stay and whatever follows is scored. Observes a second pass. Range 0..1. Cost O(H_q n) besides
 * the pass.
 */
#include "method.h"

#include <string.h>

struct opts {
    int32_t sinks;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_REPEAT;
}

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)n;
    out->n_first = o->sinks;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    memcpy(score, obs->pass2_max, (size_t)obs->n_head * (size_t)obs->n * sizeof *score);
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "sinks",
                                      .help = "first tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 4,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

extern const struct wnw__scorer wnw__scorer_kvzip;
const struct wnw__scorer wnw__scorer_kvzip = {
    .pub =
        {.name = "kvzip",
         .about = "The highest attention an entry receives while the model repeats its context.",
         .paper = "KVzip, arXiv 2505.23416",
         .options = options,
         .options_size = sizeof(struct opts),
         .needs = needs,
         .protect = protect,
         .score = score,
         .per_query_head = true,
         .details =
             "`S(j,c) = max p(h,t,c)` over the query heads `h` of KV head `j` and all tokens `t` of the "
             "repeat "
             "input, its instruction included. The softmax runs over the sinks, the chunk that is repeated "
             "and the repeat input, so the scores of different chunks can be compared.\n\n"
             "The authors keep the whole chat header before the context. kvpress protects the first 4 tokens "
             "of that header, gives the others score 0 and protects nothing where there is no template. Here "
             "`sinks` first tokens stay and everything behind them is scored.\n\n"
             "The pass costs about twice a prefill in matrix products; scoring `O(H_q n)`."},
    .layout = "composite",
    .aggregation = "group_max",
    .like_attention = true,
};
