/* SPDX-License-Identifier: MIT */
/* HeadKV's budgets: shares by hand, full heads, groups, exact totals. */
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"

enum { MAX_ROW = 16 };

struct problem {
    wnw_layer_problem p;
    struct wnw_profile profile;
    double score[MAX_ROW];
    int32_t il[4], n_entry[MAX_ROW];
    wnw_protected prot[MAX_ROW];
    char warning[256];
};

/* Layers il[] of a model with n_layer_model; every head has n entries; the last w are protected. */
static void make(struct problem *q, int32_t n_layer, int32_t n_head_kv, int32_t group, int32_t n, int32_t w,
                 int32_t budget, const double *score)
{
    memset(q, 0, sizeof *q);
    q->p = (wnw_layer_problem){.n_layer = n_layer,
                               .n = n,
                               .n_protected = w,
                               .budget = budget,
                               .mean = budget,
                               .il = q->il,
                               .n_layer_model = 4,
                               .n_head = n_head_kv * group,
                               .n_head_kv = n_head_kv,
                               .profile = &q->profile,
                               .n_entry = q->n_entry,
                               .prot = q->prot};
    q->profile.head_score = q->score;
    memcpy(q->score, score, (size_t)(n_layer * n_head_kv * group) * sizeof *score);
    for (int32_t i = 0; i < n_layer; i++)
        q->il[i] = i;
    for (int32_t r = 0; r < n_layer * n_head_kv; r++) {
        q->n_entry[r] = n;
        q->prot[r].n_last = w;
    }
}

static int run(const char *recipe, struct problem *q, int32_t *n_keep)
{
    wnw_policy *policy = NULL;
    float scratch[1024];
    policy = test_policy(recipe);
    const wnw_head_budget *b = &policy->part[WNW_PART_HEAD_BUDGET].heads;
    const int rc = b->allocate_model(policy->opts[WNW_PART_HEAD_BUDGET], &q->p, n_keep, scratch, q->warning);
    wnw_policy_free(policy);
    return rc;
}

static void assert_counts(const char *recipe, struct problem *q, const int32_t *want)
{
    int32_t got[MAX_ROW];
    assert_int_equal(run(recipe, q, got), WNW_OK);
    for (int32_t r = 0; r < q->p.n_layer * q->p.n_head_kv; r++)
        if (got[r] != want[r])
            fail_msg("%s: row %d keeps %d, expected %d", recipe, r, got[r], want[r]);
}

#define COUNTS(recipe, q, ...) assert_counts(recipe, q, (const int32_t[]){__VA_ARGS__})

static void shares(void **state)
{
    (void)state;
    struct problem q;
    /* b = 100; beta 2: pool 50, least 50; shares .1 .2 .3 .4 of 200 */
    make(&q, 2, 2, 1, 500, 20, 120, (const double[]){1, 2, 3, 4});
    COUNTS("snapkv+headkv:beta=2", &q, 20 + 70, 20 + 90, 20 + 110, 20 + 130);
    /* beta 1: everything in the pool */
    COUNTS("snapkv+headkv:beta=1", &q, 20 + 40, 20 + 80, 20 + 120, 20 + 160);
    COUNTS("snapkv+headkv:beta=1000000", &q, 120, 120, 120, 120); /* pool floor(1e-4) = 0 */
    /* shares of squares: 1 4 9 16 of 30, times 200: 6.67 26.67 60 106.67; one entry is missing */
    COUNTS("snapkv+headkv:beta=2,temp=2", &q, 20 + 57, 20 + 77, 20 + 110, 20 + 156);
    /* floor(100 / 1.01) = 99, least 1: 39.6 79.2 118.8 158.4 */
    COUNTS("headkv", &q, 21 + 40, 21 + 79, 21 + 119, 21 + 158);
    COUNTS("snapkv+headkv:beta=1.5", &q, 20 + 34 + 26, 20 + 34 + 53, 20 + 34 + 79, 20 + 34 + 106);
}

/* A head that is full leaves the rest to the others, in proportion to their scores. */
static void full_heads(void **state)
{
    (void)state;
    struct problem q;
    make(&q, 2, 2, 1, 150, 20, 120, (const double[]){1, 2, 3, 94});
    /* 400 by beta 1: the last head has room for 130, 270 are left for 1 : 2 : 3; then 135 does not fit */
    COUNTS("snapkv+headkv:beta=1", &q, 20 + 47, 20 + 93, 150, 150);
    make(&q, 2, 2, 1, 150, 20, 120, (const double[]){0, 0, 0, 1});
    COUNTS("snapkv+headkv:beta=1", &q, 110, 110, 110, 150);
    make(&q, 2, 2, 1, 150, 20, 149, (const double[]){0, 0, 0, 1});
    COUNTS("snapkv+headkv:beta=1", &q, 149, 149, 148, 150);
    make(&q, 2, 2, 1, 150, 0, 1, (const double[]){0, 0, 0, 1});
    COUNTS("snapkv+headkv:beta=1", &q, 0, 0, 0, 4);
}

/* Heads of different length: what a short one cannot take, the others get. */
static void ragged_heads(void **state)
{
    (void)state;
    struct problem q;
    make(&q, 1, 3, 1, 100, 10, 40, (const double[]){1, 1, 1});
    q.n_entry[1] = 15; /* 105 of 120 are left for two */
    COUNTS("snapkv+headkv:beta=1", &q, 53, 15, 52);
    q.n_entry[1] = 5;
    q.prot[1].n_last = 5; /* 115 of 120 */
    COUNTS("snapkv+headkv:beta=1", &q, 58, 5, 57);
    q.n_entry[0] = q.n_entry[2] = 20; /* 45 in all */
    COUNTS("snapkv+headkv:beta=1", &q, 20, 5, 20);
}

static void groups_are_contiguous(void **state)
{
    (void)state;
    struct problem q;
    make(&q, 1, 2, 2, 500, 0, 100, (const double[]){3, 1, 0, 4});
    COUNTS("snapkv+headkv:beta=1", &q, 100, 100);
    make(&q, 1, 2, 2, 500, 0, 100, (const double[]){3, 3, 1, 1});
    COUNTS("snapkv+headkv:beta=1", &q, 150, 50);
    COUNTS("snapkv+headkv:beta=1,temp=2", &q, 180, 20); /* heads are raised before they are summed */
    make(&q, 1, 2, 2, 500, 0, 100, (const double[]){4, 0, 2, 2});
    COUNTS("snapkv+headkv:beta=1,temp=2", &q, 133, 67);
}

/* Only layers that take part count. */
static void layers_left_out(void **state)
{
    (void)state;
    struct problem q;
    make(&q, 1, 2, 1, 500, 0, 100, (const double[]){3, 1});
    q.il[0] = 2;
    const double all[] = {9, 9, 9, 9, 1, 3};
    memcpy(q.score, all, sizeof all);
    COUNTS("snapkv+headkv:beta=1", &q, 50, 150);
}

static void bad_profiles(void **state)
{
    (void)state;
    struct problem q;
    int32_t n_keep[MAX_ROW];
    make(&q, 2, 2, 1, 500, 20, 120, (const double[]){0, 0, 0, 0});
    COUNTS("headkv", &q, 120, 120, 120, 120);
    assert_contains(q.warning, "score 0");
    q.profile.head_score = NULL;
    assert_int_equal(run("headkv", &q, n_keep), WNW_E_MISMATCH);
    assert_says("one score per query head");

    struct fake f;
    fake_init(&f, 3, 2, 2, 96, false);
    f.src.profile = NULL;
    wnw_plan *plan;
    assert_int_equal(fake_plan(&plan, &f, "headkv", NULL, NULL), WNW_E_MISMATCH);
    fake_free(&f);
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "headkv+pyramid", NULL), WNW_E_ARG);
}

static void plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {"headkv:window=8", "snapkv:window=8+headkv+critical",
                                          "criticalkv-headkv:window=8", "tova+headkv:beta=5",
                                          "expected_attention+headkv"};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 96, ragged);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
            for (int32_t b = 9; b < 60; b += 17) {
                const wnw_size size = size_budget(b);
                wnw_plan *plan = fake_planned(&f, recipes[i], &size, NULL);
                const int64_t n = fake_check_plan(plan, &f);
                if (n > 3 * 2 * b || (!ragged && n != 3 * 2 * b))
                    fail_msg("%s: %d entries of %d", recipes[i], (int)n, 3 * 2 * b);
                bool equal = true;
                for (int32_t il = 0; il < 3; il++)
                    for (int32_t ih = 0; ih < 2; ih++) {
                        equal = equal && fake_kept(plan, il, ih) == b;
                        for (int32_t p = 88; p < 96 && i < 3 && !ragged; p++)
                            assert_true(fake_holds(plan, il, ih, p));
                    }
                if (equal)
                    assert_int_equal(b, 9);
                wnw_plan_free(plan);
            }
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),       cmocka_unit_test(full_heads),
        cmocka_unit_test(ragged_heads), cmocka_unit_test(groups_are_contiguous),
        cmocka_unit_test(plans),        cmocka_unit_test(layers_left_out),
        cmocka_unit_test(bad_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
