/* SPDX-License-Identifier: MIT */
/*
 * KVzip: an entry matters if it is attended to while the model repeats its context. Paper: "KVzip:
 * Query-Agnostic KV Cache Compression with Context Reconstruction" (arXiv 2505.23416).
 *
 *     S(h,c) = max over tokens t of the repeat input of p(h,t,c)
 *     S(j,c) = max over the query heads h of KV head j of S(h,c)
 *
 * The second pass feeds "repeat the previous context" and the text, chunk by chunk; p is softmaxed over the
 * chat header, the chunk being repeated and the repeat input, so that scores of all chunks can be compared.
 * The n_p tokens of the header, which the chat template wrote, are no part of the context:
 *     prefix=keep   all of them stay and count in the size (the authors)
 *     prefix=evict  only the first `sinks` take part in the softmax and stay; the others score 0 (kvpress)
 *     prefix=score  they are scored like any other text, and the first `sinks` tokens stay
 *
 * Where no header is known, keep and score are the same, and evict protects nothing.
 *     norm=output    S(h,c) = max over t of p(h,t,c) ||W_O^h v_c|| / ||x_t||, x_t: what the attention reads of t, the hidden
 *                    state after the norm. KVzip+ of KVzap (arXiv 2601.07891); W_O^h: the head's part of the output
 *                    projection
 *
 *     norm=gradient  S(h,c) = max over t of p(h,t,c) ||W_O^h v_c|| g(l), g(l): how much the last hidden states depend on layer l
 *                    (profile gradient). After KVgrad (openreview cg1wTCJjjk), which has the gradient of each token t in place
 *                    of g(l), by a backward pass
 *
 * Observes a second pass; with norm=output and gradient norms of projected values. Range 0..1, with these from 0 on. Cost: the
 * pass and O(H_q n).
 */
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <string.h>

enum norm { NORM_NONE, NORM_OUTPUT, NORM_GRADIENT };
enum prefix { PREFIX_KEEP, PREFIX_SCORE, PREFIX_EVICT };

struct opts {
    int32_t sinks;
    int32_t prefix;
    int32_t norm;
};

static uint32_t flags_of(const void *opts)
{
    return ((const struct opts *)opts)->norm == NORM_NONE ? WNW_FLAG_ATTENTION : 0;
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_REPEAT_ALL;
    if (o->prefix == PREFIX_KEEP)
        out->second_pass = WNW_PASS_REPEAT;
    else if (o->prefix == PREFIX_EVICT)
        out->second_pass = WNW_PASS_REPEAT_SINKS;
    if (o->norm != NORM_NONE)
        out->flags |= WNW_NEED_PROJ_NORM;
    if (o->norm == NORM_OUTPUT)
        out->second_pass |= WNW_PASS_BY_INPUT;
    if (o->norm == NORM_GRADIENT) {
        out->flags |= WNW_NEED_PROFILE;
        out->profiles = 1u << WNW_PROFILE_GRADIENT;
    }
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    out->n_first = o->sinks;
    if (o->prefix == PREFIX_KEEP && p->n_prefix > 0)
        out->n_first = p->n_here;
    if (o->prefix == PREFIX_EVICT && p->n_here < o->sinks)
        out->n_first = p->n_here;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const size_t n = (size_t)obs->n_head * (size_t)obs->n;
    (void)scratch;
    memcpy(score, obs->pass2_max, n * sizeof *score);
    if (o->norm == NORM_NONE)
        return WNW_OK;
    const double factor = o->norm == NORM_GRADIENT ? obs->profile->layer_gradient[obs->il] : 1;
    const float *norm = obs->head_proj_norm(obs, WNW_PROJ_L2);
    if (!norm)
        return WNW_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        score[i] = (float)((double)score[i] * (double)norm[i] * factor);
    return WNW_OK;
}

static const char *const norms[] = {"none", "output", "gradient", NULL};
static const char *const prefixes[] = {"keep", "score", "evict", NULL};

static const wnw_option options[] = {
    {.name = "sinks",
     .help = "first tokens that always stay; with prefix=keep where no chat header is known",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sinks),
     .def = 4,
     .min = 0,
     .max = 65536},
    {.name = "prefix",
     .help = "the chat header: stays whole, is scored like text, or goes first but for the sinks (kvpress)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, prefix),
     .def = PREFIX_KEEP,
     .choices = prefixes},
    {.name = "norm",
     .help = "output: attention weighs as much as the value moves the hidden state it is added to (KVzip+); "
             "gradient: as the value "
             "is long and the last hidden states depend on the layer (KVgrad)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, norm),
     .def = NORM_NONE,
     .choices = norms},
    {0}};

const wnw_scorer wnw__scorer_kvzip = {
    .part =
        {WNW_SCORER_INIT, .name = "kvzip",
         .about = "The highest attention an entry receives while the model repeats its context.",
         .paper = "KVzip, arXiv 2505.23416",
         .details =
             "`S(j,c) = max p(h,t,c)` over the query heads `h` of KV head `j` and all tokens `t` of the "
             "repeat "
             "input: an instruction to repeat, what ends the user's turn in the chat template, and a "
             "chunk "
             "of "
             "the text. The softmax runs over the chat header, the chunk that is repeated and the repeat "
             "input, so the scores of different chunks can be compared.\n\n"
             "The chat header, the `n_p` tokens that the template wrote before the text, is not repeated. "
             "`prefix=keep`, as the authors do: it stays whole in every head and counts in the size. "
             "`prefix=evict`, as kvpress does: `min(sinks,n_p)` of it stay, the others have score 0, and "
             "the "
             "softmax sees its first 4 tokens only. `prefix=score`: it is repeated and scored like text, "
             "and "
             "`sinks` first tokens stay. Where no header is known (`--raw`, no template), `keep` and "
             "`score` "
             "are the same, the softmax sees the first 4 tokens before the chunk, and `evict` protects "
             "nothing.\n\n"
             "Chunks have 2048 tokens as in kvpress; the authors take 2000, and a ratio of the context "
             "without its header.\n\n"
             "`norm=output` is KVzip+ (KVzap, arXiv 2601.07891): `max p(h,t,c) ||W_O^h v_c|| / ||x_t||`, by "
             "how much an "
             "entry moves the hidden state `x_t` of a repeated token, as the attention reads it, after the "
             "norm.\n\n"
             "`norm=gradient` is after KVgrad: `max p(h,t,c) ||W_O^h v_c|| g(l)`. The paper has the gradient "
             "of the squared "
             "lengths of all last hidden states by token `t` and layer, from a backward pass for each "
             "prompt. Here `g(l)` is one "
             "factor for a layer, measured once by `winnow calibrate gradient`, from differences of forward "
             "passes. So "
             "entries of one layer are ranked as without it, and the sizes of layers change.\n\n"
             "The pass costs about twice a prefill in matrix products; scoring `O(H_q n)`.",
         .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS,
         .flags_of = flags_of, .needs = needs, .keep = keep},
    .aggregation = "group_max",
    .score = score,
};
