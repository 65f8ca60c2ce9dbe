/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states: a score for an entry from what its layer read of the token, x, the hidden state after the norm in
 * front of the attention. Papers: KVzap (arXiv 2601.07891), Fast KVzip (arXiv 2601.17668). Per layer and KV head j,
 *
 *     linear     score_j = w_j . x + b_j                                      KVzap; `winnow calibrate inputgate` makes it
 *     mlp        score_j = w_j . gelu(W1 x + b1) + b_j                        KVzap
 *     attention  score_j = mean over the group of 1 / (1 + sum_s exp(B_s . q_h / c - (k_j . q_h / c + b_h)))
 *                q_h, k_j: normed projections of x to c^2 numbers             Fast KVzip
 *
 * in place of the scores that a second reading gives: KVzap's predict the logarithm of KVzip+'s, Fast KVzip's KVzip's own, and
 * ours the logarithm of KVzip's.
 * All heads compare, so that `global` shares out a size and `threshold` makes the size follow the text. Gates are asked while
 * tokens are read and the cache keeps their answers, so that they work by chunk and while decoding. The chat header stays, or
 * where none is known the first `sinks` entries, and the last `recent` tokens, but no more than a `share` of all entries.
 * Heads that keep few entries on average have no room for many that stay regardless of their score: the last tokens give way
 * where they and the first would be more than `room` of what a head keeps. Observes the answers of gates. Cost O(n_embd) per
 * token and KV head while reading (linear), nothing here.
 */
#include "method/count.h"
#include "policy/part.h"
#include "winnow_calibrate.h"

#include <string.h>

struct opts {
    int32_t sinks, recent;
    double share, room;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_INPUT_GATE | WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_INPUTGATE;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    const int32_t most = (int32_t)(o->share * p->n);
    out->n_first = p->n_prefix > 0 ? p->n_here : o->sinks;
    out->n_last = wnw__last_in_room(p, o->room, out->n_first, o->recent < most ? o->recent : most);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    memcpy(score, obs->input_score, (size_t)obs->n_head_kv * (size_t)obs->n * sizeof *score);
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "sinks",
                                      .help = "first entries that always stay where no chat header is known",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 4,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "recent",
                                      .help = "last entries that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, recent),
                                      .def = 128,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "share",
                                      .help = "the most of a head's entries that `recent` may be",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, share),
                                      .def = 0.1,
                                      .min = 0,
                                      .max = 1},
                                     WNW_OPTION_ROOM(struct opts),
                                     {0}};

const wnw_scorer wnw__scorer_inputgate = {
    .part =
        {WNW_SCORER_INIT, .name = "inputgate",
         .about = "What a second reading would score, predicted from the hidden state that a layer reads of "
                  "a token.",
         .paper = "KVzap, arXiv 2601.07891; Fast KVzip, arXiv 2601.17668",
         .details =
             "A gate per KV head looks at the hidden state after the norm in front of the attention: a "
             "linear form or a "
             "layer of hidden units (KVzap), or a small attention with learned sinks (Fast KVzip). `winnow "
             "calibrate "
             "inputgate` makes linear ones, `winnow profile import --kind kvzap` and `--kind fastkvzip` read "
             "published "
             "ones.\n\n"
             "Gates are asked while tokens are read, and the cache keeps their answers with the entries. So "
             "the profile "
             "must be there before the prompt is read. `inputgate+global` shares out a size over the model, "
             "`inputgate+threshold:tau=-5` keeps what scores more.\n\n"
             "Deviations: the chat header stays. KVzap keeps the last 128 tokens; here they are at most a "
             "tenth of a "
             "head, so that a short prompt leaves a choice.\n\nCost: O(n_embd) per token and KV head while "
             "reading.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_SHRINKS | WNW_FLAG_SECOND_LOOK, .needs = needs, .keep = keep},
    .score = score,
};
