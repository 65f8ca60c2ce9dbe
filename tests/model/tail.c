/* SPDX-License-Identifier: MIT */
/* Sessions with a quantised cache whose newest entries stay f16: sizes, phases, second passes, copies, batches. */
#include "helpers.h"

#include "peek_session.h"

#include <stdlib.h>
#include <string.h>

enum { N = 400, N_STEP = 80, N_CTX = 512, TAIL = 64 };

static struct test_model llama, gemma;

static wnw_session *new_session(const wnw_model *m, wnw_kv_type type, int32_t kv_tail, int32_t n_ubatch)
{
    return test_session_new(
        m, &(struct test_session){.kv_type = type, .kv_tail = kv_tail, .n_ctx = N_CTX, .n_ubatch = n_ubatch});
}

static void begin(wnw_session *s, const wnw_policy *p, wnw_size size, wnw_phase phase, int32_t every)
{
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p,    .size = size,
                         .phase = phase,    .every = every, .chunk = 100};
    assert_ok(wnw_session_begin(s, &run));
}

/* Where the tail holds everything and nothing is rotated, the cache is an f16 cache, also after a compression and while decoding. */
static void long_tail_is_f16(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("snapkv:window=16");
    for (int compress = 0; compress < 2; compress++) {
        wnw_session *a = new_session(llama.m, WNW_KV_F16, 0, 128),
                    *b = test_session_new(llama.m, &(struct test_session){.kv_type = WNW_KV_Q4_0,
                                                                          .kv_tail = N_CTX,
                                                                          .n_ctx = N_CTX,
                                                                          .n_ubatch = 128,
                                                                          .kv_unrotated = true});
        for (int i = 0; compress && i < 2; i++)
            begin(i ? a : b, p, size_ratio(0.5), WNW_PHASE_END, 0);
        assert_ok(wnw_session_read(a, llama.tokens, N, NULL));
        assert_ok(wnw_session_read(b, llama.tokens, N, NULL));
        assert_same_cache(a, b);
        test_decode(a, llama.tokens, 20);
        test_decode(b, llama.tokens, 20);
        assert_same_logits(a, b);
        assert_same_cache(a, b);
        wnw_session_free(a);
        wnw_session_free(b);
    }
    wnw_policy_free(p);
}

/* The logits of a text with a tail are closer to those of an f16 cache than without. */
static void tail_helps(void **state)
{
    (void)state;
    static const int32_t tails[] = {0, TAIL, 256};
    double kl[3];
    wnw_session *want = new_session(llama.m, WNW_KV_F16, 0, 0);
    test_prefill(want, llama.tokens, N);
    for (int i = 0; i < 3; i++) {
        struct test_diff d = {0};
        wnw_session *s = new_session(llama.m, WNW_KV_Q4_0, tails[i], 0);
        test_prefill(s, llama.tokens, N);
        test_diff_add(&d, wnw_session_logits(want), wnw_session_logits(s), llama.info.n_vocab);
        kl[i] = test_diff_kl(&d);
        wnw_session_free(s);
    }
    assert_cmp(kl[1], <, kl[0]);
    assert_cmp(kl[2], <, kl[1]);
    wnw_session_free(want);
}

/* Logits differ by what products of other numbers of rows round otherwise, ggml's among them: a last bit of what is rounded to
 * bytes can make one of 127 steps there. */
static void check_near(const wnw_session *s, const wnw_session *want)
{
    struct test_diff d = {0};
    test_diff_add(&d, wnw_session_logits(want), wnw_session_logits(s), llama.info.n_vocab);
    assert_cmp(test_diff_nmse(&d), <=, test_nmse_most(0x1p-14));
}

/* Threads change not a bit of logits and cache. Ubatches that are cut elsewhere leave the same entries. */
static void cuts_do_not_matter(void **state)
{
    (void)state;
    static const int32_t n_ubatch[] = {64, 64, 130, 400}, n_threads[] = {2, 1, 1, 2};
    wnw_session *s[4];
    for (int i = 0; i < 4; i++) {
        s[i] = test_session_new(llama.m, &(struct test_session){.kv_type = WNW_KV_Q8_0,
                                                                .kv_tail = TAIL,
                                                                .n_ctx = N_CTX,
                                                                .n_ubatch = n_ubatch[i],
                                                                .n_threads = n_threads[i]});
        test_prefill(s[i], llama.tokens, N);
        test_decode(s[i], llama.tokens, N_STEP);
    }
    assert_same_logits(s[1], s[0]);
    assert_same_cache(s[1], s[0]);
    for (int i = 2; i < 4; i++) {
        check_near(s[i], s[0]);
        assert_same_entries(s[i], s[0]);
    }
    for (int i = 0; i < 4; i++)
        wnw_session_free(s[i]);
}

/* Layer by layer is the same as at the end; all phases leave a sound cache with which decoding goes on. */
static const struct phase_row {
    const char *name, *recipe;
    wnw_phase phase;
    int32_t every;
} phase_rows[] = {
    {"ragged heads at the end", "snapkv:window=16+adakv", WNW_PHASE_END, 0},
    {"layer by layer", "snapkv:window=16+adakv", WNW_PHASE_LAYER, 16},
    {"chunks", "h2o", WNW_PHASE_CHUNK, 8},
    {"new positions", "streaming_llm-rerotated", WNW_PHASE_CHUNK, 4},
    {"merged values", "streaming_llm+cam", WNW_PHASE_END, 0},
    {"pruned channels", "snapkv:window=16+think", WNW_PHASE_END, 0},
    {"blocks", "lagkv:lag=32,sink=4", WNW_PHASE_CHUNK, 0},
    {"projected norms", "criticalkv:window=16", WNW_PHASE_END, 8},
    {"a second pass", "kvzip", WNW_PHASE_END, 0},
};

static void phases_work(void **state)
{
    const struct phase_row *row = *state;
    wnw_policy *p = test_policy(row->recipe);
    wnw_session *s[2];
    for (int i = 0; i < 2; i++) {
        s[i] = new_session(llama.m, WNW_KV_Q4_0, TAIL, 128);
        begin(s[i], p, size_ratio(0.5), i && row->phase == WNW_PHASE_LAYER ? WNW_PHASE_END : row->phase,
              row->every);
        assert_ok(wnw_session_read(s[i], llama.tokens, N, NULL));
        assert_ok(wnw__cache_check(&s[i]->cache));
        assert_all_finite(wnw_session_logits(s[i]), llama.info.n_vocab);
    }
    assert_same_logits(s[0], s[1]);
    assert_same_cache(s[0], s[1]);
    test_decode(s[0], llama.tokens, N_STEP);
    assert_ok(wnw__cache_check(&s[0]->cache));
    wnw_session *copy;
    assert_ok(wnw_session_copy(&copy, s[0]));
    test_decode(copy, llama.tokens, 30);
    test_decode(s[0], llama.tokens, 30);
    assert_same_logits(copy, s[0]);
    assert_same_cache(copy, s[0]);
    assert_all_finite(wnw_session_logits(copy), llama.info.n_vocab);
    wnw_session_free(copy);
    for (int i = 0; i < 2; i++)
        wnw_session_free(s[i]);
    wnw_policy_free(p);
}

/* A plan that needs a second pass leaves cache and memory as they were, f16 rows included. */
static void second_pass_leaves_no_trace(void **state)
{
    (void)state;
    static const char *const recipes[] = {"kvzip", "kvcompose"};
    for (int i = 0; i < 2; i++) {
        const wnw_policy *policies[1];
        wnw_policy *p = test_policy(recipes[i]);
        wnw_plan *plan;
        wnw_session *a = new_session(llama.m, WNW_KV_Q8_0, TAIL, 128), *b;
        policies[0] = p;
        assert_ok(test_observe(a, policies, 1));
        test_prefill(a, llama.tokens, 200);
        assert_ok(wnw_session_copy(&b, a));
        assert_ok(wnw_session_plan(a, p, NULL, &plan, NULL));
        assert_same_cache(a, b);
        assert_int_equal(wnw__cache_bytes(&a->cache), wnw__cache_bytes(&b->cache));
        test_decode(a, llama.tokens, 70);
        test_decode(b, llama.tokens, 70);
        assert_same_logits(a, b);
        wnw_plan_free(plan);
        wnw_session_free(a);
        wnw_session_free(b);
        wnw_policy_free(p);
    }
}

/* What a size in bytes leaves takes no more than that, and uses most of it; statistics count both kinds of rows. */
static void sizes_in_bytes(void **state)
{
    (void)state;
    static const uint64_t kib[] = {40, 64, 96};
    wnw_policy *p = test_policy("streaming_llm");
    for (int i = 0; i < 3; i++)
        for (int layer = 0; layer < 2; layer++) {
            wnw_cache_stats stats = wnw_cache_stats_default();
            const int32_t heads = llama.info.n_layer * llama.info.n_head_kv;
            const uint64_t asked = kib[i] * 1024 * (uint64_t)heads / 4;
            wnw_session *s = new_session(llama.m, WNW_KV_Q8_0, TAIL, 128);
            begin(s, p, size_bytes(asked), layer ? WNW_PHASE_LAYER : WNW_PHASE_END, 0);
            assert_ok(wnw_session_read(s, llama.tokens, N, NULL));
            assert_ok(wnw_cache_get_stats(s, &stats));
            assert_cmp(wnw_cache_n(s, 0, 0), <, N);
            assert_cmp(stats.bytes_entries, <=, asked);
            assert_cmp(stats.bytes, >=, stats.bytes_entries);
            if (layer) { /* each is planned by the most entries that may be f16 */
                assert_cmp((double)stats.bytes_entries, >, 0.8 * (double)asked);
            } else { /* all are planned together, by what they are allocated in: blocks of 32 entries in pages */
                assert_cmp(stats.bytes, <=, asked);
                assert_cmp(2 * stats.bytes, >, asked);
            }
            uint64_t sum = 0;
            for (int32_t il = 0; il < s->cache.n_layer; il++)
                sum += 2 * (s->cache.layers[il].mapped_bytes + s->cache.layers[il].tail.mapped_bytes);
            assert_int_equal(stats.bytes, sum);
            wnw_session_free(s);
        }
    wnw_policy_free(p);
}

/* Timelines with other caches in a step change nothing for one with a tail. */
static void batches_of_mixed_kinds(void **state)
{
    (void)state;
    static const wnw_kv_type type[] = {WNW_KV_Q4_0, WNW_KV_F16, WNW_KV_Q4_0, WNW_KV_Q8_0};
    static const int32_t tail[] = {TAIL, 0, 0, 32};
    const wnw_engine_params ep = {WNW_INIT(wnw_engine_params), .n_ubatch = 64, .n_threads = 2};
    wnw_engine *e;
    wnw_session *s[4], *again;
    assert_ok(wnw_engine_new(&e, llama.m, &ep));
    for (int i = 0; i < 4; i++) {
        const wnw_session_params sp = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX, .kv_type = type[i],
                                       .kv_tail = tail[i]};
        assert_ok(wnw_session_new_on(&s[i], e, &sp));
        assert_ok(wnw_session_prefill(s[i], llama.tokens + i, 150 + 10 * i, NULL, NULL));
    }
    assert_ok(wnw_session_copy(&again, s[0]));
    for (int32_t i = 0; i < N_STEP; i++) {
        const int32_t tokens[4] = {llama.tokens[i], llama.tokens[i + 1], llama.tokens[i + 2],
                                   llama.tokens[i + 3]};
        assert_ok(wnw_decode_batch(e, s, tokens, 4));
        assert_ok(wnw_decode_batch(e, (wnw_session *[]){s[1], again}, (int32_t[]){tokens[3], tokens[0]}, 2));
    }
    check_near(s[0], again);
    assert_same_entries(s[0], again);
    wnw_session_free(again);
    for (int i = 0; i < 4; i++)
        wnw_session_free(s[i]);
    wnw_engine_free(e);
}

/* Layers with a sliding window have tails without sinks, and drop from the front. */
static void sliding_windows(void **state)
{
    (void)state;
    struct test_diff d = {0};
    wnw_session *a = new_session(gemma.m, WNW_KV_F16, 0, 64), *b = new_session(gemma.m, WNW_KV_Q8_0, 32, 64);
    test_prefill(a, gemma.tokens, N);
    test_prefill(b, gemma.tokens, N);
    for (int32_t i = 0; i < N_STEP; i++) {
        test_decode(a, gemma.tokens + i, 1);
        test_decode(b, gemma.tokens + i, 1);
        test_diff_add(&d, wnw_session_logits(a), wnw_session_logits(b), gemma.info.n_vocab);
    }
    assert_ok(wnw__cache_check(&b->cache));
    assert_same_entries(a, b);
    assert_cmp(test_diff_nmse(&d), <, 1e-2);
    wnw_session_free(a);
    wnw_session_free(b);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    wnw_session *s;
    wnw_session_params p = {WNW_INIT(wnw_session_params), .kv_type = WNW_KV_Q4_0, .kv_tail = 31};
    assert_error(wnw_session_new(&s, llama.m, &p), WNW_E_RANGE);
    assert_says("31");
    p.kv_tail = -1;
    assert_error(wnw_session_new(&s, llama.m, &p), WNW_E_RANGE);
    p.kv_tail = 128;
    p.attn = WNW_ATTN_GGML;
    assert_error(wnw_session_new(&s, llama.m, &p), WNW_E_UNSUPPORTED);
    p.attn = WNW_ATTN_OWN;
    p.kv_type = WNW_KV_F32;
    assert_error(wnw_session_new(&s, llama.m, &p), WNW_E_ARG);
    assert_says("f32");
    /* A program that was compiled before the field existed has no tail. */
    p.kv_type = WNW_KV_Q8_0;
    p.struct_size = (uint32_t)offsetof(wnw_session_params, kv_tail);
    assert_ok(wnw_session_new(&s, llama.m, &p));
    assert_int_equal(s->cache.n_tail, 0);
    wnw_session_free(s);
}

static int set_up(void **state)
{
    (void)state;
    test_open(&llama, "tiny/tiny-llama.gguf", N_CTX, 3);
    test_open_tiny(&gemma, "gemma3", N_CTX, 4);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_close(&llama);
    test_close(&gemma);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_tail_is_f16),   cmocka_unit_test(tail_helps),
        cmocka_unit_test(cuts_do_not_matter), cmocka_unit_test(second_pass_leaves_no_trace),
        cmocka_unit_test(sizes_in_bytes),     cmocka_unit_test(batches_of_mixed_kinds),
        cmocka_unit_test(sliding_windows),    cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down) +
           run_rows_with(phases_work, phase_rows, set_up, tear_down);
}
