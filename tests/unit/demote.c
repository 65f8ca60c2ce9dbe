/* SPDX-License-Identifier: MIT */
/* The selector that demotes repeated marks, on nine entries of one head. */
#include <string.h>

#include "plans.h"
#include "scoring.h"

enum { N = 9 };

static const char *const prose[] = {"The", ",", " sea", ",", "\n", ".", "\n", " .", ","};

static void assert_kept(const char *recipe, const char *const *text, wnw_select_problem p,
                        const int32_t *want)
{
    static const float score[] = {1, 9, 8, 7, 6, 5, 4, 3, 2};
    const int32_t pos[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const wnw_observation obs = {
        .n_head = 1, .n_head_kv = 1, .n_embd_head = 2, .n = N, .n_past = N, .pos = pos, .token_text = text};
    float scratch[3 * N];
    int32_t keep[N];
    wnw_policy *policy = test_policy(recipe);
    const wnw_selector *s = &policy->part[WNW_PART_SELECTOR].selector;
    const void *opts = policy->opts[WNW_PART_SELECTOR];
    p.score = score;
    p.n = N;
    p.obs = &obs;
    assert_true(s->scratch(opts, N) <= 3 * N);
    const int32_t n = s->select(opts, &p, keep, scratch);
    wnw_policy_free(policy);
    if (n != p.n_keep || memcmp(keep, want, (size_t)n * sizeof *want) != 0)
        fail_msg("%s keeps %d entries, or others than expected", recipe, n);
}

#define KEPT(recipe, text, problem, ...) assert_kept(recipe, text, problem, (const int32_t[]){__VA_ARGS__})

/* Places by score are 8 0 1 2 3 4 5 6 7. Entries 3 and 8 repeat the comma, 6 the newline; " ." is another text than ".". */
static void repeats(void **state)
{
    (void)state;
    const wnw_select_problem four = {.n_keep = 4}, six = {.n_keep = 6}, seven = {.n_keep = 7},
                             all = {.n_keep = 9};
    KEPT("knorm+demote", prose, four, 1, 2, 4, 5);
    KEPT("knorm+demote", prose, six, 0, 1, 2, 4, 5, 7);
    KEPT("knorm+demote", prose, seven, 0, 1, 2, 3, 4, 5, 7);
    KEPT("knorm+demote", prose, all, 0, 1, 2, 3, 4, 5, 6, 7, 8);
    KEPT("knorm+demote:by=0", prose, four, 1, 2, 3, 4);
    /* By a quarter of nine: places 8 0 1 4.25 3 4 7.25 6 9.25. */
    KEPT("knorm+demote:by=0.25", prose, four, 1, 2, 4, 5);
    KEPT("knorm+demote:by=0.25", prose, six, 1, 2, 3, 4, 5, 7);
    KEPT("knorm+demote:by=0.25", prose, seven, 1, 2, 3, 4, 5, 6, 7);
    /* By a quarter of eight: places 7 0 1 4 3 4 7 6, and of 3 and 5 the earlier one stays. */
    const wnw_select_problem tie = {.n_keep = 5, .prot = {0, 1}};
    KEPT("knorm+demote:by=0.25", prose, tie, 1, 2, 3, 4, 8);
    KEPT("knorm+demote:what=blank", prose, six, 1, 2, 3, 4, 5, 7);
    KEPT("knorm+demote:what=punctuation", prose, six, 1, 2, 4, 5, 6, 7);
}

static void stays_put(void **state)
{
    (void)state;
    /* What is promised keeps its place, and protected entries stay though they repeat. */
    const wnw_select_problem safe = {.n_keep = 4, .n_safe = 3}, ends = {.n_keep = 6, .prot = {1, 2}};
    KEPT("knorm+demote", prose, safe, 1, 2, 3, 4);
    KEPT("knorm+demote", prose, ends, 0, 1, 2, 4, 7, 8);
    const wnw_select_problem none = {.n_keep = 0}, protected_only = {.n_keep = 9, .prot = {4, 5}};
    KEPT("knorm+demote", prose, none, 0);
    KEPT("knorm+demote", prose, protected_only, 0, 1, 2, 3, 4, 5, 6, 7, 8);
}

static void what_is_a_mark(void **state)
{
    (void)state;
    const wnw_select_problem five = {.n_keep = 5};
    /* Words, digits, "_x", parts of characters, texts that are not known and empty ones are none: all keep their places. */
    static const char *const words[] = {"a", "a", "17", "17", "_x", "_x", "\xe2\x80", "\xe2\x80", "\xe2\x80"};
    static const char *const none[] = {"", "", "", NULL, NULL, NULL, "\xff", "\xff", "\xff"};
    KEPT("knorm+demote", words, five, 1, 2, 3, 4, 5);
    KEPT("knorm+demote", none, five, 1, 2, 3, 4, 5);
    /* A dash, an ideographic full stop and space, fullwidth comma: 1, 3, 5 and 7 repeat what comes before each. */
    static const char *const wide[] = {"\xe2\x80\x94", "\xe2\x80\x94", "\xe3\x80\x82",
                                       "\xe3\x80\x82", "\xe3\x80\x80", "\xe3\x80\x80",
                                       "\xef\xbc\x8c", "\xef\xbc\x8c", "\xc3\xa9"};
    KEPT("knorm+demote", wide, five, 0, 2, 4, 6, 8);
    /* Letters of other scripts and signs of currency are none. */
    static const char *const letters[] = {"\xc3\xa9",         "\xc3\xa9",         "\xe3\x81\x82",
                                          "\xe3\x81\x82",     "\xe2\x82\xac",     "\xe2\x82\xac",
                                          "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", "x"};
    KEPT("knorm+demote", letters, five, 1, 2, 3, 4, 5);
}

static void bad_options(void **state)
{
    (void)state;
    static const char *const bad[] = {"knorm+demote:by=nan", "knorm+demote:by=1.1", "knorm+demote:by=-0.1",
                                      "knorm+demote:what=words"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_policy *p = NULL;
        assert_int_equal(wnw_policy_parse(&p, bad[i], NULL), WNW_E_ARG);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(repeats), cmocka_unit_test(stays_put),
                                       cmocka_unit_test(what_is_a_mark), cmocka_unit_test(bad_options)};
    return cmocka_run_group_tests_name("demote", tests, NULL, NULL);
}
