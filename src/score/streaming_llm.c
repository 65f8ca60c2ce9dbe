/* SPDX-License-Identifier: MIT */
/*
 * StreamingLLM: the first tokens, which serve as attention sinks, and the most recent ones. Paper: "Efficient
 * Streaming Language Models with Attention Sinks" (arXiv 2309.17453), with 4 sinks. Keys keep the rotation of
 * their original position, as in kvpress; the authors' code re-rotates them (+rerotate). recent > 0 reverses
 * the roles, as a baseline in the code of CompressKV (arXiv 2508.02401) does: the last `recent` tokens stay
 * and the first ones fill the rest. Observes nothing; score = position; cost O(n).
 */
#include "policy/part.h"

struct opts {
    int32_t sinks;
    int32_t recent;
};

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->recent > 0 ? 0 : o->sinks;
    out->n_last = o->recent;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n; i++)
            score[(int64_t)ih * obs->n + i] = (float)(o->recent > 0 ? -i : i);
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "sinks",
                                      .help = "first tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 4,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "recent",
                                      .help = "> 0: keep this many recent tokens and fill up with first ones",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, recent),
                                      .def = 0,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

const wnw_scorer wnw__scorer_streaming_llm = {
    .part = {WNW_SCORER_INIT, .name = "streaming_llm",
             .about = "Attention sinks at the start and the most recent tokens.",
             .paper = "StreamingLLM, arXiv 2309.17453",
             .details = "`score[j] = j`: the first `sinks` entries stay as attention sinks, the most recent "
                        "ones fill the rest. `recent > 0` turns it round, as the baseline in CompressKV's "
                        "code does: the last `recent` stay and the first ones fill the rest.\n\nDeviation: "
                        "keys keep the rotation of their original position, as in kvpress; the authors' code "
                        "gives the kept ones new positions: add `+rerotate`.\n\nCost: O(n).",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_UNIFORM,
             .keep = keep},
    .score = score,
};
