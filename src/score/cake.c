/* SPDX-License-Identifier: MIT */
/*
 * CAKE's indicator: an entry matters if the last queries look at it, or look at it now and then. Paper:
 * "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences" (arXiv 2503.12491).
 *
 *     I_h[j] = mean_i a_h[i][j] + gamma Var_i a_h[i][j]     i in the last w queries, divisor w - 1;
 *     score[j] = mean over the query heads of the KV head of avgpool5(I_h)[j]
 *
 * Softmax is over everything visible; the window's own columns are left out of the pooling and stay. As in
 * SnapKV they get scores of their own, which matter only where a small size shrinks the window. The authors
 * use w = 32, CompressKV's comparison (arXiv 2508.02401) w = 8. The layers' counts come from the layer budget
 * cake_layers. Observes window attention. Range >= 0. Cost O(H_q w n).
 */
#include "method/window.h"

enum { KERNEL = 5 };

struct opts {
    int32_t window;
    double gamma;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_last = o->window;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

/* s[n] holds the means of the last n_row rows of a[n_window][stride]; adds gamma x their variance. */
static void add_variance(const float *a, int32_t n_window, int32_t n_row, int32_t stride, int32_t n,
                         double gamma, float *s)
{
    if (n_row < 2)
        return;
    for (int32_t j = 0; j < n; j++) {
        double sum = 0;
        for (int32_t w = n_window - n_row; w < n_window; w++) {
            const double dev = (double)a[(int64_t)w * stride + j] - (double)s[j];
            sum += dev * dev;
        }
        s[j] += (float)(gamma * sum / (n_row - 1));
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, n_row = wnw__window_rows(obs, o->window);
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t n = obs->n_entry[h / group], n_old = wnw__window_n_old(obs, h / group, n_row);
        const float *a = wnw__window_of(obs, h);
        float *out = score + (int64_t)h * obs->n;
        if (!wnw__query_head_used(obs, h))
            continue;
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        wnw__window_mean(a, obs->n_window, n_row, obs->n, n, s);
        add_variance(a, obs->n_window, n_row, obs->n, n, o->gamma, s);
        wnw__pool_add(WNW_POOL_AVG, KERNEL, s, n_old, 1, out);
        wnw__pool_add(WNW_POOL_AVG, KERNEL, s + n_old, n - n_old, 1, out + n_old);
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "window",
     .help = "last prompt tokens whose queries are observed, and that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 32,
     .min = 2,
     .max = 4096},
    {.name = "gamma",
     .help = "weight of the variance over the window",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, gamma),
     .def = 200,
     .min = 0,
     .max = 1e6},
    {0}};

const wnw_scorer wnw__scorer_cake = {
    .part = {WNW_SCORER_INIT, .name = "cake",
             .about = "Mean and variance of the last prompt queries' attention, pooled along the positions.",
             .paper = "CAKE, arXiv 2503.12491",
             .details = "`I_h[j] = mean_i a_h[i][j] + gamma Var_i a_h[i][j]` over the last `w` queries "
                        "(divisor `w - 1`), average pooling of width 5, mean over the query heads of a KV "
                        "head; the window always stays.\n\n"
                        "Cost O(w n) per query head.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
