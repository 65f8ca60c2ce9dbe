/* SPDX-License-Identifier: MIT */
/*
 * Our graphs against libllama's: the same GGUF, the same tokens, flash attention, f16 cache, the same ubatch.
 *
 * With ggml's attention the operations and their shapes are the same, so every bit must be.
 *
 * Our own attention and products round elsewhere than ggml's. How much the two may differ by that depends on the weights, so a
 * bound that is a number holds for the kernels alone with which it was measured (decision 049). Both are compared with
 * the truth instead: libllama once more with the weights as float32, without flash attention and with a float32 cache. What
 * the file's own arithmetic is worth is then libllama's distance from it, measured here and now, and ours may be at most
 * FACTOR times as far. Rounding that is of the same size but falls elsewhere gives other errors of the same size;
 * an attention, a norm or a weight that is wrong gives more.
 *
 * Attention in bf16 (decision 039) rounds to 8 bits where flash attention over an f16 cache rounds to 11. Its peer is
 * libllama with a cache in bf16, whose flash attention multiplies queries, keys and values of 8 bits.
 *
 * The likeliest token of two correct programs differs where the truth's two likeliest are nearly as likely. It must be the truth's
 * where that one leads by more than twice the largest error of libllama's logits, because then two errors of that size
 * cannot turn them round.
 */
#include "helpers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <llama.h>

#include "peek_arrays.h"
#include "peek_model.h"
#include "winnow_tools.h"

#define N_DECODE 24
#define FACTOR   2.0
/* What float32 itself leaves, sums of a thousand terms through a few layers: (1000 units of 2^-24)^2. A kernel that is no
 * worse than float32 need not be as near to the truth as one that happens to add up in the truth's order. */
#define NMSE_FLOAT32 4e-9

/* ---- The reference ---- */

/* How libllama is to compute. */
struct way {
    const char *name, *path;
    bool flash;
    enum ggml_type cache;
};

struct reference {
    const struct way *way;
    struct llama_model *model;
    struct llama_context *ctx;
    int32_t n_vocab;
    float *prefill;         /* [n_tokens][n_vocab] */
    float *decode;          /* [N_DECODE][n_vocab] */
    int32_t next[N_DECODE]; /* the token fed before each row of decode */
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

static void reference_open(struct reference *r, int32_t n_ubatch)
{
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    r->model = llama_model_load_from_file(r->way->path, mp);
    if (!r->model)
        fail_msg("libllama cannot load %s", r->way->path);
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 1024;
    cp.n_batch = 1024;
    cp.n_ubatch = (uint32_t)n_ubatch;
    cp.n_threads = cp.n_threads_batch = 2;
    cp.type_k = cp.type_v = r->way->cache;
    cp.flash_attn_type = r->way->flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    r->ctx = llama_init_from_model(r->model, cp);
    assert_non_null(r->ctx);
    r->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(r->model));
}

/* Decodes the tokens that `lead` has decoded; NULL: what it picks itself. */
static struct reference reference_run(const struct way *way, const int32_t *tokens, int32_t n,
                                      int32_t n_ubatch, const struct reference *lead)
{
    struct reference r = {.way = way};
    reference_open(&r, n_ubatch);
    const size_t row = (size_t)r.n_vocab * sizeof(float);
    r.prefill = malloc((size_t)n * row);
    r.decode = malloc(N_DECODE * row);
    assert_non_null(r.prefill);
    assert_non_null(r.decode);
    reference_feed(&r, tokens, n, 0, r.prefill);
    const float *last = r.prefill + (size_t)(n - 1) * (size_t)r.n_vocab;
    for (int32_t i = 0; i < N_DECODE; i++) {
        r.next[i] = lead ? lead->next[i] : test_argmax(last, r.n_vocab);
        float *out = r.decode + (size_t)i * (size_t)r.n_vocab;
        reference_feed(&r, &r.next[i], 1, n + i, out);
        last = out;
    }
    llama_free(r.ctx);
    llama_model_free(r.model);
    return r;
}

static void reference_free(struct reference *r)
{
    free(r->prefill);
    free(r->decode);
}

/* ---- Distances from the truth ---- */

struct distances {
    struct test_diff prefill, decode;
};

static void add_rows(struct test_diff *d, const float *truth, const float *rows, int32_t n, int32_t n_vocab)
{
    for (int32_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * (size_t)n_vocab;
        test_diff_add(d, truth + at, rows + at, n_vocab);
    }
}

static struct distances distances_of(const struct reference *truth, const struct reference *r, int32_t n)
{
    struct distances d = {0};
    add_rows(&d.prefill, truth->prefill, r->prefill, n, truth->n_vocab);
    add_rows(&d.decode, truth->decode, r->decode, N_DECODE, truth->n_vocab);
    return d;
}

/* The larger of two peers' distances, number by number. */
static struct test_diff farther(const struct test_diff *a, const struct test_diff *b)
{
    struct test_diff d = *a;
    d.kl_sum = fmax(a->kl_sum, b->kl_sum);
    d.err2 = fmax(a->err2, b->err2);
    d.max_abs = fmax(a->max_abs, b->max_abs);
    return d;
}

static bool at_most(const char *what, const char *number, double is, double most)
{
    if (is <= most)
        return true;
    print_error("%s: %s is %.3g, at most %.3g is asked\n", what, number, is, most);
    return false;
}

/* Both parts as one. */
static struct test_diff all_of(const struct distances *d)
{
    struct test_diff all = d->prefill;
    all.n += d->decode.n;
    all.kl_sum += d->decode.kl_sum;
    all.err2 += d->decode.err2;
    all.ref2 += d->decode.ref2;
    all.max_abs = fmax(all.max_abs, d->decode.max_abs);
    all.flip_margin = fmax(all.flip_margin, d->decode.flip_margin);
    return all;
}

static bool nmse_as_small(const char *what, const struct test_diff *ours, const struct test_diff *peer)
{
    test_diff_print(what, ours);
    return at_most(what, "the normalised error", test_diff_nmse(ours),
                   FACTOR * test_diff_nmse(peer) + NMSE_FLOAT32);
}

/* Whether ours is about as near to the truth as its peer. Divergences are compared over all rows. Where a model is sure of
 * nearly every token, as in a text that it repeats, a single row can hold half of them. */
static bool as_near(const char *name, const struct distances *ours, const struct distances *peer)
{
    char what[160];
    const struct test_diff all = all_of(ours), all_peer = all_of(peer);
    /* Half the normalised error times the variance of the logits is about the divergence. */
    const double float32 = NMSE_FLOAT32 / 2 * all_peer.ref2 / (double)all_peer.n;
    snprintf(what, sizeof what, "%.120s prefill", name);
    bool ok = nmse_as_small(what, &ours->prefill, &peer->prefill);
    snprintf(what, sizeof what, "%.120s decode", name);
    ok = nmse_as_small(what, &ours->decode, &peer->decode) && ok;
    ok = at_most(name, "the mean KL divergence", test_diff_kl(&all),
                 FACTOR * test_diff_kl(&all_peer) + float32) &&
         ok;
    return at_most(name, "the lead of a token that another one overtakes", all.flip_margin,
                   2 * all_peer.max_abs) &&
           ok;
}

/* ---- Ours ---- */

struct follow {
    const struct reference *libllama, *truth;
    struct test_diff from_libllama, from_truth;
    float *last; /* [n_vocab], our newest row */
};

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct follow *f = user;
    const size_t row = (size_t)f->truth->n_vocab;
    if (i != (int32_t)f->from_truth.n)
        fail_msg("logits of token %d came as number %lld", i, (long long)f->from_truth.n);
    test_diff_add(&f->from_libllama, f->libllama->prefill + (size_t)i * row, logits, f->truth->n_vocab);
    test_diff_add(&f->from_truth, f->truth->prefill + (size_t)i * row, logits, f->truth->n_vocab);
    memcpy(f->last, logits, row * sizeof *f->last);
    return true;
}

struct comparison {
    const char *name;
    wnw_model *m;
    const int32_t *tokens;
    int32_t n, n_ubatch;
    struct reference libllama, truth;
};

/* Reads and decodes as libllama did. */
static void follow_both(const struct comparison *c, wnw_attn attn, struct follow *prefill,
                        struct follow *decode)
{
    const size_t row = (size_t)c->truth.n_vocab;
    wnw_session *s = test_session_new(
        c->m, &(struct test_session){.attn = attn, .n_ctx = 1024, .n_ubatch = c->n_ubatch, .n_threads = 2});
    *prefill = *decode = (struct follow){.libllama = &c->libllama, .truth = &c->truth};
    prefill->last = malloc(row * sizeof *prefill->last);
    assert_non_null(prefill->last);
    assert_ok(wnw_session_prefill(s, c->tokens, c->n, on_logits, prefill));
    assert_int_equal(wnw_session_n_past(s), c->n);
    assert_int_equal(prefill->from_truth.n, c->n);
    /* The logits that stay with the session are those of the last token. */
    assert_memory_equal(wnw_session_logits(s), prefill->last, row * sizeof *prefill->last);
    free(prefill->last);
    for (int32_t i = 0; i < N_DECODE; i++) {
        assert_ok(wnw_session_decode(s, c->libllama.next[i]));
        const float *ours = wnw_session_logits(s);
        test_diff_add(&decode->from_libllama, c->libllama.decode + (size_t)i * row, ours, c->truth.n_vocab);
        test_diff_add(&decode->from_truth, c->truth.decode + (size_t)i * row, ours, c->truth.n_vocab);
    }
    wnw_session_free(s);
}

static bool equal_bits(const struct comparison *c)
{
    struct follow prefill, decode;
    follow_both(c, WNW_ATTN_GGML, &prefill, &decode);
    const struct test_diff *const both[] = {&prefill.from_libllama, &decode.from_libllama};
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        char what[160];
        snprintf(what, sizeof what, "%s ggml %s", c->name, i ? "decode" : "prefill");
        test_diff_print(what, both[i]);
        if (both[i]->identical != both[i]->n) {
            print_error("%s: must be libllama's to the bit\n", what);
            ok = false;
        }
    }
    return ok;
}

static bool near_truth(const struct comparison *c, wnw_attn attn, const struct distances *peer)
{
    char what[160];
    struct follow prefill, decode;
    follow_both(c, attn, &prefill, &decode);
    const struct distances ours = {prefill.from_truth, decode.from_truth};
    snprintf(what, sizeof what, "%s %s", c->name, attn == WNW_ATTN_OWN ? "own" : "float32");
    return as_near(what, &ours, peer);
}

static void print_peer(const char *name, const struct reference *r, const struct distances *d)
{
    char what[160];
    snprintf(what, sizeof what, "%.80s libllama, %.20s prefill", name, r->way->name);
    test_diff_print(what, &d->prefill);
    snprintf(what, sizeof what, "%.80s libllama, %.20s decode", name, r->way->name);
    test_diff_print(what, &d->decode);
}

/* float32: the file's path with all weights in float32. */
static bool compare_model(const char *name, const char *float32, const int32_t *tokens, int32_t n,
                          int32_t n_ubatch)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    struct comparison c = {.name = name,
                           .n = n,
                           .n_ubatch = n_ubatch,
                           .m = test_model_open(name)}; /* first: it silences libllama */
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(c.m, &info));
    int32_t *random = tokens ? NULL : test_random_tokens(n, info.n_vocab, 1);
    c.tokens = tokens ? tokens : random;

    const struct way as_it_is = {"f16", path, true, GGML_TYPE_F16},
                     in_bf16 = {"bf16", path, true, GGML_TYPE_BF16},
                     exact = {"float32", float32, false, GGML_TYPE_F32};
    c.libllama = reference_run(&as_it_is, c.tokens, n, n_ubatch, NULL);
    c.truth = reference_run(&exact, c.tokens, n, n_ubatch, &c.libllama);
    assert_int_equal(c.libllama.n_vocab, info.n_vocab);
    /* What ggml computes depends on no kernel of winnow's. */
    const bool others = test_other_kernels();
    bool ok = others || equal_bits(&c);
    struct distances peer = distances_of(&c.truth, &c.libllama, n);
    print_peer(name, &c.libllama, &peer);
    ok = near_truth(&c, WNW_ATTN_F32, &peer) && ok;
    if (wnw__bf16_best()) {
        struct reference bf16 = reference_run(&in_bf16, c.tokens, n, n_ubatch, &c.libllama);
        const struct distances d = distances_of(&c.truth, &bf16, n);
        print_peer(name, &bf16, &d);
        peer.prefill = farther(&peer.prefill, &d.prefill);
        peer.decode = farther(&peer.decode, &d.decode);
        reference_free(&bf16);
    }
    ok = near_truth(&c, WNW_ATTN_OWN, &peer) && ok;
    reference_free(&c.libllama);
    reference_free(&c.truth);
    free(random);
    wnw_model_free(c.m);
    return ok;
}

/* ---- Tests ---- */

static void smollm2(void **state)
{
    /* The prompt must not fit one ubatch. In repetitions with other kernels, which go through the same graphs, most of the time is libllama's,
     * whose numbers are the same again. */
    const int32_t n_read = test_other_kernels() ? 100 : 192, n_ubatch = test_other_kernels() ? 72 : 128;
    (void)state;
    char float32[4096];
    int32_t n = 0;
    test_model_path(float32, sizeof float32, "smollm2-135m-f32.gguf");
    int32_t *tokens = test_golden_tokens(&n);
    assert_cmp(n, >=, n_read);
    const bool ok = compare_model("smollm2-135m.gguf", float32, tokens, n_read, n_ubatch);
    free(tokens);
    assert_true(ok);
}

static void tiny_models_100_tokens(void **state)
{
    (void)state;
    char names[TEST_TINY_MAX][TEST_NAME_MAX], float32[4096];
    const int n = test_tiny_models(names, TEST_TINY_MAX);
    int bad = 0;
    for (int i = 0; i < n; i++) {
        test_float32_copy(float32, sizeof float32, names[i]);
        bad += !compare_model(names[i], float32, NULL, 100, 512);
        unlink(float32);
    }
    if (bad)
        fail_msg("%d of %d tiny models differ from libllama", bad, n);
}

/* The tiny models replace families without a small public model: no family may be forgotten. */
static void every_architecture_has_a_tiny_model(void **state)
{
    (void)state;
    char names[TEST_TINY_MAX][TEST_NAME_MAX];
    const int n = test_tiny_models(names, TEST_TINY_MAX);
    int n_arch = 0, n_swa = 0;
    for (const char *arch; (arch = wnw__arch_name(n_arch)) != NULL; n_arch++) {
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
        cmocka_unit_test(smollm2),
    };
    return cmocka_run_group_tests_name("logits against libllama", tests, NULL, NULL);
}
