/* SPDX-License-Identifier: MIT */
/*
 * VATP: attention alone overrates entries whose values are nearly zero, so it is multiplied by the value's
 * L1 norm. Paper: "Attention Score is not All You Need for Token Importance Indicator in KV Cache Reduction:
 * Value Also Matters" (arXiv 2406.12335).
 *
 *     score[j] = A[j] ||v[j]||_1          A = mean over the query heads of the KV head of
 *     host=sum       the attention of all queries so far (H2O);
 *     host=window    the attention of the last `window` queries, divided by their number (the form of
 *                    Scissorhands in the paper: 400 queries)
 *
 * Attention sinks have values near zero: the first 20 entries always stay, and the most recent ones as in H2O
 * (floor(share B) + recent). The authors mask evicted entries and look at every decoding step; this is the
 * same score at the end of a prompt. Observes attention sums or window attention, and values. Range >= 0.
 * Cost O((H_q + H_kv d) n), with host=window O((H_q w + H_kv d) n).
 */
#include "method/count.h"
#include "method/window.h"

#include <math.h>
#include <string.h>

enum host { HOST_SUM, HOST_WINDOW };

struct opts {
    struct wnw__recent_opts recent;
    int32_t sinks;
    int32_t host;
    int32_t window;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_VALUES | (o->host == HOST_SUM ? WNW_NEED_ATTN_SUM : WNW_NEED_WINDOW_ATTN);
    out->window = o->host == HOST_SUM ? 0 : o->window;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    out->n_first = o->sinks;
    out->n_last = wnw__recent_count(&o->recent, p->budget, o->sinks);
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

/* norm[n] = ||v||_1 of every entry of KV head ih. */
static void value_norms(const wnw_observation *obs, int32_t ih, float *norm)
{
    const int32_t d = obs->n_embd_head;
    const float *v = obs->values(obs, ih); /* [n][d] */
    for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
        double sum = 0;
        for (int32_t c = 0; c < d; c++)
            sum += fabs((double)v[(int64_t)i * d + c]);
        norm[i] = (float)sum;
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *norm)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    const int32_t n_row = o->host == HOST_WINDOW ? wnw__window_rows(obs, o->window) : 0;
    for (int32_t h = 0; h < obs->n_head; h++) {
        float *out = score + (int64_t)h * obs->n;
        const int32_t ih = h / group, n = obs->n_entry[ih];
        if (h % group == 0)
            value_norms(obs, ih, norm);
        if (o->host == HOST_WINDOW)
            wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, n, out);
        else
            memcpy(out, obs->attn_sum + (int64_t)h * obs->n, (size_t)n * sizeof *out);
        for (int32_t i = 0; i < n; i++)
            out[i] *= norm[i];
    }
    return WNW_OK;
}

static const char *const hosts[] = {"sum", "window", NULL};

static const wnw_option options[] = {{.name = "sinks",
                                      .help = "first entries that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 20,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "host",
                                      .help = "attention of all queries so far, or mean over the last ones",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, host),
                                      .def = HOST_SUM,
                                      .choices = hosts},
                                     {.name = "window",
                                      .help = "host=window: last queries that are looked at",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, window),
                                      .def = 400,
                                      .min = 1,
                                      .max = 4096},
                                     WNW_OPTION_RECENT,
                                     WNW_OPTION_SHARE,
                                     {0}};

const wnw_scorer wnw__scorer_vatp = {
    .part = {WNW_SCORER_INIT, .name = "vatp",
             .about = "Attention received, times the L1 norm of the value; sinks and recent entries stay.",
             .paper = "VATP, arXiv 2406.12335",
             .details =
                 "`score[j] = A[j] ||v[j]||_1`, `A` = attention of all queries so far (`host=sum`) or "
                 "the mean over the last `window` (`host=window`), averaged over the query heads of a "
                 "KV head. The first `sinks` and `floor(share B) + recent` last entries always stay.\n\n"
                 "The authors' code weights the attention of each step and masks what it drops; the "
                 "sums are the same. Where the budget is too small for all that is protected, the "
                 "share of recent entries gives way to the sinks.\n\n"
                 "Cost O(n d) per KV head besides the attention.",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS,
             .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
