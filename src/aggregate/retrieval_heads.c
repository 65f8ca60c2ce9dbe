/* SPDX-License-Identifier: MIT */
/*
 * The mean over the query heads that retrieve by meaning, one list of tokens for the whole layer. Paper:
 * "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation" (arXiv
 * 2508.02401). A calibration ranks the heads of every layer; with R_l the k best of layer l:
 *
 *     score[j] = (1/k) sum over h in R_l of s_h[j]                the same row for every KV head
 * No head is normalised. heads=traditional takes the ranking of "Retrieval Head Mechanistically Explains
 * Long-Context Factuality" (arXiv 2404.15574), in which most heads score 0. In a layer where all heads do,
 * zero=all counts all heads, and zero=rank the k first of the ranking, as the authors' code does; these are
 * arbitrary there. heads=all and heads=random need no profile. k = 0 means the profile's k, else H_q / 8
 * rounded, halves up, at least 1 (4 of 32, as in the paper). Tokens are matched by position. Cost O(k n);
 * scorers leave out the heads that do not count.
 */
#include "aggregate/aggregate.h"
#include "base/random.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

enum heads { HEADS_SRH, HEADS_TRADITIONAL, HEADS_ALL, HEADS_RANDOM };
enum zero { ZERO_ALL, ZERO_RANK };

struct opts {
    int32_t k;
    int32_t heads;
    int32_t seed;
    int32_t zero;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    if (o->heads == HEADS_SRH || o->heads == HEADS_TRADITIONAL) {
        out->flags |= WNW_NEED_PROFILE;
        out->profiles = 1u << WNW_PROFILE_SRH;
    }
}

/* Heads that a layer uses, one after the other. */
struct chosen {
    const int32_t *rank; /* heads, best first; NULL = heads in the order of their numbers */
    int32_t k, n_head;
    bool random;
    uint64_t state;
    int32_t at, taken;
};

static int32_t next_head(struct chosen *c)
{
    if (c->taken == c->k)
        return -1;
    if (c->rank)
        return c->rank[c->taken++];
    if (!c->random)
        return c->taken++;
    /* A head is taken with the probability (heads still wanted) / (heads still left), which gives k distinct
     * heads without a list. */
    while (wnw__mix_next(&c->state) % (uint64_t)(c->n_head - c->at) >= (uint64_t)(c->k - c->taken))
        c->at++;
    c->taken++;
    return c->at++;
}

/* The ranking of the layer's heads in the profile. */
static int ranked_heads(const struct opts *o, const wnw_observation *obs, const int32_t **rank)
{
    const wnw_profile *p = obs->profile;
    const int32_t *all = NULL;
    if (p)
        all = o->heads == HEADS_SRH ? p->srh_rank : p->trad_rank;
    if (!all || p->model.n_head != obs->n_head || p->model.n_layer != obs->n_layer)
        return wnw__fail(WNW_E_MISMATCH, "%s retrieval heads of this model are needed; the profile has none",
                         o->heads == HEADS_SRH ? "semantic" : "traditional");
    *rank = all + (int64_t)obs->il * obs->n_head;
    return WNW_OK;
}

/* Whether the profile says that no head of the layer ever copies: their order means nothing. */
static bool none_copies(const wnw_observation *obs)
{
    const float *mean = obs->profile->trad_mean;
    for (int32_t h = 0; mean && h < obs->n_head; h++)
        if (mean[(int64_t)obs->il * obs->n_head + h] > 0)
            return false;
    return mean != NULL;
}

/* Heads of a layer that choose: what the option says, else the profile, else an eighth. */
static int32_t n_chosen(const struct opts *o, const wnw_observation *obs)
{
    const bool calibrated = o->heads == HEADS_SRH || o->heads == HEADS_TRADITIONAL;
    const int32_t known = calibrated && obs->profile ? obs->profile->srh_k : 0;
    const int32_t usual = known > 0 ? known : (obs->n_head + 4) / 8, k = o->k > 0 ? o->k : usual;
    if (k < 1)
        return 1;
    if (k < obs->n_head)
        return k;
    return obs->n_head;
}

static int choose_heads(const struct opts *o, const wnw_observation *obs, struct chosen *c)
{
    const struct chosen every_head = {.k = obs->n_head, .n_head = obs->n_head};
    *c = every_head;
    if (o->heads == HEADS_ALL)
        return WNW_OK;
    c->k = n_chosen(o, obs);
    if (o->heads == HEADS_RANDOM) {
        c->random = true;
        c->state = (uint64_t)(uint32_t)o->seed << 32 | (uint32_t)obs->il;
        return WNW_OK;
    }
    WNW_TRY(ranked_heads(o, obs, &c->rank));
    if (o->heads == HEADS_TRADITIONAL && o->zero == ZERO_ALL && none_copies(obs)) {
        wnw__log(WNW_LOG_INFO, "layer %d has no traditional retrieval head: all its heads choose", obs->il);
        *c = every_head;
    }
    return WNW_OK;
}

static int choose(const void *opts, const wnw_observation *obs, bool *used)
{
    struct chosen c;
    WNW_TRY(choose_heads(opts, obs, &c));
    for (int32_t h = 0; h < obs->n_head; h++)
        used[h] = false;
    for (int32_t h; (h = next_head(&c)) >= 0;)
        used[h] = true;
    return WNW_OK;
}

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *by_pos)
{
    (void)opts;
    wnw__mean_by_position(obs, head_score, n_row, obs->query_head_used, by_pos);
    wnw__spread_by_position(obs, by_pos, score);
}

static const char *const heads[] = {"srh", "traditional", "all", "random", NULL};
static const char *const zeros[] = {"all", "rank", NULL};

static const wnw_option options[] = {
    {.name = "k",
     .help = "heads of a layer that choose; 0: the profile's number, or an eighth of the heads",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, k),
     .def = 0,
     .min = 0,
     .max = 4096},
    {.name = "heads",
     .help = "which: semantic or traditional retrieval heads of the profile, all, or random ones",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, heads),
     .def = HEADS_SRH,
     .choices = heads},
    {.name = "seed",
     .help = "of heads=random",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, seed),
     .def = 42,
     .min = 0,
     .max = 2147483647},
    {.name = "zero",
     .help =
         "where all traditional scores of a layer are 0: all its heads choose, or the first of the ranking",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, zero),
     .def = ZERO_ALL,
     .choices = zeros},
    {0}};

const wnw_aggregation wnw__aggregation_retrieval_heads = {
    .part =
        {WNW_AGGREGATION_INIT, .name = "retrieval_heads",
         .about = "Mean over the layer's calibrated retrieval heads: one list of tokens per layer.",
         .paper = "CompressKV, arXiv 2508.02401",
         .details =
             "With R_l the k best heads of layer l, `score = (1/k) sum over h in R_l of s_h`, one row for "
             "all KV "
             "heads of the layer. Heads are not normalised.\n\n"
             "The ranking comes from a profile of kind `srh`. `heads=traditional` takes its ranking of "
             "heads that "
             "copy (arXiv 2404.15574); a layer whose traditional scores are all zero uses all heads, or "
             "with "
             "`zero=rank` those that come first all the same, as the authors' code does. `heads=all` and "
             "`heads=random`, a control, need no profile.\n\n"
             "Cost O(k n). A scorer leaves out the heads that do not count, and where nobody else looks "
             "at the "
             "window's attention (`compresskv`, `snapkv`) it is computed for the k heads alone.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_MATCHES_HEADS | WNW_FLAG_QUERY_HEADS | WNW_FLAG_ONE_LIST, .needs = needs},
    .scratch = wnw__by_position_scratch,
    .choose = choose,
    .aggregate = aggregate,
};
