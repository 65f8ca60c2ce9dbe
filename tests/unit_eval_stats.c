/* SPDX-License-Identifier: MIT */
/* Random streams and statistics of the evaluation, against examples computed by hand. */
#include "asserts.h"

#include "eval/base/random.h"
#include "eval/base/stats.h"

#include <math.h>
#include <string.h>

static void test_hash(void **state)
{
    (void)state;
    assert_cmp(WNW_HASH_START, ==, UINT64_C(0xcbf29ce484222325));
    assert_cmp(wnw__hash_of("a", 1), ==, UINT64_C(0xaf63dc4c8601ec8c));
    assert_cmp(wnw__hash_of("niah_single_1|4096|0|42", 23), ==, UINT64_C(0x55b90a75c4e6bd8d));
    /* splitmix64(0) fills the state. */
    const struct eval_random r = eval_random_seed(0);
    assert_cmp(r.s[0], ==, UINT64_C(0xe220a8397b1dcdaf));
    assert_cmp(r.s[1], ==, UINT64_C(0x6e789e6aa1b965f4));
    assert_cmp(r.s[2], ==, UINT64_C(0x06c45d188009454f));
}

static void test_stream(void **state)
{
    static const uint64_t first[] = {UINT64_C(0x15780b2e0c2ec716), UINT64_C(0x6104d9866d113a7e),
                                     UINT64_C(0xae17533239e499a1), UINT64_C(0xecb8ad4703b360a1)};
    struct eval_random r = eval_random_seed(42);
    int32_t digits[12], order[8];
    size_t ids[8];
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_cmp(eval_random_next(&r), ==, first[i]);
    r = eval_random_seed(42);
    for (size_t i = 0; i < 12; i++)
        digits[i] = (int32_t)eval_random_below(&r, 10);
    assert_ints(digits, 2, 2, 9, 3, 6, 4, 4, 7, 8, 5, 9, 3);
    r = eval_random_seed(42);
    for (size_t i = 0; i < 8; i++)
        ids[i] = i;
    eval_random_shuffle(&r, ids, 8);
    for (size_t i = 0; i < 8; i++)
        order[i] = (int32_t)ids[i];
    assert_ints(order, 7, 2, 4, 0, 3, 5, 1, 6);
}

static void test_draws_are_fair(void **state)
{
    enum { N = 5, DRAWS = 50000 };
    struct eval_random r = eval_random_key("draws|0|0|42");
    int32_t n_first[N] = {0}, n_below[N] = {0};
    double sum = 0.0;
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        size_t ids[N] = {0, 1, 2, 3, 4};
        eval_random_sample(&r, ids, N, 2);
        assert_cmp(ids[0], !=, ids[1]);
        n_first[ids[1]]++;
        n_below[eval_random_below(&r, N)]++;
        sum += eval_random_uniform(&r);
    }
    for (int i = 0; i < N; i++) { /* five standard deviations */
        assert_near(n_first[i], DRAWS / N, 450);
        assert_near(n_below[i], DRAWS / N, 450);
    }
    assert_near(sum / DRAWS, 0.5, 0.0065);
    assert_cmp(eval_random_below(&r, 1), ==, 0);
}

static const double full[] = {1, 1, 1, 0, 1, 1, 1, 1, 0, 1}, comp[] = {1, 0, 1, 0, 1, 1, 0, 1, 1, 1};

static void test_paired_bootstrap(void **state)
{
    double d[10];
    struct eval_paired p;
    struct eval_random r = eval_random_seed(42);
    (void)state;
    for (int i = 0; i < 10; i++)
        d[i] = comp[i] - full[i];
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = d, .n = 10}, &r));
    assert_near(p.delta, -0.1, 1e-12);
    assert_near(p.over.lo, -0.4, 1e-12);
    assert_near(p.over.hi, 0.2, 1e-12);
    assert_int_equal(p.spread, EVAL_SPREAD_OK);
    assert_string_equal(eval_verdict(&p), "~");
    assert_near(eval_sign_test(2, 1), 1.0, 1e-12); /* two answers were lost and one gained */
}

static void test_bootstrap_says_when_it_cannot(void **state)
{
    const double some[] = {0.1, 0.2, 0.3, 0.1, 0.2}, same[] = {0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25};
    const double zeros[7] = {0};
    const double gains[] = {0.1, 0.2, 0.3, 0.1, 0.2, 0.4}, losses[] = {-0.1, -0.2, -0.3, -0.1, -0.2, -0.4};
    struct eval_paired p;
    struct eval_random r = eval_random_seed(1);
    (void)state;
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = some, .n = 5}, &r));
    assert_int_equal(p.spread, EVAL_SPREAD_FEW);
    assert_near(p.delta, 0.18, 1e-12);
    assert_true(isnan(p.over.lo));
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = same, .n = 7}, &r));
    assert_int_equal(p.spread, EVAL_SPREAD_NONE);
    assert_near(p.over.lo, 0.25, 0);
    assert_near(p.over.hi, 0.25, 0);
    assert_string_equal(eval_verdict(&p), "+");
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = zeros, .n = 7}, &r));
    assert_int_equal(p.spread, EVAL_SPREAD_NONE);
    assert_string_equal(eval_verdict(&p), "~");
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = gains, .n = 6}, &r));
    assert_string_equal(eval_verdict(&p), "+");
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = losses, .n = 6}, &r));
    assert_string_equal(eval_verdict(&p), "-");
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = losses, .n = 0}, &r));
    assert_true(isnan(p.delta));
}

/* Six contexts of four equal turns say as much as six samples, not as 24. */
static void test_clusters_move_together(void **state)
{
    const double one[] = {0.0, 0.1, 0.2, 0.3, 0.4, 0.5};
    size_t first[7];
    double each[24];
    struct eval_paired a, b, c;
    struct eval_random r = eval_random_seed(9);
    (void)state;
    for (size_t i = 0; i < 24; i++)
        each[i] = one[i / 4];
    for (size_t i = 0; i < 7; i++)
        first[i] = 4 * i;
    assert_true(eval_bootstrap(&a, &(struct eval_pairs){.d = one, .n = 6}, &r));
    r = eval_random_seed(9);
    assert_true(
        eval_bootstrap(&b, &(struct eval_pairs){.d = each, .n = 24, .cluster = first, .n_clusters = 6}, &r));
    assert_near(b.delta, a.delta, 1e-12);
    assert_near(b.over.lo, a.over.lo, 1e-12);
    assert_near(b.over.hi, a.over.hi, 1e-12);
    assert_true(eval_bootstrap(&c, &(struct eval_pairs){.d = each, .n = 24}, &r));
    assert_cmp(c.over.hi - c.over.lo, <, 0.7 * (b.over.hi - b.over.lo));
}

/* A task with many samples weighs as much as one with few, and what differs between tasks widens nothing. */
static void test_strata_weigh_alike(void **state)
{
    double d[30];
    const size_t stratum[] = {0, 20, 30};
    struct eval_paired p;
    struct eval_random r = eval_random_seed(5);
    (void)state;
    for (int i = 0; i < 30; i++)
        d[i] = (i < 20 ? 0.0 : 1.0) + (i % 2 ? 0.01 : -0.01);
    assert_true(
        eval_bootstrap(&p, &(struct eval_pairs){.d = d, .n = 30, .stratum = stratum, .n_strata = 2}, &r));
    assert_near(p.delta, 0.5, 1e-12);
    assert_cmp(p.over.hi - p.over.lo, <, 0.02);
    assert_cmp(p.over.hi - p.over.lo, >, 0.002);
}

/* Eight tasks with a sample each are as uncertain as one task with eight samples. */
static void test_strata_of_one(void **state)
{
    const double d[8] = {0, -1, 0, 0, 0, -1, 0, 0};
    const size_t stratum[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct eval_paired one, eight;
    struct eval_random r = eval_random_seed(5);
    (void)state;
    assert_true(
        eval_bootstrap(&eight, &(struct eval_pairs){.d = d, .n = 8, .stratum = stratum, .n_strata = 8}, &r));
    r = eval_random_seed(5);
    assert_true(eval_bootstrap(&one, &(struct eval_pairs){.d = d, .n = 8}, &r));
    assert_near(eight.delta, -0.25, 1e-12);
    assert_near(eight.over.lo, one.over.lo, 1e-12);
    assert_near(eight.over.hi, one.over.hi, 1e-12);
    assert_cmp(eight.over.hi - eight.over.lo, >, 0.4);
    assert_string_equal(eval_verdict(&eight), "~");
}

/* Whether the 95 % interval of n answers of a method that answers 60 % contains 60. Answers are of one task where stratum is
 * NULL. */
static bool covers(uint64_t seed, size_t n, const size_t *stratum, size_t n_strata)
{
    struct eval_random r = eval_random_seed(seed);
    double d[100];
    struct eval_paired p;
    for (size_t i = 0; i < n; i++)
        d[i] = (eval_random_uniform(&r) < 0.6) - 1.0;
    assert_true(eval_bootstrap(
        &p, &(struct eval_pairs){.d = d, .n = n, .stratum = stratum, .n_strata = n_strata}, &r));
    return p.over.lo <= -0.4 + 1e-12 && p.over.hi >= -0.4 - 1e-12;
}

static void test_coverage(void **state)
{
    int n_good = 0;
    (void)state;
    for (uint64_t run = 0; run < 100; run++)
        n_good += covers(run, 100, NULL, 0);
    assert_in_range(n_good, 93, 100);
}

/* 20 tasks with 2 samples each: drawing as many as there are would miss 60 in a sixth of the runs. */
static void test_coverage_of_small_strata(void **state)
{
    size_t stratum[21];
    int n_good = 0;
    (void)state;
    for (size_t i = 0; i <= 20; i++)
        stratum[i] = 2 * i;
    for (uint64_t run = 0; run < 200; run++)
        n_good += covers(run, 40, stratum, 20);
    assert_in_range(n_good, 182, 200);
}

static void test_wilson(void **state)
{
    static const struct {
        int64_t k, n;
        double lo, hi;
    } rows[] = {{8, 10, 0.490, 0.943}, {10, 10, 0.722, 1.0}, {0, 5, 0.0, 0.434}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct eval_interval w = eval_wilson(rows[i].k, rows[i].n);
        assert_near(w.lo, rows[i].lo, 5e-4);
        assert_near(w.hi, rows[i].hi, 5e-4);
    }
    assert_true(isnan(eval_wilson(0, 0).lo));
}

static void test_sign_test(void **state)
{
    (void)state;
    assert_near(eval_sign_test(0, 0), 1.0, 0);
    assert_near(eval_sign_test(5, 0), 2.0 / 32, 1e-12);
    assert_near(eval_sign_test(1, 7), 2.0 * (1 + 8) / 256, 1e-12);
    assert_near(eval_sign_test(2, 8), 2.0 * (1 + 10 + 45) / 1024, 1e-12);
    assert_cmp(eval_sign_test(0, 2000), <, 1e-300);
}

static void test_curves(void **state)
{
    static const double r[] = {0, .1, .25, .4, .5, .6, .7, .8, .9},
                        s[] = {92, 91, 90, 86, 80, 72, 60, 41, 20};
    static const double ends[] = {0, 0.9}, line[] = {100, 0}, level[] = {70, 70};
    double loss[9];
    (void)state;
    for (int i = 0; i < 9; i++)
        loss[i] = eval_loss(s[0], s[i]);
    const double auc = eval_auc(r, s, 9, false);
    assert_near(auc, 66.525 / 0.9, 1e-9);
    assert_near(eval_retention(s[0], auc), 80.344, 1e-3); /* AUC_rel */
    assert_near(eval_tolerance(r, loss, 9, 0.1), 0.4533, 1e-4);
    assert_near(eval_tolerance(r, loss, 9, 0.2), 0.58, 1e-4);
    assert_true(isinf(eval_tolerance(r, loss, 9, 0.99)));
    assert_near(eval_auc(ends, level, 2, false), 70, 1e-12);
    assert_near(eval_auc(ends, line, 2, false), 50, 1e-12);
    assert_near(eval_auc(ends, line, 2, true), 45, 1e-12);
    assert_near(eval_tolerance(ends, (double[]){0, 1}, 2, 0.1), 0.09, 1e-12);
    assert_near(eval_auc(ends, level, 2, true), (0.9 * 70 + 0.1 * 35), 1e-12);
    assert_true(isnan(eval_auc(ends, line, 1, false)));
    assert_true(isnan(eval_loss(0, 0)));
    assert_near(eval_retention(80, 60), 75, 1e-12);
}

/* What n buys, in points: the table that the summary is read with. */
static void test_half_width(void **state)
{
    static const struct {
        int64_t n;
        double q5, q20;
    } rows[] = {{8, 15, 31}, {20, 10, 20}, {50, 6, 12}, {100, 4.4, 8.8}, {500, 2.0, 3.9}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_near(eval_half_width(0.05, rows[i].n), rows[i].q5, rows[i].n < 100 ? 0.5 : 0.05);
        assert_near(eval_half_width(0.20, rows[i].n), rows[i].q20, rows[i].n < 100 ? 0.5 : 0.05);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_draws_are_fair),
        cmocka_unit_test(test_paired_bootstrap),
        cmocka_unit_test(test_bootstrap_says_when_it_cannot),
        cmocka_unit_test(test_clusters_move_together),
        cmocka_unit_test(test_strata_weigh_alike),
        cmocka_unit_test(test_strata_of_one),
        cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_coverage_of_small_strata),
        cmocka_unit_test(test_wilson),
        cmocka_unit_test(test_sign_test),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_half_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
