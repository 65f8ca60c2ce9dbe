/* SPDX-License-Identifier: MIT */
/*
 * libllama removes, copies and shifts sequences of a cache, has streams, saves and restores. All of that on our device as without
 * it, and with entries dropped. The same on our device around the CPU, where no bit may differ: with layers as libllama has them,
 * and ragged from the first token on.
 */
#include "helpers.h"
#include "llamas.h"
#include "rounding.h"
#include "winnow_bridge.h"
#include "workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 90, N_MORE = 8, MAX_ROWS = 4 * N_MORE };

/* Kinds of caches. How far logits of the same steps may be: see model/bridge_logits.c; quantised keys are rounded once
 * more by a shift. */
struct kind {
    const char *name;
    struct test_llama_params params;
    double bound;
};
static const struct kind kinds[] = {
    {"f32", {.f32 = true}, 1e-9},
    {"f16", {.flash = false}, 1e-5},
    {"f16, flash", {.flash = true}, 1e-5},
    {"q8_0, flash", {.flash = true, .type_k = GGML_TYPE_Q8_0, .type_v = GGML_TYPE_Q8_0}, 3e-3},
};

/* Where all of it is done. */
static struct {
    const char *device; /* NULL = WINNOW */
    bool exact, remote;
} place;

/* How far logits may be from libllama's. */
static double bound_of(const struct kind *kind)
{
    return place.exact ? 0.0 : test_nmse_most(kind->bound);
}

/* The first kind with flash attention: devices around others drop entries of such layers alone. */
enum { FLASH = 2 };

static int32_t token(int32_t seq, int32_t i)
{
    return 1 + (seq * 1231 + i * 7919 + i * i * 13) % 250;
}

static void decode(struct test_llama *t, int32_t seq, int32_t pos, int32_t n, float *logits)
{
    int32_t tokens[N_PROMPT];
    for (int32_t i = 0; i < n; i++)
        tokens[i] = token(seq, pos + i);
    test_llama_decode(t, seq, pos, tokens, n, logits);
}

/* n tokens of each of n_seq sequences from position pos on, in one batch, sequence after sequence. */
static void decode_all(struct test_llama *t, int32_t n_seq, int32_t pos, int32_t n, float *logits)
{
    struct test_row row[MAX_ROWS];
    assert_cmp(n_seq * n, <=, MAX_ROWS);
    for (int32_t i = 0; i < n_seq * n; i++)
        row[i] = (struct test_row){.token = token(i / n, pos + i % n), .pos = pos + i % n, .seq = i / n};
    assert_int_equal(test_llama_batch(t, row, n_seq * n, logits), 0);
}

/* ---- The same steps with and without us ---- */

static void remove_tail(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, N_PROMPT, NULL);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, 50, -1));
    decode(t, 0, 50, N_MORE, logits);
}

static void remove_middle(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, N_PROMPT, NULL);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, 20, 40));
    decode(t, 0, N_PROMPT, N_MORE, logits);
}

/* Cells of a removed sequence are used again, between those of others. */
static void reuse_cells(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, 40, NULL);
    decode(t, 1, 0, 40, NULL);
    decode(t, 0, 40, 30, NULL);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 1, -1, -1));
    decode(t, 2, 0, 70, NULL);
    decode(t, 2, 70, N_MORE, logits);
    decode(t, 0, 70, N_MORE, logits + (int64_t)N_MORE * t->n_vocab);
}

static void copy_sequence(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, N_PROMPT, NULL);
    llama_memory_seq_cp(llama_get_memory(t->ctx), 0, 1, -1, -1);
    decode_all(t, 2, N_PROMPT, N_MORE, logits);
}

static void several_sequences(struct test_llama *t, float *logits)
{
    for (int32_t seq = 0; seq < 3; seq++)
        decode(t, seq, 0, 60, NULL);
    decode_all(t, 3, 60, N_MORE, logits);
}

static void shift(struct test_llama *t, float *logits)
{
    llama_memory_t memory = llama_get_memory(t->ctx);
    decode(t, 0, 0, N_PROMPT, NULL);
    assert_true(llama_memory_seq_rm(memory, 0, 4, 30));
    llama_memory_seq_add(memory, 0, 30, -1, -26);
    decode(t, 0, N_PROMPT - 26, N_MORE, logits);
}

static void clear(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, N_PROMPT, NULL);
    llama_memory_clear(llama_get_memory(t->ctx), true);
    decode(t, 0, 0, 30, NULL);
    llama_memory_clear(llama_get_memory(t->ctx), false);
    decode(t, 0, 0, N_MORE, logits);
}

static void save_and_restore(struct test_llama *t, float *logits)
{
    decode(t, 0, 0, N_PROMPT, NULL);
    size_t size;
    uint8_t *state = test_llama_state(t, &size);
    decode(t, 1, 0, 17, NULL); /* the restored cells begin elsewhere */
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, -1, -1));
    decode(t, 2, 0, 5, NULL);
    assert_int_equal(llama_state_seq_set_data(t->ctx, state, size, 0), size);
    free(state);
    decode(t, 0, N_PROMPT, N_MORE, logits);
}

struct steps {
    const char *name;
    void (*run)(struct test_llama *t, float *logits);
    int32_t n_rows; /* of logits */
    bool streams;   /* also with a part of the cache for each sequence */
};
static const struct steps all_steps[] = {
    {"remove_tail", remove_tail, N_MORE, false},
    {"remove_middle", remove_middle, N_MORE, false},
    {"reuse_cells", reuse_cells, 2 * N_MORE, true},
    {"copy_sequence", copy_sequence, 2 * N_MORE, true},
    {"several_sequences", several_sequences, 3 * N_MORE, true},
    {"shift", shift, N_MORE, true},
    {"clear", clear, N_MORE, true},
    {"save_and_restore", save_and_restore, N_MORE, true},
};

static const char *const models[] = {"tiny/tiny-qwen2-f32.gguf", "tiny/tiny-llama.gguf"};

/* libllama shifts quantised keys of heads that are multiples of 64 long alone; with others it reads a null pointer, without
 * us as well. */
static const char *shifting_model(const struct kind *kind)
{
    return kind->params.type_k ? "tiny/tiny-qwen3.gguf" : models[0];
}

static float *logits_of(const char *path, const struct steps *s, const struct test_llama_params *p,
                        int32_t *n_vocab)
{
    struct test_llama t;
    test_llama_open(&t, path, p);
    float *logits = calloc((size_t)MAX_ROWS * (size_t)t.n_vocab, sizeof *logits);
    assert_non_null(logits);
    s->run(&t, logits);
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

static void check(const char *model, const struct steps *s, const struct kind *kind, bool streams)
{
    char path[4096];
    int32_t n_vocab;
    struct test_llama_params p = kind->params;
    p.n_seq = 4;
    p.streams = streams;
    test_model_path(path, sizeof path, model);
    float *want = logits_of(path, s, &p, &n_vocab);
    p.ours = true;
    p.device = place.device;
    float *got = logits_of(path, s, &p, &n_vocab);
    const double d = test_nmse(got, want, (int64_t)s->n_rows * n_vocab);
    print_message("%s, %s%s: %.2g\n", model, kind->name, streams ? ", streams" : "", d);
    assert_cmp(d, <=, bound_of(kind));
    free(want);
    free(got);
}

static void test_as_without_us(void **state)
{
    const struct steps *s = *state;
    for (size_t k = place.remote ? FLASH : 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int streams = 0; streams <= (int)s->streams; streams++)
            if (s->run != shift)
                for (size_t m = 0; m < sizeof models / sizeof *models; m++)
                    check(models[m], s, &kinds[k], streams);
            else
                check(shifting_model(&kinds[k]), s, &kinds[k], streams);
}

/* ---- With entries dropped ---- */

/* Drops about a third of the cells below N_PROMPT of each head of stream 0, and all of those of cells 40 .. 44. */
static void drop_some(struct test_llama *t)
{
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        for (int32_t h = 0; h < l.n_heads; h++) {
            int32_t out[N_PROMPT], n = 0;
            for (int32_t cell = 3; cell < N_PROMPT; cell++)
                if ((cell * 5 + h * 3 + l.layer) % 7 < 2 || (cell >= 40 && cell < 45))
                    out[n++] = cell;
            assert_ok(wnw_bridge_drop(cache, i, 0, h, out, n));
        }
    }
}

/* A state of a sequence with dropped entries restores exactly that, in the same context and in another one. */
static void test_state_of_dropped(void **state)
{
    const struct kind *kind = *state;
    struct test_llama t, other;
    struct test_llama_params p = kind->params;
    char path[4096];
    p.ours = true;
    p.device = place.device;
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(&t, path, &p);
    test_llama_share(&other, &t, &p);
    const size_t bytes = (size_t)N_MORE * (size_t)t.n_vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    assert_non_null(want);
    assert_non_null(got);
    decode(&t, 0, 0, N_PROMPT, NULL);
    const int64_t full = test_llama_entries(&t);
    drop_some(&t);
    const int64_t n = test_llama_entries(&t);
    assert_cmp(n, <, full * 3 / 4);
    const size_t whole = llama_state_get_size(t.ctx);
    size_t size;
    uint8_t *seq = test_llama_state(&t, &size), *all = malloc(whole);
    assert_non_null(all);
    assert_cmp(llama_state_get_data(t.ctx, all, whole), >, 0);
    decode(&t, 0, N_PROMPT, N_MORE, want);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    assert_int_equal(llama_state_seq_set_data(t.ctx, seq, size, 0), size);
    assert_int_equal(test_llama_entries(&t), n);
    decode(&t, 0, N_PROMPT, N_MORE, got);
    assert_memory_equal(got, want, bytes);
    assert_cmp(llama_state_set_data(other.ctx, all, whole), >, 0);
    assert_int_equal(test_llama_entries(&other), n);
    decode(&other, 0, N_PROMPT, N_MORE, got);
    assert_memory_equal(got, want, bytes);
    free(seq);
    free(all);
    free(want);
    free(got);
    test_llama_close_ctx(&other);
    test_llama_close(&t);
}

/* winnow's kernels go through the cells of a sequence alone; those of a device add in tiles, which begin at other cells. */
static double others_bound(const struct kind *kind)
{
    return test_nmse_most(place.device ? kind->bound : 1e-9);
}

/* Another sequence after one with dropped entries is as it is alone, and so is one in their cells. */
static void test_others_of_dropped(void **state)
{
    const struct kind *kind = *state;
    struct test_llama t, alone;
    struct test_llama_params p = kind->params;
    char path[4096];
    p.ours = true;
    p.device = place.device;
    p.n_seq = 2;
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(&t, path, &p);
    test_llama_share(&alone, &t, &p);
    const int64_t n = (int64_t)N_MORE * t.n_vocab;
    float *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
    assert_non_null(want);
    assert_non_null(got);
    decode(&alone, 1, 0, 60, NULL);
    decode(&alone, 1, 60, N_MORE, want);
    decode(&t, 0, 0, N_PROMPT, NULL);
    drop_some(&t);
    decode(&t, 1, 0, 60, NULL);
    decode(&t, 1, 60, N_MORE, got);
    assert_cmp(test_nmse(got, want, n), <=, others_bound(kind));
    llama_memory_clear(llama_get_memory(t.ctx), false);
    decode(&t, 1, 0, 60, NULL);
    decode(&t, 1, 60, N_MORE, got);
    assert_cmp(test_nmse(got, want, n), <=, others_bound(kind));
    free(want);
    free(got);
    test_llama_close_ctx(&alone);
    test_llama_close(&t);
}

/* A shift moves the entries that are left, and brings none back. What libllama computes where the same cells are removed
 * in all heads is the measure. */
static void test_shift_of_dropped(void **state)
{
    const struct kind *kind = *state;
    char path[4096];
    float *logits[2];
    int32_t n_vocab = 0;
    test_model_path(path, sizeof path, shifting_model(kind));
    for (int ours = 0; ours < 2; ours++) {
        struct test_llama t;
        struct test_llama_params p = kind->params;
        p.ours = ours;
        p.device = place.device;
        test_llama_open(&t, path, &p);
        n_vocab = t.n_vocab;
        logits[ours] = malloc((size_t)N_MORE * (size_t)n_vocab * sizeof(float));
        assert_non_null(logits[ours]);
        llama_memory_t memory = llama_get_memory(t.ctx);
        decode(&t, 0, 0, N_PROMPT, NULL);
        int32_t out[10];
        wnw_bridge *cache;
        for (int32_t i = 0; i < 10; i++)
            out[i] = 50 + i;
        if (ours)
            assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
        for (int32_t i = 0; ours && i < wnw_bridge_n_layers(cache); i++) {
            wnw_bridge_layer l = wnw_bridge_layer_default();
            assert_ok(wnw_bridge_get_layer(cache, i, &l));
            for (int32_t h = 0; h < l.n_heads; h++)
                assert_ok(wnw_bridge_drop(cache, i, 0, h, out, 10));
        }
        if (!ours)
            assert_true(llama_memory_seq_rm(memory, 0, 50, 60));
        assert_true(llama_memory_seq_rm(memory, 0, 4, 30));
        llama_memory_seq_add(memory, 0, 30, -1, -26);
        const int64_t before = ours ? test_llama_entries(&t) : 0;
        decode(&t, 0, N_PROMPT - 26, 1, logits[ours]);
        if (ours) /* the new token took a cell that was removed, or another */
            assert_cmp(test_llama_entries(&t), <=, before + before / (N_PROMPT - 10));
        decode(&t, 0, N_PROMPT - 25, N_MORE - 1, logits[ours] + n_vocab);
        test_llama_close(&t);
    }
    const double d = test_nmse(logits[1], logits[0], (int64_t)N_MORE * n_vocab);
    print_message("%s: %.2g\n", kind->name, d);
    assert_cmp(d, <=, test_nmse_most(kind->bound));
    free(logits[0]);
    free(logits[1]);
}

/* ---- Moved keys ---- */

/* Tokens that go, and those that are left of N_PROMPT. */
enum { GONE_FROM = 4, GONE_TO = 30, N_LEFT = N_PROMPT - (GONE_TO - GONE_FROM) };

/* The keys in float32 of the first layer of sequence 0, in a new array [*n]. In a state they follow the number of layers, their type
 * and the bytes of a row. */
static float *first_keys(const struct test_llama *t, int64_t n_tokens, int64_t *n)
{
    const struct llama_model *m = llama_get_model(t->ctx);
    const int32_t n_layer = llama_model_n_layer(m);
    const uint64_t row = sizeof(float) * (uint64_t)(llama_model_n_embd(m) / llama_model_n_head(m)) *
                         (uint64_t)llama_model_n_head_kv(m);
    size_t size;
    uint8_t *state = test_llama_state(t, &size), head[16] = {0}; /* the type of float32 is 0 */
    float *keys = malloc((size_t)n_tokens * row);
    assert_non_null(keys);
    memcpy(head, &n_layer, sizeof n_layer);
    memcpy(head + 8, &row, sizeof row);
    size_t at = 0;
    while (at + sizeof head < size && memcmp(state + at, head, sizeof head) != 0)
        at++;
    assert_cmp(at + sizeof head + (size_t)n_tokens * row, <=, size);
    memcpy(keys, state + at + sizeof head, (size_t)n_tokens * row);
    free(state);
    *n = n_tokens * (int64_t)(row / sizeof *keys);
    return keys;
}

/* Keys of the first layer depend on the token and its position alone. Those that were moved up are those that are computed at their new
 * positions, but for what float32 leaves of the angles. ggml multiplies once for each pair, so the angle p of a token has an error of (c + 2) p
 * units at most in pair c. A key is turned by p, by the shift, and by the difference; each turn adds 4 units. */
static void test_moved_keys(void **state)
{
    enum { N_PAIR = 16 };
    const double unit = 0x1p-24, error = unit * (2.0 * N_PROMPT * (N_PAIR + 2) + 3 * 4);
    int32_t left[N_LEFT];
    int64_t n;
    char path[4096];
    struct test_llama t, fresh;
    struct test_llama_params p = {.f32 = true, .ours = true};
    (void)state;
    for (int32_t i = 0; i < N_LEFT; i++)
        left[i] = token(0, i < GONE_FROM ? i : i + GONE_TO - GONE_FROM);
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(&t, path, &p);
    test_llama_share(&fresh, &t, &p);
    assert_cmp(llama_model_n_embd(llama_get_model(t.ctx)) / llama_model_n_head(llama_get_model(t.ctx)), <=,
               2 * N_PAIR);
    test_llama_decode(&fresh, 0, 0, left, N_LEFT, NULL);
    decode(&t, 0, 0, N_PROMPT, NULL);
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, GONE_FROM, GONE_TO));
    float *want = first_keys(&fresh, N_LEFT, &n), *still = first_keys(&t, N_LEFT, &n);
    llama_memory_seq_add(llama_get_memory(t.ctx), 0, GONE_TO, -1, GONE_FROM - GONE_TO);
    decode(&t, 0, N_LEFT, 1, NULL); /* libllama moves keys when it decodes */
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, N_LEFT, -1));
    float *got = first_keys(&t, N_LEFT, &n);
    const double d = test_nmse(got, want, n), before = test_nmse(still, want, n);
    print_message("moved keys: %.2g, before they were moved: %.2g\n", d, before);
    assert_cmp(d, <=, test_nmse_most(error * error));
    assert_cmp(before, >, 1e-3);
    free(want);
    free(still);
    free(got);
    test_llama_close_ctx(&fresh);
    test_llama_close(&t);
}

/* ---- Threads ---- */

struct worker {
    struct test_llama t;
    float *logits;
    int failed;
};

static void *work(void *user)
{
    struct worker *w = user;
    for (int round = 0; round < 3 && !w->failed; round++) {
        llama_memory_clear(llama_get_memory(w->t.ctx), true);
        for (int32_t i = 0; i < N_PROMPT + N_MORE && !w->failed; i += i < N_PROMPT ? 30 : 1) {
            int32_t tokens[30];
            const int32_t n = i < N_PROMPT ? 30 : 1;
            for (int32_t j = 0; j < n; j++)
                tokens[j] = token(0, i + j);
            w->failed =
                test_llama_try(&w->t, 0, i, tokens, n,
                               i < N_PROMPT ? NULL : w->logits + (int64_t)(i - N_PROMPT) * w->t.n_vocab);
        }
    }
    return NULL;
}

/* Contexts of one model in threads of their own, each as alone. */
static void test_contexts_in_threads(void **state)
{
    (void)state;
    enum { N_WORKER = 3 };
    struct worker w[N_WORKER] = {{.failed = 0}};
    pthread_t thread[N_WORKER];
    char path[4096];
    const struct test_llama_params p = {.ours = true, .device = place.device, .flash = true, .n_threads = 1};
    test_model_path(path, sizeof path, models[0]);
    test_llama_open(&w[0].t, path, &p);
    for (int i = 0; i < N_WORKER; i++) {
        if (i > 0)
            test_llama_share(&w[i].t, &w[0].t, &p);
        w[i].logits = malloc((size_t)N_MORE * (size_t)w[0].t.n_vocab * sizeof(float));
        assert_non_null(w[i].logits);
    }
    work(&w[0]);
    for (int i = 1; i < N_WORKER; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    for (int i = 1; i < N_WORKER; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(w[i].failed, 0);
        assert_memory_equal(w[i].logits, w[0].logits,
                            (size_t)N_MORE * (size_t)w[0].t.n_vocab * sizeof(float));
        test_llama_close_ctx(&w[i].t);
        free(w[i].logits);
    }
    free(w[0].logits);
    test_llama_close(&w[0].t);
}

/* All of it on one device. */
static int run_all(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contexts_in_threads)};
    const struct kind *first = place.device ? kinds + FLASH : kinds;
    const size_t n = (size_t)(kinds + sizeof kinds / sizeof *kinds - first);
    const struct CMUnitTest moved[] = {cmocka_unit_test(test_moved_keys)};
    int failed = place.device ? 0 : cmocka_run_group_tests(moved, NULL, NULL);
    failed += run_rows(test_as_without_us, all_steps);
    for (size_t i = 0; i < n; i++) {
        const struct kind one[] = {first[i]};
        failed += run_rows(test_state_of_dropped, one) + run_rows(test_others_of_dropped, one);
        failed += run_rows(test_shift_of_dropped, one);
    }
    /* ggml's RPC notes the graph that it sent last for all threads together, and may send another one's. */
    return place.remote ? failed : failed + cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- Devices ---- */

/* Layers as libllama has them; then ragged from the first token on, on these devices. */
static int run_around(const char *ragged)
{
    place.device = "WINNOW0";
    place.exact = true;
    const int failed = run_all();
    place.device = ragged;
    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    return failed + run_all();
}

/* Without arguments on WINNOW and around the CPU; with "rpc" around the CPU of a server, and then around that and the CPU here, which share
 * the layers. */
int main(int argc, char **argv)
{
    if (argc == 1) {
        const int failed = run_all();
        /* Around the CPU no bit may differ. Noise goes by the place in a tensor, which does. And the kernels there are ggml's, so that
         * those of another CPU change nothing. */
        if (test_other_kernels())
            return failed;
        return failed + (wnw_bridge_wrap("CPU") == WNW_OK ? run_around("WINNOW0") : 1);
    }
    if (strcmp(argv[1], "strict") == 0) {
        setenv("WINNOW_GGML_MODULES", WNW_TEST_STRICT_DEVICE, 1);
        return wnw_bridge_wrap("STRICT0,STRICT1") == WNW_OK ? run_around("WINNOW0,WINNOW1") : 1;
    }
    if (strcmp(argv[1], "rpc") != 0)
        return 1;
    place.remote = true;
    const int port = test_free_port();
    const pid_t worker = test_worker(port);
    if (worker < 0 || test_wrap_worker(worker, port) != 0 || wnw_bridge_wrap("CPU") != WNW_OK)
        return 1;
    const int failed = run_around("WINNOW0,WINNOW1");
    test_end_worker(worker);
    return failed;
}
