/* SPDX-License-Identifier: MIT */
/*
 * Our graphs against libllama's: the same GGUF, the same tokens, flash attention, f16 cache, the same ubatch.
 *
 * With ggml's attention the operations and their shapes are the same, so every bit must be. Our own attention
 * adds up in another order and in single precision where ggml, for one query, sums values in half precision.
 * How far apart two correct implementations may lie is told by libllama itself, run with and without flash
 * attention on these models and tokens (mean KL divergence / normalised error):
 *
 *     weights in f32 or f16    prefill up to 8e-6 / 2e-6    decode up to 4e-5 / 9e-6
 *     quantised weights        prefill up to 4e-3 / 3e-3    decode up to 5e-3 / 3e-3
 *
 * Quantised weights round the input of every matrix product to 8 bits, which turns a last-bit difference into
 * a step of 1/127: logits move visibly, the distribution hardly. The tolerances are a few times these
 * numbers.
 */
#include "helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

#define N_DECODE 24
#define N_UBATCH 512

struct tolerance {
    double kl_mean; /* nats */
    double nmse;
    double top1; /* share of positions */
};

/* Of our own attention; [0] weights in f32 or f16, [1] quantised. */
static const struct tolerance tol_prefill[] = {
    {.kl_mean = 2e-5, .nmse = 5e-6, .top1 = 0.98},
    {.kl_mean = 1e-2, .nmse = 1e-2, .top1 = 0.95},
};
static const struct tolerance tol_decode[] = {
    {.kl_mean = 2e-4, .nmse = 5e-5, .top1 = 0.95},
    {.kl_mean = 2e-2, .nmse = 1e-2, .top1 = 0.87},
};

/* The same with products of prompts in bf16, where the CPU has them (decision 039). */
static const struct tolerance tol_bf16[] = {
    {.kl_mean = 1e-3, .nmse = 3e-4, .top1 = 0.95},
    {.kl_mean = 2e-2, .nmse = 1e-2, .top1 = 0.87},
};

/* ---- The reference ---- */

struct reference {
    struct llama_model *model;
    struct llama_context *ctx;
    int32_t n_vocab;
    float *prefill;         /* [n_tokens][n_vocab] */
    float *decode;          /* [N_DECODE][n_vocab] */
    int32_t next[N_DECODE]; /* the token fed before each row of decode: greedy by the reference */
};

static void reference_feed(struct reference *r, const int32_t *tokens, int32_t n, int32_t first, float *out)
{
    struct llama_batch b = llama_batch_init(n, 0, 1);
    for (int32_t i = 0; i < n; i++) {
        b.token[i] = tokens[i];
        b.pos[i] = first + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    b.n_tokens = n;
    assert_int_equal(llama_decode(r->ctx, b), 0);
    for (int32_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * (size_t)r->n_vocab, llama_get_logits_ith(r->ctx, i),
               (size_t)r->n_vocab * sizeof *out);
    llama_batch_free(b);
}

static void reference_run(struct reference *r, const char *path, const int32_t *tokens, int32_t n)
{
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    r->model = llama_model_load_from_file(path, mp);
    if (!r->model)
        fail_msg("libllama cannot load %s", path);
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 1024;
    cp.n_batch = 1024;
    cp.n_ubatch = N_UBATCH;
    cp.n_threads = cp.n_threads_batch = 2;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    r->ctx = llama_init_from_model(r->model, cp);
    assert_non_null(r->ctx);
    r->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(r->model));
    const size_t row = (size_t)r->n_vocab * sizeof(float);
    r->prefill = malloc((size_t)n * row);
    r->decode = malloc(N_DECODE * row);
    assert_non_null(r->prefill);
    assert_non_null(r->decode);

    reference_feed(r, tokens, n, 0, r->prefill);
    const float *last = r->prefill + (size_t)(n - 1) * (size_t)r->n_vocab;
    for (int32_t i = 0; i < N_DECODE; i++) {
        r->next[i] = test_argmax(last, r->n_vocab);
        float *out = r->decode + (size_t)i * (size_t)r->n_vocab;
        reference_feed(r, &r->next[i], 1, n + i, out);
        last = out;
    }
}

static void reference_free(struct reference *r)
{
    llama_free(r->ctx);
    llama_model_free(r->model);
    free(r->prefill);
    free(r->decode);
}

/* ---- Ours ---- */

struct follow {
    const struct reference *ref;
    struct test_diff diff;
    float *last; /* [n_vocab], our newest row */
};

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct follow *f = user;
    const size_t row = (size_t)f->ref->n_vocab;
    if (i != (int32_t)f->diff.n)
        fail_msg("logits of token %d came as number %lld", i, (long long)f->diff.n);
    test_diff_add(&f->diff, f->ref->prefill + (size_t)i * row, logits, f->ref->n_vocab);
    if (!f->last)
        f->last = malloc(row * sizeof *f->last);
    assert_non_null(f->last);
    memcpy(f->last, logits, row * sizeof *f->last);
    return true;
}

/* tol NULL: every bit must be the same. */
static bool within(const char *what, const struct test_diff *d, int64_t n, const struct tolerance *tol)
{
    test_diff_print(what, d);
    if (d->n != n) {
        print_error("%s: %lld positions, expected %lld\n", what, (long long)d->n, (long long)n);
        return false;
    }
    if (!tol) {
        if (d->identical != n)
            print_error("%s: must be equal to the bit\n", what);
        return d->identical == n;
    }
    if (test_diff_kl(d) <= tol->kl_mean && test_diff_nmse(d) <= tol->nmse &&
        (double)d->top1 >= tol->top1 * (double)d->n)
        return true;
    print_error("%s: outside mean KL %g, normalised error %g, top-1 %g\n", what, tol->kl_mean, tol->nmse,
                tol->top1);
    return false;
}

static bool follow_reference(const char *name, const wnw_model *m, const struct reference *ref,
                             const int32_t *tokens, int32_t n, wnw_attn attn, bool quantised)
{
    char what[160];
    const bool own = attn != WNW_ATTN_GGML;
    const char *const kind = attn == WNW_ATTN_OWN ? "own" : own ? "float32" : "ggml";
    const struct tolerance *const tol_prompt = attn == WNW_ATTN_OWN ? tol_bf16 : tol_prefill,
                                  *const tol_next = attn == WNW_ATTN_OWN ? tol_bf16 : tol_decode;
    wnw_session *s = test_session_new(m, &(struct test_session){.attn = attn, .n_ctx = 1024, .n_threads = 2});
    struct follow prefill = {.ref = ref}, decode = {.ref = ref};
    struct test_diff last = {0};
    assert_ok(wnw_session_prefill(s, tokens, n, on_logits, &prefill));
    assert_int_equal(wnw_session_n_past(s), n);
    test_diff_add(&last, prefill.last, wnw_session_logits(s), ref->n_vocab);
    for (int32_t i = 0; i < N_DECODE; i++) {
        assert_ok(wnw_session_decode(s, ref->next[i]));
        test_diff_add(&decode.diff, ref->decode + (size_t)i * (size_t)ref->n_vocab, wnw_session_logits(s),
                      ref->n_vocab);
    }
    wnw_session_free(s);
    free(prefill.last);
    snprintf(what, sizeof what, "%s %s prefill", name, kind);
    bool ok = within(what, &prefill.diff, n, own ? &tol_prompt[quantised] : NULL);
    snprintf(what, sizeof what, "%s %s decode", name, kind);
    ok = within(what, &decode.diff, N_DECODE, own ? &tol_next[quantised] : NULL) && ok;
    /* The logits that stay with the session are those of the last token. */
    if (last.identical != 1)
        print_error("%s: wnw_session_logits differs from the last row of prefill\n", name);
    return ok && last.identical == 1;
}

static bool compare_model(const char *name, const int32_t *tokens, int32_t n)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    wnw_model *m = test_model_open(name); /* first: it silences libllama */
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    const bool quantised = !test_all_float(path);
    int32_t *random = tokens ? NULL : test_random_tokens(n, info.n_vocab, 1);

    struct reference ref = {0};
    reference_run(&ref, path, tokens ? tokens : random, n);
    assert_int_equal(ref.n_vocab, info.n_vocab);
    bool ok = follow_reference(name, m, &ref, tokens ? tokens : random, n, WNW_ATTN_GGML, quantised);
    ok = follow_reference(name, m, &ref, tokens ? tokens : random, n, WNW_ATTN_F32, quantised) && ok;
    ok = follow_reference(name, m, &ref, tokens ? tokens : random, n, WNW_ATTN_OWN, quantised) && ok;
    reference_free(&ref);
    free(random);
    wnw_model_free(m);
    return ok;
}

/* ---- Tests ---- */

static void smollm2_600_tokens(void **state)
{
    (void)state;
    char path[4096];
    int32_t n = 0;
    test_golden_path(path, sizeof path, "tokens.txt");
    int32_t *tokens = test_read_tokens(path, &n);
    assert_cmp(n, >, N_UBATCH); /* the prompt must not fit one ubatch */
    const bool ok = compare_model("smollm2-135m.gguf", tokens, n);
    free(tokens);
    assert_true(ok);
}

static void tiny_models_100_tokens(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    int bad = 0;
    for (int i = 0; i < n; i++)
        bad += !compare_model(names[i], NULL, 100);
    if (bad)
        fail_msg("%d of %d tiny models differ from libllama", bad, n);
}

/* The tiny models stand in for families without a small public model: none may be forgotten. */
static void every_architecture_has_a_tiny_model(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    int n_arch = 0, n_swa = 0;
    for (const char *arch; (arch = wnw_arch_name(n_arch)) != NULL; n_arch++) {
        int found = 0;
        for (int i = 0; i < n; i++) {
            wnw_model *m = test_model_open(names[i]);
            wnw_model_info info = {WNW_INIT(wnw_model_info)};
            assert_ok(wnw_model_get_info(m, &info));
            found += strcmp(info.arch, arch) == 0;
            if (info.n_layer_swa > 0) {
                /* Else the 100 tokens of the comparison would never leave the window. */
                assert_in_range(info.n_swa, 1, 99);
                n_swa++;
            }
            wnw_model_free(m);
        }
        if (found == 0)
            fail_msg("architecture %s has no model among the tiny ones", arch);
    }
    assert_cmp(n_arch, >=, 4);
    assert_cmp(n_swa, >, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_has_a_tiny_model),
        cmocka_unit_test(tiny_models_100_tokens),
        cmocka_unit_test(smollm2_600_tokens),
    };
    return cmocka_run_group_tests_name("logits against libllama", tests, NULL, NULL);
}
