/* SPDX-License-Identifier: MIT */
/*
 * Dropping entries under libllama, in each head others: logits are those of a cache with all entries, in which masks hide the
 * same ones. Models are tiny ones, and those of many families that llama.cpp's own generator writes.
 */
#include "generated.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_PROMPT = 120, N_SINGLE = 5, N_BATCH = 9, N_AFTER = N_SINGLE + N_BATCH };

/* ---- Hiding ---- */

/* Entries of a layer's head that are dropped, or hidden. About a third of them, other ones in each head, and more in
 * one layer than in others. */
static bool is_out(int32_t layer, int32_t stream, int32_t head, int32_t cell)
{
    const uint32_t x = ((uint32_t)cell * 2654435761u) ^ (uint32_t)(layer * 40503 + head * 9176 + stream * 31);
    return cell < N_PROMPT && (x * 2246822519u >> 16) % 8u < (layer == 1 ? 5u : 3u);
}

static bool hiding;

void __real_wnw__cells_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth);
void __wrap_wnw__cells_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth);

/* One KV head alone, with a mask of its own. */
static void run_hidden(const struct wnw__cells_op *op, int32_t stream, int32_t ih)
{
    const struct wnw__bridge_layer *l =
        (const void *)((const char *)op->cache - offsetof(struct wnw__bridge_layer, rows));
    const int32_t group = op->n_head / op->n_head_kv;
    struct wnw__cells_op one = *op;
    struct wnw__cells_shared *sh;
    float *mask = malloc((size_t)op->n_row * (size_t)op->n_cell * sizeof *mask);
    assert_non_null(mask);
    for (int32_t row = 0; row < op->n_row; row++)
        for (int32_t cell = 0; cell < op->n_cell; cell++) {
            const char *at = op->mask + (size_t)stream * op->mask_stream + (size_t)row * op->mask_row;
            const float was = op->mask_f16 ? ggml_fp16_to_fp32(((const ggml_fp16_t *)(const void *)at)[cell])
                                           : ((const float *)(const void *)at)[cell];
            mask[row * op->n_cell + cell] =
                is_out(l->il, op->first_stream + stream, ih, cell) ? -INFINITY : was;
        }
    one.n_head = group;
    one.n_head_kv = one.n_stream = 1;
    one.first_stream = (op->first_stream + stream) * op->n_head_kv + ih;
    one.q += (size_t)stream * op->q_stream + (size_t)(ih * group) * op->q_head;
    one.out += (size_t)stream * op->out_stream + (size_t)(ih * group) * op->out_head;
    one.sinks = op->sinks ? op->sinks + ih * group : NULL;
    one.mask = (const char *)mask;
    one.mask_f16 = false;
    one.mask_row = (size_t)op->n_cell * sizeof *mask;
    assert_ok(wnw__cells_shared_new(&sh, 1));
    assert_ok(wnw__cells_reserve(sh, &one));
    __real_wnw__cells_run(sh, &one, 0, 1);
    wnw__cells_shared_free(sh);
    free(mask);
}

void __wrap_wnw__cells_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth)
{
    if (!hiding) {
        __real_wnw__cells_run(sh, op, ith, nth);
        return;
    }
    assert_cmp(op->max_bias, ==, 0.0f); /* slopes would be those of other heads */
    for (int32_t stream = 0; ith == 0 && stream < op->n_stream; stream++)
        for (int32_t ih = 0; ih < op->n_head_kv; ih++)
            run_hidden(op, stream, ih);
}

/* ---- Dropping ---- */

/* Drops what is_out says in every ragged layer. Returns how many entries went. */
static int64_t drop_some(struct test_llama *t)
{
    wnw_bridge *cache;
    int64_t n_dropped = 0;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default(), after = l;
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        int32_t n_out = 0;
        for (int32_t s = 0; s < l.n_streams; s++)
            for (int32_t h = 0; h < l.n_heads; h++) {
                int32_t out[N_PROMPT], n = 0, had, has;
                for (int32_t cell = 0; cell < N_PROMPT; cell++)
                    if (is_out(l.layer, s, h, cell))
                        out[n++] = cell;
                assert_ok(wnw_bridge_cells(cache, i, s, h, NULL, 0, &had));
                assert_ok(wnw_bridge_drop(cache, i, s, h, out, n));
                assert_ok(wnw_bridge_cells(cache, i, s, h, NULL, 0, &has));
                n_out += had - has;
            }
        assert_ok(wnw_bridge_get_layer(cache, i, &after));
        assert_int_equal(after.n_entries, l.n_entries - n_out);
        n_dropped += n_out;
    }
    return n_dropped;
}

enum way { FULL, DROPPED, HIDDEN };

/* Logits [N_AFTER][n_vocab] of tokens after a prompt. */
static float *logits_of(const char *path, enum way way, const struct test_llama_params *p, int32_t *n_vocab)
{
    struct test_llama t;
    int32_t tokens[N_PROMPT + N_AFTER];
    test_llama_open(&t, path, p);
    for (int32_t i = 0; i < N_PROMPT + N_AFTER; i++)
        tokens[i] = 1 + (i * 7919 + i * i * 13) % (t.n_vocab - 1);
    float *logits = malloc((size_t)N_AFTER * (size_t)t.n_vocab * sizeof *logits);
    assert_non_null(logits);
    test_llama_decode(&t, 0, 0, tokens, N_PROMPT, NULL);
    if (way == DROPPED)
        assert_cmp(drop_some(&t), >, 0);
    hiding = way == HIDDEN;
    for (int32_t i = 0; i < N_SINGLE; i++)
        test_llama_decode(&t, 0, N_PROMPT + i, tokens + N_PROMPT + i, 1, logits + (int64_t)i * t.n_vocab);
    test_llama_decode(&t, 0, N_PROMPT + N_SINGLE, tokens + N_PROMPT + N_SINGLE, N_BATCH,
                      logits + (int64_t)N_SINGLE * t.n_vocab);
    hiding = false;
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

/* float32 keys and values, which only the chain of products reads from the cache as they are. */
static void check_model(const char *path, const char *name, const struct test_llama_params *p)
{
    int32_t n_vocab;
    float *full = logits_of(path, FULL, p, &n_vocab), *dropped = logits_of(path, DROPPED, p, &n_vocab),
          *hidden = logits_of(path, HIDDEN, p, &n_vocab);
    const int64_t n = (int64_t)N_AFTER * n_vocab;
    const double d = test_nmse(dropped, hidden, n), effect = test_nmse(dropped, full, n);
    print_message("%s: dropped to hidden %.2g, to the full cache %.2g\n", name, d, effect);
    assert_cmp(d, <=, test_nmse_most(1e-7));
    if (test_noise() == 0) /* which hides what some families lose */
        assert_cmp(effect, >, 1e3 * d + 1e-9);
    free(full);
    free(dropped);
    free(hidden);
}

static void test_tiny(void **state)
{
    static const char *const names[] = {"tiny/tiny-llama.gguf", "tiny/tiny-qwen2-f32.gguf",
                                        "tiny/tiny-gemma3-f32.gguf", "tiny/tiny-qwen3-f32.gguf",
                                        "tiny/tiny-llama-mqa.gguf"};
    char path[4096];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_model_path(path, sizeof path, names[i]);
        check_model(path, names[i], &(struct test_llama_params){.ours = true, .f32 = true});
        check_model(path, names[i], &(struct test_llama_params){.ours = true, .flash = true});
    }
}

/* Layers that have other numbers of heads than others, of keys and of queries: as libllama alone, and with entries dropped. */
static void test_other_heads(void **state)
{
    static const char *const names[] = {"tiny/foreign/gemma4-heads.gguf", "tiny/foreign/openelm.gguf"};
    char path[4096];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        float *out[2];
        int32_t n_vocab;
        test_model_path(path, sizeof path, names[i]);
        check_model(path, names[i], &(struct test_llama_params){.ours = true, .f32 = true});
        check_model(path, names[i], &(struct test_llama_params){.ours = true, .flash = true});
        for (int ours = 0; ours < 2; ours++)
            out[ours] =
                logits_of(path, FULL, &(struct test_llama_params){.ours = ours, .f32 = true}, &n_vocab);
        assert_cmp(test_nmse(out[1], out[0], (int64_t)N_AFTER * n_vocab), <=, test_nmse_most(1e-7));
        free(out[0]);
        free(out[1]);
    }
}

/* ---- Families ---- */

/* Families of the kinds that docs/reference/families.md distinguishes, but for ALiBi's. */
static const char *const families[] = {
    "llama4-moe",          "mistral3-dense",   "qwen3moe-moe",    "qwen3next-moe",    "qwen35-dense",
    "gemma2-dense",        "gemma3n-dense",    "gpt-oss-moe",     "phi3-dense",       "granite-dense",
    "granitehybrid-dense", "glm4-dense",       "deepseek2-moe",   "smollm3-dense",    "olmo2-dense",
    "cohere2-dense",       "command-r-dense",  "internlm2-dense", "starcoder2-dense", "lfm2-dense",
    "jamba-dense",         "nemotron_h-dense", "falcon-h1-dense", "minicpm3-dense"};

static void test_families(void **state)
{
    (void)state;
    struct test_generated g;
    char path[4096];
    int tested = 0;
    test_generate(&g, families, sizeof families / sizeof *families);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (!test_generated_path(&g, path, sizeof path, families[i])) {
            print_message("%s: not generated\n", families[i]);
            continue;
        }
        check_model(path, families[i], &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
        tested++;
    }
    test_generated_remove(&g);
    assert_cmp(tested, >=, 18);
}

/* ---- Memory ---- */

static size_t resident(const void *from, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from / page * page;
    const size_t n = ((uintptr_t)from + bytes - first + page - 1) / page;
    unsigned char *in = malloc(n);
    size_t n_in = 0;
    assert_non_null(in);
    assert_int_equal(mincore((void *)first, n * page, in), 0);
    for (size_t i = 0; i < n; i++)
        n_in += in[i] & 1;
    free(in);
    return n_in * page;
}

/* Bytes in memory of all layers' entries, and of the tensors' addresses. */
static void resident_of(struct test_llama *t, size_t *entries, size_t *addresses)
{
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    const struct wnw__bridge_backend *b = (const void *)cache;
    *entries = *addresses = 0;
    for (int32_t c = 0; c < b->n_cache; c++) {
        *addresses += resident(b->caches[c]->at.base, b->caches[c]->size);
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++) {
            const struct wnw__kv_layer *l = &b->caches[c]->layers[i]->rows.layers[0];
            *entries += resident(l->k, l->mapped_bytes) + resident(l->v, l->v_mapped_bytes);
        }
    }
}

static void test_memory_goes_back(void **state)
{
    (void)state;
    enum { N = 4000, CHUNK = 500 };
    char path[4096];
    struct test_llama t;
    size_t full, addresses, after, n_cells = 0;
    int32_t *tokens = test_random_tokens(N, 250, 5), *out = malloc(N * sizeof *out);
    assert_non_null(out);
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .flash = true, .n_ctx = 32768});
    resident_of(&t, &full, &addresses);
    assert_int_equal(addresses, 0); /* 32768 cells cost nothing until something is in them */
    for (int32_t i = 0; i < N; i += CHUNK)
        test_llama_decode(&t, 0, i, tokens + i, CHUNK, NULL);
    resident_of(&t, &full, &addresses);
    assert_int_equal(addresses, 0);
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        n_cells += (size_t)l.n_entries;
        for (int32_t h = 0; h < l.n_heads; h++) {
            int32_t n = 0;
            for (int32_t cell = 0; cell < N; cell++)
                if (cell % 8 != h % 8)
                    out[n++] = cell;
            assert_ok(wnw_bridge_drop(cache, i, 0, h, out, n));
        }
    }
    resident_of(&t, &after, &addresses);
    print_message("%zu entries: %zu bytes in memory, with an eighth of them %zu\n", n_cells, full, after);
    assert_cmp(after, <, full / 6);
    assert_int_equal(addresses, 0);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    resident_of(&t, &after, &addresses);
    assert_int_equal(after, 0);
    test_llama_close(&t);
    free(tokens);
    free(out);
}

/* ---- Bad calls ---- */

static void no_synchronize(struct llama_context *ctx)
{
    (void)ctx;
}

static void test_bad_calls(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    wnw_bridge_layer l = wnw_bridge_layer_default();
    int32_t n;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = false});
    assert_error(wnw_bridge_find(&cache, llama_synchronize, t.ctx), WNW_E_ARG);
    assert_says("WINNOW");
    assert_null(cache);
    test_llama_close(&t);
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_error(wnw_bridge_find(NULL, llama_synchronize, t.ctx), WNW_E_ARG);
    assert_error(wnw_bridge_find(&cache, NULL, t.ctx), WNW_E_ARG);
    assert_error(wnw_bridge_find(&cache, llama_synchronize, NULL), WNW_E_ARG);
    assert_error(wnw_bridge_find(&cache, no_synchronize, t.ctx), WNW_E_ARG);
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_int_equal(wnw_bridge_n_layers(NULL), 0);
    const int32_t n_layers = wnw_bridge_n_layers(cache);
    assert_cmp(n_layers, >, 0);
    assert_error(wnw_bridge_get_layer(NULL, 0, &l), WNW_E_ARG);
    assert_error(wnw_bridge_get_layer(cache, n_layers, &l), WNW_E_RANGE);
    assert_error(wnw_bridge_get_layer(cache, -1, &l), WNW_E_RANGE);
    assert_error(wnw_bridge_get_layer(cache, 0, &(wnw_bridge_layer){0}), WNW_E_ARG);
    assert_ok(wnw_bridge_get_layer(cache, 0, &l));
    assert_error(wnw_bridge_cells(cache, 0, 1, 0, NULL, 0, &n), WNW_E_RANGE);
    assert_error(wnw_bridge_cells(cache, 0, 0, l.n_heads, NULL, 0, &n), WNW_E_RANGE);
    assert_error(wnw_bridge_cells(cache, 0, 0, 0, NULL, 3, &n), WNW_E_ARG);
    assert_error(wnw_bridge_drop(cache, 0, 0, 0, NULL, 3), WNW_E_ARG);
    assert_error(wnw_bridge_drop(cache, 0, 0, 0, (const int32_t[]){4, 4}, 2), WNW_E_ARG);
    assert_ok(
        wnw_bridge_drop(cache, 0, 0, 0, (const int32_t[]){-7, 4, INT32_MAX}, 3)); /* nothing of it is there */
    assert_ok(wnw_bridge_drop(cache, 0, 0, 0, NULL, 0));
    test_llama_close(&t);
    setenv("WINNOW_PLAIN", "1", 1);
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_error(wnw_bridge_drop(cache, 0, 0, 0, (const int32_t[]){1}, 1), WNW_E_UNSUPPORTED);
    test_llama_close(&t);
    unsetenv("WINNOW_PLAIN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny), cmocka_unit_test(test_other_heads), cmocka_unit_test(test_families),
        cmocka_unit_test(test_memory_goes_back), cmocka_unit_test(test_bad_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
