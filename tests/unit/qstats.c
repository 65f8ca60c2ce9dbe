/* SPDX-License-Identifier: MIT */
/* Mean and covariance of queries on plain arrays. */
#include "helpers.h"
#include "peek_session.h"

#include <ggml-cpu.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct wnw__qstats *stats_of(struct wnw__qstats_params p)
{
    struct wnw__qstats *st;
    p.model.n_layer = p.model.n_layer ? p.model.n_layer : 1;
    p.n_threads = p.n_threads ? p.n_threads : 1;
    p.scale = p.scale != 0.0f ? p.scale : 1.0f;
    assert_ok(wnw__qstats_new(&st, &p));
    return st;
}

/* Tokens of one head [n][d] from position `first` on, by nth threads one after the other. */
static void add(struct wnw__qstats *st, const float *q, int32_t first, int32_t n, int nth)
{
    const struct wnw__qstats_params *p = wnw__qstats_params(st);
    const struct wnw__qstats_batch b = {.q = q,
                                        .token_stride = (size_t)(p->model.n_head * p->model.d),
                                        .head_stride = (size_t)p->model.d,
                                        .first = first,
                                        .n = n};
    for (int ith = nth - 1; ith >= 0; ith--)
        wnw__qstats_add(st, 0, &b, ith, nth);
}

static void by_hand(void **state)
{
    (void)state;
    /* (1, 0), (3, 4), (2, -1): mean (2, 1), products about it (1, 1), (1, 9), (0, 4) on the diagonal and
     * 1, 3, 0 off it; divided by 3 */
    const float q[] = {1, 0, 3, 4, 2, -1};
    struct wnw__qstats *st = stats_of((struct wnw__qstats_params){.model = {.n_head = 1, .d = 2}});
    float mean[2], cov[4];
    assert_int_equal(wnw__qstats_get(st, 0, mean, cov), 0);
    assert_float_equal(cov[0], 0.0f, 0.0f);
    for (int pieces = 0; pieces < 2; pieces++) {
        wnw__qstats_reset(st);
        assert_int_equal(wnw__qstats_end(st, 0), 0);
        add(st, q, 0, pieces ? 1 : 3, 1);
        if (pieces)
            add(st, q + 2, 1, 2, 1);
        assert_int_equal(wnw__qstats_end(st, 0), 3);
        assert_int_equal(wnw__qstats_get(st, 0, mean, cov), 3);
        assert_float_equal(mean[0], 2.0f, 1e-6f);
        assert_float_equal(mean[1], 1.0f, 1e-6f);
        assert_float_equal(cov[0], 2.0f / 3, 1e-6f);
        assert_float_equal(cov[1], 4.0f / 3, 1e-6f);
        assert_float_equal(cov[2], 4.0f / 3, 1e-6f);
        assert_float_equal(cov[3], 14.0f / 3, 1e-6f);
    }
    wnw__qstats_free(st);
}

static void skipped_and_scaled(void **state)
{
    (void)state;
    const float q[] = {100, 1, 3};
    struct wnw__qstats *st =
        stats_of((struct wnw__qstats_params){.model = {.n_head = 1, .d = 1}, .skip = 6, .scale = 0.5f});
    float mean[1], cov[1];
    add(st, q, 5, 3, 1); /* position 5 is left out */
    assert_int_equal(wnw__qstats_end(st, 0), 8);
    assert_int_equal(wnw__qstats_get(st, 0, mean, cov), 2);
    assert_float_equal(mean[0], 1.0f, 1e-6f);
    assert_float_equal(cov[0], 0.25f, 1e-6f);
    wnw__qstats_free(st);
    wnw__qstats_free(NULL);
}

enum { HEADS = 5, D = 40, N = 700 };

/* Far from zero with little spread, so that sums of squares would lose everything. */
static float *random_queries(void)
{
    uint64_t seed = 3;
    float *q = malloc(sizeof *q * HEADS * D * N);
    assert_non_null(q);
    for (int32_t i = 0; i < HEADS * D * N; i++)
        q[i] = 50.0f + (float)(i % 7) + (float)(test_random(&seed) >> 40) / 0x1p24f;
    return q;
}

static void check_brute_force(const struct wnw__qstats *st, const float *q, double tolerance)
{
    float *mean = malloc(sizeof *mean * HEADS * D), *cov = malloc(sizeof *cov * HEADS * D * D);
    assert_non_null(mean);
    assert_non_null(cov);
    assert_int_equal(wnw__qstats_get(st, 0, mean, cov), N);
    for (int32_t h = 0; h < HEADS; h++) {
        double want[D] = {0};
        for (int32_t t = 0; t < N; t++)
            for (int32_t c = 0; c < D; c++)
                want[c] += (double)q[(t * HEADS + h) * D + c] / N;
        for (int32_t a = 0; a < D; a++) {
            assert_near(mean[h * D + a], want[a], 1e-5 * fabs(want[a]));
            for (int32_t b = 0; b < D; b++) {
                double sum = 0.0;
                for (int32_t t = 0; t < N; t++)
                    sum += ((double)q[(t * HEADS + h) * D + a] - want[a]) *
                           ((double)q[(t * HEADS + h) * D + b] - want[b]);
                const double got = (double)cov[(h * D + a) * D + b];
                if (!(fabs(got - sum / N) < tolerance))
                    fail_msg("head %d, covariance %d %d: %g, expected %g", (int)h, (int)a, (int)b, got,
                             sum / N);
            }
        }
    }
    free(mean);
    free(cov);
}

static void large_mean_small_spread(void **state)
{
    (void)state;
    static const int32_t sizes[] = {N, 512, 64, 63, 7, 1};
    float *q = random_queries();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct wnw__qstats *st = stats_of((struct wnw__qstats_params){.model = {.n_head = HEADS, .d = D}});
        for (int32_t at = 0; at < N; at += sizes[i])
            add(st, q + at * HEADS * D, at, N - at < sizes[i] ? N - at : sizes[i], 1);
        /* variances are up to 4; queries themselves are rounded to 4e-6 */
        check_brute_force(st, q, 2e-5);
        wnw__qstats_free(st);
    }
    free(q);
}

static void same_bits(const struct wnw__qstats *a, const struct wnw__qstats *b)
{
    const size_t n_mean = HEADS * D, n_cov = HEADS * D * D;
    float *x = malloc(sizeof *x * 2 * (n_mean + n_cov)), *y = x + n_mean + n_cov;
    assert_non_null(x);
    assert_int_equal(wnw__qstats_get(a, 0, x, x + n_mean), wnw__qstats_get(b, 0, y, y + n_mean));
    assert_memory_equal(x, y, (n_mean + n_cov) * sizeof *x);
    assert_int_equal(wnw__qstats_end(a, 0), wnw__qstats_end(b, 0));
    free(x);
}

static void threads_and_copies_do_not_matter(void **state)
{
    (void)state;
    float *q = random_queries();
    struct wnw__qstats *one = stats_of((struct wnw__qstats_params){.model = {.n_head = HEADS, .d = D}});
    struct wnw__qstats *many =
        stats_of((struct wnw__qstats_params){.model = {.n_head = HEADS, .d = D}, .n_threads = 8});
    struct wnw__qstats *copy;
    add(one, q, 0, 300, 1);
    add(many, q, 0, 300, 8);
    same_bits(one, many);
    assert_ok(wnw__qstats_copy(&copy, one));
    add(one, q + 300 * HEADS * D, 300, N - 300, 1);
    assert_int_equal(wnw__qstats_end(copy, 0), 300);
    add(copy, q + 300 * HEADS * D, 300, N - 300, 1);
    add(many, q + 300 * HEADS * D, 300, N - 300, 3);
    same_bits(one, copy);
    same_bits(one, many);
    wnw__qstats_free(one);
    wnw__qstats_free(many);
    wnw__qstats_free(copy);
    free(q);
}

/* As a recorder, whose queries have gaps between them, with layers that are left out. */
static void recorder_takes_queries(void **state)
{
    (void)state;
    const struct wnw__recorder_type *type = &wnw__qstats_recorder;
    const bool sliding[2] = {true, false};
    const struct wnw__record_shape shape = {
        .model = {.n_layer = 2, .n_head = HEADS, .d = D, .left_alone = sliding},
        .n_threads = 2,
        .q_scale = 1.0f};
    const struct wnw__record_pass pass = {.to = 2, .n_past = 3, .n = N};
    struct wnw__record_rows rows = {.pass = &pass,
                                    .point = WNW_POINT_QUERIES,
                                    .il = 1,
                                    .token_stride = HEADS * (D + 2) + 1,
                                    .head_stride = D + 2};
    float *x = random_queries(), *apart = calloc(N * rows.token_stride, sizeof *apart);
    struct wnw__qstats *want =
        stats_of((struct wnw__qstats_params){.model = {.n_head = HEADS, .d = D}, .skip = 7});
    void *st;
    assert_non_null(apart);
    for (size_t t = 0; t < N; t++)
        for (size_t h = 0; h < HEADS; h++)
            memcpy(apart + t * rows.token_stride + h * rows.head_stride, x + (t * HEADS + h) * D,
                   D * sizeof *x);
    rows.q = apart;
    assert_ok(type->open(&st, &shape, &(struct wnw__record_arg){.n = 7}));
    assert_int_equal(type->stages(st, WNW_POINT_QUERIES, 0, &pass), 0);
    assert_int_equal(type->stages(st, WNW_POINT_QUERIES, 1, &pass), 1);
    assert_int_equal(type->stages(st, WNW_POINT_ATTENTION, 1, &pass), 0);
    for (int ith = 0; ith < 2; ith++)
        type->take(st, &rows, ith, 2);
    add(want, x, 3, N, 1);
    float *a = malloc(sizeof *a * HEADS * D * (D + 1)), *b = malloc(sizeof *b * HEADS * D * (D + 1));
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(wnw__qstats_get(st, 0, a, a + HEADS * D), 0);
    assert_int_equal(wnw__qstats_get(st, 1, a, a + HEADS * D), N - 4);
    assert_int_equal(wnw__qstats_get(want, 0, b, b + HEADS * D), N - 4);
    assert_memory_equal(a, b, sizeof *a * HEADS * D * (D + 1));
    type->told(st, 0, 2, WNW_EVENT_DROPPED); /* they are of queries, not of entries */
    assert_int_equal(wnw__qstats_end(st, 1), N + 3);
    type->told(st, 0, 2, WNW_EVENT_RENUMBERED);
    assert_int_equal(wnw__qstats_end(st, 1), 0);
    free(a);
    free(b);
    type->free(st);
    wnw__qstats_free(want);
    free(apart);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(skipped_and_scaled),
        cmocka_unit_test(large_mean_small_spread),
        cmocka_unit_test(threads_and_copies_do_not_matter),
        cmocka_unit_test(recorder_takes_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
