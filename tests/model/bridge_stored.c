/* SPDX-License-Identifier: MIT */
/*
 * Stored sessions in libllama's cache: wnw_stored_sequence gives the backend every head's entries, at the cells of their tokens, and
 * what is read after them is computed as in a session of the file. How near that is, is measured by the same tokens
 * after a prompt that both have read and kept whole.
 */
#include "files.h"
#include "helpers.h"
#include "llamas.h"
#include "winnow_bridge.h"
#include "winnow_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PROMPT = 200, N_MORE = 6, N_OTHER = 17, MAX_CELLS = 512 };

/* Products with f16 weights round what they multiply to 11 bits: a sum that differs in its last bit, as sums of the same entries in other
 * cells do, may be rounded to the other side. Those of 16 products together. */
#define ROUNDED (16.0 / 4194304.0)

static const struct row {
    const char *name, *model, *recipe;
    struct test_session how;
    double rounding; /* of weights that are not f32 */
} rows[] = {
    {"llama", "tiny/tiny-llama.gguf", "snapkv+adakv", {.kv_type = WNW_KV_F16}, 0.0},
    {"one KV head", "tiny/tiny-llama-mqa.gguf", "keydiff", {.kv_type = WNW_KV_F16}, 0.0},
    {"scaled frequencies", "tiny/tiny-llama3.gguf", "snapkv+adakv", {.kv_type = WNW_KV_F16}, ROUNDED},
    {"qwen2", "tiny/tiny-qwen2-f32.gguf", "pyramidkv", {.kv_type = WNW_KV_F16}, 0.0},
    {"qwen3", "tiny/tiny-qwen3-f32.gguf", "snapkv+adakv", {.kv_type = WNW_KV_F16}, 0.0},
    {"sliding windows", "tiny/tiny-gemma3-f32.gguf", "snapkv+adakv", {.kv_type = WNW_KV_F16}, 0.0},
    {"q8_0, rotated", "tiny/tiny-llama3.gguf", "snapkv+adakv", {.kv_type = WNW_KV_Q8_0}, ROUNDED},
    {"q4_0, rotated", "tiny/tiny-qwen3.gguf", "knorm", {.kv_type = WNW_KV_Q4_0}, ROUNDED},
    {"q8_0 as it is", "tiny/tiny-llama.gguf", "knorm", {.kv_type = WNW_KV_Q8_0, .kv_unrotated = true}, 0.0},
    {"everything", "tiny/tiny-llama.gguf", "full", {.kv_type = WNW_KV_F16}, 0.0},
    {"a family of libllama", "tiny/foreign/phi3.gguf", "knorm", {.kv_type = WNW_KV_F16}, 0.0},
};

static int32_t token(int32_t i)
{
    return 3 + (i * 7919 + i * i * 13) % 200;
}

static void make_tokens(int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = token(i);
}

/* A session that has read the prompt under the recipe, stored and opened again. */
static wnw_stored *store(const wnw_model *m, const struct row *row, const char *recipe)
{
    char path[] = "/tmp/wnw-sequence-XXXXXX";
    int32_t tokens[N_PROMPT];
    wnw_policy *policy = test_policy(recipe);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .size = size_ratio(0.5),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .once = true}};
    wnw_stored *st;
    test_file_new(path);
    wnw_session *s = test_session_new(m, &row->how);
    make_tokens(tokens, N_PROMPT);
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, tokens, N_PROMPT, NULL));
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .tokens = tokens, .n_tokens = N_PROMPT};
    assert_ok(wnw_session_store(s, path, &params));
    wnw_session_free(s);
    assert_ok(wnw_stored_open(&st, path));
    unlink(path);
    wnw_policy_free(policy);
    return st;
}

static enum ggml_type type_of(wnw_kv_type type)
{
    return type == WNW_KV_Q8_0 ? GGML_TYPE_Q8_0 : type == WNW_KV_Q4_0 ? GGML_TYPE_Q4_0 : GGML_TYPE_F16;
}

static void open_llama(struct test_llama *t, const struct row *row)
{
    char path[4096];
    const struct test_llama_params p = {.ours = true,
                                        .flash = true,
                                        .n_seq = 2,
                                        .type_k = type_of(row->how.kv_type),
                                        .type_v = type_of(row->how.kv_type)};
    test_model_path(path, sizeof path, row->model);
    test_llama_open(t, path, &p);
}

/* Logits [N_MORE][n_vocab] of the tokens after the prompt, read one after the other: as the kernels of one row. */
static void go_on_in_llama(struct test_llama *t, float *logits)
{
    for (int32_t i = 0; i < N_MORE; i++) {
        const int32_t id = token(N_PROMPT + i);
        test_llama_decode(t, 0, N_PROMPT + i, &id, 1, logits + (int64_t)i * t->n_vocab);
    }
}

static void go_on_in_session(const wnw_stored *st, const wnw_model *m, int32_t n_vocab, float *logits)
{
    wnw_engine *e;
    wnw_session *s;
    assert_ok(wnw_engine_new(&e, m, NULL));
    assert_ok(wnw_stored_session(&s, st, e, NULL));
    for (int32_t i = 0; i < N_MORE; i++) {
        assert_ok(wnw_session_decode(s, token(N_PROMPT + i)));
        memcpy(logits + (int64_t)i * n_vocab, wnw_session_logits(s), (size_t)n_vocab * sizeof *logits);
    }
    wnw_session_free(s);
    wnw_engine_free(e);
}

/* The cells that a head has after those of the other sequence are those of the stored positions. */
static void check_head(const wnw_bridge *cache, int32_t i, int32_t ih, const wnw_stored *st, int32_t il)
{
    const int32_t *pos, n = wnw_stored_head(st, il, ih, &pos);
    int32_t cells[MAX_CELLS], n_cells;
    assert_ok(wnw_bridge_cells(cache, i, 0, ih, cells, MAX_CELLS, &n_cells));
    assert_int_equal(n_cells, N_OTHER + n);
    for (int32_t k = 0; k < n; k++)
        assert_int_equal(cells[N_OTHER + k], N_OTHER + pos[k]);
}

static void check_entries(struct test_llama *t, const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_bridge *cache;
    int32_t n_checked = 0;
    assert_ok(wnw_stored_get_info(st, &info));
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        assert_true(l.ragged);
        assert_int_equal(l.n_heads, info.n_head_kv);
        for (int32_t ih = 0; ih < l.n_heads; ih++)
            check_head(cache, i, ih, st, l.layer);
        n_checked++;
    }
    assert_int_equal(n_checked, info.n_layer);
}

static void load(struct test_llama *t, const wnw_stored *st)
{
    uint8_t *state;
    size_t n, again;
    assert_ok(wnw_stored_sequence(st, &state, &n));
    assert_ok(wnw_stored_sequence(st, NULL, &again));
    assert_int_equal(again, n);
    assert_int_equal(llama_state_seq_set_data(t->ctx, state, n, 0), n);
    wnw_free(state);
}

static void test_as_in_a_session(void **state)
{
    const struct row *row = *state;
    struct test_llama t;
    int32_t prompt[N_PROMPT];
    wnw_model *m = test_model_open(row->model);
    wnw_stored *st = store(m, row, row->recipe), *whole = store(m, row, "full");
    make_tokens(prompt, N_PROMPT);
    open_llama(&t, row);
    const int64_t n = (int64_t)N_MORE * t.n_vocab;
    float *want = malloc(4 * (size_t)n * sizeof *want);
    assert_non_null(want);
    float *got = want + n, *read = got + n, *full = read + n;
    test_llama_decode(&t, 0, 0, prompt, N_PROMPT, NULL);
    go_on_in_llama(&t, read);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    test_llama_decode(&t, 1, 0, prompt, N_OTHER, NULL); /* so that cells are not positions */
    load(&t, st);
    check_entries(&t, st);
    go_on_in_llama(&t, got);
    go_on_in_session(st, m, t.n_vocab, want);
    go_on_in_session(whole, m, t.n_vocab, full);
    const double near = test_nmse(got, want, n), both_read = test_nmse(read, full, n),
                 dropped = test_nmse(want, full, n);
    print_message("%s: %.2g; where both read and keep all %.2g; what dropping does %.2g\n", row->name, near,
                  both_read, dropped);
    assert_cmp(near, <=, 10 * both_read + test_nmse_most(1e-10) + row->rounding);
    if (strcmp(row->recipe, "full") != 0)
        assert_cmp(near, <, dropped / 4);
    free(want);
    test_llama_close(&t);
    wnw_stored_free(st);
    wnw_stored_free(whole);
    wnw_model_free(m);
}

/* ---- The other way: from libllama's cache to a session ---- */

/* Both hold the same entries, and go on bit for bit alike. */
static void check_same(wnw_session *a, wnw_session *b, const wnw_model *m, int32_t n_vocab)
{
    wnw_model_info info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(m, &info));
    for (int32_t il = 0; il < info.n_layer; il++)
        for (int32_t ih = 0; ih < info.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(a, il, ih);
            assert_int_equal(wnw_cache_n(b, il, ih), n);
            assert_memory_equal(wnw_cache_positions(a, il, ih), wnw_cache_positions(b, il, ih),
                                (size_t)n * sizeof(int32_t));
        }
    for (int32_t i = 0; i < N_MORE; i++) {
        assert_ok(wnw_session_decode(a, token(N_PROMPT + i)));
        assert_ok(wnw_session_decode(b, token(N_PROMPT + i)));
        assert_memory_equal(wnw_session_logits(a), wnw_session_logits(b), (size_t)n_vocab * sizeof(float));
    }
}

static void test_back(void **state)
{
    const struct row *row = *state;
    struct test_llama t;
    int32_t tokens[N_PROMPT];
    size_t n;
    wnw_engine *e;
    wnw_session *stored;
    wnw_model *m = test_model_open(row->model);
    wnw_stored *st = store(m, row, row->recipe);
    make_tokens(tokens, N_PROMPT);
    open_llama(&t, row);
    test_llama_decode(&t, 1, 0, tokens, N_OTHER, NULL); /* so that cells are not positions */
    load(&t, st);
    uint8_t *bytes = test_llama_state(&t, &n);
    assert_ok(wnw_engine_new(&e, m, NULL));
    assert_ok(wnw_stored_session(&stored, st, e, NULL));
    wnw_session *s = test_session_new(m, &row->how);
    assert_ok(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT, 0));
    assert_int_equal(wnw_session_n_past(s), N_PROMPT);
    assert_null(wnw_session_logits(s));
    assert_error(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT, 0), WNW_E_ARG);
    check_same(stored, s, m, t.n_vocab);
    wnw_session_free(s);
    /* Only where nothing was dropped it is known what there was before. */
    s = test_session_new(m, &row->how);
    assert_ok(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT, 0));
    if (strcmp(row->recipe, "full") == 0)
        assert_ok(wnw_session_rewind(s, N_PROMPT / 2));
    else
        assert_error(wnw_session_rewind(s, N_PROMPT / 2), WNW_E_UNSUPPORTED);
    free(bytes);
    wnw_session_free(s);
    wnw_session_free(stored);
    wnw_engine_free(e);
    test_llama_close(&t);
    wnw_stored_free(st);
    wnw_model_free(m);
}

/* States that were cut, or that another session has: refused, and the session can be reset and used. */
static void test_bad_states(void **state)
{
    const struct row *row = &rows[0];
    const struct test_session other = {.kv_type = WNW_KV_F32};
    int32_t tokens[N_PROMPT];
    uint8_t *bytes;
    size_t n;
    (void)state;
    make_tokens(tokens, N_PROMPT);
    wnw_model *m = test_model_open(row->model);
    wnw_stored *st = store(m, row, row->recipe);
    assert_ok(wnw_stored_sequence(st, &bytes, &n));
    wnw_session *s = test_session_new(m, &row->how), *f32 = test_session_new(m, &other);
    for (size_t cut = 0; cut < n; cut += n / 50) {
        uint8_t *copy = malloc(cut + 1); /* so that a read past its end is found */
        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        assert_error(wnw_session_take_sequence(s, copy, cut, tokens, N_PROMPT, 0), WNW_E_FORMAT);
        assert_int_equal(wnw_session_n_past(s), 0);
        assert_ok(wnw_session_reset(s));
        free(copy);
    }
    assert_error(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT - 1, 0), WNW_E_FORMAT);
    assert_error(wnw_session_take_sequence(f32, bytes, n, tokens, N_PROMPT, 0), WNW_E_FORMAT);
    assert_says("of another type");
    bytes[12] = 0xff; /* of the first token's position */
    assert_error(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT, 0), WNW_E_FORMAT);
    bytes[0]++;
    assert_error(wnw_session_take_sequence(s, bytes, n, tokens, N_PROMPT, 0), WNW_E_FORMAT);
    assert_ok(wnw_session_reset(s));
    assert_ok(wnw_session_prefill(s, tokens, N_PROMPT, NULL, NULL));
    wnw_free(bytes);
    wnw_session_free(s);
    wnw_session_free(f32);
    wnw_stored_free(st);
    wnw_model_free(m);
}

/* ---- What libllama's cache cannot hold ---- */

static const struct misfit {
    const char *name, *model, *recipe, *says;
    struct test_session how;
} misfits[] = {
    {"a tail", "tiny/tiny-llama3.gguf", "knorm", "--kv-tail", {.kv_type = WNW_KV_Q8_0, .kv_tail = 32}},
    {"another rotation", "tiny/tiny-llama.gguf", "knorm", "--kv-rotate off", {.kv_type = WNW_KV_Q8_0}},
    {"no rotation",
     "tiny/tiny-llama3.gguf",
     "knorm",
     "in blocks of 0 and 0",
     {.kv_type = WNW_KV_Q8_0, .kv_unrotated = true}},
    {"new positions",
     "tiny/tiny-llama.gguf",
     "streaming_llm-rerotated",
     "+rerotate",
     {.kv_type = WNW_KV_F16}},
    {"biases", "tiny/tiny-llama.gguf", "snapkv+match", "biases", {.kv_type = WNW_KV_F16}},
};

static void test_misfits(void **state)
{
    const struct misfit *misfit = *state;
    const struct row row = {.model = misfit->model, .how = misfit->how};
    wnw_model *m = test_model_open(misfit->model);
    wnw_stored *st = store(m, &row, misfit->recipe);
    uint8_t *bytes = (uint8_t *)&row;
    size_t n = 1;
    assert_error(wnw_stored_sequence(st, &bytes, &n), WNW_E_UNSUPPORTED);
    assert_says(misfit->says);
    assert_null(bytes);
    assert_int_equal(n, 0);
    wnw_stored_free(st);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest bad[] = {cmocka_unit_test(test_bad_states)};
    return run_rows(test_as_in_a_session, rows) + run_rows(test_back, rows) +
           run_rows(test_misfits, misfits) + cmocka_run_group_tests(bad, NULL, NULL);
}
