/* SPDX-License-Identifier: MIT */
/* Products with quantised weights under libllama: how far ours are from what the same weights give in float32, compared
 * with ggml's distance. */
#include "files.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_arrays.h"
#include "peek_bridge.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_PROMPT = 70, N_DECODE = 6, N = N_PROMPT + N_DECODE };

/* Whether there is a kernel for this CPU; without one all products stay ggml's. */
static bool has_products(void)
{
    const struct ggml_tensor weight = {.type = GGML_TYPE_Q4_1, .ne = {256, 256, 1, 1}};
    return wnw__matmul_takes(&weight, 1, false);
}

static float *logits_of(const char *name, bool ours, int32_t *n_vocab)
{
    struct test_llama t;
    char path[4096];
    int32_t tokens[N];
    test_model_path(path, sizeof path, name);
    test_llama_log_reset();
    test_llama_open(&t, path, &(struct test_llama_params){.ours = ours, .f32 = true});
    for (int32_t i = 0; i < N; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 250;
    float *logits = test_llama_logits(&t, tokens, N_PROMPT, N);
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

/* Weights are ours where their products are. */
static void assert_buffer(void)
{
    if (has_products())
        assert_contains(test_llama_log(), "WINNOW model buffer size");
    else
        assert_lacks(test_llama_log(), "WINNOW model buffer size");
}

static void test_as_exact_as_ggml(void **state)
{
    (void)state;
    int32_t n_vocab;
    float *exact = logits_of("smollm2-135m-f32.gguf", false, &n_vocab);
    float *ggml = logits_of("smollm2-135m.gguf", false, &n_vocab),
          *ours = logits_of("smollm2-135m.gguf", true, &n_vocab);
    assert_buffer();
    setenv("WINNOW_GGML_PRODUCTS", "1", 1);
    float *left = logits_of("smollm2-135m.gguf", true, &n_vocab);
    unsetenv("WINNOW_GGML_PRODUCTS");
    assert_lacks(test_llama_log(), "WINNOW model buffer size");
    /* Prompts and single tokens go through different kernels. */
    for (int part = 0; part < 2; part++) {
        const int64_t from = part ? (int64_t)N_PROMPT * n_vocab : 0;
        const int64_t n = (int64_t)(part ? N_DECODE : N_PROMPT) * n_vocab;
        const double of_ggml = test_nmse(ggml + from, exact + from, n),
                     of_ours = test_nmse(ours + from, exact + from, n);
        const double between = test_nmse(ours + from, ggml + from, n),
                     off = test_nmse(left + from, ggml + from, n);
        print_message("%s: ggml's products %.2g, ours %.2g, between them %.2g, with ggml's under us %.2g\n",
                      part ? "single tokens" : "a prompt", of_ggml, of_ours, between, off);
        assert_cmp(of_ours, <=, test_nmse_most(2.0 * of_ggml));
        if (has_products())
            assert_cmp(between, >, 0.0); /* else they were not ours */
    }
    free(exact);
    free(ggml);
    free(ours);
    free(left);
}

/* Weights that ggml would copy to a layout of its own stay as they are in the file. */
static void test_not_repacked(void **state)
{
    (void)state;
    int32_t n_vocab;
    float *ggml = logits_of("tiny/tiny-llama-q4_0.gguf", false, &n_vocab);
    const bool would_be = strstr(test_llama_log(), "CPU_REPACK model buffer") != NULL;
    float *ours = logits_of("tiny/tiny-llama-q4_0.gguf", true, &n_vocab);
    print_message("ggml %s q4_0 on this CPU\n", would_be ? "repacks" : "does not repack");
    if (has_products())
        assert_lacks(test_llama_log(), "CPU_REPACK model buffer");
    assert_buffer();
    const double d = test_nmse(ours, ggml, (int64_t)N * n_vocab);
    print_message("q4_0: %.2g\n", d);
    assert_cmp(d, <=, test_nmse_most(1e-2)); /* activations are bytes in both, rounded otherwise */
    free(ggml);
    free(ours);
}

/* ---- Weights in ggml's layout ---- */

/* A prompt that was read. */
struct read {
    float *logits; /* [N_PROMPT][n_vocab], released with free */
    int32_t n_vocab;
    bool repacked; /* ggml has weights in a layout of its own */
    int n_ours;    /* products of winnow's kernels */
};

static struct read read_prompt(const char *path, bool as_in_file)
{
    struct test_llama t;
    struct read r;
    wnw_bridge *cache;
    int32_t tokens[N_PROMPT];
    test_llama_log_reset();
    test_llama_open(&t, path,
                    &(struct test_llama_params){.ours = true, .flash = true, .as_in_file = as_in_file});
    r.repacked = strstr(test_llama_log(), "CPU_REPACK model buffer") != NULL;
    r.n_vocab = t.n_vocab;
    for (int32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 250;
    r.logits = malloc((size_t)N_PROMPT * (size_t)t.n_vocab * sizeof *r.logits);
    assert_non_null(r.logits);
    test_llama_decode(&t, 0, 0, tokens, N_PROMPT, r.logits);
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    r.n_ours = ((struct wnw__bridge_backend *)(void *)cache)->products.planned.n_product;
    test_llama_close(&t);
    return r;
}

/* ggml keeps weights of Q4_K in a layout of its own alone. Prompts are multiplied with them there, as with those of the file: the
 * results are the same bits. */
static void test_reads_ggmls_layout(void **state)
{
    (void)state;
    char path[4096], copy[] = "/tmp/winnow-products-XXXXXX";
    test_model_path(path, sizeof path, "tiny/tiny-llama3.gguf");
    test_file_new(copy);
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_MOSTLY_Q4_K_S;
    params.nthread = 1;
    params.allow_requantize = true;
    assert_int_equal(llama_model_quantize(path, copy, &params), 0);
    const struct read there = read_prompt(copy, false), in_file = read_prompt(copy, true);
    print_message("ggml %s q4_K on this CPU; %d products of ours, %d with weights as in the file\n",
                  there.repacked ? "repacks" : "does not repack", there.n_ours, in_file.n_ours);
    assert_false(in_file.repacked);
    if (has_products())
        assert_cmp(in_file.n_ours, >, 0);
#if defined(__x86_64__)
    assert_int_equal(there.n_ours, in_file.n_ours); /* elsewhere ggml may have another layout */
#endif
    if (has_products() && there.n_ours == in_file.n_ours) /* ggml rounds its two layouts in two ways */
        assert_memory_equal(there.logits, in_file.logits, sizeof(float) * N_PROMPT * (size_t)there.n_vocab);
    assert_int_equal(unlink(copy), 0);
    free(there.logits);
    free(in_file.logits);
}

/* ---- Memory ---- */

struct maps {
    uint64_t of_file, not_of_files; /* bytes: of the file's mappings; resident of no file */
};

static struct maps maps_of(const char *path)
{
    struct maps m = {0};
    char line[4096];
    unsigned long long from, to, kib;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && strstr(line, path))
            m.of_file += to - from;
        else if (sscanf(line, "Anonymous: %llu kB", &kib) == 1)
            m.not_of_files += kib * 1024;
    }
    fclose(f);
    return m;
}

/* What a model and a context take beyond what is there, while tokens are decoded. */
static struct maps maps_with(const char *path, bool ours)
{
    struct test_llama t;
    const struct maps before = maps_of(path);
    test_llama_open(&t, path, &(struct test_llama_params){.ours = ours, .flash = true, .n_ctx = 256});
    test_llama_decode(&t, 0, 0, (const int32_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8, NULL);
    test_llama_decode(&t, 0, 8, (const int32_t[]){9}, 1, NULL);
    struct maps m = maps_of(path);
    m.of_file -= before.of_file;
    m.not_of_files -= before.not_of_files < m.not_of_files ? before.not_of_files : m.not_of_files;
    test_llama_close(&t);
    return m;
}

/* Weights are in memory as the file has them, once. What is mapped of the file is no more than the file. What is not of a
 * file has no room for a copy of them in addition to what libllama alone needs. */
static void test_weights_are_mapped_once(void **state)
{
    (void)state;
    char name[4096];
    struct stat file;
    test_model_path(name, sizeof name, "smollm2-135m.gguf");
    char *path = realpath(name, NULL); /* as the system lists it */
    assert_non_null(path);
    assert_int_equal(stat(path, &file), 0);
    (void)maps_with(path, false); /* memory that stays with the process */
    const uint64_t size = (uint64_t)file.st_size, page = (uint64_t)sysconf(_SC_PAGESIZE);
    const struct maps plain = maps_with(path, false), ours = maps_with(path, true);
    print_message("a file of %.1f MB: mapped %.1f, and %.1f of no file; libllama alone %.1f and %.1f\n",
                  (double)size / 1e6, (double)ours.of_file / 1e6, (double)ours.not_of_files / 1e6,
                  (double)plain.of_file / 1e6, (double)plain.not_of_files / 1e6);
    assert_cmp(ours.of_file, >, size / 2);
    assert_cmp(ours.of_file, <=, size + page);
    assert_cmp(ours.not_of_files, <, plain.not_of_files + size / 4);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_exact_as_ggml), cmocka_unit_test(test_not_repacked),
        cmocka_unit_test(test_reads_ggmls_layout), cmocka_unit_test(test_weights_are_mapped_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
