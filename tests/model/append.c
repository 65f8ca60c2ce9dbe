/* SPDX-License-Identifier: MIT */
/*
 * A part of a stored session after what another one has read: at the session's beginning it is what was stored, bit for bit. After other tokens its keys
 * are those of a session that has read all, in the first layer, where they depend on tokens and positions alone.
 */
#include "helpers.h"
#include "winnow_batch.h"
#include "winnow_store.h"

#include "peek_session.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_FIRST = 90, N_SECOND = 150, N_ALL = N_FIRST + N_SECOND + 20, N_CTX = 512, FROM = 40 };

static char path[] = "/tmp/wnw-append-XXXXXX.wkv";

static int make_path(void **state)
{
    (void)state;
    const int fd = mkstemps(path, 4);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static wnw_engine *engine_of(const struct test_model *f)
{
    wnw_engine *e;
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 2};
    assert_ok(wnw_engine_new(&e, f->m, &params));
    return e;
}

static wnw_session *session_on(wnw_engine *e, const wnw_session_params *params)
{
    wnw_session *s;
    assert_ok(wnw_session_new_on(&s, e, params));
    return s;
}

/* Stores a session that has read the second text under a recipe, NULL = all is kept. */
static wnw_stored *stored(const struct test_model *f, wnw_engine *e, const wnw_session_params *params,
                          const char *recipe)
{
    wnw_stored *st;
    wnw_session *s = session_on(e, params);
    wnw_policy *p = recipe ? test_policy(recipe) : NULL;
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .once = true}};
    if (p)
        assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f->tokens + N_FIRST, N_SECOND, NULL));
    const wnw_store_params read = {WNW_INIT(wnw_store_params), .tokens = f->tokens + N_FIRST,
                                   .n_tokens = N_SECOND};
    assert_ok(wnw_session_store(s, path, &read));
    assert_ok(wnw_stored_open(&st, path));
    wnw_session_free(s);
    wnw_policy_free(p);
    return st;
}

struct row {
    const char *name, *recipe;
    wnw_kv_type type;
};
static const struct row rows[] = {
    {"all is kept", NULL, WNW_KV_F16},
    {"half is kept", "knorm", WNW_KV_F16},
    {"heads of different lengths", "snapkv:window=8+adakv", WNW_KV_F16},
    {"biases", "snapkv:window=8+match:queries=64,ridge=0.01", WNW_KV_F16},
    {"q8_0", "knorm", WNW_KV_Q8_0},
    {"f32", "knorm", WNW_KV_F32},
};

/* In an empty session it is what was stored, and goes on as that does. */
static void is_what_was_stored(void **state)
{
    const struct row *row = *state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_ALL, 61);
    wnw_engine *e = engine_of(&f);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX, .kv_type = row->type};
    const wnw_stored_session_params same = {WNW_INIT(wnw_stored_session_params), .n_ctx = N_CTX};
    wnw_stored *st = stored(&f, e, &params, row->recipe);
    wnw_session *s = session_on(e, &params), *want;
    assert_ok(wnw_stored_session(&want, st, e, &same));
    assert_ok(wnw_session_append(s, st, 0, FROM));
    assert_ok(wnw_session_append(s, st, FROM, N_SECOND - FROM));
    assert_int_equal(wnw_session_n_past(s), N_SECOND);
    assert_ok(wnw__cache_check(&s->cache));
    assert_same_cache(s, want);
    test_prefill(s, f.tokens + N_FIRST + N_SECOND, 10);
    test_prefill(want, f.tokens + N_FIRST + N_SECOND, 10);
    assert_same_logits(s, want);
    wnw_session_free(want);
    wnw_session_free(s);
    wnw_stored_free(st);
    wnw_engine_free(e);
    test_close(&f);
}

/* The largest difference of n keys, or values, of a head in the first layer, from entries i and k on. */
static float furthest(const wnw_session *a, int32_t i, const wnw_session *b, int32_t k, int32_t n,
                      enum wnw__stored what, int32_t ih)
{
    const size_t d = (size_t)a->cache.d;
    float *x = malloc((size_t)n * d * sizeof *x), *y = malloc((size_t)n * d * sizeof *y), most = 0;
    assert_non_null(x);
    assert_non_null(y);
    wnw__cache_read(&a->cache, 0, what, ih, i, n, x);
    wnw__cache_read(&b->cache, 0, what, ih, k, n, y);
    for (size_t j = 0; j < (size_t)n * d; j++)
        most = fmaxf(most, fabsf(x[j] - y[j]));
    free(x);
    free(y);
    return most;
}

/* The largest difference of keys, or values, of two readings: 1e-4 by the order of sums, and the noise of one product each. */
static float bound(const wnw_session *s, int32_t n, enum wnw__stored what, int32_t ih)
{
    const size_t d = (size_t)s->cache.d;
    float *x = malloc((size_t)n * d * sizeof *x), most = 0;
    assert_non_null(x);
    wnw__cache_read(&s->cache, 0, what, ih, 0, n, x);
    for (size_t j = 0; j < (size_t)n * d; j++)
        most = fmaxf(most, fabsf(x[j]));
    free(x);
    return 1e-4F + 4 * (float)test_noise() * most;
}

static void keys_are_turned(void **state)
{
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct test_model f;
        test_open_tiny(&f, archs[i], N_ALL, 62);
        wnw_engine *e = engine_of(&f);
        const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX,
                                           .kv_type = WNW_KV_F32};
        wnw_stored *st = stored(&f, e, &params, NULL);
        wnw_session *s = session_on(e, &params), *all = session_on(e, &params);
        /* The first tokens of the second text are read after the first one. */
        test_prefill(s, f.tokens, N_FIRST + FROM);
        assert_ok(wnw_session_append(s, st, FROM, N_SECOND - FROM));
        test_prefill(all, f.tokens, N_FIRST + N_SECOND);
        assert_int_equal(wnw_session_n_past(s), N_FIRST + N_SECOND);
        assert_null(wnw_session_logits(s));
        assert_ok(wnw__cache_check(&s->cache));
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const int32_t n = N_FIRST + N_SECOND;
            assert_int_equal(wnw_cache_n(s, 0, ih), n);
            assert_memory_equal(wnw_cache_positions(s, 0, ih), wnw_cache_positions(all, 0, ih),
                                (size_t)n * sizeof(int32_t));
            assert_true(furthest(s, 0, all, 0, n, WNW_KEYS, ih) < bound(all, n, WNW_KEYS, ih));
            assert_true(furthest(s, 0, all, 0, n, WNW_VALUES, ih) < bound(all, n, WNW_VALUES, ih));
        }
        test_prefill(s, f.tokens + N_FIRST + N_SECOND, 10);
        assert_non_null(wnw_session_logits(s));
        wnw_session_free(all);
        wnw_session_free(s);
        wnw_stored_free(st);
        wnw_engine_free(e);
        test_close(&f);
    }
}

/* What heads have dropped stays dropped. */
static void positions_follow(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_ALL, 63);
    wnw_engine *e = engine_of(&f);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX};
    wnw_stored *st = stored(&f, e, &params, "snapkv:window=8+adakv");
    wnw_session *s = session_on(e, &params);
    test_prefill(s, f.tokens, N_FIRST);
    assert_ok(wnw_session_append(s, st, FROM, N_SECOND - FROM));
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const int32_t *pos, *got = wnw_cache_positions(s, il, ih), n = wnw_stored_head(st, il, ih, &pos);
            int32_t at = N_FIRST;
            for (int32_t i = 0; i < n; i++)
                if (pos[i] >= FROM)
                    assert_int_equal(got[at++], pos[i] - FROM + N_FIRST);
            assert_int_equal(wnw_cache_n(s, il, ih), at);
        }
    assert_error(wnw_session_rewind(s, N_FIRST), WNW_E_UNSUPPORTED);
    wnw_session_free(s);
    wnw_stored_free(st);
    wnw_engine_free(e);
    test_close(&f);
}

/* Tries to add a whole file to a session, which stays as it is. */
static void assert_refused(wnw_session *s, const wnw_stored *st, int code, const char *says)
{
    const int32_t before = wnw_session_n_past(s);
    assert_error(wnw_session_append(s, st, 0, N_SECOND), code);
    assert_says(says);
    assert_int_equal(wnw_session_n_past(s), before);
    wnw_session_free(s);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct test_model f, other;
    test_open_tiny(&f, "llama", N_ALL, 64);
    wnw_engine *e = engine_of(&f);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX},
                             quantised = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX,
                                          .kv_type = WNW_KV_Q8_0},
                             tail = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0,
                                     .kv_tail = 32},
                             small = {WNW_INIT(wnw_session_params), .n_ctx = N_SECOND - 1};
    wnw_stored *st = stored(&f, e, &params, NULL);
    assert_refused(session_on(e, &quantised), st, WNW_E_UNSUPPORTED, "stored alike");
    assert_refused(session_on(e, &tail), st, WNW_E_UNSUPPORTED, "--kv-tail");
    assert_refused(session_on(e, &small), st, WNW_E_FULL, "do not fit the context");
    test_open_tiny(&other, "qwen2", N_ALL, 64);
    wnw_engine *another = engine_of(&other);
    assert_refused(session_on(another, &params), st, WNW_E_MISMATCH, "");
    wnw_stored_free(st);
    st = stored(&f, e, &params, "streaming_llm+rerotate");
    assert_refused(session_on(e, &params), st, WNW_E_UNSUPPORTED, "+rerotate");
    wnw_stored_free(st);
    wnw_engine_free(another);
    test_close(&other);
    test_open_tiny(&other, "gemma3", N_ALL, 64);
    another = engine_of(&other);
    st = stored(&other, another, &params, NULL);
    assert_refused(session_on(another, &params), st, WNW_E_UNSUPPORTED, "sliding window");
    wnw_stored_free(st);
    wnw_engine_free(another);
    test_close(&other);
    wnw_engine_free(e);
    test_close(&f);
}

int main(void)
{
    struct CMUnitTest tests[sizeof rows / sizeof *rows + 3];
    size_t n = 0;
    for (; n < sizeof rows / sizeof *rows; n++)
        tests[n] = (struct CMUnitTest){.name = rows[n].name,
                                       .test_func = is_what_was_stored,
                                       .initial_state = (void *)(uintptr_t)&rows[n]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(keys_are_turned);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(positions_follow);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(others_are_refused);
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
