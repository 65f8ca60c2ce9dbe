/* SPDX-License-Identifier: MIT */
/* The selector that swaps near-equal keys, on six keys of two elements: 2, 3 and 0 point one way, 4 and 1 another. */
#include <string.h>

#include "plans.h"
#include "scoring.h"

static const float score[] = {9, 8, 7, 6, 5, 4};
static const float keys[] = {1, 0, 0, 1, 1, 0, 2, 0, 0, 3, -1, 0};

static void assert_kept(const char *recipe, const float *k, wnw_select_problem p, const int32_t *want)
{
    const struct score_rows rows = {.k = k};
    const wnw_observation obs = {.n_head = 1,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 6,
                                 .keys = row_keys,
                                 .source = (void *)(uintptr_t)&rows};
    float scratch[18];
    int32_t keep[6];
    wnw_policy *policy = test_policy(recipe);
    const wnw_selector *s = &policy->part[WNW_PART_SELECTOR].selector;
    const void *opts = policy->opts[WNW_PART_SELECTOR];
    p.score = score;
    p.n = 6;
    p.obs = &obs;
    assert_true(s->scratch(opts, 6) <= 18);
    const int32_t n = s->select(opts, &p, keep, scratch);
    wnw_policy_free(policy);
    if (n != p.n_keep || memcmp(keep, want, (size_t)n * sizeof *want) != 0)
        fail_msg("%s keeps %d entries, or others than expected", recipe, n);
}

#define KEPT(recipe, k, problem, ...) assert_kept(recipe, k, problem, (const int32_t[]){__VA_ARGS__})

static void swaps(void **state)
{
    (void)state;
    const wnw_select_problem three = {.n_keep = 3};
    /* 2 is a double of 0. Of the next three, 3 is a double of 0 and 4 of 1. */
    KEPT("knorm+distinct:share=1", keys, three, 0, 1, 5);
    /* One may give way, and the one next entry is a double itself. */
    KEPT("knorm+distinct:share=0.34", keys, three, 0, 1, 2);
    KEPT("knorm+distinct:share=0", keys, three, 0, 1, 2);
    /* 5 looks the other way: a cosine of -1 is never near. */
    KEPT("knorm+distinct:share=1,near=0.5", keys, three, 0, 1, 5);
    /* With near=0 keys at right angles are doubles too, and 5 is one of 1 as well. */
    KEPT("knorm+distinct:share=1,near=0", keys, three, 0, 1, 2);
}

static void stays_put(void **state)
{
    (void)state;
    const wnw_select_problem safe = {.n_keep = 3, .n_safe = 3}, first = {.n_keep = 3, .prot = {3, 0}};
    KEPT("knorm+distinct:share=1", keys, safe, 0, 1, 2);
    KEPT("knorm+distinct:share=1", keys, first, 0, 1, 2);
    /* A protected last entry counts as one that others are doubles of: 5 stays, and so 0 1 of the two others. */
    const wnw_select_problem last = {.n_keep = 3, .prot = {0, 1}};
    KEPT("knorm+distinct:share=1", keys, last, 0, 1, 5);
    const wnw_select_problem none = {.n_keep = 0}, all = {.n_keep = 6};
    KEPT("knorm+distinct", keys, none, 0);
    KEPT("knorm+distinct:share=1", keys, all, 0, 1, 2, 3, 4, 5);
    /* A key of length 0 is no double of any other. */
    const float with_zero[] = {1, 0, 0, 1, 0, 0, 0, 0, 0, 3, -1, 0};
    const wnw_select_problem three = {.n_keep = 3};
    KEPT("knorm+distinct:share=1,near=0", with_zero, three, 0, 2, 3);
}

static void bad_options(void **state)
{
    (void)state;
    static const char *const bad[] = {"knorm+distinct:near=nan", "knorm+distinct:near=1.1",
                                      "knorm+distinct:share=-0.1", "knorm+distinct:share="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_policy *p = NULL;
        assert_int_equal(wnw_policy_parse(&p, bad[i], NULL), WNW_E_ARG);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(swaps), cmocka_unit_test(stays_put),
                                       cmocka_unit_test(bad_options)};
    return cmocka_run_group_tests_name("distinct", tests, NULL, NULL);
}
