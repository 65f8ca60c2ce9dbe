/* SPDX-License-Identifier: MIT */
/* Tokens to come: the session is unchanged, and the queries are those of reading the tokens. */
#include "helpers.h"
#include "sessions.h"
#include "winnow_method.h"

#include "peek_session.h"

#include <stdlib.h>
#include <string.h>

enum { N = 60, AHEAD = 5, BUDGET = 20, N_CTX = 128 };

static wnw_session *read_prompt(const struct test_model *fx, const char *recipe, int32_t n_ctx,
                                int32_t n_threads)
{
    wnw_policy *policy = test_policy(recipe);
    wnw_session *s = test_session_read(fx->m, &(struct test_session){.n_ctx = n_ctx, .n_threads = n_threads},
                                       policy, fx->tokens, N);
    wnw_policy_free(policy);
    return s;
}

static float *look_ahead(const struct test_model *fx, wnw_session *s, int32_t n, double budget, int32_t *made)
{
    const size_t size =
        (size_t)fx->info.n_layer * (size_t)n * (size_t)fx->info.n_head * (size_t)fx->info.n_embd_head;
    float *q = calloc(size, sizeof *q);
    assert_non_null(q);
    assert_ok(wnw__look_ahead(s, n, budget, q, made));
    return q;
}

/* The most likely tokens after the prompt with SnapKV's cache, decoded on a session of their own, whose queries are kept. */
static void queries_of_tokens(void **state)
{
    const struct test_model *fx = *state;
    const size_t row = (size_t)fx->info.n_head * (size_t)fx->info.n_embd_head;
    wnw_session *s = read_prompt(fx, "laq", N_CTX, 1), *t = read_prompt(fx, "snapkv:window=32", N_CTX, 1);
    wnw_session *before = NULL;
    wnw_policy *policy;
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 1 - (double)BUDGET / N};
    int32_t made;
    assert_ok(wnw_session_copy(&before, s));
    float *q = look_ahead(fx, s, AHEAD, BUDGET, &made);
    assert_cmp(made, >, 0);
    /* Nothing of the session is changed, and it goes on as its copy does. */
    assert_same_cache(s, before);
    assert_same_logits(s, before);
    assert_ok(wnw_session_decode(s, 1));
    assert_ok(wnw_session_decode(before, 1));
    assert_same_logits(s, before);
    /* The same by hand. */
    policy = test_policy("snapkv:window=32");
    assert_ok(wnw_session_compress(t, policy, &size, NULL));
    wnw_policy_free(policy);
    const struct wnw__record_needs needs = {
        .merged = {WNW_INIT(wnw_needs), .flags = WNW_NEED_WINDOW_ATTN, .window = AHEAD}, .generated = true};
    assert_ok(wnw__recorders_declare(&t->recorders, &t->cache, &needs, &t->shape));
    for (int32_t i = 0; i < made; i++) {
        const float *logits = wnw_session_logits(t);
        int32_t best = 0;
        for (int32_t v = 1; v < fx->info.n_vocab; v++)
            best = logits[v] > logits[best] ? v : best;
        assert_ok(wnw_session_decode(t, best));
        const struct wnw__window *w = wnw__recorders_find(&t->recorders, &wnw__window_recorder);
        for (int32_t il = 0; il < fx->info.n_layer; il++)
            assert_floats_near(q + ((size_t)il * AHEAD + (size_t)i) * row, wnw__window_at(w, il, N + i), row,
                               0);
    }
    free(q);
    wnw_session_free(s);
    wnw_session_free(t);
    wnw_session_free(before);
}

/* Where the context ends there are fewer tokens, and none where it is full; a budget that holds all compresses nothing. */
static void ends(void **state)
{
    const struct test_model *fx = *state;
    int32_t made;
    wnw_session *s = read_prompt(fx, "laq", N + 2, 1);
    free(look_ahead(fx, s, AHEAD, N, &made));
    assert_cmp(made, <=, 2);
    wnw_session_free(s);
    s = read_prompt(fx, "laq", N, 1);
    free(look_ahead(fx, s, AHEAD, BUDGET, &made));
    assert_int_equal(made, 0);
    wnw_session_free(s);
}

/* Plans: two sizes at once are those of one after the other, with any number of threads. */
static void plans(void **state)
{
    const struct test_model *fx = *state;
    const wnw_size sizes[] = {{.kind = WNW_SIZE_BUDGET, .budget = 16},
                              {.kind = WNW_SIZE_RATIO, .ratio = 0.5}};
    wnw_policy *policy = test_policy("laq");
    const wnw_policy *two[] = {policy, policy};
    wnw_session *s = read_prompt(fx, "laq", N_CTX, 1), *t = read_prompt(fx, "laq", N_CTX, 2);
    wnw_plan *many[2], *one;
    assert_ok(wnw_session_plan_many(s, two, sizes, 2, many, NULL));
    for (int i = 0; i < 2; i++) {
        assert_ok(wnw_session_plan(t, policy, &sizes[i], &one, NULL));
        for (int32_t il = 0; il < fx->info.n_layer; il++)
            for (int32_t ih = 0; ih < fx->info.n_head_kv; ih++) {
                const int32_t *a, *b;
                const int32_t n = wnw_plan_head(many[i], il, ih, &a);
                assert_int_equal(n, wnw_plan_head(one, il, ih, &b));
                assert_memory_equal(a, b, (size_t)n * sizeof *a);
            }
        wnw_plan_free(many[i]);
        wnw_plan_free(one);
    }
    wnw_policy_free(policy);
    wnw_session_free(s);
    wnw_session_free(t);
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up_tiny(state, &fx, "llama", N, 23);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_of_tokens),
        cmocka_unit_test(ends),
        cmocka_unit_test(plans),
    };
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
