/* SPDX-License-Identifier: MIT */
/*
 * libllama on our device against libllama alone: tiny models, flash attention on and off, types of caches.
 *
 * How far logits may be: with keys and values in float32 both compute in float32, and the test of architectures
 * (model_archs) holds that to 1e-8. With other caches ggml also rounds queries and probabilities to the cache's type, ours
 * does not, so that the larger part of the distance is ggml's rounding (decision 050).
 */
#include "helpers.h"
#include "llamas.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 150, N_DECODE = 4, N = N_PROMPT + N_DECODE };

/* Logits [N][n_vocab] of a prompt in one batch and tokens one by one. */
static float *logits_of(const char *path, const struct test_llama_params *params, const int32_t *tokens,
                        int32_t *n_vocab)
{
    struct test_llama t;
    test_llama_open(&t, path, params);
    float *logits = test_llama_logits(&t, tokens, N_PROMPT, N);
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

/* NMSE of the logits of one way of computing to those of another. */
static double distance(const char *path, const struct test_llama_params *a, const struct test_llama_params *b)
{
    int32_t tokens[N], n_vocab;
    for (int32_t i = 0; i < N; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 250;
    float *got = logits_of(path, a, tokens, &n_vocab), *want = logits_of(path, b, tokens, &n_vocab);
    const double d = test_nmse(got, want, (int64_t)N * n_vocab);
    free(want);
    free(got);
    return d;
}

/* Calls test for every tiny model whose weights are not quantised, or with `f32` are float32: products with others round
 * activations to their type, which makes any difference large. */
static void for_float_models(void (*test)(const char *path, const char *name), bool f32)
{
    char names[32][TEST_NAME_MAX], path[4096];
    const int n = test_tiny_models(names, 32);
    int tested = 0;
    for (int i = 0; i < n; i++) {
        test_model_path(path, sizeof path, names[i]);
        if (!test_all_float(path) || (f32 && !strstr(names[i], "-f32")))
            continue;
        test(path, names[i]);
        tested++;
    }
    assert_cmp(tested, >=, 3);
}

static void check_f32(const char *path, const char *name)
{
    test_llama_kinds_reset();
    const double d = distance(path, &(struct test_llama_params){.ours = true, .f32 = true},
                              &(struct test_llama_params){.f32 = true});
    print_message("%s, f32: %.2g\n", name, d);
    assert_cmp(d, <=, test_nmse_most(1e-7)); /* gemma3's layers amplify what the order of additions changes */
    assert_cmp(test_llama_ragged(), >, 0);
    assert_int_equal(test_llama_plain(), 0);
}

static void test_float32(void **state)
{
    (void)state;
    for_float_models(check_f32, true);
}

static void check_flash(const char *path, const char *name)
{
    const struct test_llama_params flash = {.flash = true}, off = {.flash = false};
    struct test_llama_params ours = flash;
    ours.ours = true;
    const double between = distance(path, &flash, &off), d = distance(path, &ours, &flash);
    print_message("%s, f16: ours to flash attention %.2g, flash attention off to on %.2g\n", name, d,
                  between);
    assert_cmp(d, <=, test_nmse_most(4.0 * between));
    ours.flash = false;
    assert_cmp(distance(path, &ours, &off), <=, test_nmse_most(4.0 * between));
}

static void test_f16_on_and_off(void **state)
{
    (void)state;
    for_float_models(check_flash, false);
}

struct type {
    const char *name;
    enum ggml_type k, v;
    double bound; /* two roundings of a cache of the type */
};
static const struct type types[] = {
    {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, 1e-3},
    {"q4_0", GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, 1e-2},
    {"bf16", GGML_TYPE_BF16, GGML_TYPE_BF16, 1e-3},
    {"q8_0 and f16", GGML_TYPE_Q8_0, GGML_TYPE_F16, 1e-3},
    {"q5_1 and q4_1", GGML_TYPE_Q5_1, GGML_TYPE_Q4_1, 1e-2},
    {"iq4_nl", GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_NL, 1e-2},
};

static void test_type(void **state)
{
    const struct type *type = *state;
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-qwen2-f32.gguf");
    struct test_llama_params p = {.flash = true, .type_k = type->k, .type_v = type->v}, ours = p;
    ours.ours = true;
    test_llama_kinds_reset();
    const double d = distance(path, &ours, &p);
    print_message("%s: %.2g\n", type->name, d);
    assert_cmp(d, <=, test_nmse_most(type->bound));
    assert_cmp(test_llama_ragged(), >, 0);
    assert_int_equal(test_llama_plain(), 0);
}

/* A graph is one piece, weights are mapped from the file and lie where they are without us. */
static void test_one_split_and_mapped_weights(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama t;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    setenv("GGML_SCHED_DEBUG", "1", 1); /* ggml logs how it splits graphs */
    test_llama_log_reset();
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .flash = true});
    test_llama_decode(&t, 0, 0, (const int32_t[]){1, 2, 3}, 3, NULL);
    test_llama_close(&t);
    unsetenv("GGML_SCHED_DEBUG");
    assert_contains(test_llama_log(), "## SPLIT #0: WINNOW");
    assert_lacks(test_llama_log(), "## SPLIT #1");
    assert_contains(test_llama_log(), "CPU_Mapped model buffer size");
    assert_contains(test_llama_log(), "WINNOW KV buffer size");
    assert_lacks(test_llama_log(), "WINNOW model buffer size");
}

/* With WINNOW_PLAIN nothing is taken over, and every bit is libllama's. */
static void test_plain(void **state)
{
    (void)state;
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-gemma3.gguf");
    setenv("WINNOW_PLAIN", "1", 1);
    test_llama_kinds_reset();
    for (int flash = 0; flash < 2; flash++)
        assert_cmp(distance(path, &(struct test_llama_params){.ours = true, .flash = flash},
                            &(struct test_llama_params){.flash = flash}),
                   ==, 0.0);
    assert_int_equal(test_llama_ragged(), 0);
    unsetenv("WINNOW_PLAIN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float32),
        cmocka_unit_test(test_f16_on_and_off),
        cmocka_unit_test(test_one_split_and_mapped_weights),
        cmocka_unit_test(test_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(test_type, types);
}
