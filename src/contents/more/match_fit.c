/* SPDX-License-Identifier: MIT */
#include "contents/more/match_fit.h"

#include "base/vectors.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

/* Steps of the projected gradient, and the change of every factor from which on another one is not worth it. */
enum { STEPS = 200, POWER_STEPS = 10 };
static const float enough = 1e-5f;
#define MOST_BETA 3.0f

static size_t even(size_t n)
{
    return (n + 1) / 2 * 2; /* doubles follow floats */
}

/* Doubles of the system of equations: the smaller of queries and entries, with a right-hand side for each element. */
static size_t system_doubles(int32_t m, int32_t b, int32_t d)
{
    const size_t k = (size_t)(m < b ? m : b), rows = (size_t)(m > b ? m : b);
    return k * k + rows * k + k * (size_t)d + (size_t)m * (size_t)d;
}

size_t wnw__match_scratch(int32_t m, int32_t n, int32_t b, int32_t d)
{
    const size_t q = (size_t)m, beta = 2 * even(q * (size_t)b) + 3 * (size_t)b + 3 * q;
    const size_t values = even(q * (size_t)n) + even((size_t)n * (size_t)d) + even(q * (size_t)b) +
                          even(q * (size_t)d) + 2 * system_doubles(m, b, d);
    return (beta > values ? beta : values) + 16;
}

static float row_max(const float *x, int32_t n)
{
    float top = x[0];
    for (int32_t i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* Rows that a thread takes at a time. */
enum { ROWS = 16 };

static int32_t pieces(int32_t n)
{
    return (n + ROWS - 1) / ROWS;
}

/* The end of piece i of n rows. */
static int32_t end_of(int32_t i, int32_t n)
{
    return (i + 1) * ROWS < n ? (i + 1) * ROWS : n;
}

static void each_piece(const struct wnw__match *p, int32_t n, void (*work)(int32_t i, void *user), void *user)
{
    for (int32_t i = 0; !p->obs && i < pieces(n); i++)
        work(i, user);
    if (p->obs)
        wnw__observation_each(p->obs, pieces(n), work, user);
}

/* ---- Biases ---- */

/* E of the kept entries and M. */
struct mass {
    const struct wnw__match *p;
    float *e, *t;  /* E, [m][b], and transposed */
    float *target; /* M, [m] */
};

static void set_rows(int32_t piece, void *user)
{
    const struct mass *x = user;
    const struct wnw__match *p = x->p;
    for (int32_t i = piece * ROWS; i < end_of(piece, p->m); i++) {
        const float *s = p->logits + (int64_t)i * p->n;
        const float top = row_max(s, p->n);
        double sum = 0;
        for (int32_t c = 0; c < p->n; c++)
            sum += exp((double)(s[c] - top));
        for (int32_t k = 0; k < p->b; k++) {
            x->e[(int64_t)i * p->b + k] = expf(s[p->keep[k]] - top);
            x->t[(int64_t)k * p->m + i] = x->e[(int64_t)i * p->b + k];
        }
        x->target[i] = (float)sum;
    }
}

/* out[m] = E x[b] */
static void times(const struct mass *x, const float *v, float *out)
{
    wnw__mul_nt(v, 1, x->e, x->p->m, x->p->b, 1.0f, out, x->p->m);
}

/* out[b] = E^T x[m] */
static void times_t(const struct mass *x, const float *v, float *out)
{
    wnw__mul_nt(v, 1, x->t, x->p->b, x->p->m, 1.0f, out, x->p->b);
}

/* An upper bound of the largest eigenvalue of E^T E, whose entries are not negative: the row sums of E^T E z / z bound it
 * for any positive z, and are near it where z is near the eigenvector. */
static float largest_eigenvalue(const struct mass *x, float *z, float *room, float *next)
{
    float bound = 0;
    for (int32_t k = 0; k < x->p->b; k++)
        z[k] = 1.0f;
    for (int step = 0; step < POWER_STEPS; step++) {
        times(x, z, room);
        times_t(x, room, next);
        float top = 0;
        bound = 0;
        for (int32_t k = 0; k < x->p->b; k++) {
            top = next[k] > top ? next[k] : top;
            bound = next[k] / z[k] > bound ? next[k] / z[k] : bound;
        }
        if (!(top > 0))
            return 0;
        for (int32_t k = 0; k < x->p->b; k++)
            z[k] = next[k] / top > 1e-6f ? next[k] / top : 1e-6f;
    }
    return bound;
}

static float clipped(float x, float least, float most)
{
    if (x < least)
        return least;
    if (x > most)
        return most;
    return x;
}

void wnw__match_beta(const struct wnw__match *p, float *beta, float *scratch)
{
    const size_t q = (size_t)p->m, b = (size_t)p->b;
    const float most = expf(MOST_BETA), least = 1.0f / most;
    struct mass x = {.p = p, .e = scratch, .t = scratch + even(q * b)};
    x.target = x.t + even(q * b);
    float *rest = x.target + q, *room = rest + q, *at = room + q, *gradient = at + b, *last = gradient + b;
    each_piece(p, p->m, set_rows, &x);
    const float bound = largest_eigenvalue(&x, at, room, gradient);
    for (int32_t k = 0; k < p->b; k++)
        beta[k] = at[k] = 1.0f;
    float t = 1;
    for (int step = 0; step < STEPS && bound > 0; step++) {
        float change = 0;
        times(&x, at, room);
        for (int32_t i = 0; i < p->m; i++)
            rest[i] = x.target[i] - room[i];
        times_t(&x, rest, gradient);
        memcpy(last, beta, b * sizeof *last);
        const float next = (1 + sqrtf(1 + 4 * t * t)) / 2, momentum = (t - 1) / next;
        for (int32_t k = 0; k < p->b; k++) {
            beta[k] = clipped(at[k] + gradient[k] / bound, least, most);
            at[k] = beta[k] + momentum * (beta[k] - last[k]);
            change = fmaxf(change, fabsf(beta[k] - last[k]));
        }
        t = next;
        if (change < enough)
            break;
    }
    for (int32_t k = 0; k < p->b; k++)
        beta[k] = logf(beta[k]);
}

/* ---- Values ---- */

/* out[m][d] = a[m][n] v[n][d]; t[d][n] becomes v transposed. */
static void weighted(const float *a, int32_t m, const float *v, int32_t n, int32_t d, float *t, float *out)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            t[(int64_t)c * n + i] = v[(int64_t)i * d + c];
    wnw__mul_nt(a, m, t, d, n, 1.0f, out, d);
}

/* The equations (G + lambda I) z = r for every element, k of them; X is [rows][k] of doubles whose products G are. */
struct equations {
    const struct wnw__match *p;
    double *g, *x, *z;
    int32_t k, rows, d;
};

/* Rows of G, up to the diagonal. */
static void add_products(int32_t piece, void *user)
{
    const struct equations *s = user;
    const int64_t k = s->k;
    for (int32_t r = 0; r < s->rows; r++) {
        const double *x = s->x + r * k;
        for (int64_t i = piece * ROWS; i < end_of(piece, s->k); i++) {
            const double f = x[i];
            for (int64_t j = 0; f != 0 && j <= i; j++)
                s->g[i * k + j] += f * x[j];
        }
    }
}

/* Some elements of z, from the factor in g: L y = r, then L^T z = y. */
static void substitute(int32_t piece, void *user)
{
    const struct equations *s = user;
    const int64_t k = s->k, d = s->d, first = piece * ROWS, end = end_of(piece, s->d);
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < i; j++)
            for (int64_t c = first; c < end; c++)
                s->z[i * d + c] -= s->g[i * k + j] * s->z[j * d + c];
        for (int64_t c = first; c < end; c++)
            s->z[i * d + c] /= s->g[i * k + i];
    }
    for (int64_t i = k - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < k; j++)
            for (int64_t c = first; c < end; c++)
                s->z[i * d + c] -= s->g[j * k + i] * s->z[j * d + c];
        for (int64_t c = first; c < end; c++)
            s->z[i * d + c] /= s->g[i * k + i];
    }
}

static bool solve(struct equations *s, double ridge, int32_t b)
{
    const int64_t k = s->k;
    double trace = 0;
    memset(s->g, 0, (size_t)(k * k) * sizeof *s->g);
    each_piece(s->p, s->k, add_products, s);
    for (int64_t i = 0; i < k; i++)
        trace += s->g[i * k + i];
    for (int64_t i = 0; i < k; i++)
        s->g[i * k + i] += ridge * trace / b;
    if (!isfinite(trace) || !wnw__cholesky(s->g, s->k))
        return false;
    each_piece(s->p, s->d, substitute, s);
    return true;
}

/* v[d] += x[k] z[k][d], some elements at a time, added up in double. */
static void add_row(const double *x, const double *z, int32_t k, int32_t d, float *v)
{
    enum { PIECE = 64 };
    for (int32_t at = 0; at < d; at += PIECE) {
        const int32_t n = d - at < PIECE ? d - at : PIECE;
        double sum[PIECE] = {0};
        for (int32_t i = 0; i < k; i++)
            for (int32_t c = 0; c < n; c++)
                sum[c] += x[i] * z[(int64_t)i * d + at + c];
        for (int32_t c = 0; c < n; c++)
            v[at + c] += (float)sum[c];
    }
}

/* z[b][d] = x[m][b]^T rest[m][d] */
static void project(const struct wnw__match *p, const float *x, const double *rest, double *z)
{
    const int64_t m = p->m, b = p->b, d = p->d;
    memset(z, 0, (size_t)(b * d) * sizeof *z);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < b; j++)
            for (int64_t c = 0; c < d; c++)
                z[j * d + c] += (double)x[i * b + j] * rest[i * d + c];
}

/* Entries to whose values the solution of a system of queries is added. */
struct entries {
    const struct equations *s;
    float *v; /* [rows][d] */
};

static void add_rows(int32_t piece, void *user)
{
    const struct entries *e = user;
    const struct equations *s = e->s;
    for (int32_t j = piece * ROWS; j < end_of(piece, s->rows); j++)
        add_row(s->x + (int64_t)j * s->k, s->z, s->k, s->d, e->v + (int64_t)j * s->d);
}

/* Adds D to v[b][d]; x[m][b] are the weights, rest[m][d] what they leave of Y. */
static bool add_missing(const struct wnw__match *p, const float *x, const double *rest, double *room,
                        float *v)
{
    const int64_t m = p->m, b = p->b, d = p->d;
    const bool few = m < b;
    const int64_t k = few ? m : b, rows = few ? b : m;
    struct equations s = {.p = p,
                          .g = room,
                          .x = room + k * k,
                          .z = room + k * k + rows * k,
                          .k = (int32_t)k,
                          .rows = (int32_t)rows,
                          .d = p->d};
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < b; j++)
            s.x[few ? j * k + i : i * k + j] = (double)x[i * b + j];
    if (few)
        memcpy(s.z, rest, (size_t)(m * d) * sizeof *s.z);
    else
        project(p, x, rest, s.z);
    if (!solve(&s, p->ridge, p->b))
        return false;
    for (int64_t i = 0; !few && i < b * d; i++)
        v[i] += (float)s.z[i];
    if (few)
        each_piece(p, p->b, add_rows, &(struct entries){&s, v});
    return true;
}

/* What queries see, of all and of what stays. */
struct seen {
    const struct wnw__match *p;
    const float *beta;
    float *weights, *x; /* [m][n], [m][b] */
};

static void see(int32_t piece, void *user)
{
    const struct seen *s = user;
    const struct wnw__match *p = s->p;
    for (int32_t i = piece * ROWS; i < end_of(piece, p->m); i++) {
        float *x = s->x + (int64_t)i * p->b;
        for (int32_t k = 0; k < p->b; k++)
            x[k] = p->logits[(int64_t)i * p->n + p->keep[k]] + s->beta[k];
        wnw__softmax(s->weights + (int64_t)i * p->n, p->n);
        if (row_max(x, p->b) > -INFINITY)
            wnw__softmax(x, p->b);
        else
            memset(x, 0, (size_t)p->b * sizeof *x);
    }
}

bool wnw__match_values(const struct wnw__match *p, const float *beta, float *v, float *scratch)
{
    const size_t q = (size_t)p->m, n = (size_t)p->n, b = (size_t)p->b, d = (size_t)p->d;
    float *weights = scratch, *t = weights + even(q * n), *x = t + even(n * d), *out = x + even(q * b);
    double *rest = (double *)(void *)(out + even(q * d)), *room = rest + q * d;
    memcpy(weights, p->logits, q * n * sizeof *weights);
    each_piece(p, p->m, see, &(struct seen){p, beta, weights, x});
    weighted(weights, p->m, p->values, p->n, p->d, t, out);
    for (size_t i = 0; i < q * d; i++)
        rest[i] = (double)out[i];
    for (int32_t k = 0; k < p->b; k++)
        memcpy(v + (int64_t)k * p->d, p->values + (int64_t)p->keep[k] * p->d, d * sizeof *v);
    weighted(x, p->m, v, p->b, p->d, t, out);
    for (int32_t i = 0; i < p->m; i++) {
        const bool sees = row_max(x + (int64_t)i * p->b, p->b) > 0;
        for (size_t c = 0; c < d; c++)
            rest[(size_t)i * d + c] = sees ? rest[(size_t)i * d + c] - (double)out[(size_t)i * d + c] : 0;
    }
    return add_missing(p, x, rest, room, v);
}
