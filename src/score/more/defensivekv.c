/* SPDX-License-Identifier: MIT */
/*
 * DefensiveKV: an entry that mattered once may matter again, so the worst case over window and group takes
 * the place of the mean, and value norms decide between the heads. Paper: "Taming the Fragility of KV Cache
 * Eviction in LLM Inference" (arXiv 2510.13334). For KV head j and an entry i older than the window of W:
 *
 *     m_i = max over group and window of the attention, each row pooled and scaled back to its mass;
 *     s_i = max(m_i, mean of m) nhat_i,   nhat_i = nu_i / (sum of nu over the heads that hold the same token);
 *     s_i = largest s of the layer for the c best entries by mean attention, which is normalised to 1;
 *     c   = number of best entries that together hold less than mass - wb of it, at most b - W;
 *     wb  = mean attention on the window,  b = average count per head
 *
 * The scores of a layer's heads then compete (adakv with alpha_safeguard=0), or those of all layers (global).
 * A token that some heads have lost already counts as if its norm there were the mean of the others.
 * as_code: the released code takes wb from the W entries before the window and bounds c by b (n - W) / n - W;
 * a negative bound, which there promotes nearly everything, is 0 here. Observes window attention and
 * projected value norms. Range >= 0. Cost O(H_q W n kernel).
 */
#include "base/topk.h"
#include "method/count.h"
#include "method/window.h"

struct opts {
    struct wnw__window_opts w; /* always average pooling */
    double mass;
    int32_t norm;
    int32_t as_code;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("defensivekv", o->w.kernel);
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_PROJ_NORM;
    out->window = o->w.window;
}

/* Scratch holds one row of attention, and the sum of norms and the number of heads per position. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n + 2 * (size_t)obs->n_past;
}

/* s[n_old] = max(m, mean of m) of KV head ih. The window's own entries are scored separately from the others, for
 * sizes that shrink the window. */
static void aggregate(const struct opts *o, const wnw_observation *obs, int32_t ih, int32_t n_old, float *p,
                      float *s)
{
    const int32_t group = obs->n_head / obs->n_head_kv, n = obs->n_entry[ih];
    for (int32_t i = 0; i < obs->n; i++)
        s[i] = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        for (int32_t w = obs->n_window - wnw__window_rows(obs, o->w.window); w < obs->n_window; w++) {
            const float *row = wnw__window_of(obs, h) + (int64_t)w * obs->n;
            wnw__pool_raise(WNW_POOL_AVG, o->w.kernel, row, n_old, p, s);
            wnw__pool_raise(WNW_POOL_AVG, o->w.kernel, row + n_old, n - n_old, p, s + n_old);
        }
    wnw__floor_at_mean(s, n_old);
    wnw__floor_at_mean(s + n_old, n - n_old);
}

/* Multiplies every score by its norm's share of the heads' norms of the same token. */
static void weigh(const wnw_observation *obs, const float *nu, float *score, float *room)
{
    float *sum = room, *count = room + obs->n_past;
    for (int32_t i = 0; i < obs->n_past; i++)
        sum[i] = count[i] = 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
            const int64_t at = (int64_t)ih * obs->n + i;
            sum[obs->pos[at]] += nu[at];
            count[obs->pos[at]]++;
        }
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
            const int64_t at = (int64_t)ih * obs->n + i;
            const float total = sum[obs->pos[at]] * (float)obs->n_head_kv / count[obs->pos[at]];
            score[at] *= total > 0 ? nu[at] / total : 0;
        }
}

/* Mean over heads and window of the attention on the window itself (wb). */
static double window_mass(const struct opts *o, const wnw_observation *obs)
{
    const int32_t group = obs->n_head / obs->n_head_kv, n_row = wnw__window_rows(obs, o->w.window);
    double sum = 0;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t n_old = wnw__window_n_old(obs, h / group, n_row);
        const int32_t end = o->as_code ? n_old : obs->n_entry[h / group];
        int32_t first = n_old;
        if (o->as_code)
            first = n_old > n_row ? n_old - n_row : 0;
        for (int32_t w = obs->n_window - n_row; w < obs->n_window; w++)
            for (int32_t i = first; i < end; i++)
                sum += wnw__window_of(obs, h)[(int64_t)w * obs->n + i];
    }
    return sum / ((double)obs->n_head * n_row);
}

/* Mean attention of KV head ih on its n_old older entries, normalised to 1. */
static void mean_attention(const struct opts *o, const wnw_observation *obs, int32_t ih, int32_t n_old,
                           float *a)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    double sum = 0;
    for (int32_t i = 0; i < n_old; i++)
        a[i] = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        for (int32_t w = obs->n_window - wnw__window_rows(obs, o->w.window); w < obs->n_window; w++)
            for (int32_t i = 0; i < n_old; i++)
                a[i] += wnw__window_of(obs, h)[(int64_t)w * obs->n + i];
    for (int32_t i = 0; i < n_old; i++)
        sum += a[i];
    for (int32_t i = 0; i < n_old && sum > 0; i++)
        a[i] = (float)(a[i] / sum);
}

/* The largest c, at most `limit`, for which the c largest of a[n] add up to less than mass. */
static int32_t count_below(const float *a, int32_t n, int32_t limit, double mass)
{
    int32_t lo = 0, hi = limit < n ? limit : n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo + 1) / 2;
        if (wnw__topk_sum(a, n, mid) < mass)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* The most entries of a head, outside the window, that attention alone may keep. */
static int32_t first_stage_limit(const struct opts *o, const wnw_observation *obs)
{
    const int32_t w = wnw__window_rows(obs, o->w.window);
    const double share = o->as_code && obs->n > w ? (double)(obs->n - w) / obs->n : 1;
    return wnw__round_count(obs->budget * share - w, WNW_ROUND_EXACT);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *a)
{
    const struct opts *o = opts;
    const int32_t n_row = wnw__window_rows(obs, o->w.window), limit = first_stage_limit(o, obs);
    const float *nu = obs->proj_norm(obs, (wnw_proj_norm)o->norm);
    float most = 0;
    if (!nu)
        return WNW_E_NOMEM; /* proj_norm has set the error text */
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        aggregate(o, obs, ih, wnw__window_n_old(obs, ih, n_row), a, score + (int64_t)ih * obs->n);
    weigh(obs, nu, score, a + obs->n);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *s = score + (int64_t)ih * obs->n;
        for (int32_t i = wnw__window_n_old(obs, ih, n_row) - 1; i >= 0; i--)
            most = s[i] > most ? s[i] : most;
    }
    const double mass = o->mass - window_mass(o, obs);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        const int32_t n_old = wnw__window_n_old(obs, ih, n_row);
        mean_attention(o, obs, ih, n_old, a);
        struct wnw__cut first = wnw__topk_cut(a, n_old, count_below(a, n_old, limit, mass));
        for (int32_t i = 0; i < n_old; i++)
            s[i] = wnw__cut_take(&first, a[i]) ? most : s[i];
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    WNW_OPTION_WINDOW(32),
    WNW_OPTION_KERNEL(5),
    {.name = "mass",
     .help = "attention, the window's included, that is kept before norms count",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, mass),
     .def = 0.9,
     .min = 0,
     .max = 1},
    WNW_OPTION_PROJ_NORM(struct opts),
    {.name = "as_code",
     .help = "the window's attention and the first bound as the released code computes them",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, as_code)},
    {0}};

const wnw_scorer wnw__scorer_defensivekv = {
    .part =
        {WNW_SCORER_INIT, .name = "defensivekv",
         .about = "Largest attention over window and group, times the value norm's share among the heads.",
         .paper = "DefensiveKV, arXiv 2510.13334",
         .details =
             "`m_i` = largest pooled attention over group and window, pooling keeping the mass of each "
             "row; "
             "`s_i = max(m_i, mean of m) nu_i / (sum of nu over the heads)`. The best entries of a head "
             "by "
             "mean attention that hold less than `mass` together with the window get the largest score of "
             "the layer, as many as surely fit. The heads then compete.\n\n"
             "Deviations: L2 in place of L1 norms; the window's attention is that of the window itself, "
             "where the released code sums the W columns before it (`as_code=1`).\n\n"
             "Cost: O(n w kernel) per query head besides the norms.",
         .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_MATCHES_HEADS,
         .check = check, .needs = needs, .keep = wnw__window_keep},
    .scratch = scratch_size,
    .score = score,
};
