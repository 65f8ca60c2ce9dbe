/* SPDX-License-Identifier: MIT */
/*
 * Our devices around two that have the rules of a GPU (devices/strict.c). What comes out is what comes out around the CPU, bit for bit. Parts of
 * a prompt are on both devices at once. Rows grow and move meanwhile. Graphs come again after a cache was cleared. Caches are quantised, in
 * several buffers, or find no memory.
 */
#include "helpers.h"
#include "llamas.h"
#include "peek_wrap.h"
#include "rounding.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_CTX = 2048,
    N_PROMPT = 300,
    N_UBATCH = 64,
    N_SINGLE = 3,
    N_BATCH = 20,
    N_ROW = 2 * N_SINGLE + N_BATCH + 1
};

static const char *const around_cpu = "WINNOW0", *const around_strict = "WINNOW1,WINNOW2";

static void decode(struct test_llama *t, int32_t from, int32_t n, float *logits)
{
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    assert_non_null(tokens);
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 1 + ((from + i) * 7919 + (from + i) * (from + i) * 13) % 250;
    test_llama_decode(t, 0, from, tokens, n, logits);
    free(tokens);
}

/* The prompt in one call, whose logits nobody asks for but the last ones. */
static void read_prompt(struct test_llama *t, float *last)
{
    decode(t, 0, N_PROMPT, NULL);
    memcpy(last, llama_get_logits_ith(t->ctx, -1), (size_t)t->n_vocab * sizeof *last);
}

static void drop_some(struct test_llama *t)
{
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        for (int32_t h = 0; l.ragged && h < l.n_heads; h++) {
            int32_t out[N_PROMPT], n = 0;
            for (int32_t cell = 0; cell < N_PROMPT; cell++)
                if ((uint32_t)(cell * 7 + l.layer * 3 + h) % 5u < (uint32_t)(h % 2 + 2))
                    out[n++] = cell;
            assert_ok(wnw_bridge_drop(cache, i, 0, h, out, n));
        }
    }
}

/* A prompt, tokens one by one, entries dropped, more tokens one by one and some at once. */
static void answer(struct test_llama *t, float *logits)
{
    const int64_t n = t->n_vocab;
    int32_t pos = N_PROMPT;
    read_prompt(t, logits);
    logits += n;
    for (int32_t i = 0; i < N_SINGLE; i++, logits += n)
        decode(t, pos++, 1, logits);
    drop_some(t);
    for (int32_t i = 0; i < N_SINGLE; i++, logits += n)
        decode(t, pos++, 1, logits);
    decode(t, pos, N_BATCH, logits);
}

/* Logits [2][N_ROW] of two such answers, the second after the cache was cleared. */
static float *logits_on(const char *model, const char *devices, enum ggml_type type, int64_t *n)
{
    char path[4096];
    struct test_llama t;
    test_model_path(path, sizeof path, model);
    test_llama_log_reset();
    test_llama_open(&t, path,
                    &(struct test_llama_params){.ours = true,
                                                .device = devices,
                                                .flash = true,
                                                .n_ctx = N_CTX,
                                                .n_batch = N_CTX,
                                                .n_ubatch = N_UBATCH,
                                                .n_threads = 1,
                                                .as_in_file = true,
                                                .type_k = type,
                                                .type_v = type});
    if (strchr(devices, ','))
        assert_non_null(strstr(test_llama_log(), "pipeline parallelism enabled"));
    const int64_t one = (int64_t)N_ROW * t.n_vocab;
    float *logits = malloc(2 * (size_t)one * sizeof *logits);
    assert_non_null(logits);
    answer(&t, logits);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    answer(&t, logits + one);
    test_llama_close(&t);
    *n = 2 * one;
    return logits;
}

static void same(const char *model, enum ggml_type type)
{
    int64_t n;
    float *want = logits_on(model, around_cpu, type, &n), *got = logits_on(model, around_strict, type, &n);
    print_message("%s %s: %.2g\n", model, ggml_type_name(type), test_nmse(got, want, n));
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    free(want);
    free(got);
}

static const char *const models[] = {"tiny/tiny-qwen3-f32.gguf", "tiny/tiny-gemma3-f32.gguf"};

static void test_types(void **state)
{
    (void)state;
    same(models[0], GGML_TYPE_F16);
    same(models[0], GGML_TYPE_Q8_0);
    same(models[1], GGML_TYPE_Q4_0);
    same("tiny/tiny-qwen3.gguf", GGML_TYPE_Q8_0); /* heads of 64: rows of whole words */
}

/* X has small buffers: a layer's keys and values are in two. */
static void test_pieces(void **state)
{
    (void)state;
    const char *const sizes[] = {"300000", "600000"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        setenv("STRICT_MAX_SIZE", sizes[i], 1);
        same(models[i], GGML_TYPE_F16);
    }
    unsetenv("STRICT_MAX_SIZE");
}

/* A graph comes again after the cache was cleared, with rows elsewhere. */
static void test_cleared(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama t;
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(&t, path,
                    &(struct test_llama_params){.ours = true,
                                                .device = "WINNOW1",
                                                .flash = true,
                                                .n_ctx = N_CTX,
                                                .n_threads = 1,
                                                .as_in_file = true});
    const size_t bytes = (size_t)t.n_vocab * sizeof(float);
    float *first = malloc(bytes), *logits = malloc(bytes);
    assert_non_null(first);
    assert_non_null(logits);
    for (int32_t times = 0; times < 4; times++) {
        for (int32_t i = 0; i < 3; i++)
            decode(&t, i, 1, times == 0 && i == 2 ? first : logits);
        if (times > 0)
            assert_memory_equal(logits, first, bytes);
        decode(&t, 3, 1, NULL); /* still under way when its rows go */
        llama_memory_clear(llama_get_memory(t.ctx), true);
    }
    test_llama_close(&t);
    free(first);
    free(logits);
}

/* A cache that grows finds no memory: the batch is refused, and what was there goes on. */
static void test_no_memory(void **state)
{
    (void)state;
    char path[4096], most[32];
    struct test_llama t;
    test_model_path(path, sizeof path, models[0]);
    for (size_t extra = 0; extra < 3; extra++) {
        test_llama_open(&t, path,
                        &(struct test_llama_params){.ours = true,
                                                    .device = "WINNOW1",
                                                    .flash = true,
                                                    .n_ctx = N_CTX,
                                                    .n_threads = 1,
                                                    .as_in_file = true});
        ggml_backend_dev_t x = wnw__wrap_of(ggml_backend_dev_by_name("WINNOW1"))->x;
        size_t n_free, total;
        decode(&t, 0, 200, NULL);
        ggml_backend_dev_memory(x, &n_free, &total);
        snprintf(most, sizeof most, "%zu", total - n_free + extra * 100000);
        setenv("STRICT_MEMORY", most, 1);
        int32_t tokens[400];
        for (int32_t i = 0; i < 400; i++)
            tokens[i] = 1 + i % 200;
        assert_int_not_equal(test_llama_try(&t, 0, 200, tokens, 400, NULL), 0);
        decode(&t, 200, 8, NULL);
        unsetenv("STRICT_MEMORY");
        decode(&t, 208, 400, NULL);
        test_llama_close(&t);
    }
}

/* With the name of a test, that one. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    setenv("WINNOW_GGML_MODULES", WNW_TEST_STRICT_DEVICE, 1);
    assert_ok(wnw_bridge_wrap("CPU,STRICT0,STRICT1"));
    /* Heads of the same capacity, so that keys are added in the same order. */
    wnw__wrap_of(ggml_backend_dev_by_name(around_cpu))->pad = 256;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_cleared), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
