/* SPDX-License-Identifier: MIT */
/* The selector that averages ranks over compressions, on four and five entries of one head. */
#include <math.h>
#include <string.h>

#include "plans.h"
#include "scoring.h"

enum { N = 5 };

struct want {
    int32_t n, keep[N];
    float note[N]; /* of all entries */
};

static void assert_ranked(const char *recipe, const float *score, const float *before, wnw_select_problem p,
                          const struct want *want)
{
    const int32_t pos[N] = {0, 1, 2, 3, 4};
    const wnw_observation obs = {
        .n_head = 1, .n_head_kv = 1, .n_embd_head = 2, .n = p.n, .n_past = N, .pos = pos, .note = before};
    float scratch[2 * N], note[N];
    int32_t keep[N];
    wnw_policy *policy = test_policy(recipe);
    const wnw_selector *s = &policy->part[WNW_PART_SELECTOR].selector;
    const void *opts = policy->opts[WNW_PART_SELECTOR];
    p.score = score;
    p.obs = &obs;
    p.note = note;
    for (int32_t i = 0; i < p.n; i++)
        note[i] = NAN;
    assert_true(s->scratch(opts, p.n) <= 2 * (size_t)p.n);
    const int32_t n = s->select(opts, &p, keep, scratch);
    wnw_policy_free(policy);
    if (n != want->n || memcmp(keep, want->keep, (size_t)n * sizeof *keep) != 0)
        fail_msg("%s keeps %d entries, or others than expected", recipe, n);
    for (int32_t i = 0; i < p.n; i++)
        if (isnan(want->note[i]) ? !isnan(note[i]) : note[i] != want->note[i])
            fail_msg("%s notes %g of entry %d, not %g", recipe, (double)note[i], i, (double)want->note[i]);
}

static const float scores[N] = {1, 4, 3, 3, 0};

/* q of the first four is 3/4 0 1/4 1/4. */
static void first_time(void **state)
{
    (void)state;
    const float nothing[] = {NAN, NAN, NAN, NAN};
    const wnw_select_problem two = {.n = 4, .n_keep = 2};
    assert_ranked("knorm+ranks", scores, nothing, two, &(struct want){2, {1, 2}, {0.75f, 0, 0.25f, 0.25f}});
}

static void later(void **state)
{
    (void)state;
    /* R = (3/4 + 0) / 2, (0 + 1) / 2, nothing was noted of 2, (1/4 + 0) / 2. */
    const float before[] = {0, 1, NAN, 0};
    const wnw_select_problem one = {.n = 4, .n_keep = 1}, two = {.n = 4, .n_keep = 2},
                             three = {.n = 4, .n_keep = 3};
    const struct want half = {0, {0}, {0.375f, 0.5f, 0.25f, 0.125f}};
    assert_ranked("knorm+ranks", scores, before, one, &(struct want){1, {3}, {0.375f, 0.5f, 0.25f, 0.125f}});
    assert_ranked("knorm+ranks", scores, before, two,
                  &(struct want){2, {2, 3}, {0.375f, 0.5f, 0.25f, 0.125f}});
    assert_ranked("knorm+ranks", scores, before, three,
                  &(struct want){3, {0, 2, 3}, {0.375f, 0.5f, 0.25f, 0.125f}});
    const wnw_select_problem none = {.n = 4, .n_keep = 0};
    assert_ranked("knorm+ranks", scores, before, none, &half);
    /* The present alone, the past alone, and a quarter of the present. */
    assert_ranked("knorm+ranks:weight=1", scores, before, two,
                  &(struct want){2, {1, 2}, {0.75f, 0, 0.25f, 0.25f}});
    assert_ranked("knorm+ranks:weight=0", scores, before, two, &(struct want){2, {0, 3}, {0, 1, 0.25f, 0}});
    assert_ranked("knorm+ranks:weight=0.25", scores, before, two,
                  &(struct want){2, {0, 3}, {0.1875f, 0.75f, 0.25f, 0.0625f}});
}

/* Protected entries are not judged, and what is promised stays by its present score. */
static void stays_put(void **state)
{
    (void)state;
    const float before[] = {0.5f, 1, NAN, 0, 0};
    /* q of entries 1 .. 4 is 0 1/4 1/4 3/4. */
    const wnw_select_problem first = {.n = 5, .n_keep = 2, .prot = {1, 0}};
    assert_ranked("knorm+ranks", scores, before, first,
                  &(struct want){2, {0, 3}, {NAN, 0.5f, 0.25f, 0.125f, 0.375f}});
    const wnw_select_problem last = {.n = 5, .n_keep = 2, .prot = {0, 1}};
    assert_ranked("knorm+ranks", scores, before, last,
                  &(struct want){2, {3, 4}, {0.625f, 0.5f, 0.25f, 0.125f, NAN}});
    const wnw_select_problem safe = {.n = 5, .n_keep = 2, .n_safe = 1, .prot = {1, 0}};
    assert_ranked("knorm+ranks", scores, before, safe,
                  &(struct want){2, {0, 1}, {NAN, 0.5f, 0.25f, 0.125f, 0.375f}});
    const wnw_select_problem all = {.n = 5, .n_keep = 5, .prot = {2, 3}};
    assert_ranked("knorm+ranks", scores, before, all,
                  &(struct want){5, {0, 1, 2, 3, 4}, {NAN, NAN, NAN, NAN, NAN}});
}

static void bad_options(void **state)
{
    (void)state;
    static const char *const bad[] = {"knorm+ranks:weight=nan", "knorm+ranks:weight=1.1",
                                      "knorm+ranks:weight=-0.1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_policy *p = NULL;
        assert_int_equal(wnw_policy_parse(&p, bad[i], NULL), WNW_E_ARG);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_time), cmocka_unit_test(later),
                                       cmocka_unit_test(stays_put), cmocka_unit_test(bad_options)};
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
