/* SPDX-License-Identifier: MIT */
/* CapKV: an example by hand, the definition in double precision with elimination, heads with little or
 * nothing in them. */
#include "asserts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_arrays.h"
#include "random.h"
#include "rounding.h"
#include "scoring.h"

enum { D = 6, MAX_N = 300, N_HEAD = 4, N_KV = 2, GROUP = N_HEAD / N_KV, N_PAST = 310 };

struct arrays {
    float keys[N_KV][MAX_N][D], values[N_KV][MAX_N][D];
    float mean[N_HEAD][D], cov[N_HEAD][D][D], theta[D / 2];
    int32_t n_entry[N_KV], pos[N_KV][MAX_N];
    struct score_rows rows; /* keys, values */
    wnw_observation obs;
};

static void make_arrays(struct arrays *a, uint32_t seed, bool neox)
{
    memset(a, 0, sizeof *a);
    a->rows = (struct score_rows){.k = a->keys[0][0], .v = a->values[0][0]};
    for (int j = 0; j < N_KV; j++) {
        a->n_entry[j] = j == 0 ? MAX_N : MAX_N - 31;
        for (int i = 0; i < MAX_N; i++) {
            a->pos[j][i] = i < a->n_entry[j] ? i : -1;
            for (int c = 0; c < D; c++) {
                a->keys[j][i][c] = i < a->n_entry[j] ? 2 * test_signed(&seed) : 1e9f;
                a->values[j][i][c] = i < a->n_entry[j] ? test_signed(&seed) : 1e9f;
            }
        }
    }
    for (int h = 0; h < N_HEAD; h++)
        for (int c = 0; c < D; c++)
            a->mean[h][c] = test_signed(&seed);
    for (int i = 0; i < D / 2; i++)
        a->theta[i] = 0.01f / (float)(1 + i);
    a->obs = (wnw_observation){.n_layer = 1,
                               .n_head = N_HEAD,
                               .n_head_kv = N_KV,
                               .n_embd_head = D,
                               .n = MAX_N,
                               .n_past = N_PAST,
                               .n_entry = a->n_entry,
                               .pos = a->pos[0],
                               .keys = row_keys,
                               .values = row_values,
                               .query_mean = a->mean[0],
                               .query_cov = a->cov[0][0],
                               .rope_theta = a->theta,
                               .n_rot = D,
                               .rope_neox = neox,
                               .source = &a->rows};
}

/* ---- By hand ---- */

static float small_keys[3][2] = {{3, 0}, {0, 2}, {-1, 0}}, small_values[3][2] = {{1, 0}, {0, 2}, {1, 0}};

static const float *get_small_keys(const wnw_observation *obs, int32_t ih)
{
    (void)obs;
    (void)ih;
    return small_keys[0];
}

static const float *get_small_values(const wnw_observation *obs, int32_t ih)
{
    (void)obs;
    (void)ih;
    return small_values[0];
}

/* One head, mean query (5, 0), no RoPE. Cosines 1, 0, -1; with tau = ln 2 the weights are 1, 1/2, 1/4. A = I
 * + (1 + 1/4) e0 e0^T + 1/2 * 4 e1 e1^T = diag(9/4, 3). Scores: 1 / (9/4) = 4/9, 1/2 * 4 / 3 = 2/3, 1/4 /
 * (9/4) = 1/9. By products (15, 0, -5) and tau = ln 2 / 5: weights 1, 1/8, 1/16; A = diag(33/16, 3/2); scores
 * 16/33, 1/8 * 4 / (3/2) = 1/3, 1/33. */
static void by_hand(void **state)
{
    (void)state;
    static const float mean[] = {5, 0}, cov[4] = {0};
    const int32_t n_entry = 3, pos[] = {0, 1, 2};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 3,
                                 .n_past = 3,
                                 .n_entry = &n_entry,
                                 .pos = pos,
                                 .keys = get_small_keys,
                                 .values = get_small_values,
                                 .query_mean = mean,
                                 .query_cov = cov};
    const double cosine[] = {4.0 / 9, 2.0 / 3, 1.0 / 9}, dot[] = {16.0 / 33, 1.0 / 3, 1.0 / 33};
    float got[3];
    run_scorer("capkv:tau=0.69314718056,n_sink=0,epsilon=0", &obs, got);
    for (int i = 0; i < 3; i++)
        assert_near((double)got[i], cosine[i], test_rounding(1e-6, 8));
    run_scorer("capkv:tau=0.138629436112,n_sink=0,epsilon=0,align=dot", &obs, got);
    for (int i = 0; i < 3; i++)
        assert_near((double)got[i], dot[i], test_rounding(1e-6, 8));
}

/* ---- The definition ---- */

/* The mean query of head h, turned to each of the positions and averaged. */
static void anchor(const struct arrays *a, int h, int n_future, double mu[D])
{
    for (int c = 0; c < D; c++)
        mu[c] = 0;
    for (int p = N_PAST; p < N_PAST + n_future; p++)
        for (int i = 0; i < D / 2; i++) {
            const int x = a->obs.rope_neox ? i : 2 * i, y = a->obs.rope_neox ? i + D / 2 : 2 * i + 1;
            const double angle = p * (double)a->theta[i], u = (double)a->mean[h][x],
                         v = (double)a->mean[h][y];
            mu[x] += (cos(angle) * u - sin(angle) * v) / n_future;
            mu[y] += (sin(angle) * u + cos(angle) * v) / n_future;
        }
}

/* x of m x = b by elimination with pivots. */
static void solve(double m[D][D + 1], double x[D])
{
    for (int i = 0; i < D; i++) {
        int best = i;
        for (int r = i + 1; r < D; r++)
            best = fabs(m[r][i]) > fabs(m[best][i]) ? r : best;
        for (int c = 0; c <= D; c++) {
            const double t = m[i][c];
            m[i][c] = m[best][c];
            m[best][c] = t;
        }
        for (int r = 0; r < D; r++) {
            const double f = m[r][i] / m[i][i];
            for (int c = i; r != i && c <= D; c++)
                m[r][c] -= f * m[i][c];
        }
    }
    for (int i = 0; i < D; i++)
        x[i] = m[i][D] / m[i][i];
}

static double dot(const double *a, const float *b)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += a[c] * (double)b[c];
    return sum;
}

static void head_scores(const struct arrays *a, int h, int n_sink, int n_future, double tau, bool cosine,
                        double epsilon, double *out)
{
    const int j = h / GROUP;
    double mu[D], w[MAX_N], a0[D][D], most = -INFINITY, norm = 0;
    anchor(a, h, n_future, mu);
    for (int c = 0; c < D; c++)
        norm += mu[c] * mu[c];
    for (int i = n_sink; i < a->n_entry[j]; i++) {
        double k2 = 0;
        for (int c = 0; c < D; c++)
            k2 += (double)a->keys[j][i][c] * (double)a->keys[j][i][c];
        w[i] = tau * dot(mu, a->keys[j][i]) / (cosine ? sqrt(norm * k2) : 1);
        most = w[i] > most ? w[i] : most;
    }
    for (int x = 0; x < D * D; x++)
        a0[x / D][x % D] = x / D == x % D;
    for (int i = n_sink; i < a->n_entry[j]; i++) {
        w[i] = exp(w[i] - most);
        for (int x = 0; x < D * D; x++)
            a0[x / D][x % D] +=
                (w[i] + epsilon) * (double)a->values[j][i][x / D] * (double)a->values[j][i][x % D];
    }
    for (int i = n_sink; i < a->n_entry[j]; i++) {
        double m[D][D + 1], x[D];
        for (int r = 0; r < D; r++) {
            memcpy(m[r], a0[r], sizeof a0[r]);
            m[r][D] = (double)a->values[j][i][r];
        }
        solve(m, x);
        out[i] += w[i] * dot(x, a->values[j][i]) / GROUP;
    }
}

static void equals_its_definition(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        int n_sink, n_future;
        double tau, epsilon;
        bool cosine;
    } rows[] = {
        {"capkv", 4, 512, 5, 1e-6, true},
        {"capkv:tau=0,n_sink=0", 0, 512, 0, 1e-6, true},
        {"capkv:tau=20,n_future=3,epsilon=0.5", 4, 3, 20, 0.5, true},
        {"capkv:align=dot,tau=2,n_sink=9", 9, 512, 2, 1e-6, false},
    };
    static struct arrays a;
    static float got[N_KV * MAX_N];
    for (uint32_t trial = 0; trial < 4; trial++) {
        make_arrays(&a, 11 + trial, trial % 2 == 0);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            static double want[N_KV][MAX_N];
            memset(want, 0, sizeof want);
            run_scorer(rows[r].recipe, &a.obs, got);
            for (int h = 0; h < N_HEAD; h++)
                head_scores(&a, h, rows[r].n_sink, rows[r].n_future, rows[r].tau, rows[r].cosine,
                            rows[r].epsilon, want[h / GROUP]);
            for (int j = 0; j < N_KV; j++)
                for (int i = 0; i < a.n_entry[j]; i++)
                    if (i < rows[r].n_sink)
                        assert_cmp(got[j * MAX_N + i], >, 1);
                    else
                        assert_near((double)got[j * MAX_N + i], want[j][i],
                                    1e-6 + test_rounding(1e-4, 32) * want[j][i]);
        }
    }
}

/* ---- Corners ---- */

static void short_heads(void **state)
{
    (void)state;
    static struct arrays a;
    static float got[N_KV * MAX_N];
    make_arrays(&a, 8, true);
    a.n_entry[0] = 5;
    a.n_entry[1] = 0;
    run_scorer("capkv", &a.obs, got);
    assert_cmp(got[3], >, 1);
    assert_cmp(got[4], >, 0);
    assert_cmp(got[4], <, 1);
    memset(a.keys, 0, sizeof a.keys); /* no direction: every weight is 1 */
    memset(a.mean, 0, sizeof a.mean);
    run_scorer("capkv", &a.obs, got);
    double v2 = 0; /* v^T (I + (1 + eps) v v^T)^-1 v = |v|^2 / (1 + (1 + eps) |v|^2) */
    for (int c = 0; c < D; c++)
        v2 += (double)a.values[0][4][c] * (double)a.values[0][4][c];
    assert_near((double)got[4], v2 / (1 + (1 + 1e-6) * v2), test_rounding(1e-6, 8));
}

static void refuses_infinite_values(void **state)
{
    (void)state;
    static struct arrays a;
    static float got[N_KV * MAX_N];
    make_arrays(&a, 8, true);
    a.values[1][50][2] = INFINITY;
    assert_int_equal(try_scorer("capkv", &a.obs, got), WNW_E_NOT_FINITE);
}

/* [4 . .; 2 5 .; 6 9 26] = L L^T with L = [2; 1 2; 3 3 sqrt 8]: 4, 2 = 2*1, 5 = 1 + 4, 6 = 2*3, 9 = 3 + 6,
 * 26 = 9 + 9 + 8. */
static void factors(void **state)
{
    (void)state;
    double a[] = {4, 0, 0, 2, 5, 0, 6, 9, 26};
    const double l[] = {2, 0, 0, 1, 2, 0, 3, 3, sqrt(8)};
    assert_true(wnw__cholesky(a, 3));
    for (int i = 0; i < 9; i++)
        assert_near(a[i], l[i], 1e-15);
    double b[] = {1, 0, 2, 4}; /* 4 - 2 * 2 = 0: not definite */
    assert_false(wnw__cholesky(b, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),     cmocka_unit_test(equals_its_definition),
        cmocka_unit_test(short_heads), cmocka_unit_test(refuses_infinite_values),
        cmocka_unit_test(factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
