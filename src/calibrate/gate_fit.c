/* SPDX-License-Identifier: MIT */
#include "calibrate/gate_fit.h"

#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int wnw__gate_fit_new(struct wnw__gate_fit *fit, int32_t n_row, int32_t p, int32_t n_target)
{
    const size_t rows = (size_t)n_row, size = (size_t)p, targets = rows * (size_t)n_target;
    fit->n_row = n_row;
    fit->p = p;
    fit->n_target = n_target;
    fit->n = calloc(rows, sizeof *fit->n);
    fit->gram = calloc(rows * size * size, sizeof *fit->gram);
    fit->cross = calloc(targets * size, sizeof *fit->cross);
    fit->sum = calloc(rows * size, sizeof *fit->sum);
    fit->target = calloc(targets, sizeof *fit->target);
    if (fit->n && fit->gram && fit->cross && fit->sum && fit->target)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the moments of %d heads", (int)n_row);
}

void wnw__gate_fit_free(struct wnw__gate_fit *fit)
{
    free(fit->n);
    free(fit->gram);
    free(fit->cross);
    free(fit->sum);
    free(fit->target);
    *fit = (struct wnw__gate_fit){0};
}

/* Adds the piece's sums as they are, and takes means off. */
static void centre(struct wnw__gate_fit *fit, int32_t row, float *f, double *y, int32_t n)
{
    const int32_t p = fit->p;
    for (int32_t k = 0; k < fit->n_target; k++, y += n) {
        double total = 0;
        for (int32_t i = 0; i < n; i++)
            total += y[i];
        for (int32_t i = 0; i < n; i++)
            y[i] -= total / n;
        fit->target[(int64_t)row * fit->n_target + k] += total;
    }
    for (int32_t c = 0; c < p; c++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += (double)f[(int64_t)i * p + c];
        for (int32_t i = 0; i < n; i++)
            f[(int64_t)i * p + c] = (float)((double)f[(int64_t)i * p + c] - sum / n);
        fit->sum[(int64_t)row * p + c] += sum;
    }
}

/* gram += x x^T of n rows x[p], each row in its turn, so that sums do not depend on how many are added at once: the matrix
 * of a hidden state does not fit a core's cache, and goes through it once for all of them. */
static void add_squares(double *gram, const float *x, int32_t n, int32_t p)
{
    for (int32_t a = 0; a < p; a++) {
        double *to = gram + (int64_t)a * p;
        for (int32_t i = 0; i < n; i++) {
            const float *row = x + (int64_t)i * p;
            const double of = (double)row[a];
            for (int32_t b = 0; b <= a; b++)
                to[b] += of * (double)row[b];
        }
    }
}

void wnw__gate_fit_add(struct wnw__gate_fit *fit, int32_t row, float *f, double *y, int32_t n)
{
    enum { TOGETHER = 16 };
    const int32_t p = fit->p, n_target = fit->n_target;
    double *gram = fit->gram + (int64_t)row * p * p, *cross = fit->cross + (int64_t)row * n_target * p;
    if (n < 1)
        return;
    centre(fit, row, f, y, n);
    for (int32_t i = 0; i < n; i += TOGETHER)
        add_squares(gram, f + (int64_t)i * p, n - i < TOGETHER ? n - i : TOGETHER, p);
    for (int32_t k = 0; k < n_target; k++, cross += p, y += n)
        for (int32_t i = 0; i < n; i++)
            for (int32_t a = 0; a < p; a++)
                cross[a] += (double)f[(int64_t)i * p + a] * y[i];
    fit->n[row] += n;
}

/* x[p] = (L L^T)^-1 x */
static void solve(const double *l, int32_t p, double *x)
{
    for (int32_t i = 0; i < p; i++) {
        for (int32_t j = 0; j < i; j++)
            x[i] -= l[(int64_t)i * p + j] * x[j];
        x[i] /= l[(int64_t)i * p + i];
    }
    for (int32_t i = p - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < p; j++)
            x[i] -= l[(int64_t)j * p + i] * x[j];
        x[i] /= l[(int64_t)i * p + i];
    }
}

/* The factor of D^-1 G D^-1 + lambda I into a[p][p], and D into s[p]. */
static bool factor(const struct wnw__gate_fit *fit, int32_t row, double lambda, double *a, double *s)
{
    const int32_t p = fit->p;
    const double n = (double)fit->n[row], *gram = fit->gram + (int64_t)row * p * p;
    for (int32_t i = 0; i < p; i++)
        s[i] = sqrt(gram[(int64_t)i * p + i] / n);
    for (int32_t i = 0; i < p; i++)
        for (int32_t j = 0; j <= i; j++)
            a[(int64_t)i * p + j] =
                (s[i] > 0 && s[j] > 0 ? gram[(int64_t)i * p + j] / n / (s[i] * s[j]) : i == j) +
                (i == j ? lambda : 0);
    return wnw__cholesky(a, p);
}

/* The weights and bias of target k of a row. The room begins with its factor [p][p] and D [p], and x[p] follows. */
static bool solve_target(const struct wnw__gate_fit *fit, int32_t row, int32_t k, double *room, float *w,
                         float *b)
{
    const int32_t p = fit->p;
    const double *s = room + (int64_t)p * p;
    double *x = room + (int64_t)p * p + p;
    const int64_t at = (int64_t)row * fit->n_target + k;
    const double n = (double)fit->n[row], *cross = fit->cross + at * p;
    double bias = fit->target[at];
    bool good = true;
    for (int32_t i = 0; i < p; i++)
        x[i] = s[i] > 0 ? cross[i] / n / s[i] : 0;
    solve(room, p, x);
    for (int32_t i = 0; good && i < p; i++) {
        x[i] = s[i] > 0 ? x[i] / s[i] : 0;
        bias -= x[i] * fit->sum[(int64_t)row * p + i];
        w[i] = (float)x[i];
        good = isfinite(w[i]);
    }
    *b = (float)(bias / n);
    return good && isfinite(*b);
}

int wnw__gate_fit_solve(const struct wnw__gate_fit *fit, int32_t row, double lambda, float *w, float *b)
{
    const size_t size = (size_t)fit->p;
    double *room = calloc(size * (size + 2), sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory to solve for %d weights", (int)fit->p);
    bool good = fit->n[row] > 0 && factor(fit, row, lambda, room, room + size * size);
    for (int32_t k = 0; good && k < fit->n_target; k++)
        good = solve_target(fit, row, k, room, w + (int64_t)k * fit->p, b + k);
    free(room);
    return good ? WNW_OK : wnw__fail(WNW_E_NOT_FINITE, "the moments of row %d are not finite", (int)row);
}
