/* SPDX-License-Identifier: MIT */
/* Random streams and statistics of the evaluation, against examples computed by hand. */
#include "asserts.h"

#include "eval/base/random.h"
#include "eval/base/stats.h"

#include <math.h>
#include <stdlib.h>
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

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The ends of an interval are the 251st smallest and the 251st largest of all rounds, however many are equal. */
static void test_ends_of_rounds(void **state)
{
    static double rounds[EVAL_BOOT_ROUNDS], sorted[EVAL_BOOT_ROUNDS];
    struct eval_random r = eval_random_seed(7);
    (void)state;
    for (uint64_t different = 1; different < 1000000000; different *= 9) {
        for (size_t i = 0; i < EVAL_BOOT_ROUNDS; i++)
            rounds[i] = sorted[i] = (double)eval_random_below(&r, different);
        qsort(sorted, EVAL_BOOT_ROUNDS, sizeof *sorted, ascending);
        for (int twice = 0; twice < 2; twice++) {
            const struct eval_interval got = eval_rounds_interval(rounds);
            assert_cmp(got.lo, ==, sorted[250]);
            assert_cmp(got.hi, ==, sorted[9749]);
            memcpy(rounds, sorted, sizeof rounds); /* in order already */
        }
    }
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

/* Products in place of divisions draw the same numbers, and leave the stream where it was. */
static void test_draws_of_a_range(void **state)
{
    static const uint64_t some[] = {
        UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX / 3, UINT64_MAX / 2,
        UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, UINT64_MAX - 1, UINT64_MAX};
    enum { N_SMALL = 300, N_ALL = N_SMALL + sizeof some / sizeof *some };
    (void)state;
    for (uint64_t i = 1; i <= N_ALL; i++) {
        const uint64_t n = i <= N_SMALL ? i : some[i - N_SMALL - 1];
        const struct eval_range range = eval_range_of(n);
        struct eval_random a = eval_random_seed(i), b = a;
        for (int k = 0; k < 200; k++)
            assert_cmp(eval_random_within(&a, &range), ==, eval_random_below(&b, n));
        assert_memory_equal(&a, &b, sizeof a);
        /* Where the quotient changes. */
        for (uint64_t k = 0; k < 4 && k * n / n == k; k++)
            for (uint64_t x = k * n - 2, end = k * n + 2; x != end; x++)
                assert_cmp(eval_range_remainder(&range, x), ==, x % n);
        for (uint64_t x = UINT64_MAX / n * n - 2, end = x + 5; x != end; x++)
            assert_cmp(eval_range_remainder(&range, x), ==, x % n);
    }
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
    size_t first[7], alone[25];
    double each[24];
    struct eval_paired a, b, c, d;
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
    r = eval_random_seed(9);
    assert_true(eval_bootstrap(&c, &(struct eval_pairs){.d = each, .n = 24}, &r));
    assert_cmp(c.over.hi - c.over.lo, <, 0.7 * (b.over.hi - b.over.lo));
    /* Clusters of one are no clusters. */
    for (size_t i = 0; i < 25; i++)
        alone[i] = i;
    r = eval_random_seed(9);
    assert_true(
        eval_bootstrap(&d, &(struct eval_pairs){.d = each, .n = 24, .cluster = alone, .n_clusters = 24}, &r));
    assert_near(d.over.lo, c.over.lo, 0);
    assert_near(d.over.hi, c.over.hi, 0);
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

/* ---- What the intervals know and do not know ---- */

/* Of n clusters that are all alike, a share z^2 / (n + z^2) may differ unseen, by any amount. */
static void test_nothing_varies(void **state)
{
    const double same[] = {0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25}, zeros[12] = {0};
    double lost[12];
    const size_t stratum[] = {0, 3, 12};
    struct eval_paired p;
    struct eval_random r = eval_random_seed(1);
    (void)state;
    assert_true(eval_bootstrap(&p, &(struct eval_pairs){.d = same, .n = 7, .least = -1, .most = 1}, &r));
    assert_int_equal(p.spread, EVAL_SPREAD_NONE);
    assert_near(p.over.lo, 0.25 - 0.354332 * 1.25, 1e-5);
    assert_near(p.over.hi, 0.25 + 0.354332 * 0.75, 1e-5);
    assert_string_equal(eval_verdict(&p), "~");
    assert_true(
        eval_bootstrap(&p, &(struct eval_pairs){.d = zeros, .n = 12, .least = -100, .most = 100}, &r));
    assert_near(p.over.lo, -24.2496, 1e-3);
    assert_near(p.over.hi, 24.2496, 1e-3);
    assert_false(eval_equivalent(&p)); /* twelve contexts cannot show that */
    /* Strata of 3 and 9, each without variation: as 4 / (1/3 + 1/9) = 9 clusters. */
    for (int i = 0; i < 12; i++)
        lost[i] = i < 3 ? -100 : 0;
    assert_true(
        eval_bootstrap(&p,
                       &(struct eval_pairs){
                           .d = lost, .n = 12, .stratum = stratum, .n_strata = 2, .least = -100, .most = 100},
                       &r));
    assert_int_equal(p.spread, EVAL_SPREAD_NONE);
    assert_near(p.delta, -50, 1e-12);
    assert_near(p.over.lo, -50 - 0.299145 * 50, 1e-3);
    assert_near(p.over.hi, -50 + 0.299145 * 150, 1e-3);
}

static void test_equivalence(void **state)
{
    const struct eval_paired near = {.over = {-4.9, 4.9}}, below = {.over = {-5, 1}},
                             above = {.over = {-1, 5}}, few = {.over = {-1, 1}, .spread = EVAL_SPREAD_FEW};
    (void)state;
    assert_true(eval_equivalent(&near));
    assert_false(eval_equivalent(&below));
    assert_false(eval_equivalent(&above));
    assert_false(eval_equivalent(&few));
}

/* All 6^6 ways to draw six clusters of one to three differences: 2.5 % of the means lie below the interval, and 2.5 % above. */
static void test_clusters_against_all_draws(void **state)
{
    static const double d[] = {-30, 10, 0, -100, -50, 0, 20, 20, 5, -10, -100};
    static const size_t first[] = {0, 2, 3, 6, 8, 9, 11};
    struct eval_paired p;
    struct eval_random r = eval_random_seed(3);
    int n_below = 0, n_at_most = 0, n_above = 0, n_at_least = 0, n_all = 0;
    (void)state;
    assert_true(
        eval_bootstrap(&p, &(struct eval_pairs){.d = d, .n = 11, .cluster = first, .n_clusters = 6}, &r));
    for (int draw = 0; draw < 46656; draw++, n_all++) {
        double sum = 0, n = 0;
        for (int k = 0, rest = draw; k < 6; k++, rest /= 6)
            for (size_t i = first[rest % 6]; i < first[rest % 6 + 1]; i++, n++)
                sum += d[i];
        n_below += sum / n < p.over.lo - 1e-9;
        n_at_most += sum / n <= p.over.lo + 1e-9;
        n_above += sum / n > p.over.hi + 1e-9;
        n_at_least += sum / n >= p.over.hi - 1e-9;
    }
    /* 10,000 draws: shares are within five standard deviations, 0.8 %. */
    assert_cmp((double)n_below / n_all, <, 0.033);
    assert_cmp((double)n_at_most / n_all, >, 0.017);
    assert_cmp((double)n_above / n_all, <, 0.033);
    assert_cmp((double)n_at_least / n_all, >, 0.017);
}

/* Eight tasks of two equal samples, two of them with -60: of seven tasks that are drawn again, k have it, by the binomial
 * distribution of 7 and a quarter: four or more in 7.1 %, five or more in 1.3 %. */
static void test_tasks_are_drawn_too(void **state)
{
    double d[16];
    size_t stratum[9];
    const size_t pairs_of[] = {0, 2, 4, 6, 8};
    struct eval_paired p, few;
    struct eval_random r = eval_random_seed(4);
    (void)state;
    for (size_t i = 0; i < 9; i++)
        stratum[i] = 2 * i;
    for (size_t i = 0; i < 16; i++)
        d[i] = i < 4 ? -60 : 0;
    struct eval_pairs in = {.d = d, .n = 16, .stratum = stratum, .n_strata = 8};
    assert_true(eval_bootstrap(&p, &in, &r));
    assert_near(p.delta, -15, 1e-12);
    assert_near(p.over.lo, -15, 1e-12); /* of these tasks, without bounds */
    assert_near(p.tasks.lo, -60.0 * 4 / 7, 1e-9);
    assert_near(p.tasks.hi, 0, 1e-12);
    in.task = pairs_of; /* the same strata as four tasks at two lengths: too few */
    in.n_tasks = 4;
    assert_true(eval_bootstrap(&few, &in, &r));
    assert_true(isnan(few.tasks.lo));
}

/* By hand: means 2 and 6, squares between 16 of 1 degree, within 4 of 2: (16 - 2) / (16 + 2). Clusters of 3 and 1: (12 - 1) /
 * (12 + 0.5). */
static void test_correlation_within_clusters(void **state)
{
    static const double even[] = {1, 3, 5, 7, 101, 103, 105, 107}, uneven[] = {1, 2, 3, 6};
    static const size_t twos[] = {0, 2, 4, 6, 8}, sizes[] = {0, 3, 4}, stratum[] = {0, 2, 4};
    (void)state;
    struct eval_pairs p = {.d = even, .n = 4, .cluster = twos, .n_clusters = 2};
    assert_near(eval_icc(&p), 14.0 / 18, 1e-12);
    p = (struct eval_pairs){
        .d = even, .n = 8, .cluster = twos, .n_clusters = 4, .stratum = stratum, .n_strata = 2};
    assert_near(eval_icc(&p), 14.0 / 18, 1e-12); /* what strata differ in is no correlation */
    p = (struct eval_pairs){.d = uneven, .n = 4, .cluster = sizes, .n_clusters = 2};
    assert_near(eval_icc(&p), 11 / 12.5, 1e-12);
    p = (struct eval_pairs){.d = even, .n = 8};
    assert_true(isnan(eval_icc(&p)));
}

static void test_flips(void **state)
{
    static const double d[] = {1, 2, 3}, strata[] = {2, 1, 1}, zeros[3] = {0};
    static const size_t cluster[] = {0, 2, 3}, stratum[] = {0, 1, 3};
    double many[20], lost[12];
    struct eval_random r = eval_random_seed(6);
    (void)state;
    for (int i = 0; i < 20; i++)
        many[i] = 1;
    for (int i = 0; i < 12; i++)
        lost[i] = -100;
    struct eval_pairs p = {.d = d, .n = 3};
    assert_near(eval_flip_test(&p, &r), 2.0 / 8, 1e-12);
    p = (struct eval_pairs){.d = d, .n = 3, .cluster = cluster, .n_clusters = 2}; /* 3 and 3 */
    assert_near(eval_flip_test(&p, &r), 2.0 / 4, 1e-12);
    p = (struct eval_pairs){.d = strata, .n = 3, .stratum = stratum, .n_strata = 2}; /* 1, 0.5 and 0.5 */
    assert_near(eval_flip_test(&p, &r), 2.0 / 8, 1e-12);
    p = (struct eval_pairs){.d = zeros, .n = 3};
    assert_near(eval_flip_test(&p, &r), 1, 0);
    p = (struct eval_pairs){.d = lost, .n = 12};
    assert_near(eval_flip_test(&p, &r), 2.0 / 4096, 1e-12);
    p = (struct eval_pairs){.d = many, .n = 20}; /* 2 of 2^20: drawn, and not met */
    assert_near(eval_flip_test(&p, &r), 1.0 / 10001, 1e-4);
}

static void test_holm(void **state)
{
    double p[] = {0.01, 0.04, 0.03, 0.005, 0.20}, unknown[] = {0.02, NAN};
    static const double want[] = {0.04, 0.09, 0.09, 0.025, 0.20};
    (void)state;
    assert_true(eval_holm(p, 5));
    for (int i = 0; i < 5; i++)
        assert_near(p[i], want[i], 1e-12);
    assert_true(eval_holm(unknown, 2));
    assert_near(unknown[0], 0.04, 1e-12);
    assert_near(unknown[1], 1, 0);
}

/* Probability that k of n probes are right. */
static double binomial(int n, int k, double share)
{
    double p = 1;
    for (int i = 0; i < k; i++)
        p *= share * (n - i) / (k - i);
    for (int i = k; i < n; i++)
        p *= 1 - share;
    return p;
}

/* The gate errs in fewer than one case of twenty, and asks no more probes than it must. */
static void test_gate(void **state)
{
    const int n = EVAL_GATE_PROBES;
    double passes = 0, fails = 0;
    (void)state;
    for (int k = 0; k <= n; k++) {
        const bool pass = 100.0 * k / n >= EVAL_GATE_POINTS;
        passes += pass ? binomial(n, k, 0.10) : 0;
        fails += pass ? 0 : binomial(n, k, 0.45);
    }
    assert_cmp(passes, <, 0.05);
    assert_cmp(fails, <, 0.05);
    /* For any further samples: once it is decided, the mean of those asked is on the side of the mean of all. */
    for (int right = 0; right <= n; right++)
        for (int done = right; done <= n; done++) {
            const bool decided = eval_gate_decided(right, done, n), above = 4 * right >= n;
            assert_int_equal(decided, above || 4 * (right + n - done) < n);
            if (decided && done > 0)
                assert_int_equal(4 * right >= done, above);
        }
    assert_true(eval_gate_decided(5, 5, 20));
    assert_false(eval_gate_decided(0, 15, 20));
    assert_true(eval_gate_decided(0, 16, 20));
    assert_false(eval_gate_decided(4.9, 19, 20));
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
        cmocka_unit_test(test_draws_of_a_range),
        cmocka_unit_test(test_ends_of_rounds),
        cmocka_unit_test(test_paired_bootstrap),
        cmocka_unit_test(test_bootstrap_says_when_it_cannot),
        cmocka_unit_test(test_clusters_move_together),
        cmocka_unit_test(test_strata_weigh_alike),
        cmocka_unit_test(test_strata_of_one),
        cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_coverage_of_small_strata),
        cmocka_unit_test(test_nothing_varies),
        cmocka_unit_test(test_equivalence),
        cmocka_unit_test(test_clusters_against_all_draws),
        cmocka_unit_test(test_tasks_are_drawn_too),
        cmocka_unit_test(test_correlation_within_clusters),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_holm),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_wilson),
        cmocka_unit_test(test_sign_test),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_half_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
