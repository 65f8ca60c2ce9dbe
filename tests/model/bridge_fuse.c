/* SPDX-License-Identifier: MIT */
/*
 * Norms and gates that products compute on the way, compared with the same graphs node by node. Both are as far from libllama as
 * products with activations in bytes are; how far they are from each other is what roundings of norms and gates become where
 * bytes are rounded again, and no more than that. Models are those of our families and of others, their weights made Q8_0.
 */
#include "files.h"
#include "generated.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <unistd.h>

enum { N_PROMPT = 70, N_PIECE = 3, N_DECODE = 5, N = N_PROMPT + N_PIECE + N_DECODE };

/* Whether there is a kernel for this CPU; without one all products stay ggml's. */
static bool has_products(void)
{
    const struct ggml_tensor weight = {.type = GGML_TYPE_Q8_0, .ne = {256, 256, 1, 1}};
    return wnw__matmul_takes(&weight, 1, false);
}

/* Nodes of a context's last graph that became this. */
static int count_steps(struct test_llama *t, int kind, bool unfused_from_now_on)
{
    wnw_bridge *cache;
    int n = 0;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    struct wnw__bridge_products *p = &((struct wnw__bridge_backend *)(void *)cache)->products;
    for (int i = 0; i < p->n_step; i++)
        n += (int)p->steps[i].kind == kind;
    p->unfused = unfused_from_now_on;
    return n;
}

static int left_out(struct test_llama *t, bool unfused_from_now_on)
{
    return count_steps(t, WNW_BRIDGE_LEFT_OUT, unfused_from_now_on);
}

/* What is left out of the graph of a prompt, and of a token, and how many stores of a token run with its attentions, and norms with
 * their weights. */
struct counts {
    int prompt, token, joined, norms;
};

enum how { ALONE, UNFUSED, FUSED };

static float *logits_of(const char *path, enum how how, int32_t *n_vocab, struct counts *c)
{
    struct test_llama t;
    int32_t tokens[N];
    test_llama_open(&t, path, &(struct test_llama_params){.ours = how != ALONE, .flash = true, .n_ctx = 256});
    for (int32_t i = 0; i < N; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 120;
    float *logits = malloc((size_t)N * (size_t)t.n_vocab * sizeof *logits);
    assert_non_null(logits);
    if (how != ALONE)
        left_out(&t, how == UNFUSED);
    test_llama_decode(&t, 0, 0, tokens, N_PROMPT, logits);
    c->prompt = how != ALONE ? left_out(&t, how == UNFUSED) : 0;
    test_llama_decode(&t, 0, N_PROMPT, tokens + N_PROMPT, N_PIECE, logits + (int64_t)N_PROMPT * t.n_vocab);
    for (int32_t i = N_PROMPT + N_PIECE; i < N; i++)
        test_llama_decode(&t, 0, i, tokens + i, 1, logits + (int64_t)i * t.n_vocab);
    c->token = how != ALONE ? left_out(&t, how == UNFUSED) : 0;
    c->joined = how != ALONE ? count_steps(&t, WNW_BRIDGE_JOINED, how == UNFUSED) : 0;
    c->norms = how != ALONE ? count_steps(&t, WNW_BRIDGE_NORM, how == UNFUSED) : 0;
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

static struct counts check_model(const char *path, const char *name)
{
    int32_t n_vocab;
    struct counts none, some;
    float *alone = logits_of(path, ALONE, &n_vocab, &none),
          *unfused = logits_of(path, UNFUSED, &n_vocab, &none),
          *fused = logits_of(path, FUSED, &n_vocab, &some);
    const int64_t n = (int64_t)N * n_vocab;
    const double of_ggml = test_nmse(unfused, alone, n), d = test_nmse(fused, unfused, n);
    print_message(
        "%s: left out %d nodes of a prompt, %d of a token; fused to unfused %.2g, unfused to libllama %.2g\n",
        name, some.prompt, some.token, d, of_ggml);
    assert_int_equal(none.prompt + none.token + none.joined + none.norms, 0);
    /* Where both only add up in another order, by chance one is the larger. */
    assert_cmp(d, <=, test_nmse_most(of_ggml));
    free(alone);
    free(unfused);
    free(fused);
    return some;
}

/* Writes the model with weights in Q8_0 next to `to`, and checks it. */
static struct counts check_quantised(const char *path, const char *name)
{
    char copy[] = "/tmp/winnow-fuse-XXXXXX";
    test_file_new(copy);
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
    params.nthread = 1;
    params.allow_requantize = true;
    assert_int_equal(llama_model_quantize(path, copy, &params), 0);
    const struct counts c = check_model(copy, name);
    assert_int_equal(unlink(copy), 0);
    return c;
}

static struct counts check_named(const char *name)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    return check_quantised(path, name);
}

/* Each layer has two norms before products. These are left out, as two nodes. Its gate is one unless it is
 * GELU's, which stays ggml's. Of a token, the keys', the values' and the second of the two wide products are computed with
 * those before them. Of other norms, and that before the logits, which are the last node, one node is left out. */
static void test_our_families(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool swiglu;
        int n_other; /* norms of a layer that no product reads */
    } models[] = {{"tiny/tiny-llama.gguf", true, 0},
                  {"tiny/tiny-qwen2-f32.gguf", true, 0},
                  {"tiny/tiny-qwen3-f32.gguf", true, 2},
                  {"tiny/tiny-gemma3-f32.gguf", false, 4}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        wnw_model *m = test_model_open(models[i].name);
        wnw_model_info info = wnw_model_info_default();
        assert_ok(wnw_model_get_info(m, &info));
        const int per_layer = (models[i].swiglu ? 5 : 4) + models[i].n_other;
        const struct counts c = check_named(models[i].name);
        assert_int_equal(c.joined, 2 * info.n_layer);
        if (has_products()) {
            assert_int_equal(c.prompt, info.n_layer * per_layer + 1);
            assert_int_equal(c.token, info.n_layer * (per_layer + 3) + 1);
            assert_int_equal(c.norms, info.n_layer * models[i].n_other + 1);
        }
        wnw_model_free(m);
    }
}

static void test_real_model(void **state)
{
    (void)state;
    char path[4096];
    test_model_path(path, sizeof path, "smollm2-135m.gguf");
    const struct counts c = check_model(path, "smollm2-135m");
    assert_int_equal(c.joined, 2 * 30);
    if (has_products()) {
        assert_int_equal(c.prompt, 30 * 5 + 1);
        assert_int_equal(c.token, 30 * 8 + 1);
        assert_int_equal(c.norms, 1);
    }
}

/* Norms with weights in one node have the bits of two nodes. Products with float32 are ggml's, so that no norm is left to them. */
static void test_norms(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_norm; /* of a layer */
    } models[] = {
        {"tiny/tiny-qwen2-f32.gguf", 2}, {"tiny/tiny-qwen3-f32.gguf", 4}, {"tiny/tiny-gemma3-f32.gguf", 6}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[4096];
        int32_t n_vocab;
        struct counts none, some;
        wnw_model *m = test_model_open(models[i].name);
        wnw_model_info info = wnw_model_info_default();
        assert_ok(wnw_model_get_info(m, &info));
        wnw_model_free(m);
        test_model_path(path, sizeof path, models[i].name);
        float *unfused = logits_of(path, UNFUSED, &n_vocab, &none),
              *fused = logits_of(path, FUSED, &n_vocab, &some);
        assert_int_equal(some.norms, info.n_layer * models[i].n_norm + 1);
        assert_int_equal(some.prompt, some.norms);
        assert_memory_equal(fused, unfused, (size_t)N * (size_t)n_vocab * sizeof *fused);
        free(unfused);
        free(fused);
    }
}

/* Families without own graphs: post-norms alone (olmo2), weights that have queries, keys and values or gate and up in one
 * (phi3), convolutions (lfm2), layers that share caches (gemma3n, gemma4), experts (llama4). */
static void test_other_families(void **state)
{
    (void)state;
    static const char *const names[] = {"olmo2", "phi3", "lfm2", "gemma3n", "gemma4", "llama4", "openelm"};
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "tiny/foreign/%s.gguf", names[i]);
        n += check_named(name).token > 0;
    }
    if (has_products())
        assert_cmp(n, >=, 4);
}

/* Of llama.cpp's generator: attention and feed-forward side by side (cohere2, command-r), norms with a bias, experts, latent
 * attention, recurrent layers. */
static void test_generated(void **state)
{
    (void)state;
    static const char *const names[] = {"cohere2-dense", "command-r-dense", "granite-dense",
                                        "glm4-dense",    "internlm2-dense", "starcoder2-dense",
                                        "llama-moe",     "deepseek2-moe",   "gpt-oss-moe",
                                        "qwen3next-moe", "falcon-h1-dense", "jamba-dense"};
    struct test_generated g;
    char path[4096];
    test_generate(&g, names, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(test_generated_path(&g, path, sizeof path, names[i]));
        check_quantised(path, names[i]);
    }
    test_generated_remove(&g);
}

/* A program that stops a graph at each product, as tools do that collect activations, finds what the product has read. */
struct stops {
    int n, n_bad;
};

static bool stop_at_products(struct ggml_tensor *node, bool ask, void *user)
{
    struct stops *s = user;
    if (ask || node->op != GGML_OP_MUL_MAT)
        return node->op == GGML_OP_MUL_MAT && !node->src[0]->view_src;
    const struct ggml_tensor *x = node->src[1];
    double sum = 0;
    for (int64_t i = 0; i < x->ne[0]; i++)
        sum += (double)((const float *)x->data)[i] * (double)((const float *)x->data)[i];
    s->n++;
    s->n_bad += !(sum > 0.0 && sum < 1e12);
    return true;
}

static void test_graph_in_parts(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama whole, parts;
    struct stops stops = {0};
    const struct test_llama_params params = {.ours = true, .flash = true, .n_ctx = 256};
    const int32_t tokens[] = {5, 17, 101, 64};
    test_model_path(path, sizeof path, "tiny/tiny-qwen2.gguf");
    test_llama_open(&whole, path, &params);
    parts = whole;
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = 256;
    c.n_threads = c.n_threads_batch = 2;
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    c.cb_eval = stop_at_products;
    c.cb_eval_user_data = &stops;
    parts.ctx = llama_init_from_model(whole.model, c);
    assert_non_null(parts.ctx);
    float *want = malloc((size_t)whole.n_vocab * sizeof *want),
          *got = malloc((size_t)whole.n_vocab * sizeof *got);
    assert_true(want && got);
    for (int32_t i = 0; i < 4; i++) {
        test_llama_decode(&whole, 0, i, tokens + i, 1, want);
        test_llama_decode(&parts, 0, i, tokens + i, 1, got);
        assert_cmp(test_nmse(got, want, whole.n_vocab), <, test_nmse_most(1e-3));
    }
    assert_cmp(stops.n, >, 0);
    assert_int_equal(stops.n_bad, 0);
    free(want);
    free(got);
    test_llama_close_ctx(&parts);
    test_llama_close(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_our_families), cmocka_unit_test(test_real_model),
        cmocka_unit_test(test_norms),        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_generated),    cmocka_unit_test(test_graph_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
