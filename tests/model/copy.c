/* SPDX-License-Identifier: MIT */
/* Copies of a session: they go on bit for bit like the original, and neither reaches the other. */
#include "helpers.h"

#include "peek_session.h"

#include <stdlib.h>
#include <string.h>

#define N_PROMPT 140
#define N_DECODE 6

static void assert_same_state(const wnw_session *a, const wnw_session *b)
{
    wnw_cache_stats of_a = {WNW_INIT(wnw_cache_stats)}, of_b = {WNW_INIT(wnw_cache_stats)};
    assert_ok(wnw_cache_get_stats(a, &of_a));
    assert_ok(wnw_cache_get_stats(b, &of_b));
    assert_int_equal(of_a.n_entries, of_b.n_entries);
    assert_int_equal(of_a.bytes, of_b.bytes);
    assert_int_equal(of_a.growth, of_b.growth);
    assert_int_equal(of_a.bytes_meta, of_b.bytes_meta);
    assert_cmp(of_a.bytes_meta, >=, 4 * (uint64_t)of_a.n_entries);
    assert_same_cache(a, b);
}

static wnw_session *copy_of(const wnw_session *s)
{
    wnw_session *copy = NULL;
    assert_ok(wnw_session_copy(&copy, s));
    assert_non_null(copy);
    return copy;
}

/* Copy of a prompt, then of a compressed prompt, then in the middle of decoding. */
static void check_goes_on_alike(const struct test_model *fx, const struct test_session *how)
{
    wnw_policy *policy = test_policy("snapkv:window=8+adakv");
    wnw_session *s = test_session_read(fx->m, how, policy, fx->tokens, N_PROMPT);
    wnw_session *copy = copy_of(s);
    assert_same_logits(s, copy);
    assert_same_state(s, copy);

    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 40};
    assert_ok(wnw_session_compress(s, policy, &size, NULL));
    assert_int_not_equal(wnw_cache_n(s, fx->info.n_layer - 1, 0), wnw_cache_n(copy, fx->info.n_layer - 1, 0));
    /* The window's queries were copied too: the same plan comes out. */
    assert_ok(wnw_session_compress(copy, policy, &size, NULL));
    assert_same_state(s, copy);

    wnw_session *second = NULL;
    for (int i = 0; i < N_DECODE; i++) {
        if (i == N_DECODE / 2)
            second = copy_of(s);
        assert_ok(wnw_session_decode(s, fx->tokens[N_PROMPT + i]));
        assert_ok(wnw_session_decode(copy, fx->tokens[N_PROMPT + i]));
        assert_same_logits(s, copy);
    }
    for (int i = N_DECODE / 2; i < N_DECODE; i++)
        assert_ok(wnw_session_decode(second, fx->tokens[N_PROMPT + i]));
    assert_same_logits(s, second);
    assert_same_state(s, second);
    wnw_session_free(s);
    wnw_session_free(copy);
    wnw_session_free(second);
    wnw_policy_free(policy);
}

static void goes_on_alike(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "gemma3"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct test_model fx;
        test_open_tiny(&fx, archs[i], N_PROMPT + N_DECODE, 17);
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++)
            check_goes_on_alike(&fx, &(struct test_session){.attn = (wnw_attn)attn, .n_ctx = 256});
        check_goes_on_alike(&fx, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 256});
        test_close(&fx);
    }
}

/* Nothing that is done to a copy changes the original, and nothing that is done to the original changes the copy. */
static void copies_are_independent(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 17);
    const struct test_session how = {.n_ctx = 256};
    wnw_policy *policy = test_policy("streaming_llm");
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 20};
    wnw_session *untouched = test_session_new(fx.m, &how), *s = test_session_new(fx.m, &how);
    test_prefill(untouched, fx.tokens, N_PROMPT);
    test_prefill(s, fx.tokens, N_PROMPT);
    wnw_session *copy = copy_of(s), *survivor = copy_of(s);
    assert_ok(wnw_session_compress(copy, policy, &size, NULL));
    assert_ok(wnw_session_decode(copy, fx.tokens[0]));
    assert_same_state(s, untouched);
    assert_same_logits(s, untouched);
    wnw_session_free(copy);
    assert_ok(wnw_session_reset(s));
    wnw_session_free(s);
    assert_same_state(survivor, untouched);
    assert_ok(wnw_session_decode(survivor, fx.tokens[1]));
    assert_ok(wnw_session_decode(untouched, fx.tokens[1]));
    assert_same_logits(survivor, untouched);
    wnw_session_free(survivor);
    wnw_session_free(untouched);
    wnw_policy_free(policy);
    test_close(&fx);
}

/* Nothing read yet: no logits, and the copy reads like a new session. */
static void copy_of_nothing(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 17);
    wnw_session *s = test_session_new(fx.m, &(struct test_session){.n_ctx = 256});
    wnw_session *copy = copy_of(s);
    assert_null(wnw_session_logits(copy));
    test_prefill(s, fx.tokens, N_PROMPT);
    test_prefill(copy, fx.tokens, N_PROMPT);
    assert_same_logits(s, copy);
    assert_same_state(s, copy);
    wnw_session_free(s);
    wnw_session_free(copy);
    test_close(&fx);
}

static int plan_of(wnw_session *s, const wnw_policy *policy, wnw_plan **plan)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    return wnw_session_plan(s, policy, wnw_policy_is_full(policy) ? NULL : &size, plan, NULL);
}

static bool keeps_norms(const wnw_session *s)
{
    bool any = false;
    for (int kind = 0; kind < WNW_N_PROJ_NORMS; kind++)
        any = any || s->cache.aux_planes[WNW_AUX_PROJ + kind] > 0;
    return any;
}

/* Everything that was recorded for a policy is in the copy, nothing that another copy worked out. */
static void check_plan_of_copy(const struct test_model *fx, const char *recipe)
{
    wnw_policy *policy = test_policy(recipe);
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = 256, .n_threads = 1});
    const int32_t *const task = fx->tokens, n_task = 12;
    assert_ok(wnw_session_begin(
        s,
        &(wnw_run){WNW_INIT(wnw_run), .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1,
                                                              .task_tokens = &task, .n_task_tokens = &n_task,
                                                              .policies = (const wnw_policy *const[]){policy},
                                                              .n_policies = 1}}));
    test_prefill(s, fx->tokens, N_PROMPT);
    wnw_session *first = copy_of(s);
    wnw_plan *plans[3];
    const int status = plan_of(first, policy, &plans[0]);
    if (status != WNW_OK)
        assert_int_equal(status, WNW_E_MISMATCH); /* no profile */
    assert_false(keeps_norms(s));
    wnw_session *second = copy_of(s);
    assert_false(keeps_norms(second));
    assert_int_equal(plan_of(second, policy, &plans[1]), status);
    assert_int_equal(plan_of(s, policy, &plans[2]), status);
    assert_int_equal(keeps_norms(s), keeps_norms(first));
    for (int i = 0; i < 3 && status == WNW_OK; i++)
        assert_same_plan(plans[i], plans[0]);
    for (int i = 0; i < 3; i++)
        wnw_plan_free(plans[i]);
    wnw_session_free(s);
    wnw_session_free(first);
    wnw_session_free(second);
    wnw_policy_free(policy);
}

static void plans_of_copies(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "gemma3"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct test_model fx;
        wnw_method_info info = {WNW_INIT(wnw_method_info)};
        test_open_tiny(&fx, archs[i], N_PROMPT + N_DECODE, 17);
        for (int32_t k = 0; wnw_method_get(k, &info); k++)
            if (strcmp(info.kind, "preset") == 0)
                check_plan_of_copy(&fx, info.name);
        test_close(&fx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_alike),
        cmocka_unit_test(copies_are_independent),
        cmocka_unit_test(plans_of_copies),
        cmocka_unit_test(copy_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
