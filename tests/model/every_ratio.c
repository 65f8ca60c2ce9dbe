/* SPDX-License-Identifier: MIT */
/* A ratio for compressions while decoding: of the entries there, or of all tokens read. */
#include "helpers.h"
#include "sessions.h"

#include <math.h>
#include <stdlib.h>

enum { N = 40, EVERY = 10, STEPS = 3, N_CTX = 128 };

static wnw_session *begin(const struct test_model *fx, const wnw_policy *p, double ratio, bool of_read)
{
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    const wnw_run run = {
        WNW_INIT(wnw_run), .policy = p,          .size = {.kind = WNW_SIZE_BUDGET, .budget = N_CTX},
        .every = EVERY,    .every_ratio = ratio, .every_ratio_read = of_read};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, fx->tokens, N, NULL));
    return s;
}

/* Every head of every layer has want[i] entries after the (i + 1)-th compression, and one more with the next token. */
static void counts(const struct test_model *fx, bool of_read, const int32_t *want)
{
    wnw_policy *p = test_policy("knorm");
    wnw_session *s = begin(fx, p, 0.5, of_read);
    for (int32_t i = 0; i < STEPS; i++) {
        const int32_t before = wnw_cache_n(s, 0, 0);
        test_decode(s, fx->tokens + N + i * EVERY, EVERY - 1);
        assert_int_equal(wnw_cache_n(s, 0, 0), before + EVERY - 1);
        test_decode(s, fx->tokens + N + i * EVERY + EVERY - 1, 1);
        for (int32_t il = 0; il < fx->info.n_layer; il++)
            for (int32_t ih = 0; ih < fx->info.n_head_kv; ih++)
                assert_int_equal(wnw_cache_n(s, il, ih), want[i]);
    }
    wnw_session_free(s);
    wnw_policy_free(p);
}

static void shares(void **state)
{
    /* floor(50 / 2), floor((25 + 10) / 2), floor((17 + 10) / 2); floor(50 / 2), floor(60 / 2), floor(70 / 2). */
    counts(*state, false, (const int32_t[]){25, 17, 13});
    counts(*state, true, (const int32_t[]){25, 30, 35});
}

/* Tokens that were read before the rules do not count as read, if they are gone. */
static void later_rules(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *p = test_policy("knorm");
    wnw_session *s = begin(fx, p, 0.5, true);
    const wnw_size quarter = {.kind = WNW_SIZE_BUDGET, .budget = N / 4};
    assert_ok(wnw_session_compress(s, p, &quarter, NULL));
    const wnw_run run = {
        WNW_INIT(wnw_run), .policy = p,         .size = {.kind = WNW_SIZE_BUDGET, .budget = N_CTX},
        .every = EVERY,    .every_ratio = 0.25, .every_ratio_read = true};
    assert_ok(wnw_session_begin(s, &run));
    test_decode(s, fx->tokens + N, EVERY);
    assert_int_equal(wnw_cache_n(s, 0, 0), 15); /* of 10 + 10 */
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* Where heads differ in length, the share is one of all their entries. */
static void ragged(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *p = test_policy("snapkv:window=4+adakv");
    wnw_session *s = begin(fx, p, 0.5, false);
    for (int32_t i = 0; i < STEPS; i++) {
        test_decode(s, fx->tokens + N + i * EVERY, EVERY - 1);
        const double before = test_mean_entries(s);
        test_decode(s, fx->tokens + N + i * EVERY + EVERY - 1, 1);
        assert_cmp(test_mean_entries(s), <=, (before + 1) / 2);
        assert_cmp(test_mean_entries(s), >, (before + 1) / 2 - 1);
    }
    wnw_session_free(s);
    wnw_policy_free(p);
}

static void refused(void **state)
{
    const struct test_model *fx = *state;
    static const double bad[] = {1, -0.5, 2, NAN, INFINITY};
    wnw_policy *p = test_policy("knorm");
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .every = EVERY, .every_ratio = bad[i]};
        assert_error(wnw_session_begin(s, &run), WNW_E_RANGE);
        assert_says("while decoding is out of range");
    }
    const wnw_run both = {WNW_INIT(wnw_run), .policy = p, .every = EVERY, .target = 20, .every_ratio = 0.5};
    assert_error(wnw_session_begin(s, &both), WNW_E_ARG);
    assert_says("takes the place of a target");
    const wnw_run nobody = {WNW_INIT(wnw_run), .every_ratio = 0.5};
    assert_error(wnw_session_begin(s, &nobody), WNW_E_ARG);
    assert_says("need a policy");
    assert_null(wnw_session_policy(s));
    wnw_session_free(s);
    wnw_policy_free(p);
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up_tiny(state, &fx, "llama", N + STEPS * EVERY, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares), cmocka_unit_test(later_rules),
                                       cmocka_unit_test(ragged), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
