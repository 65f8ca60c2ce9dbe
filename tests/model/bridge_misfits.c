/* SPDX-License-Identifier: MIT */
/*
 * What does not fit under libllama: a policy on models that have nothing to evict, variables that cannot be used, too few
 * addresses for a context. One line says so, and the program goes on as without winnow, or libllama says that it cannot.
 */
#include "child.h"
#include "helpers.h"
#include "llamas.h"
#include "winnow_bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N = 40, TIME_LIMIT_S = 60 };

/* ---- What is said ---- */

static char said[4096]; /* winnow's warnings */
static int n_said;

static void hear(wnw_log_level level, const char *line, void *user)
{
    (void)user;
    if (level < WNW_LOG_WARN)
        return;
    snprintf(said, sizeof said, "%s", line);
    n_said++;
}

static void listen(void)
{
    wnw_set_log(hear, NULL);
    n_said = 0;
    said[0] = '\0';
}

static void set_environment(const char *policy, const char *budget)
{
    if (policy)
        setenv("WINNOW_POLICY", policy, 1);
    else
        unsetenv("WINNOW_POLICY");
    if (budget)
        setenv("WINNOW_BUDGET", budget, 1);
    else
        unsetenv("WINNOW_BUDGET");
}

/* ---- Nothing to evict ---- */

static const int32_t *tokens_of_text(void)
{
    static int32_t tokens[2 * N];
    for (int32_t i = 0; i < 2 * N; i++)
        tokens[i] = 3 + i * 7 % 200;
    return tokens;
}

/* Embeddings of a text by a model without a decoder, or NULL where it gives none. */
static float *embeddings(struct test_llama *t, int32_t n_embd)
{
    struct llama_batch batch = llama_batch_init(N, 0, 1);
    float *out = malloc((size_t)n_embd * sizeof *out);
    assert_non_null(out);
    batch.n_tokens = N;
    for (int32_t i = 0; i < N; i++) {
        batch.token[i] = tokens_of_text()[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = true;
    }
    assert_int_equal(llama_encode(t->ctx, batch), 0);
    assert_non_null(llama_get_embeddings_seq(t->ctx, 0));
    memcpy(out, llama_get_embeddings_seq(t->ctx, 0), (size_t)n_embd * sizeof *out);
    llama_batch_free(batch);
    return out;
}

/* A policy on a model without a cache is named once as one with nothing to act on, and changes nothing. */
static void test_bert(void **state)
{
    char path[4096];
    float *out[2];
    (void)state;
    test_model_path(path, sizeof path, "tiny/foreign/bert.gguf");
    for (int ours = 0; ours < 2; ours++) {
        struct test_llama t;
        set_environment(ours ? "snapkv" : NULL, ours ? "20" : NULL);
        test_llama_open(&t, path, &(struct test_llama_params){.ours = ours, .n_ctx = 128});
        listen();
        llama_set_embeddings(t.ctx, true);
        const int32_t n_embd = llama_model_n_embd(t.model);
        out[ours] = embeddings(&t, n_embd);
        free(embeddings(&t, n_embd));
        assert_int_equal(n_said, ours);
        if (ours) {
            wnw_bridge *cache;
            assert_non_null(strstr(said, "snapkv has nothing to act on: this model has no cache"));
            assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
            assert_int_equal(wnw_bridge_n_layers(cache), 0);
            assert_error(wnw_bridge_compress(cache), WNW_E_UNSUPPORTED);
            assert_says("has no cache of keys and values");
            assert_cmp(test_nmse(out[1], out[0], n_embd), <, test_nmse_most(1e-8));
        }
        test_llama_close(&t);
    }
    free(out[0]);
    free(out[1]);
    set_environment(NULL, NULL);
}

static void check_nothing(const char *name, bool plain, const struct test_llama_params *more,
                          const char *says)
{
    char path[4096];
    float *out[2];
    struct test_llama_params params = more ? *more : (struct test_llama_params){0};
    test_model_path(path, sizeof path, name);
    for (int ours = 0; ours < 2; ours++) {
        struct test_llama t;
        set_environment(ours ? "h2o" : NULL, ours ? "20" : NULL);
        if (plain && ours)
            setenv("WINNOW_PLAIN", "1", 1);
        params.ours = ours;
        params.n_ctx = 128;
        test_llama_open(&t, path, &params);
        listen();
        out[ours] = test_llama_logits(&t, tokens_of_text(), N, 2 * N);
        assert_int_equal(n_said, ours);
        if (ours) {
            assert_non_null(strstr(said, says));
            assert_cmp(test_nmse(out[1], out[0], (int64_t)(2 * N) * t.n_vocab), <, test_nmse_most(1e-8));
        }
        test_llama_close(&t);
        unsetenv("WINNOW_PLAIN");
    }
    free(out[0]);
    free(out[1]);
    set_environment(NULL, NULL);
}

static void test_mamba(void **state)
{
    (void)state;
    check_nothing("tiny/foreign/mamba.gguf", false, NULL,
                  "h2o has nothing to act on: this model has no cache");
}

static void test_plain(void **state)
{
    (void)state;
    check_nothing("tiny/tiny-llama.gguf", true, NULL,
                  "the caches of this model stay as libllama has them, because of WINNOW_PLAIN");
}

/* What is said is the reason: the cache is elsewhere, with or without its layers, or of a type that libllama converts first. */
static void test_reasons(void **state)
{
    static const char elsewhere[] =
        "h2o has nothing to act on: the cache of this model is not on the device WINNOW";
    static const char *const models[] = {"tiny/tiny-llama.gguf", "tiny/foreign/openelm.gguf",
                                         "tiny/foreign/phi3.gguf"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_nothing(models[i], false, &(struct test_llama_params){.elsewhere = true}, elsewhere);
        check_nothing(models[i], false, &(struct test_llama_params){.elsewhere = true, .flash = true},
                      elsewhere);
        check_nothing(models[i], false, &(struct test_llama_params){.n_layers = 1}, elsewhere);
    }
    check_nothing("tiny/foreign/mamba.gguf", false, &(struct test_llama_params){.n_layers = 1},
                  "this model has no cache of keys and values");
    check_nothing("tiny/tiny-llama.gguf", false, &(struct test_llama_params){.f32 = true, .flash = true},
                  "they are f32, of which it makes f16 for flash attention");
}

/* ---- Variables ---- */

/* A program that asks gets the reason. One that does not gets one warning for its context, and reads on with the full cache. */
static void test_variables(void **state)
{
    static const struct {
        const char *set[4], *says; /* names and values */
    } bad[] = {
        {{"WINNOW_POLICY", "snapvk"}, "snapkv"},
        {{"WINNOW_POLICY", "snapkv+"}, "snapkv+"},
        {{"WINNOW_POLICY", "kvzip"}, "a second time only in sessions"},
        {{"WINNOW_BUDGET", "20", "WINNOW_RATIO", "0.5"}, "exclude each other"},
        {{"WINNOW_RATIO", "0.5", "WINNOW_KV_BYTES", "4096"}, "exclude each other"},
        {{"WINNOW_BUDGET", "20", "WINNOW_POLICY", ""}, "a size is set without WINNOW_POLICY"},
        {{"WINNOW_BUDGET", "20k"}, "WINNOW_BUDGET is '20k': it is a number"},
        {{"WINNOW_RATIO", "50%"}, "WINNOW_RATIO is '50%': it is a number of at least 0 and less than 1"},
        {{"WINNOW_BUDGET", "2147483648"}, "it is a number from 1 to 2147483647, and whole"},
        {{"WINNOW_KV_BYTES", "1e99"}, "WINNOW_KV_BYTES is '1e99': it is a number"},
        {{"WINNOW_PROFILE", "/nowhere/p.json"}, "/nowhere/p.json"},
    };
    char path[4096];
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct test_llama base, t;
        wnw_bridge *cache;
        set_environment(NULL, NULL);
        test_llama_open(&base, path, &(struct test_llama_params){.ours = true, .n_ctx = 512});
        set_environment("snapkv", NULL);
        for (int k = 0; k < 4 && bad[i].set[k]; k += 2)
            setenv(bad[i].set[k], bad[i].set[k + 1], 1);
        assert_int_not_equal(wnw_bridge_register(), WNW_OK);
        assert_says(bad[i].says);
        listen();
        test_llama_share(&t, &base, &(struct test_llama_params){.ours = true, .n_ctx = 512});
        int32_t *tokens = test_random_tokens(300, 250, 3);
        test_llama_decode(&t, 0, 0, tokens, 297, NULL);
        for (int32_t k = 297; k < 300; k++)
            test_llama_decode(&t, 0, k, tokens + k, 1, NULL);
        assert_int_equal(n_said, 1);
        assert_non_null(strstr(said, "nothing is compressed"));
        assert_non_null(strstr(said, bad[i].says));
        assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, 0, &l));
        assert_int_equal(l.n_entries, 300 * l.n_heads);
        test_llama_close_ctx(&t);
        test_llama_close(&base);
        for (int k = 0; k < 4 && bad[i].set[k]; k += 2)
            unsetenv(bad[i].set[k]);
        free(tokens);
    }
    set_environment(NULL, NULL);
}

/* ---- Addresses ---- */

static size_t used_bytes(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A context that is far too long for the addresses that are left, and then one that fits and works. An exit status. */
static int try_contexts(const char *path)
{
    const size_t all = used_bytes() + ((size_t)512 << 20);
    const struct rlimit limit = {all, all};
    struct test_llama t;
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .n_ctx = 256, .n_batch = 64});
    listen();
    setrlimit(RLIMIT_AS, &limit);
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = 1 << 20;
    c.n_batch = c.n_ubatch = 64;
    c.n_threads = c.n_threads_batch = 1;
    struct llama_context *ctx = llama_init_from_model(t.model, c);
    if (ctx)
        return 10;
    if (n_said != 1)
        fprintf(stderr, "%d warnings; the last: %s\n", n_said, said);
    if (n_said != 1 || !strstr(said, "no addresses for") || !strstr(said, "a smaller context needs fewer"))
        return 11;
    c.n_ctx = 256;
    ctx = llama_init_from_model(t.model, c);
    if (!ctx)
        return 12;
    struct test_llama small = {.model = t.model, .ctx = ctx, .n_vocab = t.n_vocab};
    return test_llama_try(&small, 0, 0, tokens_of_text(), N, NULL) == 0 ? 0 : 13;
}

static void test_addresses(void **state)
{
    char path[4096];
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* these need addresses themselves */
#endif
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    const pid_t child = test_child(TIME_LIMIT_S);
    if (child == 0)
        _exit(try_contexts(path));
    assert_int_equal(test_child_status(child, "a context with too few addresses"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses), /* first: it forks */
                                       cmocka_unit_test(test_bert),      cmocka_unit_test(test_mamba),
                                       cmocka_unit_test(test_plain),     cmocka_unit_test(test_reasons),
                                       cmocka_unit_test(test_variables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
