/* SPDX-License-Identifier: MIT */
#include "calibrate/gate_fit.h"

#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int wnw__gate_fit_new(struct wnw__gate_fit *fit, int32_t n_row, int32_t p)
{
    const size_t rows = (size_t)n_row, size = (size_t)p;
    fit->n_row = n_row;
    fit->p = p;
    fit->n = calloc(rows, sizeof *fit->n);
    fit->gram = calloc(rows * size * size, sizeof *fit->gram);
    fit->cross = calloc(rows * size, sizeof *fit->cross);
    fit->sum = calloc(rows * size, sizeof *fit->sum);
    fit->target = calloc(rows, sizeof *fit->target);
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
    double total = 0;
    for (int32_t i = 0; i < n; i++)
        total += y[i];
    for (int32_t i = 0; i < n; i++)
        y[i] -= total / n;
    fit->target[row] += total;
    for (int32_t c = 0; c < p; c++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += (double)f[(int64_t)i * p + c];
        for (int32_t i = 0; i < n; i++)
            f[(int64_t)i * p + c] = (float)((double)f[(int64_t)i * p + c] - sum / n);
        fit->sum[(int64_t)row * p + c] += sum;
    }
}

void wnw__gate_fit_add(struct wnw__gate_fit *fit, int32_t row, float *f, double *y, int32_t n)
{
    const int32_t p = fit->p;
    double *gram = fit->gram + (int64_t)row * p * p, *cross = fit->cross + (int64_t)row * p;
    if (n < 1)
        return;
    centre(fit, row, f, y, n);
    for (int32_t i = 0; i < n; i++) {
        const float *x = f + (int64_t)i * p;
        for (int32_t a = 0; a < p; a++) {
            const double of = (double)x[a];
            for (int32_t b = 0; b <= a; b++)
                gram[a * p + b] += of * (double)x[b];
            cross[a] += of * y[i];
        }
    }
    fit->n[row] += n;
}

/* x[p] = (L L^T)^-1 x */
static void solve(const double *l, int32_t p, double *x)
{
    for (int32_t i = 0; i < p; i++) {
        for (int32_t j = 0; j < i; j++)
            x[i] -= l[i * p + j] * x[j];
        x[i] /= l[i * p + i];
    }
    for (int32_t i = p - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < p; j++)
            x[i] -= l[j * p + i] * x[j];
        x[i] /= l[i * p + i];
    }
}

/* Solves with the room a[p][p], s[p], x[p]. */
static bool solve_row(const struct wnw__gate_fit *fit, int32_t row, double lambda, double *a, double *s,
                      double *x)
{
    const int32_t p = fit->p;
    const double n = (double)fit->n[row];
    const double *gram = fit->gram + (int64_t)row * p * p, *cross = fit->cross + (int64_t)row * p;
    for (int32_t i = 0; i < p; i++)
        s[i] = sqrt(gram[i * p + i] / n);
    for (int32_t i = 0; i < p; i++) {
        x[i] = s[i] > 0 ? cross[i] / n / s[i] : 0;
        for (int32_t j = 0; j <= i; j++)
            a[i * p + j] =
                (s[i] > 0 && s[j] > 0 ? gram[i * p + j] / n / (s[i] * s[j]) : i == j) + (i == j ? lambda : 0);
    }
    if (!wnw__cholesky(a, p))
        return false;
    solve(a, p, x);
    for (int32_t i = 0; i < p; i++)
        x[i] = s[i] > 0 ? x[i] / s[i] : 0;
    return true;
}

int wnw__gate_fit_solve(const struct wnw__gate_fit *fit, int32_t row, double lambda, float *w, float *b)
{
    const int32_t p = fit->p;
    const size_t size = (size_t)p;
    double *room = calloc(size * (size + 2), sizeof *room), *x = room ? room + size * (size + 1) : NULL;
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory to solve for %d weights", (int)p);
    bool good = fit->n[row] > 0 && solve_row(fit, row, lambda, room, room + size * size, x);
    double bias = fit->target[row];
    for (int32_t i = 0; good && i < p; i++) {
        bias -= x[i] * fit->sum[(int64_t)row * p + i];
        w[i] = (float)x[i];
        good = isfinite(w[i]);
    }
    *b = good ? (float)(bias / (double)fit->n[row]) : 0;
    good = good && isfinite(*b);
    free(room);
    return good ? WNW_OK : wnw__fail(WNW_E_NOT_FINITE, "the moments of head %d are not finite", (int)row);
}

/* ---- Sums as text ---- */

enum { DIGITS = 16 };

/* Calls visit with the address of every number of a row's sums, in one order; false where it is false for one. */
static bool each_sum(const struct wnw__gate_fit *fit, int32_t row, bool (*visit)(double *x, void *user),
                     void *user)
{
    const int32_t p = fit->p;
    double *gram = fit->gram + (int64_t)row * p * p;
    bool good = visit(&fit->target[row], user);
    for (int32_t a = 0; good && a < p; a++) {
        good = visit(&fit->sum[(int64_t)row * p + a], user) && visit(&fit->cross[(int64_t)row * p + a], user);
        for (int32_t b = 0; good && b <= a; b++)
            good = visit(&gram[a * p + b], user);
    }
    return good;
}

static char *put_digits(char *to, uint64_t bits)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[bits >> shift & 15];
    return to;
}

static bool put_sum(double *x, void *user)
{
    char **to = user;
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    *to = put_digits(*to, bits);
    return true;
}

static bool get_digits(const char **from, uint64_t *bits)
{
    static const char digits[] = "0123456789abcdef";
    *bits = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char *d = **from ? strchr(digits, **from) : NULL;
        if (!d)
            return false;
        *bits = *bits << 4 | (uint64_t)(d - digits);
        ++*from;
    }
    return true;
}

static bool get_sum(double *x, void *user)
{
    uint64_t bits;
    const bool good = get_digits(user, &bits);
    if (good)
        memcpy(x, &bits, sizeof bits);
    return good;
}

static size_t text_length(const struct wnw__gate_fit *fit)
{
    const size_t p = (size_t)fit->p;
    return DIGITS * (2 + 2 * p + p * (p + 1) / 2);
}

char *wnw__gate_fit_text(const struct wnw__gate_fit *fit, int32_t row)
{
    char *text = malloc(text_length(fit) + 1);
    if (!text)
        return NULL;
    char *end = put_digits(text, (uint64_t)fit->n[row]);
    each_sum(fit, row, put_sum, &end);
    *end = '\0';
    return text;
}

bool wnw__gate_fit_read(struct wnw__gate_fit *fit, int32_t row, const char *text, size_t len)
{
    uint64_t n;
    if (len != text_length(fit) || !get_digits(&text, &n) || n > INT64_MAX)
        return false;
    fit->n[row] = (int64_t)n;
    return each_sum(fit, row, get_sum, &text);
}
