/* SPDX-License-Identifier: MIT */
/* Sessions whose quantised caches are rotated (decision 069): nearer to float32 than without, and in all else the same
 * sessions. */
#include "cuts.h"
#include "helpers.h"
#include "rounding.h"

#include "peek_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 256, N_DECODE = 24, N_REAL = 8, N_CTX = 512 };

/* The prompt of a real model, and its tokens to decode. */
static int32_t *read_text(const wnw_model *m, int32_t n)
{
    static const char path[] = WNW_TEST_SOURCE_DIR "/share/text/held-out.txt";
    int32_t *tokens, n_token;
    char *text = malloc(16384);
    assert_non_null(text);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t len = fread(text, 1, 16383, f);
    fclose(f);
    text[len] = '\0';
    assert_ok(wnw_tokenize(m, text, len, false, false, &tokens, &n_token));
    assert_cmp(n_token, >=, n);
    free(text);
    return tokens;
}

/* Reads N tokens and decodes the following; logits of every step go to out[N_REAL + 1][n_vocab]. */
static void run(const wnw_model *m, const struct test_session *how, const int32_t *tokens, float *out,
                bool force)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    const size_t n = (size_t)info.n_vocab;
    wnw_session *s = test_session_new(m, how);
    if (force)
        wnw__cache_rotate(&s->cache);
    test_prefill(s, tokens, N);
    for (int i = 0; i <= N_REAL; i++) {
        memcpy(out + (size_t)i * n, wnw_session_logits(s), n * sizeof *out);
        if (i < N_REAL)
            assert_ok(wnw_session_decode(s, tokens[N + i]));
    }
    wnw_session_free(s);
}

static double divergence(const float *want, const float *is, int32_t n_vocab)
{
    struct test_diff d = {0};
    for (int i = 0; i <= N_REAL; i++)
        test_diff_add(&d, want + (size_t)i * (size_t)n_vocab, is + (size_t)i * (size_t)n_vocab, n_vocab);
    return test_diff_kl(&d);
}

/* On a real model q4_0 and q8_0 are nearer to float32 with rotation; and a float32 cache that is rotated is the same to
 * rounding. Attention is in float32 on both sides, so that only what is stored differs. */
static void nearer_to_float32(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("smollm2-135m-f32.gguf");
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    const size_t n = (size_t)(N_REAL + 1) * (size_t)info.n_vocab;
    float *want = malloc(n * sizeof *want), *is = malloc(n * sizeof *is);
    assert_non_null(want);
    assert_non_null(is);
    int32_t *tokens = read_text(m, N + N_REAL);
    struct test_session how = {.kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = N_CTX};
    run(m, &how, tokens, want, false);
    run(m, &how, tokens, is, true);
    const double exact = divergence(want, is, info.n_vocab);
    print_message("f32, rotated: KL %.3g\n", exact);
    assert_cmp(exact, <, test_nmse_most(1e-6));
    static const wnw_kv_type types[] = {WNW_KV_Q8_0, WNW_KV_Q4_0};
    for (int t = 0; t < 2; t++) {
        double kl[2];
        how.kv_type = types[t];
        for (int rotated = 0; rotated < 2; rotated++) {
            how.kv_unrotated = !rotated;
            run(m, &how, tokens, is, false);
            kl[rotated] = divergence(want, is, info.n_vocab);
        }
        print_message("%s: KL %.3g as it is, %.3g rotated\n", wnw_kv_type_name(types[t]), kl[0], kl[1]);
        assert_cmp(kl[1], <, kl[0]);
    }
    free(want);
    free(is);
    wnw_free(tokens);
    wnw_model_free(m);
}

static struct test_model llama;

/* The number of threads changes no bit. */
static void threads_do_not_matter(void **state)
{
    test_not_with_noise();
    (void)state;
    static const wnw_kv_type types[] = {WNW_KV_Q8_0, WNW_KV_Q4_0};
    for (int t = 0; t < 2; t++) {
        wnw_session *s[2];
        for (int i = 0; i < 2; i++) {
            s[i] = test_session_new(
                llama.m, &(struct test_session){
                             .kv_type = types[t], .kv_tail = 64 * t, .n_ctx = N_CTX, .n_threads = i + 1});
            assert_cmp(s[i]->cache.k_block, >, 0);
            test_prefill(s[i], llama.tokens, N);
            test_decode(s[i], llama.tokens + N, N_DECODE);
        }
        assert_same_logits(s[0], s[1]);
        assert_same_cache(s[0], s[1]);
        wnw_session_free(s[0]);
        wnw_session_free(s[1]);
    }
}

/* A session that reads and compresses. */
struct keeping {
    const wnw_policy *p;
    bool rotated;
};

static void keep(void *user, bool other)
{
    const struct keeping *k = user;
    wnw_session *s =
        test_session_new(llama.m, &(struct test_session){.kv_type = WNW_KV_F32,
                                                         .attn = other ? WNW_ATTN_GGML : WNW_ATTN_F32,
                                                         .n_ctx = N_CTX,
                                                         .n_ubatch = other ? 53 : 0});
    if (k->rotated)
        wnw__cache_rotate(&s->cache);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = k->p, .size = size_ratio(0.5)};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, llama.tokens, N, NULL));
    wnw_session_free(s);
}

/* What policies see, and so what they keep, is what it is without rotation, but for scores that rounding lets pass each
 * other. The caches are float32. */
static void keep_sets_do_not_depend_on_it(void **state)
{
    (void)state;
    static const char *const recipes[] = {"snapkv:window=16+adakv",
                                          "h2o",
                                          "tova",
                                          "keydiff",
                                          "knorm",
                                          "expected_attention",
                                          "kvzip",
                                          "lagkv",
                                          "streaming_llm+merge",
                                          "criticalkv:window=16",
                                          "snapkv:window=16+think"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        struct keeping plain = {p, false}, rotated = {p, true};
        struct test_cuts *kept = test_cuts_note();
        keep(&rotated, false);
        test_cuts_stop();
        test_keeps_as(recipes[i], &(struct test_keeper){keep, &plain}, kept);
        test_cuts_free(kept);
        wnw_policy_free(p);
    }
}

/* Keys with new positions are turned as they were before they were rotated. */
static void new_positions(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("streaming_llm:sinks=4+rerotate");
    wnw_session *s[2];
    float a[512], b[512];
    for (int rotated = 0; rotated < 2; rotated++) {
        s[rotated] = test_session_new(
            llama.m, &(struct test_session){.kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = N_CTX});
        if (rotated)
            wnw__cache_rotate(&s[rotated]->cache);
        test_prefill(s[rotated], llama.tokens, N);
        assert_ok(
            wnw_session_compress(s[rotated], p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 100}, NULL));
    }
    assert_same_entries(s[0], s[1]);
    for (int32_t il = 0; il < llama.info.n_layer; il++)
        for (int32_t i = 0; i < 100; i++) {
            test_read_row(s[0], true, il, 0, i, a);
            test_read_row(s[1], true, il, 0, i, b);
            for (int32_t c = 0; c < llama.info.n_embd_head; c++)
                assert_near(b[c], a[c], test_rounding(1e-4, 16) * fmax(1, fabs((double)a[c])));
        }
    wnw_session_free(s[0]);
    wnw_session_free(s[1]);
    wnw_policy_free(p);
}

/* A copy, and a session that goes back, go on as the one that did not. */
static void copies_and_going_back(void **state)
{
    (void)state;
    const struct test_session how = {.kv_type = WNW_KV_Q4_0, .n_ctx = N_CTX};
    wnw_session *s = test_session_new(llama.m, &how), *copy;
    test_prefill(s, llama.tokens, N);
    assert_ok(wnw_session_copy(&copy, s));
    assert_int_equal(copy->cache.k_block, s->cache.k_block);
    test_decode(copy, llama.tokens + N, N_DECODE);
    assert_ok(wnw_session_rewind(copy, N));
    for (int k = 0; k < N_DECODE; k++) {
        assert_ok(wnw_session_decode(copy, llama.tokens[k]));
        assert_ok(wnw_session_decode(s, llama.tokens[k]));
    }
    assert_same_logits(copy, s);
    assert_same_cache(copy, s);
    wnw_session_free(copy);
    wnw_session_free(s);
}

/* Sessions that are rotated and others may be in one batch, with either attention. */
static void batches(void **state)
{
    (void)state;
    for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
        const wnw_engine_params ep = {WNW_INIT(wnw_engine_params), .n_ubatch = 64, .n_threads = 2,
                                      .attn = (wnw_attn)attn};
        wnw_engine *e;
        wnw_session *s[3];
        assert_ok(wnw_engine_new(&e, llama.m, &ep));
        for (int i = 0; i < 3; i++) {
            const wnw_session_params sp = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX,
                                           .kv_type = WNW_KV_Q8_0, .kv_unrotated = i == 1};
            assert_ok(wnw_session_new_on(&s[i], e, &sp));
            assert_ok(wnw_session_prefill(s[i], llama.tokens + i, 100 + i, NULL, NULL));
        }
        test_batches(e, s, 3, llama.tokens, 8, test_nmse_most(1e-3));
        for (int i = 0; i < 3; i++)
            wnw_session_free(s[i]);
        wnw_engine_free(e);
    }
}

static void who_rotates(void **state)
{
    (void)state;
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++)
        for (int unrotated = 0; unrotated < 2; unrotated++) {
            wnw_session *s = test_session_new(llama.m, &(struct test_session){.kv_type = (wnw_kv_type)type,
                                                                              .n_ctx = N_CTX,
                                                                              .kv_unrotated = unrotated});
            assert_int_equal(s->cache.k_block > 0,
                             !unrotated && (type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0));
            wnw_session_free(s);
        }
}

static int set_up(void **state)
{
    return test_set_up(state, &llama, "tiny/tiny-llama.gguf", N_CTX, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearer_to_float32),     cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(new_positions),         cmocka_unit_test(keep_sets_do_not_depend_on_it),
        cmocka_unit_test(copies_and_going_back), cmocka_unit_test(batches),
        cmocka_unit_test(who_rotates),
    };
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
