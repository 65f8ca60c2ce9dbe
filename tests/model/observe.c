/* SPDX-License-Identifier: MIT */
/* What policies see, against slow double-precision versions computed from the session's own cache and
 * queries. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>

static double dot(const float *a, const float *b, int32_t d)
{
    double sum = 0.0;
    for (int32_t i = 0; i < d; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Attention row of query head h, window row w, in double precision. */
static void reference_row(const wnw_session *s, const wnw_observation *obs, int32_t h, int32_t w, double *row)
{
    const int32_t d = obs->n_embd_head, ih = h / (obs->n_head / obs->n_head_kv);
    const int32_t query = obs->n_past - obs->n_window + w;
    const struct wnw__window *window = wnw__recorders_find(&s->recorders, &wnw__window_recorder);
    assert_non_null(window);
    const float *q = wnw__window_at(window, obs->il, query) + (size_t)h * (size_t)d;
    assert_memory_equal(obs->window_queries + ((size_t)h * (size_t)obs->n_window + (size_t)w) * (size_t)d, q,
                        (size_t)d * sizeof *q);
    const float *keys = obs->keys(obs, ih);
    const int32_t *pos = obs->pos + (size_t)ih * (size_t)obs->n;
    double max = -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < obs->n; i++) {
        const bool sees = i < obs->n_entry[ih] && pos[i] <= query;
        row[i] = sees ? dot(q, keys + (size_t)i * (size_t)d, d) * (double)obs->attn_scale : -INFINITY;
        max = row[i] > max ? row[i] : max;
    }
    for (int32_t i = 0; i < obs->n; i++) {
        row[i] = exp(row[i] - max);
        sum += row[i];
    }
    for (int32_t i = 0; i < obs->n; i++)
        row[i] /= sum;
}

static void check_layer(const wnw_session *s, const wnw_observation *obs)
{
    double *row = calloc((size_t)obs->n, sizeof *row);
    assert_non_null(row);
    for (int32_t h = 0; h < obs->n_head; h++) {
        for (int32_t w = 0; w < obs->n_window; w++) {
            reference_row(s, obs, h, w, row);
            const float *got =
                obs->window_attn + ((size_t)h * (size_t)obs->n_window + (size_t)w) * (size_t)obs->n;
            for (int32_t i = 0; i < obs->n; i++) {
                /* float32 dot products of up to 64 terms and exp: a few ulp of the largest weight, 1. */
                if (fabs((double)got[i] - row[i]) > test_rounding(2e-6, 4))
                    fail_msg("layer %d head %d query %d entry %d: %g, expected %g", (int)obs->il, (int)h,
                             (int)w, (int)i, (double)got[i], row[i]);
            }
        }
    }
    free(row);
}

/* Prefills n tokens in ubatches of n_ubatch and compares every layer's window attention. */
static void check_window(const char *arch, int32_t n, int32_t n_ubatch, int32_t want_window, bool ragged)
{
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, arch);
    wnw_model *m = test_model_open(name);
    wnw_session_params params = wnw_session_default_params();
    params.n_ubatch = n_ubatch;
    params.kv_type = WNW_KV_F32;
    params.n_threads = 2;
    wnw_session *s;
    assert_ok(wnw_session_new(&s, m, &params));
    wnw_policy *p = test_policy("snapkv:window=8");
    assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(n + 12, info.n_vocab, 7);
    assert_ok(wnw_session_prefill(s, tokens, n, NULL, NULL));
    if (ragged) {
        wnw_policy *ada = test_policy("snapkv:window=8+adakv");
        const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
        assert_ok(wnw_session_compress(s, ada, &size, NULL));
        assert_ok(wnw_session_prefill(s, tokens + n, 12, NULL, NULL));
        wnw_policy_free(ada);
    }
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_KEYS, .window = 8};
    for (int32_t il = 0; il < info.n_layer; il++) {
        if (!wnw__layer_takes_part(&src.shape, il))
            continue;
        wnw_observation obs;
        assert_ok(src.observe(&src, il, &needs, NULL, &obs));
        assert_int_equal(obs.n_window, want_window);
        check_layer(s, &obs);
    }
    wnw__source_close(&src);
    free(tokens);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
}

/* Heads that nobody wants are not computed; those of the others are the same to the bit. The next
 * observation computes all. */
static void test_window_of_some_heads(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_policy *p = test_policy("snapkv:window=8");
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(300, info.n_vocab, 7);
    wnw_session *s =
        test_session_read(m, &(struct test_session){.kv_type = WNW_KV_F16, .n_ctx = 512}, p, tokens, 300);
    struct wnw__plan_source src[2];
    wnw_observation all, some;
    assert_ok(wnw__session_source(&src[0], s));
    assert_ok(wnw__session_source(&src[1], s));
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN, .window = 8};
    const size_t row = 8 * 300;
    bool *used = calloc((size_t)info.n_head, sizeof *used);
    assert_non_null(used);
    for (int which = 0; which < 4; which++) { /* none, the first, every second, all but the first */
        for (int32_t h = 0; h < info.n_head; h++)
            used[h] = which == 1 ? h == 0 : which == 2 ? h % 2 == 1 : which == 3 && h > 0;
        assert_ok(src[0].observe(&src[0], 1, &needs, NULL, &all));
        assert_ok(src[1].observe(&src[1], 1, &needs, used, &some));
        for (int32_t h = 0; h < info.n_head; h++) {
            const float *got = some.window_attn + (size_t)h * row;
            if (used[h])
                assert_memory_equal(got, all.window_attn + (size_t)h * row, row * sizeof *got);
            for (size_t i = 0; !used[h] && i < row; i++)
                assert_cmp(got[i], ==, 0);
        }
        assert_ok(src[1].observe(&src[1], 1, &needs, NULL, &some));
        assert_memory_equal(some.window_attn, all.window_attn,
                            (size_t)info.n_head * row * sizeof *all.window_attn);
    }
    wnw__source_close(&src[0]);
    wnw__source_close(&src[1]);
    free(used);
    free(tokens);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
}

static void test_window_in_one_ubatch(void **state)
{
    (void)state;
    check_window("llama", 60, 512, 8, false);
}

static void test_window_over_ubatch_border(void **state)
{
    (void)state;
    check_window("llama", 67, 16, 8, false); /* the last ubatch has 3 tokens */
    check_window("qwen3", 65, 64, 8, false); /* ... and 1 */
}

static void test_prompt_shorter_than_window(void **state)
{
    (void)state;
    check_window("qwen2", 5, 512, 5, false);
}

static void test_window_on_ragged_cache(void **state)
{
    (void)state;
    check_window("llama", 60, 512, 8, true);
}

static void test_sliding_layers_are_skipped(void **state)
{
    (void)state;
    check_window("gemma3", 60, 512, 8, false);
}

/* Keys and values come back as they are stored, for any type. */
static void test_rows_of_quantised_cache(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_Q8_0});
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(40, info.n_vocab, 3);
    test_prefill(s, tokens, 40);
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    const wnw_needs needs = {.flags = WNW_NEED_KEYS | WNW_NEED_VALUES};
    wnw_observation obs;
    assert_ok(src.observe(&src, 1, &needs, NULL, &obs));
    const int32_t ih = info.n_head_kv - 1, d = info.n_embd_head;
    const float *v = obs.values(&obs, ih), *k = obs.keys(&obs, ih);
    float *want = calloc((size_t)d, sizeof *want);
    assert_non_null(want);
    const struct wnw__kv_layer *l = &s->cache.layers[1];
    for (int32_t i = 0; i < 40; i++) {
        const size_t at = (size_t)(l->off[ih] + i) * s->cache.row_bytes;
        wnw__rows_to_f32(WNW_KV_Q8_0, l->k + at, 1, d, want);
        wnw__hadamard(want, d, s->cache.k_block);
        assert_memory_equal(want, k + (size_t)i * (size_t)d, (size_t)d * sizeof *want);
        wnw__rows_to_f32(WNW_KV_Q8_0, l->v + at, 1, d, want);
        wnw__hadamard(want, d, s->cache.v_block);
        assert_memory_equal(want, v + (size_t)i * (size_t)d, (size_t)d * sizeof *want);
    }
    free(want);
    wnw__source_close(&src);
    free(tokens);
    wnw_session_free(s);
    wnw_model_free(m);
}

/* A recorder that no policy asks for, together with one that a policy asks for: attention of the newest token is that of
 * a window of one query. Later declarations do not interrupt it. */
static void test_newest_token_of_every_head(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F16, .n_ctx = 512});
    wnw_policy *p = test_policy("snapkv:window=1");
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(120, info.n_vocab, 7), n;
    assert_error(wnw__session_record(s, "window", true), WNW_E_ARG);
    assert_error(wnw__session_record(s, "no such thing", true), WNW_E_ARG);
    assert_ok(wnw__session_record(s, "newest", true));
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .every = 100}));
    const struct wnw__newest *newest = wnw__recorders_find(&s->recorders, &wnw__newest_recorder);
    assert_non_null(newest);
    test_prefill(s, tokens, 100);
    for (int32_t t = 100; t < 120; t++) {
        assert_null(t == 100 ? wnw__newest_rows(newest, 0, &n) : NULL);
        assert_ok(wnw_session_decode(s, tokens[t]));
    }
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN, .window = 1};
    for (int32_t il = 0; il < info.n_layer; il++) {
        wnw_observation obs;
        assert_ok(src.observe(&src, il, &needs, NULL, &obs));
        const float *rows = wnw__newest_rows(newest, il, &n);
        assert_int_equal(n, 120);
        for (int32_t i = 0; i < info.n_head * n; i++)
            assert_float_equal(rows[i], obs.window_attn[i], (float)test_rounding(1e-6, 4));
    }
    wnw__source_close(&src);
    assert_ok(wnw__session_record(s, "newest", false));
    assert_null(wnw__recorders_find(&s->recorders, &wnw__newest_recorder));
    free(tokens);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
}

/* What a second declaration asks for too keeps what it has recorded; anything else starts empty or is dropped. */
static void test_what_stays_asked_for_goes_on(void **state)
{
    (void)state;
    static const struct wnw__recorder_type *const types[] = {&wnw__window_recorder, &wnw__qstats_recorder,
                                                             &wnw__queries_recorder, &wnw__columns_recorder};
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F16, .n_ctx = 512}), *once;
    wnw_policy *p[] = {test_policy("snapkv:window=8"), test_policy("expected_attention"),
                       test_policy("noncausal"), test_policy("h2o"), test_policy("snapkv:window=16")};
    const wnw_policy *const *all = (const wnw_policy *const *)p;
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    const void *rec[4];
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(200, info.n_vocab, 7);
    assert_ok(test_observe(s, all, 4));
    test_prefill(s, tokens, 200);
    assert_ok(wnw_session_copy(&once, s));
    for (int k = 0; k < 4; k++)
        assert_non_null(rec[k] = wnw__recorders_find(&s->recorders, types[k]));
    assert_ok(test_observe(s, all, 4));
    for (int k = 0; k < 4; k++)
        assert_ptr_equal(wnw__recorders_find(&s->recorders, types[k]), rec[k]);
    for (int k = 0; k < 4; k++) {
        wnw_plan *plan, *want;
        assert_ok(wnw_session_plan(s, p[k], &half, &plan, NULL));
        assert_ok(wnw_session_plan(once, p[k], &half, &want, NULL));
        assert_same_plan(plan, want);
        wnw_plan_free(plan);
        wnw_plan_free(want);
    }
    wnw_plan *plan;
    assert_ok(test_observe(s, all + 3, 2)); /* another window, and sums */
    assert_null(wnw__recorders_find(&s->recorders, &wnw__qstats_recorder));
    assert_null(wnw__recorders_find(&s->recorders, &wnw__queries_recorder));
    assert_ptr_equal(wnw__recorders_find(&s->recorders, &wnw__columns_recorder), rec[3]);
    assert_error(wnw_session_plan(s, p[4], &half, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_plan(s, p[3], &half, &plan, NULL));
    wnw_plan_free(plan);
    for (int k = 0; k < 5; k++)
        wnw_policy_free(p[k]);
    free(tokens);
    wnw_session_free(once);
    wnw_session_free(s);
    wnw_model_free(m);
}

static void test_not_observed_is_said(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F16});
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    wnw_policy *p = test_policy("snapkv:window=4");
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.25};
    wnw_plan *plan;
    test_prefill(s, tokens, 8);
    assert_error(wnw_session_plan(s, p, &size, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_null(plan);
    assert_ok(wnw_session_reset(s));
    assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
    test_prefill(s, tokens, 8);
    assert_ok(wnw_session_decode(s, 9)); /* the window is no longer the end of the timeline */
    assert_error(wnw_session_plan(s, p, &size, &plan, NULL), WNW_E_NOT_OBSERVED);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_of_some_heads),
        cmocka_unit_test(test_window_in_one_ubatch),
        cmocka_unit_test(test_window_over_ubatch_border),
        cmocka_unit_test(test_prompt_shorter_than_window),
        cmocka_unit_test(test_window_on_ragged_cache),
        cmocka_unit_test(test_sliding_layers_are_skipped),
        cmocka_unit_test(test_rows_of_quantised_cache),
        cmocka_unit_test(test_not_observed_is_said),
        cmocka_unit_test(test_what_stays_asked_for_goes_on),
        cmocka_unit_test(test_newest_token_of_every_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
