/* SPDX-License-Identifier: MIT */
/*
 * H2O: heavy hitters, the entries that received most attention of all queries so far, and the most recent ones.
 * Paper: "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models" (arXiv 2306.14048).
 *
 *     acc_h[j] = sum over the queries i since j was read, its own included, of a_h[i][j]
 *     score_h[j] = acc_h[j]; heads are put together afterwards, by their mean
 *     normalise: acc_h[j] / (S - j), the mean over the queries that can see j (kvpress' observed attention);
 *     without it early entries are favoured
 * Of a budget B the floor(share B) + recent most recent entries stay regardless of their score. The authors' code
 * splits B evenly, as the default does; the prefill-only form in PyramidKV's code keeps 8. Sums move with
 * their entries, so that the same score works while decoding: an evicted entry's sum is forgotten, and the
 * entries that stay keep theirs.
 * The paper's model has no groups of query heads. Observes attention sums. Range 0..S. Cost O(H_q n).
 */
#include "method/count.h"
#include "policy/part.h"

struct opts {
    struct wnw__recent_opts recent;
    int32_t normalise;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    out->n_last = wnw__recent_count(&((const struct opts *)opts)->recent, p->budget, 0);
}

static bool counts_age(const void *opts)
{
    return ((const struct opts *)opts)->normalise;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    (void)scratch;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t *pos = obs->pos + (int64_t)(h / group) * obs->n;
        const float *acc = obs->attn_sum + (int64_t)h * obs->n;
        float *out = score + (int64_t)h * obs->n;
        for (int32_t i = 0; i < obs->n_entry[h / group]; i++)
            out[i] = o->normalise ? acc[i] / (float)(obs->n_past - pos[i]) : acc[i];
    }
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTION_RECENT,
                                     WNW_OPTION_SHARE,
                                     {.name = "normalise",
                                      .help = "divide by the number of queries that could see the entry",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct opts, normalise)},
                                     {0}};

const wnw_scorer wnw__scorer_h2o = {
    .part = {WNW_SCORER_INIT, .name = "h2o",
             .about = "Attention received from all queries so far; a share of the budget for recent entries.",
             .paper = "H2O, arXiv 2306.14048",
             .details =
                 "`acc_h[j] = sum_i a_h[i][j]` over all queries `i` since entry `j` was read, then the "
                 "mean over the query heads of a KV head; `floor(share B) + recent` last entries of a "
                 "budget `B` always stay.\n\n"
                 "`normalise` divides by the number of queries that saw the entry, as kvpress' "
                 "observed attention does. The authors' code evicts while the prompt is processed "
                 "only in its simulation; here once at the end of a prompt, and while decoding with "
                 "`--evict-every`.\n\n"
                 "Cost O(n) per query head, besides the sums: every query's attention is added up.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs, .keep = keep},
    .score = score,
    .counts_age = counts_age,
};
