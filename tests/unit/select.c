/* SPDX-License-Identifier: MIT */
/* Top-k with its tie rule, and the selectors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_arrays.h"
#include "peek_plan.h"
#include "plans.h"

static int32_t run_select(const char *recipe, const wnw_select_problem *problem, int32_t *keep)
{
    wnw_policy *p = test_policy(recipe);
    const int32_t n =
        p->part[WNW_PART_SELECTOR].selector.select(p->opts[WNW_PART_SELECTOR], problem, keep, NULL);
    wnw_policy_free(p);
    return n;
}

static void topk_order_and_ties(void **state)
{
    (void)state;
    int32_t out[8];
    const float a[] = {1, 3, 2, 3, -1, 3};
    assert_int_equal(wnw__topk(a, 6, 2, 0, out), 2); /* of three equal, the earlier two */
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 3);
    assert_int_equal(wnw__topk(a, 6, 4, 10, out), 4);
    const int32_t four[] = {11, 12, 13, 15};
    assert_memory_equal(out, four, sizeof four);
    const float zeros[] = {-0.0f, 0.0f, -0.0f}; /* one value */
    assert_int_equal(wnw__topk(zeros, 3, 1, 0, out), 1);
    assert_int_equal(out[0], 0);
    const float wide[] = {-INFINITY, 1e-45f, -1e-45f, INFINITY, 0};
    assert_int_equal(wnw__topk(wide, 5, 3, 0, out), 3);
    const int32_t three[] = {1, 3, 4};
    assert_memory_equal(out, three, sizeof three);
    assert_int_equal(wnw__topk(a, 6, 0, 0, out), 0);
    assert_int_equal(wnw__topk(a, 6, 99, 0, out), 6);
    assert_int_equal(wnw__topk(a, 0, 3, 0, out), 0);
    assert_int_equal(wnw__topk(a, 6, -1, 0, out), 0);
}

static const float *sort_by;

static int by_score_then_position(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return sort_by[x] != sort_by[y] ? (sort_by[x] > sort_by[y] ? -1 : 1) : (x > y) - (x < y);
}

static int by_position(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void topk_equals_a_sort(void **state)
{
    (void)state;
    float score[300];
    int32_t want[300], got[300];
    srand(3);
    for (int round = 0; round < 2000; round++) {
        const int32_t n = 1 + rand() % 300, k = rand() % (n + 1);
        for (int32_t i = 0; i < n; i++) {
            score[i] = round % 2 ? (float)(rand() % 7 - 3) : (float)rand() / (float)RAND_MAX - 0.5f;
            want[i] = i;
        }
        sort_by = score;
        qsort(want, (size_t)n, sizeof *want, by_score_then_position);
        qsort(want, (size_t)k, sizeof *want, by_position);
        assert_int_equal(wnw__topk(score, n, k, 0, got), k);
        if (k > 0)
            assert_memory_equal(got, want, (size_t)k * sizeof *got);
    }
}

/* Later positions first = the other order on the mirrored array. */
static void topk_late_is_the_mirror(void **state)
{
    (void)state;
    float score[100], mirror[100];
    int32_t got[100], want[100];
    srand(5);
    for (int round = 0; round < 500; round++) {
        const int32_t n = 1 + rand() % 100, k = rand() % (n + 1);
        for (int32_t i = 0; i < n; i++)
            mirror[n - 1 - i] = score[i] = (float)(rand() % 5 - 2);
        assert_int_equal(wnw__topk_late(score, n, k, 7, got), k);
        wnw__topk(mirror, n, k, 0, want);
        for (int32_t i = 0; i < k; i++)
            assert_int_equal(got[i], 7 + n - 1 - want[k - 1 - i]);
    }
    const float flat[] = {9, 1, 1, 1, 1, 9};
    const wnw_select_problem problem = {.score = flat, .n = 6, .n_keep = 4, .prot = {1, 1}};
    int32_t keep[6];
    assert_int_equal(run_select("snapkv+topk:ties=late", &problem, keep), 4);
    const int32_t late[] = {0, 3, 4, 5};
    assert_memory_equal(keep, late, sizeof late);
}

static void topk_selector_keeps_the_protected(void **state)
{
    (void)state;
    const float score[] = {0, 0, 5, 9, 7, 8, 0, 0};
    const wnw_select_problem problem = {.score = score, .n = 8, .n_keep = 6, .prot = {2, 2}};
    int32_t keep[8];
    assert_int_equal(run_select("snapkv", &problem, keep), 6);
    const int32_t want[] = {0, 1, 3, 5, 6, 7};
    assert_memory_equal(keep, want, sizeof want);
}

/* n, S, L, r -> length (paper's eq. 12, k truncated). */
static void lagkv_lengths(void **state)
{
    (void)state;
    static const struct {
        int32_t n, s, l;
        const char *r;
        int32_t kept;
    } row[] = {
        {700, 16, 1024, "0.5", 700},      {2063, 16, 1024, "0.5", 2063},   {2064, 16, 1024, "0.5", 1552},
        {8192, 16, 1024, "0.5", 5120},    {8192, 16, 1024, "0.25", 3584},  {8192, 16, 1024, "0.167", 3074},
        {8192, 16, 1024, "0.125", 2816},  {8192, 16, 512, "0.25", 2816},   {8192, 16, 128, "0.125", 1248},
        {32768, 16, 1024, "0.125", 5888}, {32768, 16, 128, "0.125", 4320}, {1000, 16, 64, "0.25", 328},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char recipe[96];
        snprintf(recipe, sizeof recipe, "lagkv:sink=%d,lag=%d,retain=%s", row[i].s, row[i].l, row[i].r);
        wnw_policy *p = test_policy(recipe);
        const wnw_blocks b = {row[i].s, row[i].l};
        assert_int_equal(p->part[WNW_PART_SELECTOR].selector.recursive->own_size(
                             p->opts[WNW_PART_SELECTOR], &b, row[i].n, WNW_ROUND_EXACT),
                         row[i].kept);
        /* The size it gives is the size it selects. */
        float *score = calloc((size_t)row[i].n, sizeof *score);
        int32_t *keep = calloc((size_t)row[i].n, sizeof *keep);
        assert_non_null(score);
        assert_non_null(keep);
        const wnw_select_problem problem = {
            .score = score, .n = row[i].n, .n_keep = row[i].kept, .blocks = b};
        assert_int_equal(run_select(recipe, &problem, keep), row[i].kept);
        free(score);
        free(keep);
        wnw_policy_free(p);
    }
}

/* A size is turned into k per block: n = 16384, L = 128. */
static void lagkv_size_to_retention(void **state)
{
    (void)state;
    static const struct {
        double c;
        int32_t k;
    } row[] = {{0.25, 95}, {0.5, 62}, {0.75, 30}, {0.875, 14}};
    enum { N = 16384 };
    float *score = calloc(N, sizeof *score);
    int32_t *keep = calloc(N, sizeof *keep);
    assert_non_null(score);
    assert_non_null(keep);
    for (int32_t s = 4; s <= 16; s += 12)
        for (size_t i = 0; i < 4; i++) {
            const wnw_select_problem problem = {
                .score = score, .n = N, .n_keep = (int32_t)(N * (1 - row[i].c)), .blocks = {s, 128}};
            const int32_t m = (N - s) % 128, blocks = (N - s) / 128;
            const int32_t n = run_select("lagkv", &problem, keep);
            assert_int_equal(n, s + row[i].k * (blocks - 1) + 128 + m);
            assert_cmp(n, <=, problem.n_keep);
            assert_int_equal(keep[s], s); /* equal scores: the first of each block */
            assert_int_equal(keep[s + row[i].k], s + 128);
        }
    free(score);
    free(keep);
}

static void partition_golden_vector(void **state)
{
    (void)state;
    const float score[] = {0, 0.497298f, 0.466997f, 0.523091f, 0.512614f, 0, 0, 0, 0};
    const float keys_only[] = {0, 0.271848f, 0.271848f, 0.244589f, 0.211715f, 0, 0, 0, 0};
    wnw_select_problem problem = {.score = score, .n = 9, .n_keep = 7, .prot = {1, 4}, .blocks = {1, 4}};
    int32_t keep[9];
    assert_int_equal(run_select("lagkv", &problem, keep), 7);
    const int32_t want[] = {0, 3, 4, 5, 6, 7, 8};
    assert_memory_equal(keep, want, sizeof want);
    problem.score = keys_only;
    assert_int_equal(run_select("lagkv", &problem, keep), 7);
    const int32_t tied[] = {0, 1, 2, 5, 6, 7, 8};
    assert_memory_equal(keep, tied, sizeof tied);
    problem.n_keep = 6; /* one of two equal scores: the earlier */
    assert_int_equal(run_select("lagkv", &problem, keep), 6);
    assert_int_equal(keep[1], 1);
    assert_int_equal(keep[2], 5);
    problem.n_keep = 5; /* sinks and the last block alone: the other one keeps its best all the same */
    assert_int_equal(run_select("lagkv", &problem, keep), 6);
    assert_int_equal(keep[1], 1);
    assert_int_equal(keep[2], 5);
    problem.n_keep = 3;
    assert_int_equal(run_select("lagkv", &problem, keep), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_order_and_ties),     cmocka_unit_test(topk_equals_a_sort),
        cmocka_unit_test(topk_late_is_the_mirror), cmocka_unit_test(topk_selector_keeps_the_protected),
        cmocka_unit_test(lagkv_lengths),           cmocka_unit_test(lagkv_size_to_retention),
        cmocka_unit_test(partition_golden_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
