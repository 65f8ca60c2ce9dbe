/* SPDX-License-Identifier: MIT */
#include "calibrate/moments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int wnw__moments_new(struct wnw__moments *m, int32_t n_row, int32_t d)
{
    *m = (struct wnw__moments){.n_row = n_row, .d = d};
    m->mean = calloc((size_t)n_row * (size_t)d, sizeof *m->mean);
    m->cov = calloc((size_t)n_row * wnw__triangle(d), sizeof *m->cov);
    if (m->mean && m->cov)
        return WNW_OK;
    wnw__moments_free(m);
    return wnw__fail(WNW_E_NOMEM, "no memory for the covariances of %d heads", (int)n_row);
}

void wnw__moments_free(struct wnw__moments *m)
{
    free(m->mean);
    free(m->cov);
    *m = (struct wnw__moments){0};
}

void wnw__moments_reset(struct wnw__moments *m)
{
    m->n = 0;
    memset(m->mean, 0, (size_t)m->n_row * (size_t)m->d * sizeof *m->mean);
    memset(m->cov, 0, (size_t)m->n_row * wnw__triangle(m->d) * sizeof *m->cov);
}

/* The pairwise update of Chan, Golub and LeVeque (1983). */
void wnw__moments_merge(struct wnw__moments *m, int32_t i, int64_t more, const double *mean,
                        const double *cov)
{
    const double before = (double)m->n, after = before + (double)more, share = (double)more / after;
    double *own = m->mean + (int64_t)i * m->d, *to = m->cov + (size_t)i * wnw__triangle(m->d);
    for (int32_t a = 0; a < m->d; a++)
        for (int32_t b = 0; b <= a; b++, to++, cov++) {
            const double between = (mean[a] - own[a]) * (mean[b] - own[b]);
            *to += share * (*cov - *to + (before / after) * between);
        }
    for (int32_t c = 0; c < m->d; c++)
        own[c] += share * (mean[c] - own[c]);
}

void wnw__moments_of(const float *x, size_t stride, int32_t n, int32_t d, double *mean, double *cov)
{
    memset(mean, 0, (size_t)d * sizeof *mean);
    memset(cov, 0, wnw__triangle(d) * sizeof *cov);
    for (int32_t k = 0; k < n; k++)
        for (int32_t c = 0; c < d; c++)
            mean[c] += (double)x[(size_t)k * stride + (size_t)c] / n;
    for (int32_t k = 0; k < n; k++) {
        const float *v = x + (size_t)k * stride;
        double *to = cov;
        for (int32_t a = 0; a < d; a++) {
            const double f = ((double)v[a] - mean[a]) / n;
            for (int32_t b = 0; b <= a; b++)
                *to++ += f * ((double)v[b] - mean[b]);
        }
    }
}

/* out = a a of a symmetric a[d][d], divided by its trace. Returns false if a is 0. */
static bool square(const double *a, int32_t d, double *out)
{
    double trace = 0;
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j < d; j++)
            trace += a[i * d + j] * a[i * d + j];
    if (!(trace > 0))
        return false;
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int32_t k = 0; k < d; k++)
                sum += a[i * d + k] * a[j * d + k];
            out[i * d + j] = out[j * d + i] = sum / trace;
        }
    return true;
}

/* Repeated squaring leaves of a positive matrix the projection on its first eigenvector: after 40 squarings
 * an eigenvalue that is smaller by a millionth of a millionth has lost two thirds of its share. The column of
 * the largest diagonal element is that vector. */
static void first_eigenvector(double *a, double *room, int32_t d, double *out)
{
    enum { SQUARINGS = 40 };
    double *from = a, *to = room, norm = 0;
    for (int s = 0; s < SQUARINGS && square(from, d, to); s++) {
        double *swap = from;
        from = to;
        to = swap;
    }
    int32_t best = 0;
    for (int32_t i = 1; i < d; i++)
        best = from[i * d + i] > from[best * d + best] ? i : best;
    for (int32_t c = 0; c < d; c++)
        norm += from[best * d + c] * from[best * d + c];
    for (int32_t c = 0; c < d; c++)
        out[c] = norm > 0 ? from[best * d + c] / sqrt(norm) : 0;
}

double wnw__moments_direction(const struct wnw__moments *m, int32_t i, double *out, double *room)
{
    const int32_t d = m->d;
    const double *mean = m->mean + (int64_t)i * d, *cov = m->cov + (size_t)i * wnw__triangle(d);
    double trace = 0, along = 0, middle = 0;
    for (int32_t a = 0; a < d; a++)
        for (int32_t b = 0; b <= a; b++, cov++)
            room[a * d + b] = room[b * d + a] = *cov + mean[a] * mean[b];
    for (int32_t c = 0; c < d; c++)
        trace += room[c * d + c];
    first_eigenvector(room, room + (size_t)d * (size_t)d, d, out);
    cov = m->cov + (size_t)i * wnw__triangle(d);
    for (int32_t a = 0; a < d; a++) {
        for (int32_t b = 0; b <= a; b++, cov++)
            along += (a == b ? 1 : 2) * out[a] * out[b] * (*cov + mean[a] * mean[b]);
        middle += out[a] * mean[a];
    }
    for (int32_t c = 0; c < d && middle < 0; c++)
        out[c] = -out[c];
    return trace > 0 ? along / trace : 0;
}
