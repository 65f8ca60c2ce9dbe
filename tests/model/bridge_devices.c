/* SPDX-License-Identifier: MIT */
/*
 * Our devices around another device of ggml, here the CPU: names, memory that grows with what is used and goes back when entries
 * are dropped, and what comes out with entries dropped in each head others. What libllama does with sequences there is in
 * model/bridge_state.c.
 */
#include "helpers.h"
#include "llamas.h"
#include "peek_wrap.h"
#include "rounding.h"
#include "winnow_bridge.h"
#include "workers.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 300, N_SINGLE = 6, N_BATCH = 20, N_AFTER = N_SINGLE + N_BATCH };

/* The device that ours are around: the first argument, else the CPU. Another one's kernels are of another order and precision. */
static struct {
    const char *name;
    bool other;
    size_t n_models; /* the first ones; 0: all */
} inner = {.name = "CPU"};

static const char *const models[] = {"tiny/tiny-qwen2-f32.gguf", "tiny/tiny-qwen3-f32.gguf",
                                     "tiny/tiny-gemma3-f32.gguf", "tiny/tiny-llama-mqa.gguf"};

/* ---- Names ---- */

/* Modules of ggml: none are named, one is not there, one is no library. cli/vulkan.sh has a real one. */
static void test_modules(void **state)
{
    (void)state;
    unsetenv("WINNOW_GGML_MODULES");
    assert_ok(wnw_bridge_load_modules());
    setenv("WINNOW_GGML_MODULES", ":", 1);
    assert_ok(wnw_bridge_load_modules());
    setenv("WINNOW_GGML_MODULES", "/nowhere/libggml-none.so", 1);
    assert_int_equal(wnw_bridge_load_modules(), WNW_E_IO);
    assert_int_equal(wnw_bridge_register(), WNW_E_IO);
    assert_non_null(strstr(wnw_last_error(), "/nowhere/libggml-none.so"));
    setenv("WINNOW_GGML_MODULES", "/proc/self/status", 1);
    assert_int_equal(wnw_bridge_load_modules(), WNW_E_BACKEND);
    assert_non_null(strstr(wnw_last_error(), "/proc/self/status"));
    unsetenv("WINNOW_GGML_MODULES");
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(wnw_bridge_wrap("CPU,Vulkan7"), WNW_E_ARG); /* all of them, or none */
    assert_null(ggml_backend_dev_by_name("WINNOW0"));
    assert_int_equal(wnw_bridge_wrap("CPU,CPU"), WNW_E_ARG);
    assert_null(ggml_backend_dev_by_name("WINNOW0"));
    assert_ok(wnw_bridge_wrap("CPU"));
    assert_non_null(ggml_backend_dev_by_name("WINNOW0"));
    assert_string_equal(ggml_backend_dev_description(ggml_backend_dev_by_name("WINNOW0")),
                        "winnow around CPU");
    assert_int_equal(wnw_bridge_wrap("CPU"), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "named twice"));
    assert_int_equal(wnw_bridge_wrap("Vulkan7"), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "no device 'Vulkan7'"));
    assert_non_null(strstr(wnw_last_error(), "CPU"));
    static const char *const empty[] = {"", ",", "CPU,", ",CPU", "CPU,,CPU"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_int_equal(wnw_bridge_wrap(empty[i]), WNW_E_ARG);
    assert_int_equal(wnw_bridge_wrap(""), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "is empty"));
    assert_int_equal(wnw_bridge_wrap("cpu"), WNW_E_ARG); /* the same device */
    assert_non_null(strstr(wnw_last_error(), "named twice"));
    static const char *const wrong[] = {
        "nowhere",         "127.0.0.1:",       ":50052",       "127.0.0.1:0", "127.0.0.1:+5",
        "127.0.0.1: 5",    "127.0.0.1:5x",     "127.0.0.1:-1", "127.0.0.1:",  "",
        "127.0.0.1:65536", "127.0.0.1:000080", "[::1]:50052",  "::1:50052",   "tcp://127.0.0.1:50052"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char name[64];
        snprintf(name, sizeof name, "rpc:%s", wrong[i]);
        assert_false(wnw_bridge_is_address(wrong[i]));
        assert_int_equal(wnw_bridge_wrap(name), WNW_E_ARG);
        assert_non_null(strstr(wnw_last_error(), "no address"));
    }
    assert_true(wnw_bridge_is_address("127.0.0.1:65535"));
    assert_int_equal(wnw_bridge_wrap("rpc:127.0.0.1:1"), WNW_E_BACKEND);
    assert_non_null(strstr(wnw_last_error(), "127.0.0.1:1 cannot be reached"));
    assert_int_equal(wnw_bridge_wrap("rpc:no.such.host.invalid:50052"), WNW_E_BACKEND);
    assert_int_equal(wnw_bridge_wrap("WINNOW"), WNW_E_ARG); /* ours is around others */
    assert_int_equal(wnw_bridge_wrap(NULL), WNW_E_ARG);
    assert_null(ggml_backend_dev_by_name("WINNOW1"));
}

/* ---- Memory ---- */

/* Bytes that layers take on the device, together. */
static uint64_t bytes_of(struct test_llama *t)
{
    wnw_bridge *cache;
    uint64_t bytes = 0;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        assert_int_equal(l.ragged, 1);
        bytes += l.bytes;
    }
    return bytes;
}

static void decode(struct test_llama *t, int32_t from, int32_t n, float *logits)
{
    int32_t tokens[N_PROMPT];
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 1 + ((from + i) * 7919 + (from + i) * (from + i) * 13) % 250;
    test_llama_decode(t, 0, from, tokens, n, logits);
}

/* Whether an entry goes: about three of eight. */
static bool is_out(int32_t layer, int32_t head, int32_t cell)
{
    const uint32_t x = ((uint32_t)cell * 2654435761u) ^ (uint32_t)(layer * 40503 + head * 9176);
    return cell < N_PROMPT && (x * 2246822519u >> 16) % 8u < (layer == 1 ? 6u : 3u);
}

static void drop_some(struct test_llama *t)
{
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default(), after = l;
        int64_t n_out = 0;
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        for (int32_t h = 0; h < l.n_heads; h++) {
            int32_t out[N_PROMPT], has[N_PROMPT], n = 0, n_has;
            assert_ok(wnw_bridge_cells(cache, i, 0, h, has, N_PROMPT, &n_has));
            assert_cmp(n_has, <=, N_PROMPT);
            for (int32_t j = 0; j < n_has; j++)
                if (is_out(l.layer, h, has[j]))
                    out[n++] = has[j];
            assert_ok(wnw_bridge_drop(cache, i, 0, h, out, n));
            n_out += n;
        }
        assert_ok(wnw_bridge_get_layer(cache, i, &after));
        assert_int_equal(after.n_entries, l.n_entries - n_out);
        assert_cmp(n_out, >, 0);
    }
}

static void test_memory(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama t;
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(
        &t, path,
        &(struct test_llama_params){.ours = true, .device = "WINNOW0", .flash = true, .n_ctx = 65536});
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    wnw_bridge_layer l = wnw_bridge_layer_default();
    assert_ok(wnw_bridge_get_layer(cache, 0, &l));
    const uint64_t token =
        (uint64_t)l.entry_bytes * (uint64_t)l.n_heads * (uint64_t)wnw_bridge_n_layers(cache);
    assert_cmp(bytes_of(&t), ==, 0);
    decode(&t, 0, N_PROMPT, NULL);
    const uint64_t full = bytes_of(&t);
    assert_cmp(full, >=, N_PROMPT * token);
    assert_cmp(full, <=, 1024 * token); /* of 65536 */
    drop_some(&t);
    decode(&t, N_PROMPT, 1, NULL);
    assert_cmp(bytes_of(&t), <, full * 4 / 5);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    assert_cmp(bytes_of(&t), ==, 0);
    test_llama_close(&t);
}

/* ---- Entries dropped ---- */

enum way { FULL, DROPPED, HIDDEN };

/* Logits [N_AFTER][n_vocab] after a prompt: tokens one by one, then some at once. HIDDEN: capacities are so large that rows stay
 * where they are, and only their numbers say that nothing sees them. */
static float *logits_of(const char *path, const char *device, enum way way, int32_t *n_vocab)
{
    struct test_llama t;
    struct wnw__wrap *w = device ? wnw__wrap_of(ggml_backend_dev_by_name(device)) : NULL;
    const int32_t pad = w ? w->pad : 0;
    if (way == HIDDEN) {
        w->pad = 4096;
        setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    }
    test_llama_open(&t, path,
                    &(struct test_llama_params){
                        .ours = true, .device = device, .flash = true, .n_ctx = 1024, .n_threads = 1});
    float *logits = malloc((size_t)N_AFTER * (size_t)t.n_vocab * sizeof *logits);
    assert_non_null(logits);
    decode(&t, 0, N_PROMPT, NULL);
    const uint64_t before = w ? bytes_of(&t) : 0;
    if (way != FULL)
        drop_some(&t);
    for (int32_t i = 0; i < N_SINGLE; i++)
        decode(&t, N_PROMPT + i, 1, logits + (int64_t)i * t.n_vocab);
    if (w && way == HIDDEN)
        assert_cmp(bytes_of(&t), ==, before);
    if (w && way == DROPPED && pad < N_PROMPT / 4) /* a GPU's heads have steps of about the whole prompt */
        assert_cmp(bytes_of(&t), <, before);
    decode(&t, N_PROMPT + N_SINGLE, N_BATCH, logits + (int64_t)N_SINGLE * t.n_vocab);
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    unsetenv("WINNOW_RAGGED_AT_ONCE");
    if (w)
        w->pad = pad;
    return logits;
}

static void test_dropped(void **state)
{
    (void)state;
    char path[4096];
    if (inner.other)
        assert_ok(wnw_bridge_wrap(inner.name));
    for (size_t i = 0; i < (inner.n_models ? inner.n_models : sizeof models / sizeof *models); i++) {
        int32_t n_vocab;
        test_model_path(path, sizeof path, models[i]);
        float *full = logits_of(path, "WINNOW0", FULL, &n_vocab),
              *dropped = logits_of(path, "WINNOW0", DROPPED, &n_vocab),
              *hidden = logits_of(path, "WINNOW0", HIDDEN, &n_vocab),
              *ours = logits_of(path, NULL, DROPPED, &n_vocab);
        const int64_t n = (int64_t)N_AFTER * n_vocab, n_one = (int64_t)N_SINGLE * n_vocab;
        const double effect = test_nmse(dropped, full, n), other = test_nmse(dropped, ours, n);
        print_message("%s: dropped to hidden %.2g, to the device WINNOW %.2g, to the full cache %.2g\n",
                      models[i], test_nmse(dropped, hidden, n), other, effect);
        /* One key after the other. Noise goes by the place in a tensor, which differs. */
        if (test_noise() == 0 && !inner.other) {
            assert_memory_equal(dropped, hidden, (size_t)n_one * sizeof *hidden);
            assert_cmp(effect, >, 100 * other);
        }
        /* Tiles of keys that lie elsewhere; rounded to f16 in other places. */
        assert_cmp(test_nmse(dropped, hidden, n), <=, test_nmse_most(inner.other ? 1e-3 : 1e-7));
        assert_cmp(other, <=, test_nmse_most(inner.other ? 1e-2 : 1e-4));
        free(full);
        free(dropped);
        free(hidden);
        free(ours);
    }
}

/* ---- A device that does not compute all ---- */

/* Attention where heads are in dimension 3, as ours has them; or all of it; or products of weights of one type. */
static enum refusal { NOTHING, HEADS, ATTENTION, PRODUCTS } refused;
static bool is_gpu; /* so devices say */

bool __real_ggml_backend_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op);
bool __wrap_ggml_backend_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op);
enum ggml_backend_dev_type __real_ggml_backend_dev_type(ggml_backend_dev_t device);
enum ggml_backend_dev_type __wrap_ggml_backend_dev_type(ggml_backend_dev_t device);

bool __wrap_ggml_backend_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    const bool is_attention = op->op == GGML_OP_FLASH_ATTN_EXT,
               is_product = op->op == GGML_OP_MUL_MAT && op->src[0]->type == GGML_TYPE_Q4_1;
    const bool is_refused = (refused == HEADS && is_attention && op->src[1]->ne[3] > 1) ||
                            (refused == ATTENTION && is_attention) || (refused == PRODUCTS && is_product);
    return !is_refused && __real_ggml_backend_dev_supports_op(device, op);
}

enum ggml_backend_dev_type __wrap_ggml_backend_dev_type(ggml_backend_dev_t device)
{
    return is_gpu ? GGML_BACKEND_DEVICE_TYPE_GPU : __real_ggml_backend_dev_type(device);
}

/* How often was said that layers stay whole. */
static void count_said(wnw_log_level level, const char *line, void *user)
{
    (void)level;
    *(int *)user += strstr(line, "stay whole") && strstr(line, " does not compute ");
}

/* Logits after a prompt in a new context, and the cache. */
static float *open_refused(struct test_llama *t, const struct test_llama *of, const char *device,
                           wnw_bridge **cache)
{
    test_llama_share(t, of,
                     &(struct test_llama_params){
                         .ours = true, .device = device, .flash = true, .n_ctx = 1024, .n_threads = 1});
    float *logits = malloc((size_t)N_SINGLE * (size_t)t->n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_ok(wnw_bridge_find(cache, llama_synchronize, t->ctx));
    const wnw_size size = size_budget(N_PROMPT / 2);
    assert_ok(wnw_bridge_set_policy(*cache, "keydiff", &size, false));
    decode(t, 0, N_PROMPT, NULL);
    for (int32_t i = 0; i < N_SINGLE; i++)
        decode(t, N_PROMPT + i, 1, logits + (int64_t)i * t->n_vocab);
    return logits;
}

static void open_model(struct test_llama *model, const char *device)
{
    char path[4096];
    test_model_path(path, sizeof path, models[1]); /* with several heads */
    test_llama_open(model, path, &(struct test_llama_params){.ours = true, .device = device, .flash = true});
}

/* Layers that can be compressed. Returns logits. */
static float *is_ragged(const struct test_llama *model, const char *device, size_t *size)
{
    struct test_llama t;
    wnw_bridge *cache;
    float *logits = open_refused(&t, model, device, &cache);
    *size = (size_t)N_SINGLE * (size_t)t.n_vocab * sizeof *logits;
    assert_ok(wnw_bridge_compress(cache));
    test_llama_close_ctx(&t);
    return logits;
}

/* Layers stay as libllama has them, which is said once, and what comes out is the same. */
static void stays_whole(const struct test_llama *model, const char *device, const float *want, size_t size,
                        const char *why)
{
    struct test_llama t;
    wnw_bridge *cache;
    int n_said = 0;
    const int32_t cell = 1;
    wnw_set_log(count_said, &n_said);
    float *got = open_refused(&t, model, device, &cache);
    assert_memory_equal(got, want, size);
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        assert_int_equal(l.ragged, 0);
        assert_error(wnw_bridge_drop(cache, i, 0, 0, &cell, 1), WNW_E_UNSUPPORTED);
    }
    assert_error(wnw_bridge_compress(cache), WNW_E_UNSUPPORTED);
    assert_non_null(strstr(wnw_last_error(), why));
    assert_int_equal(n_said, 1);
    wnw_set_log(NULL, NULL);
    test_llama_close_ctx(&t);
    free(got);
}

static void test_refused(void **state)
{
    (void)state;
    struct test_llama model;
    size_t size;
    open_model(&model, "WINNOW0");
    float *want = is_ragged(&model, "WINNOW0", &size);
    refused = HEADS;
    stays_whole(&model, "WINNOW0", want, size, "CPU does not compute FLASH_ATTN_EXT for heads of ");
    refused = ATTENTION;
    stays_whole(&model, "WINNOW0", want, size, "CPU does not compute their attention");
    refused = NOTHING;
    free(want);
    test_llama_close(&model);
}

/* ---- Such a device on another machine ---- */

/* A worker whose device refuses this, and is a GPU or none. */
static pid_t refusing_worker(int port, enum refusal what, bool gpu)
{
    refused = what;
    is_gpu = gpu;
    const pid_t worker = test_worker(port);
    refused = NOTHING;
    is_gpu = false;
    assert_cmp(worker, >, 0);
    return worker;
}

/* Whether a device says that it has the products of weights of a type. libllama asks with buffers of 0 bytes. */
static bool has_products(const char *device, enum ggml_type type)
{
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(device);
    ggml_backend_buffer_t none = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), 0);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = NULL, .no_alloc = true});
    assert_non_null(none);
    assert_non_null(ctx);
    struct ggml_tensor *weight = ggml_new_tensor_2d(ctx, type, 64, 64);
    weight->buffer = none;
    const bool has = ggml_backend_dev_supports_op(
        dev, ggml_mul_mat(ctx, weight, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 512)));
    ggml_free(ctx);
    ggml_backend_buffer_free(none);
    return has;
}

static void whole_on(const char *device, const float *want, size_t size, const char *why)
{
    struct test_llama model;
    open_model(&model, device);
    stays_whole(&model, device, want, size, why);
    test_llama_close(&model);
}

static void ragged_on(const char *device, const float *want, size_t size)
{
    struct test_llama model;
    size_t n;
    open_model(&model, device);
    float *got = is_ragged(&model, device, &n);
    assert_int_equal(n, size);
    assert_memory_equal(got, want, size);
    free(got);
    test_llama_close(&model);
}

/* A worker says what its device refuses. At the same address there may be another one later. Another server does not
 * know the question. */
static void test_refused_there(void **state)
{
    (void)state;
    struct test_llama model;
    size_t size;
    char why[96];
    const int port = test_free_port(), other = test_free_port();
    open_model(&model, "WINNOW0");
    float *want = is_ragged(&model, "WINNOW0", &size);
    test_llama_close(&model);

    pid_t worker = refusing_worker(port, HEADS, true);
    assert_int_equal(test_wrap_worker(worker, port), 0);
    assert_int_equal(wnw__wrap_of(ggml_backend_dev_by_name("WINNOW1"))->pad, 256);
    snprintf(why, sizeof why, "127.0.0.1:%d does not compute FLASH_ATTN_EXT for heads of ", port);
    whole_on("WINNOW1", want, size, why);
    test_end_worker(worker);

    worker = refusing_worker(port, ATTENTION, false);
    snprintf(why, sizeof why, "127.0.0.1:%d does not compute their attention", port);
    whole_on("WINNOW1", want, size, why);
    test_end_worker(worker);

    worker = refusing_worker(port, PRODUCTS, false);
    ragged_on("WINNOW1", want, size);
    assert_false(has_products("WINNOW1", GGML_TYPE_Q4_1));
    assert_true(has_products("WINNOW1", GGML_TYPE_Q4_0));
    test_end_worker(worker);

    worker = test_plain_worker(other);
    assert_int_equal(test_wrap_worker(worker, other), 0);
    assert_int_equal(wnw__wrap_of(ggml_backend_dev_by_name("WINNOW2"))->pad, 32);
    ragged_on("WINNOW2", want, size);
    assert_true(has_products("WINNOW2", GGML_TYPE_Q4_1));
    test_end_worker(worker);
    free(want);
}

/* With the name of another device: what comes out on that one (scripts/try_device.sh), with the first model alone if "first" follows. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_modules), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_memory),  cmocka_unit_test(test_dropped),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_there)};
    const struct CMUnitTest dropped[] = {cmocka_unit_test(test_dropped)};
    if (argc == 1)
        return cmocka_run_group_tests(tests, NULL, NULL);
    inner.name = argv[1];
    inner.other = true;
    inner.n_models = argc > 2 && strcmp(argv[2], "first") == 0;
    return cmocka_run_group_tests(dropped, NULL, NULL);
}
