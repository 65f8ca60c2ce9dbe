/* SPDX-License-Identifier: MIT */
/* Means and covariances of pieces put together, and the direction that vectors favour. */
#include "asserts.h"
#include "peek_calibrate.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>

static void all_near(const double *got, const double *want, int32_t n, double tolerance)
{
    for (int32_t i = 0; i < n; i++)
        assert_near(got[i], want[i], tolerance);
}

/* By hand: (1 2) (3 2) (5 8). Mean (3 4), products about it / 3: (4+0+4)/3, (4+0+8)/3, (4+4+16)/3. */
static void by_hand(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 2, 5, 8};
    double mean[2], cov[3];
    wnw__moments_of(x, 2, 3, 2, mean, cov);
    all_near(mean, (const double[]){3, 4}, 2, 1e-12);
    all_near(cov, (const double[]){8.0 / 3, 4, 8}, 3, 1e-12);
}

/* However vectors are cut into pieces, the sums are those of all together. */
static void pieces(void **state)
{
    (void)state;
    enum { N = 97, D = 7, ROWS = 3 };
    float x[ROWS * N * D];
    uint64_t seed = 3;
    struct wnw__moments m;
    double mean[D], cov[D * (D + 1) / 2];
    for (int32_t i = 0; i < ROWS * N * D; i++)
        x[i] = (float)(test_random(&seed) % 1000) / 100 - 3;
    for (int32_t cut = 1; cut < N; cut += 13) {
        assert_ok(wnw__moments_new(&m, ROWS, D));
        for (int32_t at = 0; at < N; at += cut) {
            const int32_t n = N - at < cut ? N - at : cut;
            for (int32_t row = 0; row < ROWS; row++) {
                wnw__moments_of(x + (row * N + at) * D, D, n, D, mean, cov);
                wnw__moments_merge(&m, row, n, mean, cov);
            }
            m.n += n;
        }
        assert_int_equal(m.n, N);
        for (int32_t row = 0; row < ROWS; row++) {
            wnw__moments_of(x + row * N * D, D, N, D, mean, cov);
            all_near(m.mean + row * D, mean, D, 1e-12);
            all_near(m.cov + row * D * (D + 1) / 2, cov, D * (D + 1) / 2, 1e-11);
        }
        wnw__moments_free(&m);
    }
}

struct direction_row {
    const char *name;
    double mean[2], cov[3]; /* cov: (0 0), (1 0), (1 1) */
    double want[2], share;
};

/* Second moment S = cov + mean mean^T; its first eigenvector by hand. */
static const struct direction_row direction_rows[] = {
    {"one vector", {3, 4}, {0, 0, 0}, {0.6, 0.8}, 1},
    {"one vector, the other way", {-3, -4}, {0, 0, 0}, {-0.6, -0.8}, 1},
    {"an axis", {0, 0.001}, {1, 0, 4}, {0, 1}, 0.8},
    {"the mean decides the sign", {0, -0.001}, {1, 0, 4}, {0, -1}, 0.8},
    /* S = (2 1; 1 2): eigenvalues 3 and 1, first vector (1 1) / sqrt 2; the mean adds nearly nothing. */
    {"between the axes", {1e-9, 0}, {2, 1, 2}, {0.70710678, 0.70710678}, 0.75},
    /* The mean outweighs the largest variance: S = diag(1 + 9, 4). */
    {"mean and variance", {3, 0}, {1, 0, 4}, {1, 0}, 10.0 / 14},
    {"nothing", {0, 0}, {0, 0, 0}, {0, 0}, 0},
};

static void direction(void **state)
{
    const struct direction_row *row = *state;
    double mean[2] = {row->mean[0], row->mean[1]}, cov[3] = {row->cov[0], row->cov[1], row->cov[2]};
    const struct wnw__moments m = {.n_row = 1, .d = 2, .n = 1, .mean = mean, .cov = cov};
    double out[2], room[8];
    assert_near(wnw__moments_direction(&m, 0, out, room), row->share, 1e-6);
    all_near(out, row->want, 2, 1e-6);
}

/* Against plain power iteration on a random positive matrix of a head's size. */
static void power_iteration(void **state)
{
    (void)state;
    enum { D = 64, TRI = D * (D + 1) / 2, N = 200 };
    float x[N * D];
    double mean[D], cov[TRI], out[D], room[2 * D * D], v[D], next[D];
    uint64_t seed = 11;
    for (int32_t i = 0; i < N * D; i++)
        x[i] = (float)(test_random(&seed) % 2001) / 1000 - 1 + (i % D == 5 ? 0.5f : 0);
    wnw__moments_of(x, D, N, D, mean, cov);
    const struct wnw__moments m = {.n_row = 1, .d = D, .n = N, .mean = mean, .cov = cov};
    wnw__moments_direction(&m, 0, out, room);
    for (int32_t c = 0; c < D; c++)
        v[c] = 1;
    for (int32_t step = 0; step < 2000; step++) {
        double norm = 0;
        for (int32_t a = 0; a < D; a++)
            next[a] = 0;
        for (int32_t i = 0; i < N; i++) {
            double dot = 0;
            for (int32_t c = 0; c < D; c++)
                dot += (double)x[i * D + c] * v[c];
            for (int32_t c = 0; c < D; c++)
                next[c] += dot * (double)x[i * D + c];
        }
        for (int32_t c = 0; c < D; c++)
            norm += next[c] * next[c];
        for (int32_t c = 0; c < D; c++)
            v[c] = next[c] / sqrt(norm);
    }
    double dot = 0, along = 0;
    for (int32_t c = 0; c < D; c++) {
        dot += v[c] * out[c];
        along += mean[c] * out[c];
    }
    assert_near(fabs(dot), 1, 1e-6);
    assert_cmp(along, >, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(pieces),
                                       cmocka_unit_test(power_iteration)};
    return cmocka_run_group_tests_name("moments", tests, NULL, NULL) + run_rows(direction, direction_rows);
}
