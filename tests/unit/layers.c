/* SPDX-License-Identifier: MIT */
/* Ratios of layers that are given by hand, and options that are lists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_arrays.h"
#include "plans.h"
#include "scoring.h"

/* Four layers of 100 entries, 10 of them protected. */
static wnw_layer_problem four_layers(int32_t budget)
{
    return (wnw_layer_problem){.n_layer = 4,
                               .n_layer_model = 4,
                               .n = 100,
                               .n_past = 100,
                               .n_protected = 10,
                               .budget = budget,
                               .mean = budget};
}

static void assert_counts(const char *ratios, int32_t budget, const int32_t *want)
{
    char recipe[128];
    int32_t got[4];
    double work[4];
    wnw_layer_problem p = four_layers(budget);
    p.work = work;
    snprintf(recipe, sizeof recipe, "knorm+layers:ratios=%s", ratios);
    run_layer_budget(recipe, &p, got);
    for (int l = 0; l < 4; l++)
        if (got[l] != want[l])
            fail_msg("%s, %d entries: layer %d has %d, expected %d", ratios, budget, l, got[l], want[l]);
}

#define COUNTS(ratios, budget, ...) assert_counts(ratios, budget, (const int32_t[]){__VA_ARGS__})

static void scaled(void **state)
{
    (void)state;
    /* 4 x 30 entries that are not protected, in proportion to 1, 1/2, 1/2 and 0. */
    COUNTS("0/0.5/0.5/1", 40, 70, 40, 40, 10);
    /* Only the relations count. */
    COUNTS("0.5/0.75/0.75/1", 40, 70, 40, 40, 10);
    /* 4 x 60: the first layer would have 120 of 90, and the others have what is left. */
    COUNTS("0/0.5/0.5/1", 70, 100, 85, 85, 10);
    COUNTS("0.3", 40, 40, 40, 40, 40);
    COUNTS("1/1/1/1", 40, 40, 40, 40, 40);
}

static void as_given(void **state)
{
    (void)state;
    COUNTS("0/0.5/0.25/1,form=list", 40, 100, 50, 75, 10);
    COUNTS("0.75,form=list", 60, 25, 25, 25, 25);
    /* A head that was compressed before keeps its share of all tokens read. */
    double work[4];
    int32_t got[4];
    wnw_layer_problem p = four_layers(40);
    p.work = work;
    p.n_past = 140;
    run_layer_budget("knorm+layers:ratios=0/0.5/0.25/1,form=list", &p, got);
    assert_memory_equal(got, ((const int32_t[]){100, 70, 100, 10}), sizeof got);
}

/* Layers that take part are 1 and 3 of four. */
static void some_layers(void **state)
{
    (void)state;
    const int32_t il[] = {1, 3};
    double work[2];
    int32_t got[2];
    wnw_layer_problem p = four_layers(40);
    p.n_layer = 2;
    p.il = il;
    p.work = work;
    run_layer_budget("knorm+layers:ratios=0/0.5/0.9/0.75", &p, got);
    assert_memory_equal(got, ((const int32_t[]){50, 30}), sizeof got);
}

static void wrong_length(void **state)
{
    (void)state;
    wnw_policy *policy = test_policy("knorm+layers:ratios=0.5/0.5/0.5");
    wnw_layer_problem p = four_layers(40);
    int32_t got[4];
    char warning[256] = "";
    const wnw_layer_budget *b = &policy->part[WNW_PART_LAYER_BUDGET].layer;
    assert_int_equal(b->allocate(policy->opts[WNW_PART_LAYER_BUDGET], &p, got, warning), WNW_E_MISMATCH);
    assert_non_null(strstr(wnw_last_error(), "3 ratios are given and the model has 4 layers"));
    wnw_policy_free(policy);
}

static void bad_lists(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "/",     "0.5/",     "/0.5", "0.5//0.5", "nan",
                                      "-0.1", "0.5/2", "0.5/-0.5", "inf",  "0.5;0.5",  "0.5/half"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char recipe[64];
        wnw_policy *p = NULL;
        snprintf(recipe, sizeof recipe, "knorm+layers:ratios=%s", bad[i]);
        if (wnw_policy_parse(&p, recipe, NULL) != WNW_E_ARG)
            fail_msg("%s is not refused", recipe);
        assert_non_null(strstr(wnw_last_error(), "give numbers from 0 to 1"));
    }
}

/* A recipe of n numbers, which all are `one`. */
static void long_recipe(char *out, size_t size, const char *one, int n)
{
    size_t at = (size_t)snprintf(out, size, "knorm+layers:ratios=%s", one);
    for (int i = 1; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "/%s", one);
}

static void long_lists(void **state)
{
    (void)state;
    char recipe[4096], *text;
    wnw_policy *p = NULL, *same = NULL;
    long_recipe(recipe, sizeof recipe, "0.25", WNW_LIST_MAX);
    assert_ok(wnw_policy_parse(&p, recipe, NULL));
    assert_ok(wnw_policy_parse(&same, wnw_policy_string(p), NULL));
    assert_string_equal(wnw_policy_string(same), wnw_policy_string(p));
    wnw_policy_free(same);
    assert_ok(wnw_policy_short(p, &text));
    assert_ok(wnw_policy_parse(&same, text, NULL));
    assert_string_equal(wnw_policy_string(same), wnw_policy_string(p));
    free(text);
    wnw_policy_free(same);
    wnw_policy_free(p);
    long_recipe(recipe, sizeof recipe, "0.25", WNW_LIST_MAX + 1);
    assert_int_equal(wnw_policy_parse(&p, recipe, NULL), WNW_E_ARG);
    long_recipe(recipe, sizeof recipe, "0.123456789", WNW_LIST_MAX);
    assert_int_equal(wnw_policy_parse(&p, recipe, NULL), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "give fewer digits"));
    assert_ok(wnw_policy_parse(&p, "knorm+layers:ratios=.5/1e-3/0.75", NULL));
    assert_non_null(strstr(wnw_policy_string(p), "ratios=0.5/0.001/0.75,"));
    assert_ok(wnw_policy_short(p, &text));
    assert_string_equal(text, "knorm+layers:ratios=0.5/0.001/0.75");
    free(text);
    wnw_policy_free(p);
}

static void tables(void **state)
{
    (void)state;
    const wnw_option list[] = {
        {.name = "list", .type = WNW_OPT_LIST, .offset = 8, .def = 1, .min = 0, .max = 2}, {0}};
    assert_ok(wnw__opt_check_table(list, 8 + sizeof(wnw_list), "test"));
    assert_int_equal(wnw__opt_check_table(list, sizeof(wnw_list), "test"), WNW_E_ARG);
    const wnw_option askew[] = {
        {.name = "list", .type = WNW_OPT_LIST, .offset = 4, .def = 1, .min = 0, .max = 2}, {0}};
    assert_int_equal(wnw__opt_check_table(askew, 8 + sizeof(wnw_list), "test"), WNW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaled),       cmocka_unit_test(as_given),  cmocka_unit_test(some_layers),
        cmocka_unit_test(wrong_length), cmocka_unit_test(bad_lists), cmocka_unit_test(long_lists),
        cmocka_unit_test(tables),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
