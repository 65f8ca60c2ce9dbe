/* SPDX-License-Identifier: MIT */
/* Scorers that read the window's attention share this code: it reduces the rows of one head and pools along
 * the positions. */
#ifndef WNW_WINDOW_H
#define WNW_WINDOW_H

#include "policy/part.h"

enum wnw__pool { WNW_POOL_MAX, WNW_POOL_AVG };
extern const char *const wnw__pool_choices[]; /* for an option table */

/* E_ARG in the name of `owner` unless kernel is odd: an even one would shift the positions. */
int wnw__pool_check(const char *owner, int32_t kernel);

/* The options of every scorer that pools a window's attention. Its options struct begins with this one, and
 * its option table has the rows below. */
struct wnw__window_opts {
    int32_t window, kernel, pool;
};
#define WNW_OPTION_WINDOW(usual)                                                                            \
    {                                                                                                       \
        .name = "window", .help = "last prompt tokens whose queries are observed, and that always stay",    \
        .type = WNW_OPT_INT, .offset = offsetof(struct wnw__window_opts, window), .def = (usual), .min = 1, \
        .max = 4096                                                                                         \
    }
#define WNW_OPTION_KERNEL(usual)                                                                        \
    {                                                                                                   \
        .name = "kernel", .help = "width of the pooling along the positions, odd", .type = WNW_OPT_INT, \
        .offset = offsetof(struct wnw__window_opts, kernel), .def = (usual), .min = 1, .max = 1023      \
    }
#define WNW_OPTION_POOL(usual)                                                                          \
    {                                                                                                   \
        .name = "pool", .help = "kind of pooling", .type = WNW_OPT_ENUM,                                \
        .offset = offsetof(struct wnw__window_opts, pool), .def = (usual), .choices = wnw__pool_choices \
    }
/* Hooks for options that begin with wnw__window_opts: the window is observed, and its entries stay. */
void wnw__window_needs(const void *opts, wnw_needs *out);
void wnw__window_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out);

/* Number of last rows of the observed window that a scorer with this window reads. The observed window is
 * longer if another policy asked for more, and shorter if the prompt is. */
static inline int32_t wnw__window_rows(const wnw_observation *obs, int32_t window)
{
    return window < obs->n_window ? window : obs->n_window;
}

/* Attention of query head h: [obs->n_window][obs->n]. */
static inline const float *wnw__window_of(const wnw_observation *obs, int32_t h)
{
    return obs->window_attn + (int64_t)h * obs->n_window * obs->n;
}

/* Whether the score of query head h is used at all. */
static inline bool wnw__query_head_used(const wnw_observation *obs, int32_t h)
{
    return !obs->query_head_used || obs->query_head_used[h];
}

/* Number of entries of KV head ih that are older than the last n_row tokens. */
int32_t wnw__window_n_old(const wnw_observation *obs, int32_t ih, int32_t n_row);

/* s[n] = mean of the last n_row rows of a[n_window][stride]. */
void wnw__window_mean(const float *a, int32_t n_window, int32_t n_row, int32_t stride, int32_t n, float *s);

/* Adds weight x pooled s[n] to out[n]; kernel is odd.
 *     avg:  (1 / kernel) sum s[j+u], |u| <= kernel / 2; missing terms are 0, the divisor stays
 *     max:  max s[j+u] */
void wnw__pool_add(enum wnw__pool pool, int32_t kernel, const float *s, int32_t n, float weight, float *out);

/* out[n] = mean of the last `window` rows of query head h, pooled. The window's own columns are pooled separately
 * from the others, so that no column takes a value from the other side. s[n] is scratch. */
void wnw__window_score(const wnw_observation *obs, int32_t h, int32_t window, enum wnw__pool pool,
                       int32_t kernel, float *s, float *out);

/* Pools one row of KV head ih in place, the window's own columns separately from the others. s[n] is scratch. */
void wnw__window_pool(const wnw_observation *obs, int32_t ih, const struct wnw__window_opts *o, float *row,
                      float *s);

/* DefensiveKV's pooling: out[j] = max(out[j], p[j]) with p = a[n] pooled and scaled so that its sum is that
 * of a. p[n] is scratch. */
void wnw__pool_raise(enum wnw__pool pool, int32_t kernel, const float *a, int32_t n, float *p, float *out);

/* DefensiveKV's prior: m[j] = max(m[j], mean of m[n]). */
void wnw__floor_at_mean(float *m, int32_t n);

#endif
