/* SPDX-License-Identifier: MIT */
/* The benchmark's peer computes what it should: n sequences in one llama_decode give what each gives alone. */
#include "bench/llama/llama.h"
#include "helpers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 4, N_DECODE = 24, N_CTX = 256 };

static const int32_t lengths[N_SEQ] = {60, 7, 130, 31};

static struct bench_llama *open_peer(const char *name, int32_t n_seq)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    struct bench_llama *b = bench_llama_open(
        path, &(struct bench_llama_params){.n_ctx = N_CTX, .n_seq = n_seq, .n_ubatch = 64, .n_threads = 1});
    assert_non_null(b);
    return b;
}

static int32_t pick(const struct bench_llama *b, int32_t i, int32_t n_vocab)
{
    const float *logits = bench_llama_logits(b, i);
    assert_non_null(logits);
    return test_argmax(logits, n_vocab);
}

/* Another token than the one picked alone may be picked where rounding lets it overtake that one. */
static void check_pick(const struct bench_llama *b, int32_t i, int32_t n_vocab, int32_t alone)
{
    const float *logits = bench_llama_logits(b, i);
    const double top = (double)logits[test_argmax(logits, n_vocab)];
    assert_cmp(top - (double)logits[alone], <=, test_rounding(1e-3, 32) * fmax(1, fabs(top)));
}

/* Greedy, one sequence. picked [N_DECODE] */
static void decode_alone(struct bench_llama *b, const int32_t *tokens, int32_t n, int32_t n_vocab,
                         int32_t *picked)
{
    bench_llama_reset(b);
    assert_true(bench_llama_feed(b, 0, tokens, n, true));
    for (int32_t i = 0; i < N_DECODE; i++) {
        picked[i] = pick(b, 0, n_vocab);
        assert_true(bench_llama_step(b, &picked[i], 1));
    }
}

static void like_alone(const char *name)
{
    wnw_model *m = test_model_open(name);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    wnw_model_free(m);
    int32_t *tokens[N_SEQ], alone[N_SEQ][N_DECODE], next[N_SEQ];
    struct bench_llama *one = open_peer(name, 1), *all = open_peer(name, N_SEQ);
    for (int32_t i = 0; i < N_SEQ; i++) {
        tokens[i] = test_random_tokens(lengths[i], info.n_vocab, (uint64_t)i + 1);
        decode_alone(one, tokens[i], lengths[i], info.n_vocab, alone[i]);
        assert_true(bench_llama_feed(all, i, tokens[i], lengths[i], true));
        next[i] = alone[i][0];
    }
    for (int32_t k = 1; k < N_DECODE; k++) {
        assert_true(bench_llama_step(all, next, N_SEQ));
        for (int32_t i = 0; i < N_SEQ; i++) {
            check_pick(all, i, info.n_vocab, alone[i][k]);
            next[i] = alone[i][k];
        }
    }
    /* A copy goes on as its source does, and a reset forgets. */
    bench_llama_reset(all);
    assert_true(bench_llama_feed(all, 0, tokens[0], lengths[0], true));
    for (int32_t i = 1; i < N_SEQ; i++)
        bench_llama_copy(all, 0, i);
    for (int32_t k = 0; k < N_DECODE - 1; k++) {
        for (int32_t i = 0; i < N_SEQ; i++)
            next[i] = alone[0][k];
        assert_true(bench_llama_step(all, next, N_SEQ));
        for (int32_t i = 0; i < N_SEQ; i++)
            check_pick(all, i, info.n_vocab, alone[0][k + 1]);
    }
    bench_llama_close(one);
    bench_llama_close(all);
    for (int32_t i = 0; i < N_SEQ; i++)
        free(tokens[i]);
}

static void float_weights(void **state)
{
    (void)state;
    like_alone("tiny/tiny-llama.gguf");
    like_alone("tiny/tiny-qwen3-f32.gguf");
}

static void sliding_windows(void **state)
{
    (void)state;
    like_alone("tiny/tiny-gemma3-f32.gguf");
}

static void what_cannot_be_opened(void **state)
{
    (void)state;
    const struct bench_llama_params params = {.n_ctx = 64, .n_ubatch = 8, .n_threads = 1};
    assert_null(bench_llama_open("no such file", &params));
    bench_llama_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(float_weights), cmocka_unit_test(sliding_windows),
                                       cmocka_unit_test(what_cannot_be_opened)};
    return cmocka_run_group_tests_name("llama.cpp beside us", tests, NULL, NULL);
}
