/* SPDX-License-Identifier: MIT */
/*
 * New rules for a session are taken as a whole or not at all. Every allocation on the way fails once (the
 * linker hands malloc and calloc of the library to this file); the session must go on under its old rules as
 * if nothing had been asked for.
 */
#include "helpers.h"

#include <stdlib.h>

#include "peek_session.h"

enum { N = 100, N_MORE = 80, NEVER = -1 };

static int fail_in = NEVER; /* allocations until one fails */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static bool fails_now(void)
{
    return fail_in >= 0 && fail_in-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

static const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};

/* With rules of the policy, N tokens read under them. */
static wnw_session *session_under(const struct test_model *f, const wnw_policy *p)
{
    wnw_session *s = test_session_new(f->m, &(struct test_session){.n_ctx = 400, .n_threads = 1});
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = half, .every = 16}));
    assert_ok(wnw_session_read(s, f->tokens, N, NULL));
    return s;
}

/* A turn and some tokens under the current rules. */
static void go_on(const struct test_model *f, wnw_session *s)
{
    assert_ok(wnw_session_read(s, f->tokens + N, N_MORE, NULL));
    test_decode(s, f->tokens, 20);
}

/* Rules of one policy, then every way of failing to get those of another. Returns how many there were. */
static int fail_to_change(const struct test_model *f, const char *from, const char *to)
{
    wnw_policy *old = test_policy(from), *next = test_policy(to);
    const wnw_run rules = {WNW_INIT(wnw_run), .policy = next, .size = half};
    wnw_session *s = session_under(f, old), *twin = session_under(f, old), *other;
    int n_fail = 0;
    assert_ok(wnw_session_copy(&other, s));
    for (int rc = WNW_E_NOMEM; rc != WNW_OK; n_fail++) {
        fail_in = n_fail;
        rc = wnw_session_begin(other, &rules);
        fail_in = NEVER;
        if (rc == WNW_OK)
            break;
        fail_in = n_fail;
        assert_error(wnw_session_begin(s, &rules), WNW_E_NOMEM);
        fail_in = NEVER;
        assert_ptr_equal(s->rules.ev.policy, old);
        assert_int_equal(s->recorders.n, twin->recorders.n);
        for (int32_t i = 0; i < s->recorders.n; i++) {
            assert_ptr_equal(s->recorders.list[i].type, twin->recorders.list[i].type);
            assert_int_equal(s->recorders.list[i].arg.n, twin->recorders.list[i].arg.n);
        }
    }
    go_on(f, s);
    go_on(f, twin);
    assert_same_cache(s, twin);
    assert_same_logits(s, twin);
    assert_ok(wnw_session_read(other, f->tokens + N, N_MORE, NULL)); /* the new rules work */
    wnw_session_free(other);
    wnw_session_free(twin);
    wnw_session_free(s);
    wnw_policy_free(next);
    wnw_policy_free(old);
    return n_fail;
}

static void rules_change_as_a_whole(void **state)
{
    const struct test_model *f = *state;
    static const char *const pairs[][2] = {
        {"snapkv:window=8", "h2o"},
        {"h2o", "snapkv:window=16"},
        {"h2o", "noncausal"},
        {"snapkv:window=8", "expected_attention"},
        {"snapkv:window=8", "compilerkv"},

    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const int n = fail_to_change(f, pairs[i][0], pairs[i][1]);
        print_message("%s to %s: %d allocations\n", pairs[i][0], pairs[i][1], n);
        assert_cmp(n, >=, 1);
    }
}

/* No rules after rules: nothing is left to allocate, so it cannot fail. */
static void rules_can_always_end(void **state)
{
    const struct test_model *f = *state;
    wnw_policy *p = test_policy("h2o");
    wnw_session *s = session_under(f, p);
    fail_in = 0;
    const int rc = wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run)});
    fail_in = NEVER;
    assert_int_equal(rc, WNW_OK);
    assert_null(s->rules.ev.policy);
    assert_ok(wnw_session_read(s, f->tokens + N, N_MORE, NULL));
    wnw_session_free(s);
    wnw_policy_free(p);
}

static int set_up(void **state)
{
    static struct test_model f;
    return test_set_up_tiny(state, &f, "llama", 400, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_change_as_a_whole),
        cmocka_unit_test(rules_can_always_end),
    };
    return cmocka_run_group_tests_name("changing rules", tests, set_up, test_tear_down);
}
