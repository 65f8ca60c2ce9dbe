/* SPDX-License-Identifier: MIT */
/*
 * ggml adds up the squares of a row one after the other, as doubles, and each addition waits for the one before. The order is kept,
 * since another one rounds otherwise. Several rows are added up side by side.
 */
#include "forward/norm.h"

#include "base/tensor_row.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4 };

/* 1 / sqrt(mean of squares + eps) as ggml rounds it. */
static float factor_of(double sum, int64_t n, float eps)
{
    const float mean = (float)(sum / (double)n);
    return 1.0f / sqrtf(mean + eps);
}

static void sum_one(const float *x, int64_t n, double *sum)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++)
        s += (double)(x[i] * x[i]);
    *sum = s;
}

static void sum_rows(const float *const x[ROWS], int64_t n, double sum[ROWS])
{
    const float *a = x[0], *b = x[1], *c = x[2], *d = x[3];
    double s = 0.0, t = 0.0, u = 0.0, v = 0.0;
    for (int64_t i = 0; i < n; i++) {
        s += (double)(a[i] * a[i]);
        t += (double)(b[i] * b[i]);
        u += (double)(c[i] * c[i]);
        v += (double)(d[i] * d[i]);
    }
    sum[0] = s;
    sum[1] = t;
    sum[2] = u;
    sum[3] = v;
}

/* y may be x; a loop of its own lets the compiler take several numbers at a time there, too. */
static void scale_row(const float *x, float factor, const float *w, int64_t n, float *y)
{
    if (x == y)
        for (int64_t i = 0; i < n; i++)
            y[i] = y[i] * factor * w[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * factor * w[i];
}

static void norm_node(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct ggml_tensor *x = dst->src[0];
    const float *w = dst->src[1]->data;
    const int64_t n = x->ne[0], rows = ggml_nrows(x), end = rows * (ith + 1) / nth;
    float eps;
    memcpy(&eps, user, sizeof eps);
    for (int64_t r = rows * ith / nth; r < end;) {
        const int n_now = end - r < ROWS ? 1 : ROWS;
        const float *from[ROWS];
        double sum[ROWS];
        for (int i = 0; i < n_now; i++)
            from[i] = (const float *)(const void *)wnw__tensor_row(x, r + i);
        if (n_now == 1)
            sum_one(from[0], n, sum);
        else
            sum_rows(from, n, sum);
        for (int i = 0; i < n_now; i++, r++)
            scale_row(from[i], factor_of(sum[i], n, eps), w, n, (float *)(void *)wnw__tensor_row(dst, r));
    }
}

struct ggml_tensor *wnw__norm_node(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *w,
                                   const void *eps)
{
    struct ggml_tensor *args[] = {x, w};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, x->ne[0], x->ne[1], x->ne[2], x->ne[3], args, 2, norm_node,
                          GGML_N_TASKS_MAX, (void *)(uintptr_t)eps);
}
