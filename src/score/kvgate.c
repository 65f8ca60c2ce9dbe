/* SPDX-License-Identifier: MIT */
/*
 * A gate: the score that a second reading would give an entry, predicted from what is cached. Gates like KVzap's
 * (arXiv 2601.07891) read the hidden state of a token; this one reads the entry's own key and value and four numbers
 * of methods that read once. With features f of entry c (gate_features.c) and a linear form per KV head from the
 * profile of kind gate,
 *
 *     score_c = w . f_c + b                 an estimate of log(Z_c + 1e-6), Z: KVzip's score (arXiv 2505.23416)
 *
 * The chat header stays, or where none is known the first 4 entries. Because all forms predict one number, scores of
 * different heads and layers compare: with `global` they share out a size, with `threshold` the size follows from the
 * text. It works by chunk and while decoding, as all that it reads is cached or gathered. Observes keys, values and
 * statistics of queries. Range: about -14..0. Cost O(n d^2) per query head.
 */
#include "kernel/kernel.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "score/score.h"
#include "winnow_calibrate.h"

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    wnw__gate_needs(out);
    out->flags |= WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_GATE;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)opts;
    out->n_first = p->n_prefix > 0 ? p->n_here : WNW_GATE_SINKS;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return wnw__gate_room_all(obs, wnw__gate_all(obs->n_embd_head));
}

struct layer {
    const wnw_observation *obs;
    float *score;
};

static void score_head(int32_t ih, const float *f, void *user)
{
    const struct layer *l = user;
    const wnw_observation *obs = l->obs;
    const struct wnw_profile *p = obs->profile;
    const int64_t head = (int64_t)obs->il * obs->n_head_kv + ih;
    const int32_t n_feature = p->n_gate_feature;
    const float *w = p->gate_weight + head * n_feature;
    float *score = l->score + (int64_t)ih * obs->n;
    wnw__dots(f, n_feature, w, 0, obs->n_entry[ih], n_feature, score);
    for (int32_t i = 0; i < obs->n_entry[ih]; i++)
        score[i] += p->gate_bias[head];
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *room)
{
    const struct wnw_profile *p = obs->profile;
    struct layer l = {.obs = obs, .score = score};
    (void)opts;
    if (!p || !p->gate_weight || !p->gate_bias)
        return wnw__fail(WNW_E_MISMATCH,
                         "kvgate: the profile has no gates; calibrate them with `winnow calibrate gate`");
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++)
        score[i] = 0;
    return wnw__gate_all_heads(obs, p->n_gate_feature, room, score_head, &l);
}

const wnw_scorer wnw__scorer_kvgate = {
    .part =
        {WNW_SCORER_INIT, .name = "kvgate",
         .about =
             "What KVzip's second reading would score, predicted from the cache by a calibrated linear form.",
         .paper = "after KVzap, arXiv 2601.07891, and KVzip, arXiv 2505.23416",
         .details =
             "`score = w . f + b`, an estimate of `log(Z + 1e-6)` with KVzip's score `Z`. `f`: the key "
             "before "
             "RoPE, the value, `log ||k||`, KeyDiff's score, the logarithm of expected attention (512 "
             "positions, mean over the group, times `||v||`), and that of the key's leverage. `w` and `b` of "
             "every KV head are a ridge regression over calibration texts: `winnow calibrate gate`.\n\n"
             "Scores of all heads compare: `kvgate+global` shares out a size over the model, "
             "`kvgate+threshold:tau=-5` keeps what scores more; the report of the calibration names "
             "thresholds. "
             "KVzap reads hidden states in place of keys and values, and predicts KVzip+.\n\n"
             "Cost: O(n d^2) per query head.",
         .flags = WNW_FLAG_SECOND_LOOK, .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
