/* SPDX-License-Identifier: MIT */
#include "method/window.h"

#include <string.h>

const char *const wnw__pool_choices[] = {"max", "avg", NULL};

int wnw__pool_check(const char *owner, int32_t kernel)
{
    if (kernel % 2 == 0)
        return wnw__fail(WNW_E_ARG, "%s: option kernel is %d; the pooling kernel must be odd", owner, kernel);
    return WNW_OK;
}

void wnw__window_needs(const void *opts, wnw_needs *out)
{
    const struct wnw__window_opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
}

void wnw__window_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct wnw__window_opts *o = opts;
    (void)p;
    out->n_last = o->window;
}

int32_t wnw__window_n_old(const wnw_observation *obs, int32_t ih, int32_t n_row)
{
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    int32_t n_old = obs->n_entry[ih];
    while (n_old > 0 && pos[n_old - 1] >= obs->n_past - n_row)
        n_old--;
    return n_old;
}

void wnw__window_mean(const float *a, int32_t n_window, int32_t n_row, int32_t stride, int32_t n, float *s)
{
    for (int32_t j = 0; j < n; j++)
        s[j] = 0;
    for (int32_t w = n_window - n_row; w < n_window; w++)
        for (int32_t j = 0; j < n; j++)
            s[j] += a[(int64_t)w * stride + j];
    for (int32_t j = 0; j < n; j++)
        s[j] /= (float)n_row;
}

void wnw__pool_add(enum wnw__pool pool, int32_t kernel, const float *s, int32_t n, float weight, float *out)
{
    const int32_t r = kernel / 2;
    for (int32_t j = 0; j < n; j++) {
        const int32_t lo = j < r ? 0 : j - r;
        const int32_t hi = j > n - 1 - r ? n - 1 : j + r;
        float p = s[lo];
        if (pool == WNW_POOL_MAX) {
            for (int32_t u = lo + 1; u <= hi; u++)
                p = s[u] > p ? s[u] : p;
        } else {
            for (int32_t u = lo + 1; u <= hi; u++)
                p += s[u];
            p /= (float)kernel;
        }
        out[j] += weight * p;
    }
}

void wnw__pool_raise(enum wnw__pool pool, int32_t kernel, const float *a, int32_t n, float *p, float *out)
{
    double mass = 0, sum = 0;
    for (int32_t j = 0; j < n; j++) {
        p[j] = 0;
        mass += a[j];
    }
    wnw__pool_add(pool, kernel, a, n, 1, p);
    for (int32_t j = 0; j < n; j++)
        sum += p[j];
    const float scale = sum > 0 ? (float)(mass / sum) : 0;
    for (int32_t j = 0; j < n; j++)
        out[j] = p[j] * scale > out[j] ? p[j] * scale : out[j];
}

void wnw__window_score(const wnw_observation *obs, int32_t h, int32_t window, enum wnw__pool pool,
                       int32_t kernel, float *s, float *out)
{
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), n = obs->n_entry[ih];
    const int32_t n_row = wnw__window_rows(obs, window), n_old = wnw__window_n_old(obs, ih, n_row);
    for (int32_t i = 0; i < obs->n; i++)
        out[i] = 0;
    wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, n, s);
    wnw__pool_add(pool, kernel, s, n_old, 1, out);
    wnw__pool_add(pool, kernel, s + n_old, n - n_old, 1, out + n_old);
}

void wnw__window_pool(const wnw_observation *obs, int32_t ih, const struct wnw__window_opts *o, float *row,
                      float *s)
{
    const int32_t n = obs->n_entry[ih];
    const int32_t n_old = wnw__window_n_old(obs, ih, wnw__window_rows(obs, o->window));
    memcpy(s, row, (size_t)n * sizeof *s);
    memset(row, 0, (size_t)n * sizeof *row);
    wnw__pool_add((enum wnw__pool)o->pool, o->kernel, s, n_old, 1, row);
    wnw__pool_add((enum wnw__pool)o->pool, o->kernel, s + n_old, n - n_old, 1, row + n_old);
}

void wnw__floor_at_mean(float *m, int32_t n)
{
    double sum = 0;
    for (int32_t j = 0; j < n; j++)
        sum += m[j];
    const float mean = n > 0 ? (float)(sum / n) : 0;
    for (int32_t j = 0; j < n; j++)
        m[j] = m[j] > mean ? m[j] : mean;
}
