/* SPDX-License-Identifier: MIT */
/* LU-KV: convex hulls and shares by hand and against an exhaustive search; the budget by hand. */
#include "asserts.h"
#include "fake_source.h"
#include "peek_calibrate.h"
#include "peek_plan.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Hulls ---- */

static const struct hull_row {
    const char *name;
    int32_t n;
    double worth[6], want[6];
} hull_rows[] = {
    {"nothing", 0, {0}, {0}},
    {"falls already", 4, {5, 3, 3, 1}, {5, 3, 3, 1}},
    {"one rise", 3, {1, 3, 0}, {2, 2, 0}},
    {"a rise that reaches back", 4, {4, 2, 1, 9}, {4, 4, 4, 4}},
    {"rises all along", 4, {1, 2, 3, 6}, {3, 3, 3, 3}},
    {"two pools", 6, {2, 6, 1, 3, 0, 0}, {4, 4, 2, 2, 0, 0}},
    {"pools that merge", 5, {1, 5, 2, 2, 8}, {3.6, 3.6, 3.6, 3.6, 3.6}},
};

static void hull_by_hand(void **state)
{
    const struct hull_row *row = *state;
    double worth[6];
    int32_t scratch[6];
    memcpy(worth, row->worth, sizeof worth);
    wnw__curve_hull(worth, row->n, scratch);
    for (int32_t i = 0; i < row->n; i++)
        assert_near(worth[i], row->want[i], 1e-12);
}

/* The hull never lies below the sums, touches them at its corners, and its slopes do not rise. */
static void hull_of_random_numbers(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int trial = 0; trial < 200; trial++) {
        enum { N = 40 };
        double worth[N], hull[N], sum = 0, sum_hull = 0;
        int32_t scratch[N];
        for (int i = 0; i < N; i++)
            worth[i] = hull[i] = (double)(test_random(&seed) % 10);
        wnw__curve_hull(hull, N, scratch);
        for (int i = 0; i < N; i++) {
            sum += worth[i];
            sum_hull += hull[i];
            assert_cmp(sum_hull, >=, sum - 1e-9);
            if (i + 1 < N)
                assert_cmp(hull[i], >=, hull[i + 1]);
            if (i + 1 == N || hull[i] > hull[i + 1])
                assert_near(sum_hull, sum, 1e-9);
        }
    }
}

/* ---- Shares ---- */

static void shares_by_hand(void **state)
{
    (void)state;
    const double a[] = {9, 5, 2}, b[] = {6, 2, 1};
    /* Head 0 has two protected entries and three that may be dropped; head 1 has no protected ones and keeps at least 1. */
    const struct wnw__curve_head heads[] = {{a, 3, 5, 2}, {b, 3, 3, 1}};
    const double ratio[] = {0.1, 0.25, 0.375, 0.5, 0.625, 0.99};
    int32_t keep[12];
    assert_ok(wnw__curve_share_out(heads, 2, ratio, 6, keep));
    /* Of 8 entries go round(0.8) = 1: worth 1; 2: of two worths 2 that of head 0; 3: that of head 1; 4: 5; 5: 9, for
     * head 1 keeps its last; 8: no more may go. */
    assert_memory_equal(keep, ((const int32_t[]){5, 2, 4, 2, 4, 1, 3, 1, 2, 1, 2, 1}), sizeof keep);
}

/* With falling worths the shares lose as little as any others, for every total. */
static void no_other_shares_lose_less(void **state)
{
    (void)state;
    enum { H = 3, N = 5 };
    uint64_t seed = 11;
    for (int trial = 0; trial < 50; trial++) {
        double worth[H][N];
        struct wnw__curve_head heads[H];
        double ratio[H * N - 1];
        int32_t keep[(H * N - 1) * H], scratch[N];
        for (int h = 0; h < H; h++) {
            for (int i = 0; i < N; i++)
                worth[h][i] = (double)(test_random(&seed) % 20);
            wnw__curve_hull(worth[h], N, scratch);
            heads[h] = (struct wnw__curve_head){worth[h], N, N, 0};
        }
        for (int i = 0; i < H * N - 1; i++)
            ratio[i] = (i + 1.0) / (H * N);
        assert_ok(wnw__curve_share_out(heads, H, ratio, H * N - 1, keep));
        for (int gone = 1; gone < H * N; gone++) {
            const int32_t *k = keep + (gone - 1) * H;
            double ours = 0, best = INFINITY;
            assert_int_equal(k[0] + k[1] + k[2], H * N - gone);
            for (int h = 0; h < H; h++)
                for (int i = k[h]; i < N; i++)
                    ours += worth[h][i];
            for (int code = 0; code < (N + 1) * (N + 1) * (N + 1); code++) {
                const int c[H] = {code % (N + 1), code / (N + 1) % (N + 1), code / (N + 1) / (N + 1)};
                double lost = 0;
                for (int h = 0; h < H; h++)
                    for (int i = c[h]; i < N; i++)
                        lost += worth[h][i];
                if (c[0] + c[1] + c[2] == H * N - gone && lost < best)
                    best = lost;
            }
            assert_near(ours, best, 1e-9);
        }
    }
}

/* ---- The budget ---- */

enum { MAX_ROW = 8 };

struct problem {
    wnw_layer_problem p;
    struct wnw_profile profile;
    double ratio[2];
    float keep[2 * MAX_ROW];
    int32_t il[4], n_entry[MAX_ROW];
    wnw_protected prot[MAX_ROW];
    char warning[256];
};

/* Two layers of two KV heads with n entries each; curves through (0, 1), (0.5, first), (0.8, second), (1, 0). */
static void make(struct problem *q, int32_t n, int32_t budget, double ratio, const float first[4],
                 const float second[4])
{
    *q = (struct problem){.ratio = {0.5, 0.8}, .il = {0, 1}};
    for (int32_t r = 0; r < 4; r++) {
        q->keep[r] = first[r];
        q->keep[4 + r] = second[r];
        q->n_entry[r] = n;
        q->prot[r].n_last = 1;
    }
    q->profile = (struct wnw_profile){.model = {.n_layer = 2, .n_head_kv = 2},
                                      .n_curve = 2,
                                      .curve_ratio = q->ratio,
                                      .curve_keep = q->keep,
                                      .curve_scorer = "snapkv"};
    q->p = (wnw_layer_problem){.n_layer = 2,
                               .n = n,
                               .n_protected = 1,
                               .budget = budget,
                               .mean = budget,
                               .ratio = ratio,
                               .il = q->il,
                               .n_layer_model = 2,
                               .n_head = 4,
                               .n_head_kv = 2,
                               .profile = &q->profile,
                               .n_entry = q->n_entry,
                               .prot = q->prot,
                               .scorer = "snapkv"};
}

static int run(const char *recipe, struct problem *q, int32_t *n_keep)
{
    wnw_policy *policy;
    float scratch[MAX_ROW * 64];
    policy = test_policy(recipe);
    const int rc = policy->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(
        policy->opts[WNW_PART_HEAD_BUDGET], &q->p, n_keep, scratch, q->warning);
    wnw_policy_free(policy);
    return rc;
}

static const float at_half[4] = {0.9f, 0.5f, 0.4f, 0.2f}, at_fifth[4] = {0.5f, 0.2f, 0.1f, 0};

static const struct budget_row {
    const char *name, *recipe;
    int32_t n, budget;
    double ratio;
    int32_t want[4];
} budget_rows[] = {
    {"a measured share", "snapkv+lukv", 100, 50, 0.5, {90, 50, 40, 20}},
    /* Head 3 keeps its protected entry, so the others are at a slightly larger rho: 80 = 50 + 20 + 10 + 0 becomes
     * 79 + 1; the last third falls as (1 - rho) / 0.2. rho 0.8025: 49.375, 19.75, 9.875, 1. */
    {"a protected entry", "snapkv+lukv", 100, 20, 0.8, {49, 20, 10, 1}},
    /* rho = 0.65: halfway: 0.7, 0.35, 0.25, 0.1 of 100. */
    {"between two", "snapkv+lukv", 100, 35, 0.65, {70, 35, 25, 10}},
    /* rho = 0.25: 0.95, 0.75, 0.7, 0.6. */
    {"before the first", "snapkv+lukv", 100, 75, 0.25, {95, 75, 70, 60}},
    /* rho = 0.9: a quarter of the way from 0.8 to 1 would be 0.85; half: 0.25, 0.1, 0.05, 0 -> 1; 40 entries. */
    {"behind the last", "snapkv+lukv", 100, 10, 0.9, {24, 10, 5, 1}},
    {"everything", "snapkv+lukv", 10, 10, 0, {10, 10, 10, 10}},
    /* Nearest measured ratio to 0.6: 0.5. Layer sums 14, 6. */
    {"nearest", "snapkv+lukv:form=nearest", 10, 4, 0.6, {9, 5, 4, 2}},
    /* 0.8: sums round(7.7) = 8 of 5.5, 2.2 and round(1.1) = 1; head 3 gets its one at least. */
    {"nearest, rounded", "snapkv+lukv:form=nearest", 11, 2, 0.8, {6, 2, 1, 1}},
};

static void budget_by_hand(void **state)
{
    const struct budget_row *row = *state;
    struct problem q;
    int32_t got[4];
    make(&q, row->n, row->budget, row->ratio, at_half, at_fifth);
    assert_ok(run(row->recipe, &q, got));
    assert_memory_equal(got, row->want, sizeof got);
    assert_string_equal(q.warning, "");
}

static void warns_and_refuses(void **state)
{
    (void)state;
    struct problem q;
    int32_t got[4];
    make(&q, 100, 50, 0.5, at_half, at_fifth);
    q.p.scorer = "keydiff";
    assert_ok(run("keydiff+lukv", &q, got));
    assert_contains(q.warning, "for scores of snapkv, not keydiff");
    q.profile.model.n_layer = 3;
    assert_error(run("snapkv+lukv", &q, got), WNW_E_MISMATCH);
    q.p.profile = NULL;
    assert_error(run("snapkv+lukv", &q, got), WNW_E_MISMATCH);
    assert_says("kind curves");
}

/* For any curves, a plan is exact, and the last entry stays. */
static void plans_are_exact(void **state)
{
    (void)state;
    for (int32_t budget = 2; budget <= 60; budget += 7) {
        struct fake f;
        wnw_plan *plan;
        const wnw_size size = size_budget(budget);
        fake_init(&f, 3, 2, 2, 61, false);
        plan = fake_planned(&f, "knorm+lukv", &size, NULL);
        assert_int_equal(fake_check_plan(plan, &f), budget * 6);
        for (int32_t il = 0; il < 3; il++)
            for (int32_t ih = 0; ih < 2; ih++)
                assert_true(fake_holds(plan, il, ih, 60));
        wnw_plan_free(plan);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hull_of_random_numbers),    cmocka_unit_test(shares_by_hand),
        cmocka_unit_test(no_other_shares_lose_less), cmocka_unit_test(warns_and_refuses),
        cmocka_unit_test(plans_are_exact),
    };
    return run_rows(hull_by_hand, hull_rows) + run_rows(budget_by_hand, budget_rows) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
