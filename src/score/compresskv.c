/* SPDX-License-Identifier: MIT */
/*
 * CompressKV: only the query heads that retrieve by meaning choose the tokens, one list for the whole layer.
 * Paper: "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation" (arXiv
 * 2508.02401). A calibration ranks the heads of every layer; with R_l the k best of layer l:
 *
 *     s_h[j] = mean over the window of a_h[i][j]                 j outside the window
 *     p_h    = pooled s_h (snapkv.c)
 *     score[j] = (1/k) sum over h in R_l of p_h[j]                the same row for every KV head
 * Pooled per head first, then averaged; no head is normalised. The window stays. The authors sum over the
 * window and round to half precision before that; the mean in float32 ranks the same and ties less. Heads of
 * one KV group may hold other entries than those of another after an earlier compression: scores are summed
 * by position. k = 0: the profile's k, else H_q / 8 rounded, halves up, at least 1 (4 of 32, as in the
 * paper). Observes window attention. Range 0..1. Cost O(k w n).
 */
#include "profile.h"
#include "score/window.h"

enum heads { HEADS_SRH, HEADS_TRADITIONAL, HEADS_ALL, HEADS_RANDOM };

struct opts {
    int32_t window;
    int32_t kernel;
    int32_t pool;
    int32_t k;
    int32_t heads;
    int32_t seed;
    int32_t n_recent; /* no option: protected entries + 1 where a small size shrank them; 0 = the window */
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("compresskv", o->kernel);
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
    if (o->heads == HEADS_SRH || o->heads == HEADS_TRADITIONAL) {
        out->flags |= WNW_NEED_PROFILE;
        out->profiles = 1u << WNW_PROFILE_SRH;
    }
}

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)n;
    out->n_last = o->n_recent > 0 ? o->n_recent - 1 : o->window;
}

/* Leaves at least one entry to choose. */
static bool shrink(void *opts, int32_t n, int32_t n_keep)
{
    struct opts *o = opts;
    (void)n;
    const wnw_protected p = wnw__protected_shrink((wnw_protected){.n_last = n_keep + 1}, n_keep);
    o->n_recent = (p.n_last < o->window ? p.n_last : o->window) + 1;
    return true;
}

/* Scores by position, then mean and pooled attention of one head. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_past + 2 * (size_t)obs->n;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Heads that a layer uses, one after the other. */
struct chosen {
    const int32_t *rank; /* NULL: by number */
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
    /* Each head with the chance of what is wanted among what is left: k distinct ones, no list needed. */
    while (next_random(&c->state) % (uint64_t)(c->n_head - c->at) >= (uint64_t)(c->k - c->taken))
        c->at++;
    c->taken++;
    return c->at++;
}

static int choose_heads(const struct opts *o, const wnw_observation *obs, struct chosen *c)
{
    const wnw_profile *p = obs->profile;
    const bool calibrated = o->heads == HEADS_SRH || o->heads == HEADS_TRADITIONAL;
    const int64_t row = (int64_t)obs->il * obs->n_head;
    const int32_t known = calibrated && p ? p->srh_k : 0;
    const int32_t k = o->k > 0 ? o->k : known > 0 ? known : (obs->n_head + 4) / 8;
    *c = (struct chosen){.k = k < 1 ? 1 : k < obs->n_head ? k : obs->n_head, .n_head = obs->n_head};
    if (o->heads == HEADS_ALL) {
        c->k = obs->n_head;
    } else if (o->heads == HEADS_RANDOM) {
        c->random = true;
        c->state = (uint64_t)(uint32_t)o->seed << 32 | (uint32_t)obs->il;
    } else {
        const int32_t *rank = !p ? NULL : o->heads == HEADS_SRH ? p->srh_rank : p->trad_rank;
        if (!rank || p->n_head != obs->n_head || p->n_layer != obs->n_layer)
            return wnw__fail(WNW_E_MISMATCH,
                             "compresskv needs %s retrieval heads of this model; the profile "
                             "has none",
                             o->heads == HEADS_SRH ? "semantic" : "traditional");
        c->rank = rank + row;
    }
    if (o->heads == HEADS_TRADITIONAL && p->trad_mean) {
        bool any = false;
        for (int32_t h = 0; h < obs->n_head; h++)
            any = any || p->trad_mean[row + h] > 0;
        if (!any) {
            wnw__log(WNW_LOG_INFO, "layer %d has no traditional retrieval head: all its heads choose",
                     obs->il);
            c->rank = NULL;
            c->k = obs->n_head;
        }
    }
    return WNW_OK;
}

/* Adds weight x the pooled window of head h to u[n_past]. */
static void add_head(const struct opts *o, const wnw_observation *obs, int32_t h, float weight, float *u,
                     float *s)
{
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), n = obs->n_entry[ih];
    const int32_t n_row = wnw__window_rows(obs, o->window), n_old = wnw__window_n_old(obs, ih, n_row);
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    const enum wnw__pool pool = (enum wnw__pool)o->pool;
    float *pooled = s + obs->n;
    for (int32_t i = 0; i < n; i++)
        pooled[i] = 0;
    wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, n, s);
    wnw__pool_add(pool, o->kernel, s, n_old, weight, pooled);
    wnw__pool_add(pool, o->kernel, s + n_old, n - n_old, weight, pooled + n_old);
    for (int32_t i = 0; i < n; i++)
        u[pos[i]] += pooled[i];
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    float *u = scratch, *s = u + obs->n_past;
    struct chosen c;
    WNW_TRY(choose_heads(o, obs, &c));
    for (int32_t j = 0; j < obs->n_past; j++)
        u[j] = 0;
    for (int32_t h; (h = next_head(&c)) >= 0;)
        add_head(o, obs, h, 1.0f / (float)c.k, u, s);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] = u[obs->pos[(int64_t)ih * obs->n + i]];
    return WNW_OK;
}

static const char *const heads[] = {"srh", "traditional", "all", "random", NULL};

static const wnw_option options[] = {
    {.name = "window",
     .help = "last prompt tokens whose queries are observed, and that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 8,
     .min = 1,
     .max = 4096},
    {.name = "kernel",
     .help = "width of the pooling along the positions, odd",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, kernel),
     .def = 5,
     .min = 1,
     .max = 1023},
    {.name = "pool",
     .help = "kind of pooling",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, pool),
     .def = WNW_POOL_AVG,
     .choices = wnw__pool_choices},
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
    {0}};

static const char details[] =
    "With R_l the k best heads of layer l: `score[j] = (1/k) sum over h in R_l of pool(mean over the window "
    "of a_h[i][j])`, one row for all KV heads of the layer. Pooling comes first, then the mean over the "
    "heads.\n\n"
    "The ranking comes from a profile of kind `srh`. `heads=all` is SnapKV with one list per layer, "
    "`heads=random` a control; both need no profile. A layer whose traditional scores are all zero uses all "
    "heads. Sums are in float32, where the released code rounds attention to half precision. A budget that "
    "leaves nothing beside the window shrinks the window, with a warning.\n\n"
    "Cost O(k w n).";

extern const struct wnw__scorer wnw__scorer_compresskv;
const struct wnw__scorer wnw__scorer_compresskv = {
    .pub = {.name = "compresskv",
            .about = "Attention of the last prompt queries in the calibrated retrieval heads, one list per "
                     "layer.",
            .paper = "CompressKV, arXiv 2508.02401",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs,
            .protect = protect,
            .scratch = scratch_size,
            .score = score,
            .details = details},
    .layout = "layer",
    .check = check,
    .shrink = shrink,
    .shrinks_for_budget = true,
    .like_attention = true,
};
