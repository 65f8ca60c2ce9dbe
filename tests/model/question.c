/* SPDX-License-Identifier: MIT */
/* Policies that know which part of the prompt is the question. */
#include "helpers.h"

#include "fake_source.h"
#include "peek_prompt.h"
#include "peek_session.h"

#include <string.h>

enum { N = 96 };

static wnw_session *read_prompt(const struct test_model *t, const wnw_policy *p)
{
    return test_session_read(t->m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 256}, p, t->tokens,
                             N);
}

/* The last n tokens of the prompt are the question. */
static void tell_question(wnw_session *s, const wnw_policy *p, int32_t n)
{
    wnw_prompt prompt = {.tokens = s->token_log.tokens, .n_tokens = N, .n_context = N - n};
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt,
                      .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &p, .n_policies = 1}}));
}

static wnw_plan *plan_of(wnw_session *s, const char *recipe)
{
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 30};
    wnw_policy *p = test_policy(recipe);
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_plan(s, p, &size, &plan, NULL));
    wnw_policy_free(p);
    return plan;
}

/* The session's question does what the policy's own option does; it travels with a copy. */
static void border_of_the_question(void **state)
{
    (void)state;
    struct test_model t;
    test_open(&t, "tiny/tiny-llama.gguf", N, 7);
    wnw_policy *p = test_policy("finch");
    wnw_session *s = read_prompt(&t, p), *copy = NULL;
    wnw_plan *eight = plan_of(s, "finch:question=8"), *twenty = plan_of(s, "finch:question=20");
    wnw_plan *unknown = plan_of(s, "finch"), *last = plan_of(s, "finch:question=32");
    assert_same_plan(unknown, last);
    assert_other_plan(eight, twenty);
    tell_question(s, p, 8);
    assert_ok(wnw_session_copy(&copy, s));
    wnw_plan *told = plan_of(s, "finch"), *copied = plan_of(copy, "finch");
    assert_same_plan(told, eight);
    assert_same_plan(copied, eight);
    const int32_t *pos;
    const int32_t n = wnw_plan_head(told, 0, 0, &pos);
    assert_int_equal(n, 30);
    for (int32_t i = 0; i < 8; i++) /* the question itself stays */
        assert_int_equal(pos[n - 1 - i], N - 1 - i);
    wnw_plan *const plans[] = {eight, twenty, unknown, last, told, copied};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        wnw_plan_free(plans[i]);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(border_of_the_question)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
