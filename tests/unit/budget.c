/* SPDX-License-Identifier: MIT */
/* Layer and head budgets against numbers worked out by hand. */
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"

static void heads(const char *recipe, const wnw_head_problem *problem, int32_t *n_keep)
{
    float scratch[256];
    int32_t n_safe[64] = {0};
    assert_cmp(problem->n_head_kv * problem->n, <=, 256);
    wnw_policy *p = test_policy(recipe);
    p->part[WNW_PART_HEAD_BUDGET].heads.allocate(p->opts[WNW_PART_HEAD_BUDGET], problem, n_keep, n_safe,
                                                 scratch);
    wnw_policy_free(p);
}

static void rounding(void **state)
{
    (void)state;
    assert_int_equal(wnw__round_count(1000 * (1 - 0.9), WNW_ROUND_EXACT), 100);
    assert_int_equal(wnw__round_count(1000 * (1 - 0.9), WNW_ROUND_TRUNC), 99);
    assert_int_equal(wnw__round_count(600 * (1 - 0.9), WNW_ROUND_TRUNC), 59);
    assert_int_equal(wnw__round_count(10 * (1 - 0.8), WNW_ROUND_TRUNC), 1);
    assert_int_equal(wnw__round_count(2.5, WNW_ROUND_EXACT), 2);
    assert_int_equal(wnw__round_count(-1, WNW_ROUND_EXACT), 0);
    assert_int_equal(wnw__round_count(1e30, WNW_ROUND_EXACT), INT32_MAX);
}

static void shrinking(void **state)
{
    (void)state;
    wnw_protected p = wnw__protected_shrink((wnw_protected){0, 32}, 32);
    assert_int_equal(p.n_last, 32);
    p = wnw__protected_shrink((wnw_protected){0, 64}, 48); /* a quarter */
    assert_int_equal(p.n_last, 12);
    p = wnw__protected_shrink((wnw_protected){0, 32}, 20); /* at least 8 */
    assert_int_equal(p.n_last, 8);
    p = wnw__protected_shrink((wnw_protected){4, 32}, 10); /* sinks get what is left */
    assert_int_equal(p.n_first, 2);
    assert_int_equal(p.n_last, 8);
    p = wnw__protected_shrink((wnw_protected){4, 32}, 1);
    assert_int_equal(p.n_first + p.n_last, 0);
    p = wnw__protected_shrink((wnw_protected){4, 0}, 3); /* leaves room for recent tokens */
    assert_int_equal(p.n_first, 1);
    p = wnw__protected_clamp((wnw_protected){4, 32}, 10);
    assert_int_equal(p.n_first, 4);
    assert_int_equal(p.n_last, 6);
    p = wnw__protected_clamp((wnw_protected){4, 32}, 3);
    assert_int_equal(p.n_first, 3);
    assert_int_equal(p.n_last, 0);
}

static void pyramid_exact(void **state)
{
    (void)state;
    static const int32_t want[32] = {234, 227, 219, 212, 205, 197, 190, 183, 175, 168, 160,
                                     153, 146, 138, 131, 124, 116, 109, 102, 94,  87,  80,
                                     72,  65,  57,  50,  43,  35,  28,  21,  13,  6};
    const wnw_layer_problem problem = {
        .n_layer = 32, .n = 100000, .n_protected = 8, .budget = 128, .mean = 128};
    int32_t got[32];
    assert_int_equal(run_layer_budget("pyramidkv", &problem, got), 4096);
    for (int l = 0; l < 32; l++)
        assert_int_equal(got[l], want[l] + 8);
}

static void pyramid_paper(void **state)
{
    (void)state;
    static const int32_t budget[] = {128, 256, 512, 1024, 2048};
    static const int32_t first[] = {242, 492, 991, 1990, 3986}, last[] = {25, 27, 61, 68, 111};
    static const int64_t total[] = {4272, 8304, 16832, 32928, 65552};
    int32_t got[32];
    for (int i = 0; i < 5; i++) {
        const wnw_layer_problem problem = {
            .n_layer = 32, .n = 100000, .n_protected = 8, .budget = budget[i], .mean = budget[i]};
        assert_int_equal(run_layer_budget("paper-compresskv-pyramidkv", &problem, got), total[i]);
        assert_int_equal(got[0], first[i]);
        assert_int_equal(got[31], last[i]);
    }
}

static void pyramid_kvpress(void **state)
{
    (void)state;
    static const int32_t want[30] = {568, 550, 531, 513, 494, 476, 457, 439, 420, 402,
                                     383, 365, 346, 328, 309, 291, 272, 254, 235, 217,
                                     198, 180, 161, 143, 124, 106, 87,  69,  50,  32};
    wnw_layer_problem problem = {
        .n_layer = 30, .n = 600, .n_protected = 32, .budget = 300, .mean = 600 * (1 - 0.5)};
    int32_t got[30];
    run_layer_budget("kvpress-pyramidkv", &problem, got);
    assert_memory_equal(got, want, sizeof want);
    /* The last layer would have less than the window: uniform, rounded, not truncated. */
    problem.budget = 59;
    problem.mean = 600 * (1 - 0.9);
    assert_int_equal(run_layer_budget("kvpress-pyramidkv", &problem, got), 30 * 60);
    assert_int_equal(got[0], 60);
    assert_int_equal(got[29], 60);
}

/* The total is exact and no layer gets more than there is, for any shape. */
static void pyramid_totals(void **state)
{
    (void)state;
    int32_t got[64];
    for (int32_t n_layer = 1; n_layer <= 40; n_layer += 3)
        for (int32_t n = 2; n < 700; n += 17)
            for (int32_t budget = 1; budget < n; budget += 1 + n / 11) {
                const wnw_layer_problem problem = {.n_layer = n_layer,
                                                   .n = n,
                                                   .n_protected = budget < 8 ? 0 : 8,
                                                   .budget = budget,
                                                   .mean = budget};
                assert_int_equal(run_layer_budget("pyramidkv", &problem, got), (int64_t)n_layer * budget);
                for (int32_t l = 0; l < n_layer; l++) {
                    assert_in_range(got[l], problem.n_protected, n);
                    if (l > 0)
                        assert_cmp(got[l], <=, got[l - 1]);
                }
            }
}

/* Two heads of 10, average 5, 1 of them protected: head 0 is concentrated. */
static const float two_heads[] = {.9f,  .01f, .01f, .01f, .01f, .01f, .01f, .01f, .01f, 0,
                                  .30f, .29f, .28f, .27f, .26f, .25f, .24f, .23f, .22f, 0};

static void adakv_safeguard(void **state)
{
    (void)state;
    const int32_t n_entry[] = {10, 10};
    const wnw_protected prot[] = {{0, 1}, {0, 1}};
    wnw_head_problem problem = {
        .n_head_kv = 2, .n = 10, .n_entry = n_entry, .score = two_heads, .prot = prot, .budget = 5};
    int32_t got[2];
    /* floor(5 x 0.2) = 1, taken by the window; 8 places: .9, then .30 .. .24 */
    heads("adakv", &problem, got);
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 8);
    /* floor(5 x 0.8) = 4 sure each (window included), the last two go to head 1 */
    heads("adakv:alpha_safeguard=0.8", &problem, got);
    assert_int_equal(got[0], 4);
    assert_int_equal(got[1], 6);
    heads("adakv:alpha_safeguard=1", &problem, got);
    assert_int_equal(got[0], 5);
    assert_int_equal(got[1], 5);
    heads("snapkv", &problem, got);
    assert_int_equal(got[0], 5);
    assert_int_equal(got[1], 5);
}

static void adakv_floor(void **state)
{
    (void)state;
    const int32_t n_entry[] = {10, 10};
    const wnw_protected prot[] = {{0, 1}, {0, 1}};
    const wnw_head_problem problem = {
        .n_head_kv = 2, .n = 10, .n_entry = n_entry, .score = two_heads, .prot = prot, .budget = 5};
    int32_t got[2];
    /* c = 1, 7 of 8; .5 x 1 + .5 x 4 = 2.5, .5 x 7 + 2 = 5.5: equal fractions, the lower head rounds up */
    heads("adakv:alpha_safeguard=0.5,mode=floor", &problem, got);
    assert_int_equal(got[0], 3 + 1);
    assert_int_equal(got[1], 5 + 1);
    heads("adakv:alpha_safeguard=0,mode=floor", &problem, got);
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 8);
}

/* As the authors' code has it: the equal part is floored, then every head rounded by itself. */
static void adakv_code(void **state)
{
    (void)state;
    const int32_t n_entry[] = {10, 10};
    const wnw_protected prot[] = {{0, 1}, {0, 1}};
    const wnw_head_problem problem = {
        .n_head_kv = 2, .n = 10, .n_entry = n_entry, .score = two_heads, .prot = prot, .budget = 5};
    int32_t got[2];
    /* c = 1, 7. floor(.4 x 4) = 1: .6 + 1 = 1.6 and 4.2 + 1 = 5.2, seven of eight. Unfloored: 2.2, 5.8,
     * eight. */
    heads("adakv:alpha_safeguard=0.4,mode=code", &problem, got);
    assert_int_equal(got[0], 2 + 1);
    assert_int_equal(got[1], 5 + 1);
    /* .5 x 1 + 2 = 2.5 and 3.5 + 2 = 5.5: halves to even. */
    heads("adakv:alpha_safeguard=0.5,mode=code", &problem, got);
    assert_int_equal(got[0], 2 + 1);
    assert_int_equal(got[1], 6 + 1);
    wnw_policy *p = test_policy("paper-adakv");
    assert_contains(wnw_policy_string(p), "mode=code");
    wnw_policy_free(p);
}

static void adakv_ties_go_to_lower_heads(void **state)
{
    (void)state;
    static const float score[3 * 4] = {0};
    const int32_t n_entry[] = {4, 4, 4};
    const wnw_protected prot[3] = {{0, 0}, {0, 0}, {0, 0}};
    const wnw_head_problem problem = {
        .n_head_kv = 3, .n = 4, .n_entry = n_entry, .score = score, .prot = prot, .budget = 2};
    int32_t got[3];
    heads("adakv:alpha_safeguard=0", &problem, got);
    assert_int_equal(got[0], 4);
    assert_int_equal(got[1], 2);
    assert_int_equal(got[2], 0);
}

/* Padding is never counted, and a head cannot give more than it has. */
static void adakv_ragged(void **state)
{
    (void)state;
    const float score[] = {.5f, .4f, 99, 99, /**/ .3f, .2f, .1f, .05f};
    const int32_t n_entry[] = {2, 4};
    const wnw_protected prot[] = {{0, 0}, {0, 0}};
    const wnw_head_problem problem = {
        .n_head_kv = 2, .n = 4, .n_entry = n_entry, .score = score, .prot = prot, .budget = 3};
    static const char *const recipes[] = {"adakv", "adakv:mode=floor", "adakv:alpha_safeguard=1"};
    for (size_t i = 0; i < 3; i++) {
        int32_t got[2];
        heads(recipes[i], &problem, got);
        assert_int_equal(got[0], 2);
        assert_int_equal(got[1], 4);
    }
    int32_t got[2];
    heads("snapkv", &problem, got); /* equal: the unused place is nobody's */
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 3);
}

static void adakv_totals(void **state)
{
    (void)state;
    float score[5 * 40];
    srand(7);
    for (int round = 0; round < 2000; round++) {
        const int32_t n_head = 1 + rand() % 5, n = 1 + rand() % 40, budget = 1 + rand() % n;
        int32_t n_entry[5], got[5];
        wnw_protected prot[5];
        int64_t have = 0, sum = 0;
        for (int32_t ih = 0; ih < n_head; ih++) {
            n_entry[ih] = rand() % 3 ? n : rand() % (n + 1);
            const int32_t most = n_entry[ih] < budget ? n_entry[ih] : budget;
            prot[ih].n_first = rand() % (most + 1);
            prot[ih].n_last = rand() % (most - prot[ih].n_first + 1);
            have += n_entry[ih];
        }
        for (int i = 0; i < n_head * n; i++)
            score[i] = (float)(rand() % 9); /* many ties */
        const wnw_head_problem problem = {
            .n_head_kv = n_head, .n = n, .n_entry = n_entry, .score = score, .prot = prot, .budget = budget};
        heads(round % 2 ? "adakv" : "adakv:mode=floor,alpha_safeguard=0.37", &problem, got);
        for (int32_t ih = 0; ih < n_head; ih++) {
            assert_in_range(got[ih], prot[ih].n_first + prot[ih].n_last, n_entry[ih]);
            sum += got[ih];
        }
        const int64_t asked = (int64_t)n_head * budget;
        assert_int_equal(sum, asked < have ? asked : have);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding),        cmocka_unit_test(shrinking),
        cmocka_unit_test(pyramid_exact),   cmocka_unit_test(pyramid_paper),
        cmocka_unit_test(pyramid_kvpress), cmocka_unit_test(pyramid_totals),
        cmocka_unit_test(adakv_safeguard), cmocka_unit_test(adakv_floor),
        cmocka_unit_test(adakv_code),      cmocka_unit_test(adakv_ties_go_to_lower_heads),
        cmocka_unit_test(adakv_ragged),    cmocka_unit_test(adakv_totals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
