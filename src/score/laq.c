/* SPDX-License-Identifier: MIT */
/*
 * LAQ++: what the last queries of the prompt attend to, and those of tokens that are yet to come. Paper: "Lookahead
 * Q-Cache: Achieving More Consistent KV Cache Eviction via Pseudo Query" (arXiv 2505.20334). A copy of the cache is
 * compressed to the size by SnapKV and generates L tokens (session/planning/lookahead.c); their queries q look at the full cache:
 *
 *     b_h[t][j] = exp(q_ht . k_j / sqrt(d)) / sum over the entries i of exp(q_ht . k_i / sqrt(d))      t = 1 .. L
 *     s_h[j]    = (sum over the window's w rows of a_h[i][j] + sum over t of b_h[t][j]) / (w + L)
 *     score     = s_h pooled along the positions, as in SnapKV; mean over the query heads of a KV head
 * Generated tokens see only entries of the prompt here: their own are not kept. The window stays. Where the text ends
 * sooner, L is smaller; with none it is SnapKV with a window of w. Observes window attention, keys and tokens to come; the
 * window is 32 for the copy. Range 0..1. Cost: L decoded tokens, and O(H_q L n d).
 */
#include "kernel/kernel.h"
#include "method/window.h"

struct opts {
    struct wnw__window_opts w;
    int32_t tokens;
};

enum { COPY_WINDOW = 32 }; /* of the copy's SnapKV */

static int check(const void *opts)
{
    return wnw__pool_check("laq", ((const struct opts *)opts)->w.kernel);
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    wnw__window_needs(opts, out);
    out->window = out->window > COPY_WINDOW ? out->window : COPY_WINDOW;
    out->flags |= WNW_NEED_KEYS | WNW_NEED_LOOKAHEAD;
    out->lookahead = o->tokens;
}

/* Scratch holds the attention of a head's tokens to come, b[L][n], and their queries[L][d]. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    return (size_t)o->tokens * ((size_t)obs->n + (size_t)obs->n_embd_head) + (size_t)obs->n;
}

/* b[L][n] of query head h; keys[n][d] are those of its KV head. */
static void attend(const wnw_observation *obs, int32_t h, const float *keys, float *query, float *b)
{
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), n = obs->n_entry[ih], d = obs->n_embd_head;
    for (int32_t t = 0; t < obs->n_lookahead; t++)
        for (int32_t c = 0; c < d; c++)
            query[(int64_t)t * d + c] = obs->lookahead_queries[((int64_t)t * obs->n_head + h) * d + c];
    wnw__mul_nt(query, obs->n_lookahead, keys, n, d, obs->attn_scale, b, obs->n);
    for (int32_t t = 0; n > 0 && t < obs->n_lookahead; t++)
        wnw__softmax(b + (int64_t)t * obs->n, n);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *b)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, n_row = wnw__window_rows(obs, o->w.window),
                  n_new = obs->n_lookahead;
    float *query = b + (int64_t)o->tokens * obs->n, *s = query + (int64_t)o->tokens * obs->n_embd_head;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *keys = n_new > 0 ? obs->keys(obs, ih) : NULL;
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            float *out = score + (int64_t)h * obs->n;
            if (!wnw__query_head_used(obs, h))
                continue;
            if (n_new > 0)
                attend(obs, h, keys, query, b);
            for (int32_t j = 0; j < obs->n; j++)
                out[j] = 0;
            wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, obs->n_entry[ih], out);
            for (int32_t j = 0; n_new > 0 && j < obs->n_entry[ih]; j++) {
                float sum = out[j] * (float)n_row;
                for (int32_t t = 0; t < n_new; t++)
                    sum += b[(int64_t)t * obs->n + j];
                out[j] = sum / (float)(n_row + n_new);
            }
            wnw__window_pool(obs, ih, &o->w, out, s);
        }
    }
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTION_WINDOW(8),
                                     WNW_OPTION_KERNEL(7),
                                     WNW_OPTION_POOL(WNW_POOL_MAX),
                                     {.name = "tokens",
                                      .help = "tokens that the copy generates, at most",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, tokens),
                                      .def = 8,
                                      .min = 1,
                                      .max = 1024},
                                     {0}};

const wnw_scorer wnw__scorer_laq = {
    .part = {WNW_SCORER_INIT, .name = "laq",
             .about = "Attention of the last prompt queries, and of tokens that a compressed copy generates.",
             .paper = "LAQ++, arXiv 2505.20334",
             .details =
                 "A copy of the cache is compressed to the size by SnapKV (window 32) and generates `tokens` "
                 "tokens, most "
                 "likely first; it is dropped and their queries are kept. `s_h[j]` is the mean of the full "
                 "cache's attention "
                 "over the last `window` queries of the prompt and these, pooled along the positions as in "
                 "SnapKV. The "
                 "window stays; the generated tokens do not.\n\n"
                 "Where the answer ends sooner there are fewer tokens; where none is left it is SnapKV with "
                 "a window of "
                 "`window`. A prompt that is compressed in front of its question is continued as a text.\n\n"
                 "Deviation: a generated token's softmax is over the entries of the prompt alone.\n\n"
                 "Cost: `tokens` decoded tokens, a copy of the cache while they are generated, and O(H_q "
                 "tokens n d).",
             .options = options, .options_size = sizeof(struct opts),
             .flags =
                 WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION | WNW_FLAG_PROMPT_ONLY | WNW_FLAG_WINDOW_BY_HEAD,
             .check = check, .needs = needs, .keep = wnw__window_keep},
    .scratch = scratch_size,
    .score = score,
};
