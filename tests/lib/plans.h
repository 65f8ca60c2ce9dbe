/* SPDX-License-Identifier: MIT */
/* Recipes, sizes and keep-plans. */
#ifndef WNW_TESTS_PLANS_H
#define WNW_TESTS_PLANS_H

#include "asserts.h"
#include "winnow_method.h"

/* The policy of a recipe; released with wnw_policy_free. The test fails with the parser's sentence. */
wnw_policy *test_policy(const char *recipe);
/* The same of a recipe that may name this part in addition to those of the library; NULL: the part's name. */
wnw_policy *test_policy_with(const wnw_part *part, const char *recipe);

wnw_size size_budget(int64_t n);
wnw_size size_ratio(double r);
wnw_size size_bytes(uint64_t n);

/* A plan like `of` in layer il that keeps everything in the other layers of s. */
wnw_plan *test_plan_of_layer(const wnw_session *s, const wnw_plan *of, int32_t il);

/* Entries at positions below `end` that a plan keeps, in all heads together. */
int32_t test_plan_below(const wnw_plan *plan, int32_t end);

/* Kept positions, merges and channels of every layer and head. */
bool test_same_plan(const wnw_plan *a, const wnw_plan *b);
/* The first difference is shown with its layer and head. */
#define assert_same_plan(a, b)  test_plans(a, b, true, #a " and " #b, __FILE__, __LINE__)
#define assert_other_plan(a, b) test_plans(a, b, false, #a " and " #b, __FILE__, __LINE__)
void test_plans(const wnw_plan *a, const wnw_plan *b, bool same, const char *what, const char *file,
                int line);

#endif
