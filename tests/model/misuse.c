/* SPDX-License-Identifier: MIT */
/* Calls a session must refuse, and that it is as good as before afterwards. */
#include "helpers.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPT 60

/* Refused, with a sentence; which error code is not part of the contract. */
#define assert_refused(expr)                           \
    do {                                               \
        const int rc_ = (expr);                        \
        assert_cmp(rc_, <, 0);                         \
        assert_string_not_equal(wnw_last_error(), ""); \
    } while (0)

static wnw_session *session_of(const struct test_model *fx, int32_t n_ctx)
{
    return test_session_new(fx->m, &(struct test_session){.n_ctx = n_ctx, .n_threads = 1});
}

/* Decodes a token and compares with a session that nothing bad ever happened to. */
static void assert_as_good_as_new(const struct test_model *fx, wnw_session *s, int32_t n_read)
{
    assert_int_equal(wnw_session_n_past(s), n_read);
    wnw_session *clean = session_of(fx, 128);
    test_prefill(clean, fx->tokens, n_read);
    assert_ok(wnw_session_decode(clean, fx->tokens[n_read]));
    assert_ok(wnw_session_decode(s, fx->tokens[n_read]));
    assert_memory_equal(wnw_session_logits(s), wnw_session_logits(clean),
                        (size_t)fx->info.n_vocab * sizeof(float));
    wnw_session_free(clean);
}

static void session_params_out_of_range(void **state)
{
    const struct test_model *fx = *state;
    const wnw_session_params good = wnw_session_default_params();
    wnw_session_params bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].n_ctx = -1;
    bad[1].n_ctx = INT32_MAX;
    bad[2].n_ubatch = -1;
    bad[3].n_threads = -1;
    bad[4].n_threads = INT32_MAX;
    bad[5].n_ubatch = INT32_MAX;
    bad[6].kv_type = (wnw_kv_type)99;
    bad[7].attn = (wnw_attn)99;
    for (int i = 0; i < 8; i++) {
        wnw_session *s = NULL;
        if (wnw_session_new(&s, fx->m, &bad[i]) == WNW_OK)
            fail_msg("bad parameter set %d was accepted", i);
        assert_string_not_equal(wnw_last_error(), "");
        assert_null(s);
    }
    for (int i = 0; i < 2; i++) {
        wnw_session *s = NULL;
        assert_error(wnw_session_new(&s, fx->m, &bad[i]), WNW_E_RANGE);
    }
}

static void tokens_out_of_range(void **state)
{
    const struct test_model *fx = *state;
    wnw_session *s = session_of(fx, 128);
    int32_t tokens[N_PROMPT];
    const int32_t bad[] = {-1, fx->info.n_vocab, INT32_MAX, INT32_MIN};
    test_prefill(s, fx->tokens, N_PROMPT);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(tokens, fx->tokens, sizeof tokens);
        tokens[7] = bad[i];
        assert_refused(wnw_session_prefill(s, tokens, 20, NULL, NULL));
        assert_int_equal(wnw_session_n_past(s), N_PROMPT);
        assert_refused(wnw_session_decode(s, bad[i]));
    }
    assert_refused(wnw_session_prefill(s, tokens, -1, NULL, NULL));
    assert_as_good_as_new(fx, s, N_PROMPT);
    wnw_session_free(s);
}

static void context_overflow(void **state)
{
    const struct test_model *fx = *state;
    wnw_session *s = session_of(fx, 64);
    assert_error(wnw_session_prefill(s, fx->tokens, 65, NULL, NULL), WNW_E_FULL);
    assert_int_equal(wnw_session_n_past(s), 0);
    test_prefill(s, fx->tokens, N_PROMPT);
    assert_error(wnw_session_prefill(s, fx->tokens, 5, NULL, NULL), WNW_E_FULL);
    assert_as_good_as_new(fx, s, N_PROMPT);
    for (int32_t i = N_PROMPT + 1; i < 64; i++)
        assert_ok(wnw_session_decode(s, fx->tokens[i]));
    assert_error(wnw_session_decode(s, fx->tokens[0]), WNW_E_FULL);
    assert_int_equal(wnw_session_n_past(s), 64);
    wnw_session_reset(s);
    test_prefill(s, fx->tokens, N_PROMPT);
    assert_as_good_as_new(fx, s, N_PROMPT);
    wnw_session_free(s);
}

/* ---- Cancelling ---- */

static bool stop_at_64(int32_t done, int32_t total, void *user)
{
    (void)total;
    (void)user;
    return done < 64;
}

static bool stop_at_once(int32_t i, const float *logits, void *user)
{
    (void)i;
    (void)logits;
    ++*(int *)user;
    return false;
}

static void cancelled_prefill_goes_on(void **state)
{
    const struct test_model *fx = *state;
    wnw_session_params p = wnw_session_default_params();
    p.n_ctx = 128;
    p.n_ubatch = 32;
    p.n_threads = 1;
    const size_t bytes = (size_t)fx->info.n_vocab * sizeof(float);
    wnw_session *clean = NULL, *s = NULL;
    assert_ok(wnw_session_new(&clean, fx->m, &p));
    test_prefill(clean, fx->tokens, 120);
    p.progress = stop_at_64;
    assert_ok(wnw_session_new(&s, fx->m, &p));
    assert_error(wnw_session_prefill(s, fx->tokens, 120, NULL, NULL), WNW_E_CANCELLED);
    const int32_t done = wnw_session_n_past(s);
    assert_int_equal(done, 64);
    test_prefill(s, fx->tokens + done, 120 - done);
    assert_memory_equal(wnw_session_logits(s), wnw_session_logits(clean), bytes);

    int calls = 0;
    wnw_session_reset(s);
    assert_error(wnw_session_prefill(s, fx->tokens, 30, stop_at_once, &calls), WNW_E_CANCELLED);
    assert_int_equal(calls, 1);
    wnw_session_free(s);
    wnw_session_free(clean);
}

/* ---- Plans ---- */

/* A plan of n_layer x n_head heads that all keep pos[n]. */
static wnw_plan *same_everywhere(int32_t n_layer, int32_t n_head, int32_t n_tokens, const int32_t *pos,
                                 int32_t n)
{
    const int32_t heads = n_layer * n_head;
    int32_t *counts = malloc((size_t)heads * sizeof *counts);
    const int32_t **rows = malloc((size_t)heads * sizeof *rows);
    assert_non_null(counts);
    assert_non_null(rows);
    for (int32_t h = 0; h < heads; h++) {
        counts[h] = n;
        rows[h] = pos;
    }
    wnw_plan *plan = NULL;
    assert_ok(wnw_plan_new(&plan, n_layer, n_head, n_tokens, counts, rows));
    free(counts);
    free(rows);
    return plan;
}

static void plans_that_do_not_fit(void **state)
{
    const struct test_model *fx = *state;
    const int32_t nl = fx->info.n_layer, nh = fx->info.n_head_kv;
    static const int32_t some[] = {0, 3, 17}, others[] = {0, 4};
    wnw_session *s = session_of(fx, 128);
    test_prefill(s, fx->tokens, N_PROMPT);
    wnw_plan *bad[] = {
        same_everywhere(nl + 1, nh, N_PROMPT, some, 3),
        same_everywhere(nl, nh + 1, N_PROMPT, some, 3),
        same_everywhere(nl, nh, N_PROMPT + 1, some, 3),
        same_everywhere(nl, nh, N_PROMPT - 1, some, 3),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_error(wnw_session_apply(s, bad[i], NULL), WNW_E_MISMATCH);
        assert_int_equal(wnw_cache_n(s, 0, 0), N_PROMPT);
        wnw_plan_free(bad[i]);
    }
    assert_as_good_as_new(fx, s, N_PROMPT);
    wnw_session_free(s);

    s = session_of(fx, 128);
    test_prefill(s, fx->tokens, N_PROMPT);
    wnw_plan *plan = same_everywhere(nl, nh, N_PROMPT, some, 3);
    wnw_plan *gone = same_everywhere(nl, nh, N_PROMPT, others, 2);
    assert_ok(wnw_session_apply(s, plan, NULL));
    /* Position 4 is no longer there; nothing may be dropped on the way to finding out. */
    assert_error(wnw_session_apply(s, gone, NULL), WNW_E_MISMATCH);
    for (int32_t il = 0; il < nl; il++)
        for (int32_t ih = 0; ih < nh; ih++)
            assert_int_equal(wnw_cache_n(s, il, ih), 3);
    assert_ok(wnw_session_apply(s, plan, NULL)); /* applying it again changes nothing */
    assert_int_equal(wnw_cache_n(s, nl - 1, nh - 1), 3);
    assert_ok(wnw_session_decode(s, fx->tokens[0]));
    wnw_plan_free(plan);
    wnw_plan_free(gone);
    wnw_session_free(s);
}

static void plans_that_are_none(void **state)
{
    (void)state;
    static const int32_t descending[] = {5, 4}, twice[] = {4, 4}, negative[] = {-1, 4}, beyond[] = {4, 10};
    static const int32_t *const rows[] = {descending, twice, negative, beyond};
    const int32_t two = 2, minus = -1;
    for (int i = 0; i < 4; i++) {
        wnw_plan *plan = NULL;
        assert_error(wnw_plan_new(&plan, 1, 1, 10, &two, &rows[i]), WNW_E_ARG);
        assert_null(plan);
    }
    wnw_plan *plan = NULL;
    assert_error(wnw_plan_new(&plan, 1, 1, 10, &minus, &rows[0]), WNW_E_ARG);
    assert_error(wnw_plan_new(&plan, 0, 1, 10, &two, &rows[0]), WNW_E_ARG);
    assert_null(plan);
}

/* ---- Compressing ---- */

static void unobserved_policy(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *policy = test_policy("snapkv");
    wnw_session *s = session_of(fx, 128);
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_plan *plan = NULL;
    assert_ok(test_observe(s, NULL, 0));
    test_prefill(s, fx->tokens, N_PROMPT);
    assert_error(wnw_session_plan(s, policy, &half, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_null(plan);
    assert_error(wnw_session_compress(s, policy, &half, NULL), WNW_E_NOT_OBSERVED);
    assert_as_good_as_new(fx, s, N_PROMPT);
    wnw_session_free(s);
    wnw_policy_free(policy);
}

static void sizes_out_of_range(void **state)
{
    const struct test_model *fx = *state;
    static const wnw_size bad[] = {
        {.kind = WNW_SIZE_RATIO, .ratio = 1.0},      {.kind = WNW_SIZE_RATIO, .ratio = -0.1},
        {.kind = WNW_SIZE_RATIO, .ratio = NAN},      {.kind = WNW_SIZE_BUDGET, .budget = 0},
        {.kind = WNW_SIZE_BUDGET, .budget = -5},     {.kind = WNW_SIZE_BYTES, .bytes = 0},
        {.kind = WNW_SIZE_RATIO, .ratio = INFINITY},
    };
    wnw_policy *policy = test_policy("knorm");
    wnw_session *s = session_of(fx, 128);
    assert_ok(test_observe(s, (const wnw_policy *const *)&policy, 1));
    test_prefill(s, fx->tokens, N_PROMPT);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        wnw_plan *plan = NULL;
        assert_error(wnw_session_plan(s, policy, &bad[i], &plan, NULL), WNW_E_RANGE);
        assert_null(plan);
        assert_error(wnw_session_compress(s, policy, &bad[i], NULL), WNW_E_RANGE);
    }
    assert_as_good_as_new(fx, s, N_PROMPT);
    wnw_session_free(s);
    wnw_policy_free(policy);
}

static void prompts_shorter_than_the_window(void **state)
{
    const struct test_model *fx = *state;
    static const char *const recipes[] = {"snapkv", "snapkv+adakv", "tova", "lagkv", "pyramidkv"};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (int32_t n = 1; n <= 4; n++) {
            wnw_policy *policy = test_policy(recipes[i]);
            wnw_session *s = session_of(fx, 128);
            const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 100};
            assert_ok(test_observe(s, (const wnw_policy *const *)&policy, 1));
            test_prefill(s, fx->tokens, n);
            assert_ok(wnw_session_compress(s, policy, &size, NULL));
            assert_int_equal(wnw_cache_n(s, 0, 0), n);
            assert_as_good_as_new(fx, s, n);
            wnw_session_free(s);
            wnw_policy_free(policy);
        }
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up_tiny(state, &fx, "llama", 128, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_params_out_of_range),
        cmocka_unit_test(tokens_out_of_range),
        cmocka_unit_test(context_overflow),
        cmocka_unit_test(cancelled_prefill_goes_on),
        cmocka_unit_test(plans_that_do_not_fit),
        cmocka_unit_test(plans_that_are_none),
        cmocka_unit_test(unobserved_policy),
        cmocka_unit_test(sizes_out_of_range),
        cmocka_unit_test(prompts_shorter_than_the_window),
    };
    return cmocka_run_group_tests_name("misuse of a session", tests, set_up, test_tear_down);
}
