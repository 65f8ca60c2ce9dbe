/* SPDX-License-Identifier: MIT */
/*
 * Sessions in files: one of a file goes on bit for bit as the one that was stored, with every form of its cache and every
 * kind of rules. The file stays as it is. Every file that is cut off, changed, of another model or newer is refused with a
 * reason.
 */
#include "helpers.h"
#include "winnow_bridge.h"
#include "winnow_store.h"
#include "winnow_study.h"

#include "peek_session.h"
#include "peek_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    N_PROMPT = 300,
    N_QUESTION = 20,
    N_DECODE = 90,
    N_ALL = N_PROMPT + N_QUESTION + N_DECODE,
    N_CTX = 512
};

static char folder[] = "/tmp/wnw-stored-XXXXXX";
static char path[64], other_path[64], store_path[64];

static int make_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.wkv", folder);
    snprintf(other_path, sizeof other_path, "%s/b.wkv", folder);
    snprintf(store_path, sizeof store_path, "%s/store", folder);
    return 0;
}

/* The folder of a store and the files in it. */
static void remove_store(void)
{
    char name[512];
    DIR *d = opendir(store_path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(name, sizeof name, "%s/%s", store_path, e->d_name);
        (void)unlink(name); /* what is no file stays */
    }
    if (d)
        closedir(d);
    (void)rmdir(store_path);
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    remove_store();
    return rmdir(folder);
}

static uint8_t *read_file(const char *name, size_t *n)
{
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void write_file(const char *name, const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- Going on ---- */

static const struct row {
    const char *name, *arch, *recipe;
    struct test_session how;
    wnw_phase phase;
    double ratio;  /* 0 = the policy's own */
    bool observes; /* not `once`: what is kept with entries stays */
} rows[] = {
    {"all of it, f16", "llama", "full", {.n_ctx = N_CTX}, WNW_PHASE_END, 0, false},
    {"ragged, f16", "llama", "snapkv:window=8+adakv", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, false},
    {"ragged, f32",
     "qwen2",
     "snapkv:window=8+adakv",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_F32},
     WNW_PHASE_END,
     0.5,
     false},
    {"ragged, q8_0",
     "llama",
     "snapkv:window=8+adakv",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0},
     WNW_PHASE_END,
     0.3,
     false},
    {"ragged, q4_0",
     "llama",
     "snapkv:window=8+adakv",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q4_0},
     WNW_PHASE_END,
     0.3,
     false},
    {"not rotated, q4_0",
     "llama",
     "knorm",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q4_0, .kv_unrotated = true},
     WNW_PHASE_END,
     0.5,
     false},
    {"a tail, q8_0",
     "llama",
     "snapkv:window=8+adakv",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0, .kv_tail = 32},
     WNW_PHASE_END,
     0.3,
     false},
    {"a tail, nothing quantised",
     "llama",
     "knorm",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q4_0, .kv_tail = 400},
     WNW_PHASE_END,
     0.3,
     false},
    {"a tail, all of it",
     "llama",
     "full",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q4_0, .kv_tail = 33},
     WNW_PHASE_END,
     0,
     false},
    {"ggml attention",
     "llama",
     "snapkv:window=8",
     {.n_ctx = N_CTX, .attn = WNW_ATTN_GGML, .n_threads = 2}, /* ggml's sums depend on their number */
     WNW_PHASE_END,
     0.5,
     false},
    {"sliding windows", "gemma3", "keydiff", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, false},
    {"sliding windows, a tail",
     "gemma3",
     "keydiff",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0, .kv_tail = 40},
     WNW_PHASE_END,
     0.5,
     false},
    {"new positions", "llama", "streaming_llm+rerotate", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, false},
    {"new positions by chunks",
     "llama",
     "streaming_llm+rerotate",
     {.n_ctx = N_CTX},
     WNW_PHASE_CHUNK,
     0.7,
     false},
    {"settled", "llama", "lagkv:sink=4,lag=16,retain=0.25", {.n_ctx = N_CTX}, WNW_PHASE_END, 0, false},
    {"settled, a ratio", "llama", "lagkv:sink=4,lag=16", {.n_ctx = N_CTX}, WNW_PHASE_CHUNK, 0.5, false},
    {"biases",
     "llama",
     "snapkv:window=8+match:queries=64,ridge=0.01",
     {.n_ctx = N_CTX},
     WNW_PHASE_END,
     0.5,
     false},
    {"biases, q8_0",
     "llama",
     "snapkv:window=8+match:queries=64,ridge=0.01",
     {.n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0},
     WNW_PHASE_END,
     0.5,
     false},
    {"notes", "llama", "snapkv:window=8+ranks", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, true},
    {"attention sums", "llama", "h2o", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, true},
    {"layer by layer", "llama", "kvcompose", {.n_ctx = N_CTX}, WNW_PHASE_END, 0.5, false},
    {"libllama's graphs", "phi3", "knorm", {.n_ctx = 512}, WNW_PHASE_END, 0.5, false},
    {"recurrent layers", "lfm2", "knorm", {.n_ctx = 512}, WNW_PHASE_END, 0.5, false},
    {"shared entries, windows", "gemma4", "keydiff", {.n_ctx = 512}, WNW_PHASE_END, 0.5, false},
};

/* Families of our own graphs are found by their name; others are made by scripts/tiny_foreign.py. */
static void open_model(struct test_model *f, const char *arch)
{
    static const char *const foreign[] = {"phi3", "lfm2", "gemma4"};
    char name[TEST_NAME_MAX];
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcmp(arch, foreign[i]) == 0) {
            if (wnw_bridge_register() == WNW_E_UNSUPPORTED)
                skip(); /* a build without libllama's graphs */
            snprintf(name, sizeof name, "tiny/foreign/%s.gguf", arch);
            test_open(f, name, N_ALL, 23);
            return;
        }
    test_open_tiny(f, arch, N_ALL, 23);
}

static wnw_session *read_document(const struct test_model *f, const struct row *row, const wnw_policy *p)
{
    wnw_session *s = test_session_new(f->m, &row->how);
    const wnw_run run = {
        WNW_INIT(wnw_run),
        .policy = p,
        .phase = row->phase,
        .chunk = row->phase == WNW_PHASE_CHUNK && !strstr(row->recipe, "lagkv") ? 100 : 0,
        .size = row->ratio > 0 ? size_ratio(row->ratio) : (wnw_size){0},
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .question_later = true, .once = !row->observes}};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f->tokens, N_PROMPT, NULL));
    return s;
}

static wnw_engine *engine_for(const struct test_model *f, const struct test_session *how)
{
    wnw_engine *e;
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .attn = how->attn, .n_threads = 2};
    assert_ok(wnw_engine_new(&e, f->m, &params));
    return e;
}

static wnw_session *session_of(const wnw_stored *st, wnw_engine *e, int32_t room)
{
    wnw_session *s;
    const wnw_stored_session_params params = {WNW_INIT(wnw_stored_session_params), .n_ctx = N_CTX,
                                              .room = room};
    assert_ok(wnw_stored_session(&s, st, e, &params));
    assert_ok(wnw__cache_check(&s->cache));
    return s;
}

/* What the file says is what the session holds. */
static void assert_described(const wnw_stored *st, const wnw_session *s, const struct row *row)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_cache_stats stats = wnw_cache_stats_default();
    int32_t n;
    assert_ok(wnw_stored_get_info(st, &info));
    assert_ok(wnw_cache_get_stats(s, &stats));
    assert_int_equal(info.version, WNW_STORED_VERSION);
    assert_string_equal(info.arch, row->arch);
    assert_int_equal(info.kv_type, row->how.kv_type);
    assert_int_equal(info.kv_tail, row->how.kv_tail);
    assert_int_equal(info.n_past, wnw_session_n_past(s));
    assert_int_equal(info.n_entries, stats.n_entries);
    assert_int_equal(info.bytes_entries, stats.bytes_entries);
    assert_int_equal(info.n_tokens, N_PROMPT);
    assert_string_equal(info.policy, wnw_policy_string(s->rules.ev.policy));
    assert_int_equal(info.phase, row->phase);
    assert_non_null(wnw_stored_tokens(st, &n));
    assert_int_equal(n, N_PROMPT);
    for (int32_t il = 0; il < info.n_layer; il++)
        for (int32_t ih = 0; ih < info.n_head_kv; ih++) {
            const int32_t *pos;
            const int32_t n_head = wnw_stored_head(st, il, ih, &pos);
            assert_int_equal(n_head, wnw_cache_n(s, il, ih));
            assert_memory_equal(pos, wnw_cache_positions(s, il, ih), (size_t)n_head * sizeof *pos);
        }
}

static void assert_same_numbers(const wnw_session *a, const wnw_session *b)
{
    for (int kind = 0; kind < WNW_N_AUX; kind++) {
        assert_int_equal(a->cache.aux_planes[kind], b->cache.aux_planes[kind]);
        for (int32_t il = 0; il < a->cache.n_layer && a->cache.aux_planes[kind] > 0; il++) {
            const struct wnw__kv_layer *la = &a->cache.layers[il], *lb = &b->cache.layers[il];
            for (int32_t p = 0; p < a->cache.aux_planes[kind]; p++)
                for (int32_t ih = 0; ih < a->cache.n_head_kv; ih++) {
                    const float *x = wnw__cache_aux(la, (enum wnw__aux)kind, p) + la->off[ih],
                                *y = wnw__cache_aux(lb, (enum wnw__aux)kind, p) + lb->off[ih];
                    assert_memory_equal(x, y, (size_t)la->len[ih] * sizeof *x);
                }
        }
    }
    for (int32_t il = 0; il < a->cache.n_layer; il++) {
        assert_int_equal(a->cache.layers[il].n_settled, b->cache.layers[il].n_settled);
        assert_int_equal(a->cache.layers[il].n_ambiguous, b->cache.layers[il].n_ambiguous);
    }
}

/* Reads a question and answers with given tokens. */
static void go_on(const struct test_model *f, wnw_session *s)
{
    test_prefill(s, f->tokens + N_PROMPT, N_QUESTION);
    for (int32_t i = N_PROMPT + N_QUESTION; i < N_ALL; i++)
        assert_ok(wnw_session_decode(s, f->tokens[i]));
}

static void goes_on(void **state)
{
    const struct row *row = *state;
    struct test_model f;
    wnw_stored *st;
    size_t n, n_after;
    open_model(&f, row->arch);
    wnw_policy *p = test_policy(row->recipe);
    wnw_session *s = read_document(&f, row, p);
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .tokens = f.tokens, .n_tokens = N_PROMPT};
    assert_ok(wnw_session_store(s, path, s->pos_shift > 0 ? &params : NULL));
    uint8_t *before = read_file(path, &n);
    assert_ok(wnw_stored_open(&st, path));
    assert_described(st, s, row);
    wnw_engine *e = engine_for(&f, &row->how);
    /* Two of them, with much room and with little, decode in turns: neither reaches the other. */
    wnw_session *wide = session_of(st, e, 0), *narrow = session_of(st, e, 1);
    assert_same_cache(s, wide);
    assert_same_numbers(s, wide);
    assert_null(wnw_session_logits(wide));
    go_on(&f, s);
    go_on(&f, wide);
    assert_same_logits(s, wide);
    go_on(&f, narrow);
    assert_same_logits(s, narrow);
    assert_same_cache(s, wide);
    assert_same_cache(s, narrow);
    assert_ok(wnw__cache_check(&wide->cache));
    uint8_t *after = read_file(path, &n_after);
    assert_int_equal(n, n_after);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
    wnw_session_free(wide);
    wnw_session_free(narrow);
    wnw_engine_free(e);
    wnw_stored_free(st);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* A session that was stored, opened and stored again gives the same file. */
static void stored_again_is_the_same(void **state)
{
    (void)state;
    struct test_model f;
    wnw_stored *st;
    size_t n, n_again;
    test_open_tiny(&f, "llama", N_ALL, 23);
    wnw_policy *p = test_policy(rows[1].recipe);
    wnw_session *s = read_document(&f, &rows[1], p);
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    wnw_engine *e = engine_for(&f, &rows[1].how);
    wnw_session *loaded = session_of(st, e, 64);
    assert_ok(wnw_session_store(loaded, other_path, NULL));
    /* It may replace the file that it was made of, whose pages stay. */
    assert_ok(wnw_session_store(loaded, path, NULL));
    uint8_t *once = read_file(path, &n), *again = read_file(other_path, &n_again);
    assert_int_equal(n, n_again);
    assert_memory_equal(once, again, n);
    go_on(&f, loaded);
    go_on(&f, s);
    assert_same_logits(s, loaded);
    free(once);
    free(again);
    wnw_session_free(loaded);
    wnw_engine_free(e);
    wnw_stored_free(st);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* Whether pages of the file are a part of this process that may be written to. */
static bool is_mapped(const char *file)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        found = found || (strstr(line, file) && strstr(line, " rw-p "));
    fclose(f);
    return found;
}

/* Rows that fill pages are pages of the file, also where copies go on from it. */
static void rows_are_pages_of_the_file(void **state)
{
    (void)state;
    struct test_model f;
    wnw_stored *st;
    wnw_session *copy;
    test_open_tiny(&f, "llama", N_ALL, 23);
    wnw_policy *p = test_policy("full");
    wnw_session *s = read_document(&f, &rows[0], p);
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    wnw_engine *e = engine_for(&f, &rows[0].how);
    wnw_session *loaded = session_of(st, e, N_QUESTION + N_DECODE);
    assert_true(is_mapped(path));
    assert_ok(wnw_session_copy(&copy, loaded));
    go_on(&f, loaded);
    assert_true(is_mapped(path)); /* the room was enough: nothing was copied to make more */
    go_on(&f, copy);
    assert_same_logits(copy, loaded);
    wnw_session_free(loaded);
    wnw_session_free(copy);
    assert_false(is_mapped(path));
    wnw_engine_free(e);
    wnw_stored_free(st);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* ---- Tails in which heads keep no quantised entry ---- */

/* Stores, opens and goes on: in a tail of any length, whichever entries a policy keeps. */
static void assert_stored_goes_on(const struct test_model *f, wnw_session *s, wnw_engine *e)
{
    wnw_stored *st;
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    wnw_session *loaded = session_of(st, e, 0);
    assert_same_cache(s, loaded);
    for (int32_t i = N_PROMPT; i < N_PROMPT + 40; i++) {
        assert_ok(wnw_session_decode(s, f->tokens[i]));
        assert_ok(wnw_session_decode(loaded, f->tokens[i]));
    }
    assert_same_logits(s, loaded);
    assert_same_cache(s, loaded);
    wnw_session_free(loaded);
    /* What was decoded since may be stored too. */
    wnw_stored_free(st);
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    wnw_stored_free(st);
}

static void tails_of_every_kind_are_stored(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "streaming_llm", "keydiff", "knorm", "snapkv:window=4+adakv", "snapkv:window=4+pyramid", "h2o"};
    static const int32_t tails[] = {32, 33, 64, 100, 400}, budgets[] = {4, 20, 65, 120};
    int32_t n_none = 0; /* heads that keep no quantised entry, and fewer of the first ones */
    for (int arch = 0; arch < 2; arch++) {
        struct test_model f;
        test_open_tiny(&f, arch ? "gemma3" : "llama", N_ALL, 23);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
            for (size_t k = 0; k < 10; k++) {
                if (!test_takes_sizes((size_t)arch + i + k))
                    continue;
                const struct test_session how = {
                    .n_ctx = N_CTX, .kv_type = k < 5 ? WNW_KV_Q4_0 : WNW_KV_Q8_0, .kv_tail = tails[k % 5]};
                wnw_policy *p = test_policy(recipes[i]);
                wnw_session *s = test_session_new(f.m, &how);
                wnw_engine *e = engine_for(&f, &how);
                const wnw_run run = {WNW_INIT(wnw_run), .policy = p,
                                     .size = size_budget(budgets[(i + k) % 4])};
                assert_ok(wnw_session_begin(s, &run));
                assert_ok(wnw_session_read(s, f.tokens, N_PROMPT, NULL));
                for (int32_t il = 0; il < s->cache.n_layer; il++)
                    for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
                        const struct wnw__kv_tail *t = &s->cache.layers[il].tail;
                        n_none += s->cache.layers[il].n_swa == 0 && t->n_quantised[ih] == 0 &&
                                  t->n_first[ih] < WNW_CACHE_FIRST;
                    }
                assert_stored_goes_on(&f, s, e);
                wnw_session_free(s);
                wnw_engine_free(e);
                wnw_policy_free(p);
            }
        test_close(&f);
    }
    assert_true(n_none > 0);
}

/* ---- Reading on ---- */

static void reads_on_under_the_same_rules(void **state)
{
    (void)state;
    static const char *const recipes[] = {"knorm", "streaming_llm", "lagkv:sink=4,lag=16", "full"};
    struct test_model f;
    test_open_tiny(&f, "llama", N_ALL, 29);
    wnw_engine *e = engine_for(&f, &rows[0].how);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_stored *st;
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *s = test_session_new(f.m, &rows[0].how);
        wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5)};
        if (wnw_policy_is_full(p))
            run.size = (wnw_size){0};
        assert_ok(wnw_session_begin(s, &run));
        assert_ok(wnw_session_read(s, f.tokens, 200, NULL));
        assert_ok(wnw_session_store(s, path, NULL));
        assert_ok(wnw_stored_open(&st, path));
        wnw_session *loaded = session_of(st, e, 0);
        assert_ok(wnw_stored_resume(loaded, st, &run));
        assert_ok(wnw_session_read(s, f.tokens + 200, 150, NULL));
        assert_ok(wnw_session_read(loaded, f.tokens + 200, 150, NULL));
        assert_same_cache(s, loaded);
        assert_same_logits(s, loaded);
        run.size = size_budget(100);
        assert_error(wnw_stored_resume(loaded, st, &run), WNW_E_ARG);
        wnw_session_free(loaded);
        wnw_session_free(s);
        wnw_stored_free(st);
        wnw_policy_free(p);
    }
    wnw_engine_free(e);
    test_close(&f);
}

/* More than the size stays between chunks, also where a session was stored between two pieces. Its rules are those of the file, or are
 * set again. */
static void reads_on_with_slack(void **state)
{
    (void)state;
    const wnw_run_more more = {WNW_INIT(wnw_run_more), .chunk_slack = 1.5}, none = wnw_run_more_default();
    struct test_model f;
    wnw_stored *st;
    test_open_tiny(&f, "llama", N_ALL, 29);
    wnw_engine *e = engine_for(&f, &rows[0].how);
    wnw_policy *p = test_policy("keydiff");
    wnw_run run = {WNW_INIT(wnw_run),        .policy = p, .size = size_budget(60),
                   .phase = WNW_PHASE_CHUNK, .chunk = 50, .more = &more};
    wnw_session *s = test_session_new(f.m, &rows[0].how), *plain = test_session_new(f.m, &rows[0].how);
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f.tokens, 200, NULL));
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    wnw_session *loaded = session_of(st, e, 0), *resumed = session_of(st, e, 0),
                *without = session_of(st, e, 0);
    assert_ok(wnw_stored_resume(resumed, st, &run));
    assert_ok(wnw_session_read(s, f.tokens + 200, 150, NULL));
    assert_ok(wnw_session_read(loaded, f.tokens + 200, 150, NULL));
    assert_ok(wnw_session_read(resumed, f.tokens + 200, 150, NULL));
    assert_same_cache(s, loaded);
    assert_same_logits(s, loaded);
    assert_same_cache(s, resumed);
    run.more = &none;
    assert_error(wnw_stored_resume(without, st, &run), WNW_E_ARG);
    assert_ok(wnw_session_begin(plain, &run)); /* and it is another cache than without */
    assert_ok(wnw_session_read(plain, f.tokens, 350, NULL));
    bool differs = false;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(s, il, ih);
            differs = differs || n != wnw_cache_n(plain, il, ih) ||
                      memcmp(wnw_cache_positions(s, il, ih), wnw_cache_positions(plain, il, ih),
                             (size_t)n * sizeof(int32_t)) != 0;
        }
    assert_true(differs);
    wnw_session_free(plain);
    wnw_session_free(without);
    wnw_session_free(resumed);
    wnw_session_free(loaded);
    wnw_session_free(s);
    wnw_stored_free(st);
    wnw_policy_free(p);
    wnw_engine_free(e);
    test_close(&f);
}

/* A folder gives a document under the rules that it was read by. */
static void a_store_tells_slack_apart(void **state)
{
    (void)state;
    const wnw_run_more none = wnw_run_more_default();
    wnw_run_more more = {WNW_INIT(wnw_run_more), .chunk_slack = 1.5};
    struct test_model f;
    wnw_store *store;
    wnw_stored *st;
    test_open_tiny(&f, "llama", N_ALL, 29);
    wnw_policy *p = test_policy("keydiff");
    wnw_session *s = test_session_new(f.m, &rows[0].how);
    const wnw_session_params how = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX};
    wnw_run run = {WNW_INIT(wnw_run),        .policy = p, .size = size_budget(60),
                   .phase = WNW_PHASE_CHUNK, .chunk = 50, .more = &more};
    const wnw_store_key key = {WNW_INIT(wnw_store_key), .model = f.m,   .session = &how, .run = &run,
                               .tokens = f.tokens,      .n_tokens = 200};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f.tokens, 200, NULL));
    assert_ok(wnw_store_open(&store, store_path, 0));
    assert_ok(wnw_store_add(store, &key, s, NULL));
    assert_ok(wnw_store_find(&st, store, &key, true));
    assert_non_null(st);
    wnw_stored_free(st);
    more.chunk_slack = 2;
    assert_ok(wnw_store_find(&st, store, &key, true));
    assert_null(st);
    run.more = &none;
    assert_ok(wnw_store_find(&st, store, &key, true));
    assert_null(st);
    wnw_store_close(store);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

static void text_comes_back(void **state)
{
    (void)state;
    struct test_model f;
    wnw_stored *st;
    test_open_tiny(&f, "llama", N_ALL, 29);
    wnw_session *s = test_session_new(f.m, &rows[0].how);
    test_prefill(s, f.tokens, 40);
    const wnw_prompt_params text = {WNW_INIT(wnw_prompt_params),
                                    .document = "A tale\nof \"two\" cities, \xc3\xbc.", .system = "Be brief.",
                                    .special = true, .now = 1721952000};
    wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text, .note = "{\"turns\": []}\n"};
    wnw_prompt_params back = wnw_prompt_default_params();
    wnw_stored_info info = wnw_stored_info_default();
    assert_ok(wnw_session_store(s, path, &params));
    assert_ok(wnw_stored_open(&st, path));
    assert_true(wnw_stored_get_text(st, &back));
    assert_string_equal(back.document, text.document);
    assert_string_equal(back.system, text.system);
    assert_null(back.chat);
    assert_true(back.special);
    assert_false(back.raw);
    assert_int_equal(back.now, text.now);
    assert_ok(wnw_stored_get_info(st, &info));
    assert_null(info.policy); /* the session had no rules */
    assert_string_equal(wnw_stored_note(st), params.note);
    wnw_stored_free(st);
    params.note = "\xff";
    assert_error(wnw_session_store(s, path, &params), WNW_E_ARG);
    assert_ok(wnw_session_store(s, path, NULL));
    assert_ok(wnw_stored_open(&st, path));
    assert_false(wnw_stored_get_text(st, &back));
    assert_null(wnw_stored_note(st));
    wnw_stored_free(st);
    wnw_session_free(s);
    test_close(&f);
}

/* ---- What is refused ---- */

/* A small file in memory. */
static uint8_t *small_file(struct test_model *f, size_t *n)
{
    wnw_session *s =
        test_session_new(f->m, &(struct test_session){.n_ctx = 64, .kv_type = WNW_KV_Q8_0, .kv_tail = 32});
    const wnw_prompt_params text = {WNW_INIT(wnw_prompt_params), .document = "A tale."};
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    wnw_policy *p = test_policy("knorm");
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .once = true}};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f->tokens, 12, NULL));
    assert_ok(wnw_session_store(s, path, &params));
    wnw_session_free(s);
    wnw_policy_free(p);
    return read_file(path, n);
}

static void assert_refused(const uint8_t *bytes, size_t n, int code, const char *says)
{
    wnw_stored *st = (wnw_stored *)&code;
    write_file(other_path, bytes, n);
    assert_error(wnw_stored_open(&st, other_path), code);
    assert_null(st);
    assert_says(says);
}

static void every_change_is_noticed(void **state)
{
    (void)state;
    struct test_model f;
    wnw_stored *st;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    uint8_t *bytes = small_file(&f, &n);
    /* In a file that stays open, because most of the time would go into making it. */
    const int fd = open(path, O_RDWR);
    assert_cmp(fd, >=, 0);
    for (size_t i = 0; i < n; i++) {
        const uint8_t changed = (uint8_t)(bytes[i] ^ 1u << i % 8);
        assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
        const int rc = wnw_stored_open(&st, path);
        if (rc != WNW_E_FORMAT && rc != WNW_E_UNSUPPORTED)
            fail_msg("byte %zu was changed: status %d", i, rc);
        assert_says(path);
        assert_int_equal(pwrite(fd, bytes + i, 1, (off_t)i), 1);
    }
    assert_ok(wnw_stored_open(&st, path));
    wnw_stored_free(st);
    for (size_t i = n; i-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)i), 0);
        if (wnw_stored_open(&st, path) != WNW_E_FORMAT)
            fail_msg("the file was cut to %zu of %zu bytes", i, n);
    }
    close(fd);
    free(bytes);
    test_close(&f);
}

/* What was checked when the file was opened must be what is used: neither is a file used that was cut off since then, whose pages are
 * gone, nor one that somebody else has written into. */
static void what_was_written_since_is_refused(void **state)
{
    static const struct timespec before[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    (void)state;
    struct test_model f;
    wnw_stored *st;
    wnw_session *s;
    wnw_engine *e;
    size_t n, n_state;
    test_open_tiny(&f, "llama", 40, 31);
    free(small_file(&f, &n));
    assert_ok(wnw_engine_new(&e, f.m, NULL));
    for (int cut = 0; cut < 2; cut++) {
        assert_ok(wnw_stored_open(&st, path));
        assert_ok(wnw_stored_session(&s, st, e, NULL));
        wnw_session_free(s);
        if (cut)
            assert_int_equal(truncate(path, 4096), 0);
        else
            assert_int_equal(utimensat(AT_FDCWD, path, before, 0), 0);
        assert_error(wnw_stored_session(&s, st, e, NULL), WNW_E_FORMAT);
        assert_says("was written to after it was opened");
        assert_error(wnw_stored_sequence(st, NULL, &n_state), WNW_E_FORMAT);
        assert_says("was written to after it was opened");
        wnw_stored_free(st);
    }
    wnw_engine_free(e);
    test_close(&f);
}

/* What was read from the file stays where somebody cuts it off: all that it says, and sessions whose rows were copied. */
static void a_file_that_is_cut_off_ends_nothing(void **state)
{
    (void)state;
    struct test_model f;
    wnw_stored *st;
    wnw_session *s;
    wnw_prompt_params text = wnw_prompt_default_params();
    wnw_stored_info info = wnw_stored_info_default();
    const wnw_stored_session_params copied = {WNW_INIT(wnw_stored_session_params), .copied = true};
    int32_t n, sum = 0;
    size_t n_file;
    test_open_tiny(&f, "llama", 40, 31);
    free(small_file(&f, &n_file));
    wnw_engine *e;
    assert_ok(wnw_engine_new(&e, f.m, NULL));
    assert_ok(wnw_stored_open(&st, path));
    assert_ok(wnw_stored_session(&s, st, e, &copied));
    const int32_t first = wnw_stored_tokens(st, &n)[0];
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(wnw_stored_tokens(st, &n)[0], first);
    assert_ok(wnw_stored_get_info(st, &info));
    for (int32_t il = 0; il < info.n_layer; il++) {
        const int32_t *pos, n_here = wnw_stored_head(st, il, 0, &pos);
        for (int32_t i = 0; i < n_here; i++)
            sum += pos[i];
    }
    assert_true(sum > 0);
    (void)wnw_stored_get_text(st, &text);
    assert_non_null(info.fingerprint);
    assert_ok(wnw_session_prefill(s, &first, 1, NULL, NULL));
    wnw_session_free(s);
    wnw_stored_free(st);
    wnw_engine_free(e);
    test_close(&f);
}

/* Sets the checksum of the head, so that it is not the reason. */
static void seal_head(uint8_t *bytes)
{
    const uint64_t sum = XXH3_64bits(bytes, offsetof(struct wnw__wkv_head, sum));
    memcpy(bytes + offsetof(struct wnw__wkv_head, sum), &sum, sizeof sum);
}

/* Sets every checksum, so that none is the reason. */
static void seal(uint8_t *bytes)
{
    const struct wnw__wkv_head *h = (const struct wnw__wkv_head *)(const void *)bytes;
    struct wnw__wkv_block *table = (struct wnw__wkv_block *)(void *)(bytes + sizeof *h);
    const size_t front = (size_t)wnw__wkv_round(sizeof *h + h->n_block * sizeof *table);
    for (uint32_t i = 0; i < h->n_block; i++)
        table[i].sum = XXH3_64bits(bytes + table[i].at, (size_t)wnw__wkv_round(table[i].bytes));
    const uint64_t sum = XXH3_64bits(bytes + sizeof *h, front - sizeof *h);
    memcpy(bytes + offsetof(struct wnw__wkv_head, table_sum), &sum, sizeof sum);
    seal_head(bytes);
}

static struct wnw__wkv_block *block_of(uint8_t *bytes, uint32_t kind, uint32_t number)
{
    const struct wnw__wkv_head *h = (const struct wnw__wkv_head *)(const void *)bytes;
    struct wnw__wkv_block *b = (struct wnw__wkv_block *)(void *)(bytes + sizeof *h);
    while (b->kind != kind || b->number != number)
        b++;
    return b;
}

/* Blocks that occur twice or belong to nothing, with checksums that are right: none is chosen by its place. */
static void blocks_that_do_not_belong_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind, number, to_kind, to_number;
        uint64_t bytes; /* that go */
        const char *says;
    } edits[] = {
        {WNW_WKV_LAYER, 3, WNW_WKV_LAYER, 2, 0, "layer 2 twice"},
        {WNW_WKV_LAYER, 3, WNW_WKV_LAYER, 4, 0, "layer 4, and there are 4"},
        {WNW_WKV_LAYER, 3, WNW_WKV_LAYER, UINT32_MAX, 0, "layer 4294967295"},
        {WNW_WKV_DOCUMENT, 0, WNW_WKV_DOCUMENT, 1, 0, "document 1, and there is 1"},
        {WNW_WKV_DOCUMENT, 0, WNW_WKV_TOKENS, 0, 3, "tokens 0 twice"},
        {WNW_WKV_DOCUMENT, 0, WNW_WKV_META, 0, 0, "description 0 twice"},
        {WNW_WKV_TOKENS, 0, WNW_WKV_TOKENS, 0, 1, "no whole numbers"},
        {WNW_WKV_COUNTS, 0, WNW_WKV_COUNTS, 0, 2, "no whole numbers"},
        {WNW_WKV_DOCUMENT, 0, WNW_WKV_IDS, 0, 0, "no whole numbers"},
        {WNW_WKV_DOCUMENT, 0, WNW_WKV_HELD, 0, 0, "no whole numbers"},
    };
    struct test_model f;
    wnw_stored *st;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    uint8_t *bytes = small_file(&f, &n), *copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(copy, bytes, n);
        struct wnw__wkv_block *b = block_of(copy, edits[i].kind, edits[i].number);
        b->kind = edits[i].to_kind;
        b->number = edits[i].to_number;
        b->bytes -= edits[i].bytes;
        seal(copy);
        assert_refused(copy, n, WNW_E_FORMAT, edits[i].says);
    }
    memcpy(copy, bytes, n);
    block_of(copy, WNW_WKV_DOCUMENT, 0)->kind = WNW_WKV_N_KINDS; /* of a later program */
    seal(copy);
    write_file(other_path, copy, n);
    assert_ok(wnw_stored_open(&st, other_path));
    wnw_stored_free(st);
    free(bytes);
    free(copy);
    test_close(&f);
}

/* Puts a text of the same length in place of one in the description. */
static void put_into_description(uint8_t *bytes, const char *from, const char *to)
{
    const struct wnw__wkv_block *b = block_of(bytes, WNW_WKV_META, 0);
    uint8_t *at = memmem(bytes + b->at, (size_t)b->bytes, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    seal(bytes);
}

/* A size is read as it is or not at all, and the model is the one that the file says in every number. */
static void descriptions_that_were_edited_are_refused(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {
        {"{\"ratio\":0.5}", "{\"ratio\":\"x\"}"}, {"{\"ratio\":0.5}", "{\"ratio\":-.5}"},
        {"{\"ratio\":0.5}", "{\"ratio\":1.5}"},   {"{\"ratio\":0.5}", "{\"retio\":0.5}"},
        {"{\"ratio\":0.5}", "{\"budget\":-1}"},   {"{\"ratio\":0.5}", "{\"bytes\":0.5}"},
    };
    static const char *const models[][2] = {{"\"n_vocab\":320", "\"n_vocab\":319"},
                                            {"\"n_vocab\":320", "\"n_vocab\":640"}};
    struct test_model f;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    uint8_t *bytes = small_file(&f, &n), *copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memcpy(copy, bytes, n);
        put_into_description(copy, sizes[i][0], sizes[i][1]);
        assert_refused(copy, n, WNW_E_FORMAT, "its description");
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        wnw_stored *st;
        memcpy(copy, bytes, n);
        put_into_description(copy, models[i][0], models[i][1]);
        write_file(other_path, copy, n);
        assert_ok(wnw_stored_open(&st, other_path));
        assert_error(wnw_stored_check_model(st, f.m), WNW_E_FORMAT);
        assert_says("it says that its model has");
        wnw_stored_free(st);
    }
    free(bytes);
    free(copy);
    test_close(&f);
}

/* What stays between chunks is a number above 1, of rules with chunks and a size. */
static void slack_that_was_edited_is_refused(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"\"chunk_slack\":1.5", "\"chunk_slack\":0.5"},   {"\"chunk_slack\":1.5", "\"chunk_slack\":-.5"},
        {"\"chunk_slack\":1.5", "\"chunk_slack\":\"x\""}, {"\"chunk_slack\":1.5", "\"chunk_slack\":[1]"},
        {"\"phase\":\"chunk\"", "\"phase\":\"layer\""},
    };
    const wnw_run_more more = {WNW_INIT(wnw_run_more), .chunk_slack = 1.5};
    struct test_model f;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    wnw_policy *p = test_policy("knorm");
    const wnw_run run = {WNW_INIT(wnw_run),        .policy = p, .size = size_budget(8),
                         .phase = WNW_PHASE_CHUNK, .chunk = 10, .more = &more};
    wnw_session *s = test_session_new(f.m, &rows[0].how);
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f.tokens, 40, NULL));
    assert_ok(wnw_session_store(s, path, NULL));
    uint8_t *bytes = read_file(path, &n), *copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(copy, bytes, n);
        put_into_description(copy, edits[i][0], edits[i][1]);
        assert_refused(copy, n, WNW_E_FORMAT, "its description");
    }
    free(bytes);
    free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* Its fingerprint covered a part of the model. The file can be looked at, and is of no model. */
static void files_of_older_winnow(void **state)
{
    (void)state;
    struct test_model f;
    wnw_engine *e;
    wnw_session *s;
    wnw_stored *st;
    wnw_stored_info info = wnw_stored_info_default();
    char now[WNW_FINGERPRINT_SIZE + 1], old[WNW_FINGERPRINT_SIZE + 1];
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    wnw_model_fingerprint(f.m, now);
    snprintf(old, sizeof old, "%.16s\"%16s", now, "");
    strcat(now, "\"");
    uint8_t *bytes = small_file(&f, &n);
    put_into_description(bytes, now, old);
    write_file(other_path, bytes, n);
    assert_ok(wnw_stored_open(&st, other_path));
    assert_ok(wnw_stored_get_info(st, &info));
    assert_int_equal(strlen(info.fingerprint), 16);
    assert_error(wnw_stored_check_model(st, f.m), WNW_E_MISMATCH);
    assert_says("older winnow");
    assert_says("winnow compress");
    assert_ok(wnw_engine_new(&e, f.m, &(wnw_engine_params){WNW_INIT(wnw_engine_params), .n_threads = 1}));
    assert_error(wnw_stored_session(&s, st, e, NULL), WNW_E_MISMATCH);
    wnw_engine_free(e);
    wnw_stored_free(st);
    free(bytes);
    test_close(&f);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct test_model f, qwen;
    wnw_stored *st;
    wnw_session *s;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    test_open_tiny(&qwen, "qwen2", 40, 31);
    uint8_t *bytes = small_file(&f, &n), *copy = malloc(n + 1);
    assert_non_null(copy);
    assert_refused((const uint8_t *)"GGUF of another kind, which is longer than a head of 64 bytes, it is",
                   68, WNW_E_FORMAT, "no stored cache");
    assert_refused(bytes, 0, WNW_E_FORMAT, "empty");
    memcpy(copy, bytes, n);
    copy[n] = 0;
    assert_refused(copy, n + 1, WNW_E_FORMAT, "longer");
    assert_refused(copy, n - 4096, WNW_E_FORMAT, "cut off");
    const uint32_t newer = WNW_STORED_VERSION + 1;
    memcpy(copy + offsetof(struct wnw__wkv_head, version), &newer, sizeof newer);
    seal_head(copy);
    assert_refused(copy, n, WNW_E_UNSUPPORTED, "newer program");
    memcpy(copy, bytes, n);
    for (int i = 0; i < 4; i++)
        copy[8 + i] = bytes[11 - i];
    assert_refused(copy, n, WNW_E_FORMAT, "byte order");
    assert_error(wnw_stored_open(&st, folder), WNW_E_FORMAT);
    unlink(other_path);
    assert_error(wnw_stored_open(&st, other_path), WNW_E_IO);
    assert_ok(wnw_stored_open(&st, path));
    wnw_engine *e = engine_for(&qwen, &rows[0].how);
    assert_error(wnw_stored_session(&s, st, e, NULL), WNW_E_MISMATCH);
    assert_null(s);
    assert_says("belongs to model");
    wnw_engine_free(e);
    e = engine_for(&f, &rows[0].how);
    const wnw_stored_session_params shorter = {WNW_INIT(wnw_stored_session_params), .n_ctx = 11};
    assert_error(wnw_stored_session(&s, st, e, &shorter), WNW_E_FULL);
    wnw_engine_free(e);
    wnw_stored_free(st);
    free(bytes);
    free(copy);
    test_close(&qwen);
    test_close(&f);
}

static int n_files(void)
{
    int n = 0;
    char command[96], line[256];
    snprintf(command, sizeof command, "ls -A %s", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n++;
    pclose(f);
    return n;
}

/* A file that cannot be written leaves the old one, and no other file. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    struct test_model f;
    size_t n, n_after;
    struct rlimit usual, small;
    test_open_tiny(&f, "llama", N_ALL, 31);
    uint8_t *bytes = small_file(&f, &n);
    const int files = n_files();
    wnw_session *s = test_session_new(f.m, &rows[0].how), *empty = test_session_new(f.m, &rows[0].how);
    test_prefill(s, f.tokens, N_PROMPT);
    assert_error(wnw_session_store(empty, path, NULL), WNW_E_ARG);
    assert_error(wnw_session_store(s, folder, NULL), WNW_E_ARG);
    assert_error(wnw_session_store(s, "/dev/full", NULL), WNW_E_ARG);
    assert_error(wnw_session_store(s, "/proc/none/a.wkv", NULL), WNW_E_IO);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    for (rlim_t most = 0; most < 40000; most += 3000) {
        small = (struct rlimit){most, usual.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        const int rc = wnw_session_store(s, path, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
        assert_int_equal(rc, WNW_E_IO);
        assert_says(strerror(EFBIG));
    }
    assert_int_equal(n_files(), files);
    uint8_t *after = read_file(path, &n_after);
    assert_int_equal(n, n_after);
    assert_memory_equal(bytes, after, n);
    free(bytes);
    free(after);
    wnw_session_free(s);
    wnw_session_free(empty);
    test_close(&f);
}

/* A cache that contradicts itself is not said to be stored, and the file that was there stays. */
static void what_readers_refuse_is_not_stored(void **state)
{
    (void)state;
    struct test_model f;
    size_t n, n_after;
    test_open_tiny(&f, "llama", N_ALL, 31);
    uint8_t *bytes = small_file(&f, &n);
    const int files = n_files();
    const struct test_session how = {.n_ctx = N_CTX, .kv_type = WNW_KV_Q8_0, .kv_tail = 32};
    for (int i = 0; i < 7; i++) {
        wnw_session *s = test_session_new(f.m, &how);
        test_prefill(s, f.tokens, N_PROMPT);
        struct wnw__kv_layer *l = &s->cache.layers[1];
        int32_t *const changed[] = {&l->tail.n_first[0], &l->tail.n_first[0], &l->tail.n_quantised[0],
                                    &l->n_settled,       &l->n_ambiguous,     &l->pos[l->off[0] + 7],
                                    &s->n_prefix};
        const int32_t before = *changed[i], to[] = {WNW_CACHE_FIRST + 1, -1, before - 64, 301, -1, 6, 301};
        *changed[i] = to[i];
        assert_error(wnw_session_store(s, path, NULL), WNW_E_IO);
        assert_says("not stored");
        *changed[i] = before;
        assert_ok(wnw_session_store(s, other_path, NULL));
        unlink(other_path);
        wnw_session_free(s);
    }
    assert_int_equal(n_files(), files);
    uint8_t *after = read_file(path, &n_after);
    assert_int_equal(n, n_after);
    assert_memory_equal(bytes, after, n);
    free(bytes);
    free(after);
    test_close(&f);
}

/* Tokens of the vocabulary, and those that the session has read. */
static void tokens_that_were_not_read_are_refused(void **state)
{
    (void)state;
    static const int32_t no_tokens[] = {-1, INT32_MIN, INT32_MAX, 320, 1 << 20};
    struct test_model f;
    wnw_stored *st;
    test_open_tiny(&f, "llama", N_ALL, 31);
    int32_t tokens[N_PROMPT];
    wnw_store_params params = {WNW_INIT(wnw_store_params), .tokens = tokens, .n_tokens = N_PROMPT};
    for (int shifted = 0; shifted < 2; shifted++) {
        wnw_policy *p = test_policy(shifted ? "streaming_llm+rerotate" : "streaming_llm");
        wnw_session *s = test_session_new(f.m, &rows[0].how);
        const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size_budget(40)};
        assert_ok(wnw_session_begin(s, &run));
        assert_ok(wnw_session_read(s, f.tokens, N_PROMPT, NULL));
        for (int32_t at = 0; at < N_PROMPT; at += 23)
            for (size_t i = 0; i < sizeof no_tokens / sizeof *no_tokens; i++) {
                memcpy(tokens, f.tokens, sizeof tokens);
                tokens[at] = no_tokens[i];
                assert_error(wnw_session_store(s, path, &params), WNW_E_ARG);
                assert_says("the vocabulary has");
            }
        /* One of the first and one of the last entries, which are there still. */
        for (int32_t at = 0; at < N_PROMPT; at += N_PROMPT - 1) {
            memcpy(tokens, f.tokens, sizeof tokens);
            tokens[at] = tokens[at] == 5 ? 6 : 5;
            const bool other = at > 0 || tokens[0] != f.tokens[1]; /* a later one may be taken for it */
            if (other)
                assert_error(wnw_session_store(s, path, &params), WNW_E_ARG);
        }
        if (!shifted) { /* all are known */
            memcpy(tokens, f.tokens, sizeof tokens);
            tokens[150] = tokens[150] == 5 ? 6 : 5;
            assert_error(wnw_session_store(s, path, &params), WNW_E_ARG);
            assert_says("not those that were read");
        }
        memcpy(tokens, f.tokens, sizeof tokens);
        assert_ok(wnw_session_store(s, path, &params));
        assert_ok(wnw_stored_open(&st, path));
        wnw_stored_free(st);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

/* The same in files, with checksums that are right. */
static void tokens_that_no_model_has_are_refused(void **state)
{
    (void)state;
    static const int32_t no_tokens[] = {-1, INT32_MIN, INT32_MAX, 320};
    struct test_model f;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    uint8_t *bytes = small_file(&f, &n), *copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof no_tokens / sizeof *no_tokens; i++) {
        memcpy(copy, bytes, n);
        const struct wnw__wkv_block *b = block_of(copy, WNW_WKV_TOKENS, 0);
        memcpy(copy + b->at + b->bytes - sizeof *no_tokens, &no_tokens[i], sizeof *no_tokens);
        seal(copy);
        assert_refused(copy, n, WNW_E_FORMAT, "the vocabulary has");
    }
    free(bytes);
    free(copy);
    test_close(&f);
}

/* Any counts, with checksums that are right: they are refused, or a session of them goes on. */
static void counts_of_all_kinds_are_survived(void **state)
{
    (void)state;
    static const int32_t values[] = {INT32_MIN, INT32_MIN + 1, -64,           -1,       0, 1, 4, 12, 63, 64,
                                     65,        1 << 30,       INT32_MAX - 1, INT32_MAX};
    struct test_model f;
    size_t n;
    test_open_tiny(&f, "llama", 40, 31);
    uint8_t *bytes = small_file(&f, &n), *copy = malloc(n);
    assert_non_null(copy);
    wnw_engine *e = engine_for(&f, &rows[0].how);
    const size_t n_count = block_of(bytes, WNW_WKV_COUNTS, 0)->bytes / sizeof *values;
    for (size_t i = 0; i < n_count; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            wnw_stored *st;
            wnw_session *s = NULL;
            memcpy(copy, bytes, n);
            memcpy(copy + block_of(copy, WNW_WKV_COUNTS, 0)->at + i * sizeof *values, &values[k],
                   sizeof *values);
            seal(copy);
            write_file(other_path, copy, n);
            const int rc = wnw_stored_open(&st, other_path);
            if (rc != WNW_OK && rc != WNW_E_FORMAT)
                fail_msg("count %zu is %d: status %d", i, (int)values[k], rc);
            if (rc == WNW_OK && wnw_stored_session(&s, st, e, NULL) == WNW_OK) {
                assert_ok(wnw__cache_check(&s->cache));
                assert_ok(wnw_session_decode(s, f.tokens[20]));
            }
            wnw_session_free(s);
            wnw_stored_free(st);
        }
    wnw_engine_free(e);
    free(bytes);
    free(copy);
    test_close(&f);
}

/* ---- Sizes ---- */

struct shape {
    int64_t n_layer, n_head, d, n_token;
    const char *type;
    uint64_t bytes; /* of the sequence that libllama takes; 0: more than there can be */
};

/* Writes a file of a shape, without an entry: what is large in it is a hole. */
static void write_empty(const struct shape *x)
{
    char meta[1000];
    const int n_meta = snprintf(
        meta, sizeof meta,
        "{\"writer\":\"x\",\"model\":{\"name\":\"x\",\"arch\":\"x\",\"fingerprint\":\"0123456789abcdef\",\"n_"
        "layer\":%lld,"
        "\"n_head_kv\":%lld,\"n_embd_head\":%lld,\"n_vocab\":1},\"cache\":{\"type\":\"%s\",\"tail\":0,\"k_"
        "block\":0,"
        "\"v_block\":0,\"numbers\":{}},\"session\":{\"n_past\":%lld,\"n_prefix\":0,\"n_renumbered\":0,\"n_"
        "fixed\":0,"
        "\"n_question\":0,\"n_ambiguous\":0,\"pos_shift\":0},\"rules\":null,\"text\":null,\"pieces\":false}",
        (long long)x->n_layer, (long long)x->n_head, (long long)x->d, x->type, (long long)x->n_token);
    const uint64_t n_tokens = 4 * (uint64_t)x->n_token,
                   n_counts = 4 * (uint64_t)x->n_layer * (uint64_t)(3 + x->n_head);
    const struct wnw__wkv_block blocks[] = {{.kind = WNW_WKV_META, .bytes = (uint64_t)n_meta},
                                            {.kind = WNW_WKV_TOKENS, .bytes = n_tokens},
                                            {.kind = WNW_WKV_COUNTS, .bytes = n_counts}};
    const uint32_t n_block = 3 + (uint32_t)x->n_layer;
    const uint64_t front = wnw__wkv_round(sizeof(struct wnw__wkv_head) + n_block * sizeof *blocks);
    const uint64_t most = wnw__wkv_round(n_tokens > n_counts ? n_tokens : n_counts);
    uint8_t *begin = calloc(1, (size_t)front + WNW_STORED_PAGE), *zeros = calloc(1, (size_t)most);
    struct wnw__wkv_head *h = (struct wnw__wkv_head *)(void *)begin;
    struct wnw__wkv_block *table = (struct wnw__wkv_block *)(void *)(begin + sizeof *h);
    uint64_t at = front;
    assert_true(begin && zeros);
    memcpy(begin + front, meta, (size_t)n_meta);
    for (uint32_t i = 0; i < n_block; i++) {
        table[i] = i < 3 ? blocks[i] : (struct wnw__wkv_block){.kind = WNW_WKV_LAYER, .number = i - 3};
        table[i].at = at;
        table[i].sum = XXH3_64bits(i == 0 ? begin + front : zeros, (size_t)wnw__wkv_round(table[i].bytes));
        at += wnw__wkv_round(table[i].bytes);
    }
    *h = (struct wnw__wkv_head){.magic = WNW_WKV_MAGIC,
                                .byte_order = WNW_WKV_BYTE_ORDER,
                                .version = WNW_STORED_VERSION,
                                .file_bytes = at,
                                .page = WNW_STORED_PAGE,
                                .n_block = n_block};
    h->table_sum = XXH3_64bits(begin + sizeof *h, (size_t)front - sizeof *h);
    seal_head(begin);
    write_file(other_path, begin, (size_t)front + WNW_STORED_PAGE);
    assert_int_equal(truncate(other_path, (off_t)at), 0);
    free(begin);
    free(zeros);
}

/* What a sequence of libllama takes is a product of numbers that the file says, before anybody has compared it with a model. */
static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 1, 32, 1, "f32", 8 + 28 + 24 + 2 * 32 * 4},
        {3, 2, 32, 5, "f16", 8 + 16 + 60 + 3 * (24 + 5 * 2 * 2 * 32 * 2)},
        {2048, 4096, 65536, 1 << 22, "f32", 0}, /* 2^64 and 50 MB */
        {2048, 4096, 65536, 1 << 20, "f32",
         UINT64_C(8) + 16 + (UINT64_C(12) << 20) + 2048 * UINT64_C(24) + (UINT64_C(1) << 62)},
        {2048, 4096, 65536, 1 << 21, "f32", 0}, /* 2^63: no pointers reach that far */
        {2048, 4096, 65536, (1 << 22) + 4096, "f32", 0},
        {2047, 4095, 65535, 1 << 22, "f32", 0},
        {2048, 4096, 65536, 1 << 23, "f16", 0},
        {2048, 4096, 65536, 1 << 23, "q8_0", 0},
        {2048, 4096, 65536, 1 << 24, "q4_0", 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        wnw_stored *st;
        size_t n = 1;
        uint8_t *bytes = (uint8_t *)&n;
        write_empty(&shapes[i]);
        assert_ok(wnw_stored_open(&st, other_path));
        const int rc = wnw_stored_sequence(st, NULL, &n);
        if (rc != (shapes[i].bytes ? WNW_OK : WNW_E_UNSUPPORTED) || n != shapes[i].bytes)
            fail_msg("shape %zu: status %d, %zu bytes, not %llu", i, rc, n,
                     (unsigned long long)shapes[i].bytes);
        if (!shapes[i].bytes) {
            assert_error(wnw_stored_sequence(st, &bytes, &n), WNW_E_UNSUPPORTED);
            assert_null(bytes);
        }
        /* Every head is found, however many there are, before anybody loses patience. */
        for (int32_t il = 0; i == 2 && il < 2048; il++)
            for (int32_t ih = 0; ih < 4096; ih++) {
                const int32_t *pos = NULL;
                if (wnw_stored_head(st, il, ih, &pos) != 0 || !pos)
                    fail_msg("head %d of layer %d", (int)ih, (int)il);
            }
        wnw_stored_free(st);
    }
}

static void what_cannot_be_stored_is_refused(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_ALL, 31);
    wnw_session *s = test_session_new(f.m, &rows[0].how);
    wnw_policy *p = test_policy("snapkv:window=8");
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5), .every = 8};
    const wnw_head head = {0, 0};
    test_prefill(s, f.tokens, 40);
    assert_ok(wnw_session_mask_heads(s, &head, 1, WNW_MASK_ALL));
    assert_error(wnw_session_store(s, path, NULL), WNW_E_UNSUPPORTED);
    assert_ok(wnw_session_mask_heads(s, NULL, 0, WNW_MASK_ALL));
    assert_ok(wnw_session_begin(s, &run));
    assert_error(wnw_session_store(s, path, NULL), WNW_E_UNSUPPORTED);
    wnw_session_free(s);
    s = test_session_new(f.m, &rows[0].how);
    const wnw_chat_message message = {"user", "Hello"};
    const wnw_prompt_params text = {WNW_INIT(wnw_prompt_params), .document = "A", .messages = &message,
                                    .n_messages = 1};
    wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    test_prefill(s, f.tokens, 40);
    assert_error(wnw_session_store(s, path, &params), WNW_E_UNSUPPORTED);
    params = (wnw_store_params){WNW_INIT(wnw_store_params), .tokens = f.tokens, .n_tokens = 39};
    assert_error(wnw_session_store(s, path, &params), WNW_E_ARG);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_again_is_the_same),
        cmocka_unit_test(rows_are_pages_of_the_file),
        cmocka_unit_test(tails_of_every_kind_are_stored),
        cmocka_unit_test(reads_on_under_the_same_rules),
        cmocka_unit_test(reads_on_with_slack),
        cmocka_unit_test(a_store_tells_slack_apart),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(every_change_is_noticed),
        cmocka_unit_test(what_was_written_since_is_refused),
        cmocka_unit_test(a_file_that_is_cut_off_ends_nothing),
        cmocka_unit_test(blocks_that_do_not_belong_are_refused),
        cmocka_unit_test(descriptions_that_were_edited_are_refused),
        cmocka_unit_test(slack_that_was_edited_is_refused),
        cmocka_unit_test(files_of_older_winnow),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(what_readers_refuse_is_not_stored),
        cmocka_unit_test(tokens_that_were_not_read_are_refused),
        cmocka_unit_test(tokens_that_no_model_has_are_refused),
        cmocka_unit_test(counts_of_all_kinds_are_survived),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(what_cannot_be_stored_is_refused),
    };
    (void)make_folder(NULL);
    const int failed = run_rows(goes_on, rows) + cmocka_run_group_tests(tests, NULL, NULL);
    return remove_folder(NULL) != 0 ? 1 : failed;
}
