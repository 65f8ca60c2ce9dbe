/* SPDX-License-Identifier: MIT */
/* A session that knows what of its prompt the chat template wrote. */
#include "fake_source.h"
#include "helpers.h"
#include "peek_prompt.h"
#include "peek_session.h"

#include <string.h>

enum { N = 96, N_PREFIX = 7 };

static const int32_t suffix[] = {5, 9, 5};

static wnw_session *read_prompt(const struct test_model *t, const wnw_policy *p)
{
    return test_session_read(t->m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 256}, p, t->tokens,
                             N);
}

/* Says what of the prompt is the template's; p goes on being observed. */
static int tell(wnw_session *s, const wnw_policy *p, int32_t n_prefix, const int32_t *ids, int32_t n)
{
    const wnw_prompt prompt = {.n_prefix = n_prefix, .suffix = (int32_t *)(uintptr_t)ids, .n_suffix = n};
    return wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt,
                      .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &p, .n_policies = 1}});
}

static void assert_template(wnw_session *s, int32_t n_prefix, int32_t n_seen, int32_t n_suffix)
{
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    assert_int_equal(s->n_prefix, n_prefix);
    assert_int_equal(src.n_prefix, n_seen);
    assert_int_equal(s->token_log.n_suffix, n_suffix);
    if (n_suffix > 0)
        assert_memory_equal(s->token_log.suffix, suffix, (size_t)n_suffix * sizeof *suffix);
    wnw__source_close(&src);
}

/* It stays, travels with a copy, and goes with the tokens. */
static void template_of_a_session(void **state)
{
    (void)state;
    struct test_model t;
    test_open(&t, "tiny/tiny-llama.gguf", N, 7);
    wnw_policy *p = test_policy("streaming_llm:sinks=4");
    wnw_session *s = read_prompt(&t, p), *copy = NULL;
    assert_template(s, 0, 0, 0);
    assert_ok(tell(s, p, N_PREFIX, suffix, 3));
    assert_template(s, N_PREFIX, N_PREFIX, 3);
    assert_ok(wnw_session_copy(&copy, s));
    assert_template(copy, N_PREFIX, N_PREFIX, 3);
    /* What is refused changes nothing. */
    assert_error(tell(s, p, -1, suffix, 1), WNW_E_RANGE);
    assert_error(tell(s, p, 1, (const int32_t[]){3, -1}, 2), WNW_E_RANGE);
    assert_error(tell(s, p, 1, suffix, INT32_MAX), WNW_E_FULL);
    assert_template(s, N_PREFIX, N_PREFIX, 3);
    /* Said for a head that is longer than what was read. */
    assert_ok(tell(s, p, N + 5, suffix, 2));
    assert_template(s, N + 5, N, 2);
    assert_ok(tell(s, p, 0, NULL, 0));
    assert_template(s, 0, 0, 0);
    /* New numbers: position 6 may be another token. */
    assert_ok(tell(s, p, N_PREFIX, suffix, 3));
    assert_ok(wnw_session_compress(s, p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 30}, NULL));
    assert_ok(wnw_session_renumber(s));
    assert_template(s, 0, 0, 3);
    assert_template(copy, N_PREFIX, N_PREFIX, 3);
    assert_ok(wnw_session_reset(copy));
    assert_template(copy, 0, 0, 0);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&t);
}

/* ---- KVzip ---- */

static wnw_plan *plan_of(wnw_session *s, const char *recipe, int64_t budget)
{
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = budget};
    wnw_policy *p = test_policy(recipe);
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_plan(s, p, &size, &plan, NULL));
    wnw_policy_free(p);
    return plan;
}

/* The header stays in every head; kvpress keeps 4 of it and drops the others first; the same from a copy. */
static void header_of_kvzip(void **state)
{
    (void)state;
    struct test_model t;
    test_open(&t, "tiny/tiny-llama.gguf", N, 7);
    wnw_policy *p = test_policy("kvzip");
    wnw_session *s = read_prompt(&t, p), *copy = NULL;
    wnw_plan *unknown = plan_of(s, "kvzip", 30), *scored = plan_of(s, "kvzip:prefix=score", 30);
    assert_same_plan(unknown, scored);
    assert_ok(tell(s, p, N_PREFIX, suffix, 3));
    assert_ok(wnw_session_copy(&copy, s));
    wnw_plan *keep = plan_of(s, "kvzip", 30), *uniform = plan_of(s, "kvzip-uniform", 8);
    wnw_plan *copied = plan_of(copy, "kvzip", 30), *kvpress = plan_of(s, "kvpress-kvzip", 30);
    wnw_plan *whole = plan_of(s, "kvzip:prefix=score", 30);
    const int32_t n_head = wnw_plan_n_layer(keep) * wnw_plan_n_head_kv(keep);
    assert_int_equal(test_plan_below(keep, N_PREFIX), n_head * N_PREFIX);
    assert_int_equal(test_plan_below(uniform, N_PREFIX), n_head * N_PREFIX);
    assert_int_equal(test_plan_below(kvpress, N_PREFIX), n_head * 4);
    assert_int_equal(test_plan_below(kvpress, 4), n_head * 4);
    assert_same_plan(keep, copied);
    assert_other_plan(whole, keep);
    assert_other_plan(whole, unknown); /* the turn ends otherwise */
    /* The second look finds what the first one left. */
    assert_ok(wnw_session_apply(s, keep, NULL));
    wnw_plan *again = plan_of(s, "kvzip", 12);
    assert_int_equal(test_plan_below(again, N_PREFIX), n_head * N_PREFIX);
    /* A header that the size cannot hold. */
    wnw_plan *none = NULL;
    assert_error(
        wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = N_PREFIX - 1}, &none, NULL),
        WNW_E_RANGE);
    assert_null(none);
    wnw_plan *const plans[] = {unknown, scored, keep, uniform, copied, kvpress, whole, again};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        wnw_plan_free(plans[i]);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(template_of_a_session),
                                       cmocka_unit_test(header_of_kvzip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
