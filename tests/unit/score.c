/* SPDX-License-Identifier: MIT */
/* Scorers on small arrays, against numbers worked out by hand from the papers' formulas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"

/* The entries of n that the scorer of a recipe keeps for any score. */
static wnw_protected protected_by(const char *recipe, int32_t n)
{
    wnw_policy *p = test_policy(recipe);
    const wnw_protected prot = wnw__policy_keep(p, &(wnw_keep_problem){.n = n, .budget = n});
    wnw_policy_free(p);
    return prot;
}

static const int32_t ascending[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static void snapkv_average_pooling(void **state)
{
    (void)state;
    const float attn[] = {5, 0, 0, 0, 10, 7}; /* the window's own column must not leak */
    const int32_t n_entry[] = {6};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .n = 6,
                                 .n_past = 6,
                                 .n_entry = n_entry,
                                 .pos = ascending,
                                 .n_window = 1,
                                 .window_attn = attn};
    float out[6];
    run_scorer("snapkv:window=1,kernel=5,pool=avg", &obs, out);
    assert_values(out, 0, 1, 1, 3, 2, 2);
    run_scorer("snapkv:window=1,kernel=3,pool=max", &obs, out);
    assert_values(out, 0, 5, 5, 0, 10, 10);
    run_scorer("snapkv:window=1,kernel=1,pool=max", &obs, out);
    assert_values(out, 0, 5, 0, 0, 0, 10);
    run_scorer("snapkv:window=1,kernel=99,pool=max", &obs, out);
    assert_values(out, 0, 10, 10, 10, 10, 10);
}

/* Max pooling does not commute with the mean over the group: pool each head first. */
static void snapkv_pools_before_the_group_mean(void **state)
{
    (void)state;
    const float attn[] = {1, 0, 0, 0, /**/ 0, 0, 1, 0};
    const int32_t n_entry[] = {4};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 2,
                                 .n_head_kv = 1,
                                 .n = 4,
                                 .n_past = 4,
                                 .n_entry = n_entry,
                                 .pos = ascending,
                                 .n_window = 1,
                                 .window_attn = attn};
    float out[4];
    run_scorer("snapkv:window=1,kernel=3,pool=max", &obs, out);
    assert_values(out, 0, 0.5, 1, 0.5);
}

/* Head A attends to 10, B to 14; 7 neighbours. Pooled first, 11 to 13 have both and beat what the heads look
 * at; pooled after the mean, nothing beats 10 and 14 in their own surroundings. */
static void snapkv_pools_after_the_group_mean(void **state)
{
    (void)state;
    enum { N = 24 };
    float attn[2 * N] = {0}, out[N];
    int32_t pos[N];
    const int32_t n_entry[] = {N};
    for (int32_t i = 0; i < N; i++)
        pos[i] = i;
    attn[10] = 0.8f;
    attn[N + 14] = 0.6f;
    attn[N - 1] = attn[2 * N - 1] = 0.1f; /* the window, which must not leak */
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 2,
                                 .n_head_kv = 1,
                                 .n = N,
                                 .n_past = N,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .n_window = 1,
                                 .window_attn = attn};
    run_scorer("snapkv:window=1", &obs, out);
    assert_values(out + 6, 1e-6, 0, .4, .4, .4, .4, .7, .7, .7, .3, .3, .3, .3, 0);
    run_scorer("snapkv:window=1,pool_after=1", &obs, out);
    assert_values(out + 6, 1e-6, 0, .4, .4, .4, .4, .4, .4, .4, .3, .3, .3, .3, 0);
    assert_values(out + N - 2, 1e-6, 0, 0.1);
    /* For any aggregation of the heads the maximum at 10 is .8. Average pooling commutes with the mean. */
    run_scorer("snapkv:window=1,pool_after=1+group_max", &obs, out);
    assert_values(out + 6, 1e-6, 0, .8, .8, .8, .8, .8, .8, .8, .6, .6, .6, .6, 0);
    float before[N];
    run_scorer("snapkv:window=1,pool=avg", &obs, before);
    run_scorer("snapkv:window=1,pool=avg,pool_after=1", &obs, out);
    for (int32_t i = 0; i < N; i++)
        assert_float_equal(out[i], before[i], 1e-6f);
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "snapkv:agg=max,pool_after=1", NULL), WNW_E_ARG);
    static const char *const papers[] = {"paper-adakv", "paper-criticalkv", "paper-criticalkv-adakv",
                                         "paper-criticalkv-headkv"};
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        p = test_policy(papers[i]);
        assert_contains(wnw_policy_string(p), "pool=max,agg=mean,pool_after=1");
        wnw_policy_free(p);
    }
}

/* Another policy asked for a larger window: only the last rows count. Mean over the window. */
static void snapkv_uses_its_own_window(void **state)
{
    (void)state;
    const float attn[] = {9, 9, 9, 9, 9, /**/ 1, 2, 3, 4, 0, /**/ 3, 2, 1, 0, 5}; /* [1][3][5] */
    const int32_t n_entry[] = {5};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .n = 5,
                                 .n_past = 5,
                                 .n_entry = n_entry,
                                 .pos = ascending,
                                 .n_window = 3,
                                 .window_attn = attn};
    float out[5];
    run_scorer("snapkv:window=2,kernel=1,pool=avg", &obs, out);
    assert_values(out, 0, 2, 2, 2);
}

static void snapkv_groups(void **state)
{
    (void)state;
    const float attn[] = {1, 0, /**/ 3, 0, /**/ 5, 0, /**/ 9, 0}; /* [4][1][2] */
    const int32_t n_entry[] = {2, 2};
    const int32_t pos[] = {0, 1, 0, 1};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 4,
                                 .n_head_kv = 2,
                                 .n = 2,
                                 .n_past = 2,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .n_window = 1,
                                 .window_attn = attn};
    float out[4];
    run_scorer("snapkv:window=1,kernel=1,pool=avg", &obs, out);
    assert_float_equal(out[0], 2, 0); /* heads 0, 1 */
    assert_float_equal(out[2], 7, 0); /* heads 2, 3 */
    run_scorer("snapkv:window=1,kernel=1,pool=avg+group_mean:gqa_bug=1", &obs, out);
    assert_float_equal(out[0], 3, 0); /* heads 0, 2 */
    assert_float_equal(out[2], 6, 0); /* heads 1, 3 */
}

static void snapkv_prompt_shorter_than_window(void **state)
{
    (void)state;
    const float attn[] = {1, 0, 0, /**/ 0.5f, 0.5f, 0, /**/ 0.2f, 0.3f, 0.5f};
    const int32_t n_entry[] = {3};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .n = 3,
                                 .n_past = 3,
                                 .n_entry = n_entry,
                                 .pos = ascending,
                                 .n_window = 3,
                                 .window_attn = attn};
    float out[3];
    run_scorer("snapkv:window=32,kernel=1,pool=avg", &obs, out);
    assert_values(out, 1e-6, 1.7 / 3, 0.8 / 3, 0.5 / 3);
}

static const float lag_k[] = {9, 9, 9, 1, 2, 3, 2, 0, 1, 0, 1, 0, 3, 3,
                              3, 0, 0, 0, 2, 4, 1, 1, 1, 4, 4, 2, 2};
static const float lag_v[] = {5, 5, 5, 0, 1, 0, 1, 1, 1, 2, 0, 2, 0, 0,
                              4, 0, 2, 1, 1, 0, 2, 2, 1, 0, 1, 2, 4};

static wnw_observation lag_observation(struct score_rows *rows, const int32_t *n_entry)
{
    return (wnw_observation){.n_layer = 1,
                             .n_head = 1,
                             .n_head_kv = 1,
                             .n_embd_head = 3,
                             .n = 9,
                             .n_past = 9,
                             .n_entry = n_entry,
                             .pos = ascending,
                             .keys = row_keys,
                             .values = row_values,
                             .source = rows};
}

static void lagkv_golden_vector(void **state)
{
    (void)state;
    struct score_rows rows = {lag_k, lag_v};
    const int32_t n_entry[] = {9};
    const wnw_observation obs = lag_observation(&rows, n_entry);
    float out[9];
    run_scorer("lagkv:sink=1,lag=4", &obs, out);
    assert_values(out + 1, 1e-6, 0.497298, 0.466997, 0.523091, 0.512614);
    run_scorer("lagkv:sink=1,lag=4,wv=0", &obs, out);
    assert_values(out + 1, 1e-6, 0.271848, 0.271848, 0.244589, 0.211715);
    assert_cmp(out[1], ==, out[2]); /* an exact tie */
}

static void lagkv_ranks(void **state)
{
    (void)state;
    struct score_rows rows = {lag_k, lag_v};
    const int32_t n_entry[] = {9};
    const wnw_observation obs = lag_observation(&rows, n_entry);
    float out[9];
    run_scorer("lagkv:sink=1,lag=4,ranked=1+topk", &obs, out);
    /* order 2, 3, 0, 1; sinks above the tail, the tail above ranks and the most recent first */
    assert_values(out + 1, 1e-6, 0.25, 0, 0.75, 0.5);
    assert_cmp(out[0], >, out[8]);
    assert_cmp(out[8], >, out[5]);
    assert_cmp(out[5], >, out[3]);
    /* n < S + 2 L: recency */
    run_scorer("lagkv:sink=1,lag=5,ranked=1+topk", &obs, out);
    for (int i = 2; i < 9; i++) {
        assert_cmp(out[i], >, out[i - 1]);
        assert_cmp(out[0], >, out[i]);
    }
}

static void lagkv_constant_channel_adds_nothing(void **state)
{
    (void)state;
    /* Both channels of the reference block are constant: u = 0, both softmaxes are flat. */
    const float k[] = {1, 50, 3, 0, /**/ 4, 4, 4, 4}; /* [4][2] */
    struct score_rows rows = {k, k};
    const int32_t n_entry[] = {4};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 4,
                                 .n_past = 4,
                                 .n_entry = n_entry,
                                 .pos = ascending,
                                 .keys = row_keys,
                                 .values = row_values,
                                 .source = &rows};
    float out[4];
    run_scorer("lagkv:sink=0,lag=2,wv=1", &obs, out);
    assert_values(out, 1e-6, 1, 1);
}

static void lagkv_protects_sinks_and_tail(void **state)
{
    (void)state;
    wnw_protected p = protected_by("lagkv:sink=16,lag=1024", 2063);
    assert_int_equal(p.n_first, 2063);
    p = protected_by("lagkv:sink=16,lag=1024", 8192);
    assert_int_equal(p.n_first, 16);
    assert_int_equal(p.n_last, 1024 + 1008);
    p = protected_by("kvpress-lagkv", 100);
    assert_int_equal(p.n_first, 4);
    assert_int_equal(p.n_last, 0);
}

static void knorm_is_minus_the_norm(void **state)
{
    (void)state;
    struct score_rows rows = {lag_k, NULL};
    const int32_t n_entry[] = {9};
    wnw_observation obs = lag_observation(&rows, n_entry);
    float out[9];
    run_scorer("knorm", &obs, out);
    assert_values(out + 1, 1e-6, -3.741657, -2.236068, -1.0, -5.196152);
}

static void tova_means_over_all_heads(void **state)
{
    (void)state;
    const float attn[] = {9,      9, 9, /**/ 0.1f, 0.2f, 0.7f,
                          /**/ 9, 9, 9, /**/ 0.5f, 0.3f, 0.2f}; /* [2][2][3] */
    const int32_t n_entry[] = {3, 3};
    const int32_t pos[] = {0, 1, 2, 0, 1, 2};
    wnw_observation obs = {.n_layer = 1,
                           .n_head = 2,
                           .n_head_kv = 2,
                           .n = 3,
                           .n_past = 3,
                           .n_entry = n_entry,
                           .pos = pos,
                           .n_window = 2,
                           .window_attn = attn};
    float out[6];
    run_scorer("tova", &obs, out);
    assert_values(out, 1e-6, 0.3, 0.25, 0.45, 0.3, 0.25, 0.45);
    /* Heads that hold different tokens: the sum follows the position, not the index. */
    const int32_t ragged[] = {0, 2, -1, 1, 2, 3};
    const int32_t n_ragged[] = {2, 3};
    obs.pos = ragged;
    obs.n_entry = n_ragged;
    obs.n_past = 4;
    run_scorer("tova", &obs, out);
    assert_values(out, 1e-6, 0.05, 0.25);
    assert_values(out + 3, 1e-6, 0.25, 0.25, 0.1);
}

static void streaming_llm_is_recency(void **state)
{
    (void)state;
    const int32_t n_entry[] = {5};
    const wnw_observation obs = {
        .n_layer = 1, .n_head = 1, .n_head_kv = 1, .n = 5, .n_past = 5, .n_entry = n_entry, .pos = ascending};
    float out[5];
    run_scorer("streaming_llm", &obs, out);
    assert_values(out, 0, 0, 1, 2, 3, 4);
    assert_int_equal(protected_by("streaming_llm", 100).n_first, 4);
    run_scorer("streaming_llm:recent=2", &obs, out);
    assert_cmp(out[0], >, out[1]);
    assert_cmp(out[1], >, out[2]);
    assert_int_equal(protected_by("streaming_llm:recent=2", 100).n_first, 0);
    assert_int_equal(protected_by("streaming_llm:recent=2", 100).n_last, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapkv_average_pooling),
        cmocka_unit_test(snapkv_pools_before_the_group_mean),
        cmocka_unit_test(snapkv_pools_after_the_group_mean),
        cmocka_unit_test(snapkv_uses_its_own_window),
        cmocka_unit_test(snapkv_groups),
        cmocka_unit_test(snapkv_prompt_shorter_than_window),
        cmocka_unit_test(lagkv_golden_vector),
        cmocka_unit_test(lagkv_ranks),
        cmocka_unit_test(lagkv_constant_channel_adds_nothing),
        cmocka_unit_test(lagkv_protects_sinks_and_tail),
        cmocka_unit_test(knorm_is_minus_the_norm),
        cmocka_unit_test(tova_means_over_all_heads),
        cmocka_unit_test(streaming_llm_is_recency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
