/* SPDX-License-Identifier: MIT */
/*
 * When entries are dropped: by layer, by chunk, while decoding, over several turns. What must agree is
 * compared bit for bit; sizes are checked after every step.
 */
#include "cuts.h"
#include "helpers.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N = 300, N_CTX = 900 };

/* A session with ubatches of 64 tokens under the rules; the recipe's policy goes to *policy. */
static wnw_session *session_with(const struct test_model *f, const char *recipe, wnw_run rules,
                                 const struct test_session *how, wnw_policy **policy)
{
    wnw_session_params p = wnw_session_default_params();
    p.n_ctx = how && how->n_ctx ? how->n_ctx : N_CTX;
    p.n_ubatch = 64;
    p.n_threads = how && how->n_threads ? how->n_threads : 1;
    p.kv_type = how ? how->kv_type : WNW_KV_F16;
    p.attn = how ? how->attn : WNW_ATTN_OWN;
    wnw_session *s = NULL;
    assert_ok(wnw_session_new(&s, f->m, &p));
    *policy = test_policy(recipe);
    rules.policy = *policy;
    assert_ok(wnw_session_begin(s, &rules));
    return s;
}

/* ---- Layer by layer ---- */

static const char *const local_recipes[] = {
    "full",           "streaming_llm",        "snapkv",    "tova",
    "knorm",          "lagkv:sink=4,lag=32",  "pyramidkv", "snapkv+adakv",
    "localkv:lag=32", "l2norm:lag=16,skip=1",
};
#define N_LOCAL ((int)(sizeof local_recipes / sizeof *local_recipes))

/* Two turns, each by layer and at its end; then a few tokens. */
static void layer_equals_end(const char *name, const char *recipe, wnw_size size,
                             const struct test_session *how)
{
    struct test_model f;
    wnw_policy *p[2];
    wnw_session *s[2];
    wnw_report r[2] = {{WNW_INIT(wnw_report)}, {WNW_INIT(wnw_report)}};
    test_open(&f, name, N_CTX, 11);
    for (int i = 0; i < 2; i++)
        s[i] = session_with(
            &f, recipe,
            (wnw_run){WNW_INIT(wnw_run), .size = size, .phase = i ? WNW_PHASE_LAYER : WNW_PHASE_END}, how,
            &p[i]);
    for (int turn = 0; turn < 3; turn++) {
        static const int32_t lengths[] = {N, 70, 1};
        for (int i = 0; i < 2; i++)
            assert_ok(wnw_session_read(s[i], f.tokens + wnw_session_n_past(s[i]), lengths[turn], &r[i]));
        assert_same_logits(s[0], s[1]);
        assert_same_cache(s[0], s[1]);
        assert_int_equal(r[0].entries_before, r[1].entries_before);
        assert_int_equal(r[0].entries_after, r[1].entries_after);
        assert_float_equal(r[0].kept_mean, r[1].kept_mean, 0);
        assert_ok(wnw__cache_check(&s[1]->cache));
    }
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 2; k++)
            assert_ok(wnw_session_decode(s[k], f.tokens[i]));
        assert_same_logits(s[0], s[1]);
    }
    for (int i = 0; i < 2; i++) {
        wnw_session_free(s[i]);
        wnw_policy_free(p[i]);
    }
    test_close(&f);
}

static void layer_equals_end_on_every_model(void **state)
{
    test_not_with_noise();
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            layer_equals_end(names[i], k ? "snapkv+adakv" : "lagkv:sink=4,lag=32", size_ratio(0.6), NULL);
}

enum { LONG = 4500 };

/* What is kept layer by layer, and at the end. The other rounding is that of the hidden states themselves. */
struct at {
    const struct test_model *f;
    wnw_phase phase, other;
};

static void keep_at(void *user, bool other)
{
    const struct at *at = user;
    wnw_policy *p;
    wnw_session *s = session_with(
        at->f, "snapkv",
        (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.75), .phase = other ? at->other : at->phase},
        &(struct test_session){.n_ctx = LONG, .attn = other ? WNW_ATTN_GGML : WNW_ATTN_OWN}, &p);
    assert_ok(wnw_session_read(s, at->f->tokens, LONG, NULL));
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* f16 rounds hidden states by 2^-11 of them, and bf16 inside of the attention by more; ggml's attention at the end is as far from ours. */
static void check_near_end(const struct test_model *f)
{
    struct at end = {f, WNW_PHASE_END, WNW_PHASE_END}, layer = {f, WNW_PHASE_LAYER, WNW_PHASE_LAYER};
    struct test_cuts *kept = test_cuts_note();
    keep_at(&layer, false);
    test_cuts_stop();
    test_keeps_as("layer by layer", &(struct test_keeper){keep_at, &end}, kept);
    test_cuts_free(kept);
}

/* Between layers the hidden states of this many tokens are f16: nearly the same entries, and nearly the same logits. */
static void layer_is_near_end_in_long_pieces(void **state)
{
    struct test_model f;
    wnw_session *s[2];
    wnw_policy *p[2];
    char name[TEST_NAME_MAX];
    int64_t n = 0, same = 0;
    (void)state;
    test_tiny_model_of(name, "llama");
    test_open(&f, name, LONG, 12);
    for (int i = 0; i < 2; i++) {
        s[i] = session_with(&f, "snapkv",
                            (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.75),
                                      .phase = i ? WNW_PHASE_LAYER : WNW_PHASE_END},
                            &(struct test_session){.n_ctx = LONG}, &p[i]);
        assert_ok(wnw_session_read(s[i], f.tokens, LONG, NULL));
    }
    const double e =
        test_relative_error(wnw_session_logits(s[1]), wnw_session_logits(s[0]), (size_t)f.info.n_vocab);
    assert_cmp(e, >, 0);
    assert_cmp(e, <, 0.01);
    for (int32_t il = 0; il < f.info.n_layer; il++)
        for (int32_t ih = 0; ih < f.info.n_head_kv; ih++) {
            const struct wnw__kv_layer *a = &s[0]->cache.layers[il], *b = &s[1]->cache.layers[il];
            const int32_t *pa = a->pos + a->off[ih], *pb = b->pos + b->off[ih];
            assert_int_equal(a->len[ih], b->len[ih]);
            for (int32_t i = 0, k = 0; i < a->len[ih]; i++, n++) {
                while (k < b->len[ih] && pb[k] < pa[i])
                    k++;
                same += k < b->len[ih] && pb[k] == pa[i];
            }
        }
    assert_cmp(n, >, 0);
    print_message("%lld of %lld entries are the same\n", (long long)same, (long long)n);
    check_near_end(&f);
    for (int i = 0; i < 2; i++) {
        wnw_session_free(s[i]);
        wnw_policy_free(p[i]);
    }
    test_close(&f);
}

static void layer_equals_end_for_every_policy(void **state)
{
    test_not_with_noise();
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    for (int i = 0; i < N_LOCAL; i++) {
        print_message("%s\n", local_recipes[i]);
        layer_equals_end(name, local_recipes[i], size_ratio(0.5), NULL);
        layer_equals_end(name, local_recipes[i], size_budget(128), NULL);
        layer_equals_end(name, local_recipes[i], (wnw_size){0}, NULL);
    }
}

static void layer_equals_end_for_every_cache(void **state)
{
    test_not_with_noise();
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "qwen2");
    for (int t = 0; t < 4; t++)
        layer_equals_end(name, "snapkv", size_budget(64), &(struct test_session){.kv_type = (wnw_kv_type)t});
    layer_equals_end(name, "snapkv", size_budget(64), &(struct test_session){.attn = WNW_ATTN_GGML});
    layer_equals_end(name, "adakv", size_budget(64), &(struct test_session){.attn = WNW_ATTN_GGML});
    layer_equals_end(name, "snapkv", size_budget(64), &(struct test_session){.n_threads = 2});
}

struct peak {
    const wnw_session *s;
    uint64_t bytes;
    int32_t done;
};

static bool sample_peak(int32_t done, int32_t total, void *user)
{
    struct peak *p = user;
    wnw_cache_stats st = {WNW_INIT(wnw_cache_stats)};
    assert_cmp(done, >=, p->done);
    assert_cmp(done, <=, total);
    p->done = done;
    assert_ok(wnw_cache_get_stats(p->s, &st));
    p->bytes = st.bytes > p->bytes ? st.bytes : p->bytes;
    return true;
}

/* Never more than the compressed cache and one full layer. */
static void layer_bounds_memory(void **state)
{
    (void)state;
    struct test_model f;
    struct peak peak[2] = {{0}, {0}};
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int i = 0; i < 2; i++) {
        wnw_session_params sp = wnw_session_default_params();
        wnw_session *s;
        wnw_report r = {WNW_INIT(wnw_report)};
        sp.n_ctx = N_CTX;
        sp.n_ubatch = 64;
        sp.n_threads = 1;
        sp.progress = sample_peak;
        sp.progress_user = &peak[i];
        assert_ok(wnw_session_new(&s, f.m, &sp));
        peak[i].s = s;
        wnw_policy *p = test_policy("snapkv:window=16");
        assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = size_budget(32),
                                                  .phase = i ? WNW_PHASE_LAYER : WNW_PHASE_END}));
        assert_ok(wnw_session_read(s, f.tokens, 640, &r));
        assert_int_equal(peak[i].done, 640);
        assert_int_equal(r.kv_bytes_before, peak[i].bytes);
        const uint64_t full_layer = wnw__cache_bytes_for(&s->cache, 640) / (uint64_t)f.info.n_layer;
        print_message("peak %llu bytes, kept %llu, one full layer %llu\n", (unsigned long long)peak[i].bytes,
                      (unsigned long long)r.kv_bytes_after, (unsigned long long)full_layer);
        if (i)
            assert_cmp(peak[i].bytes, <=, r.kv_bytes_after + full_layer);
        else
            assert_int_equal(peak[i].bytes, full_layer * (uint64_t)f.info.n_layer);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

static bool stop_half_way(int32_t done, int32_t total, void *user)
{
    (void)user;
    return done < total / 2;
}

static void cancelled_layer_leaves_nothing(void **state)
{
    (void)state;
    struct test_model f;
    wnw_session_params sp = wnw_session_default_params();
    wnw_session *s;
    test_open_tiny(&f, "llama", N_CTX, 11);
    sp.n_ctx = N_CTX;
    sp.n_threads = 1;
    sp.progress = stop_half_way;
    assert_ok(wnw_session_new(&s, f.m, &sp));
    wnw_policy *p = test_policy("snapkv");
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = size_budget(64), .phase = WNW_PHASE_LAYER}));
    assert_error(wnw_session_read(s, f.tokens, N, NULL), WNW_E_CANCELLED);
    assert_int_equal(wnw_session_n_past(s), 0);
    assert_null(wnw_session_logits(s));
    /* What a size cannot hold is refused before anything is read. */
    s->params.progress = NULL;
    assert_ok(wnw_session_read(s, f.tokens, N, NULL));
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* ---- Chunk by chunk ---- */

static void one_chunk_is_the_end(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int i = 0; i < N_LOCAL; i++) {
        wnw_policy *p[2];
        wnw_session *s[2];
        wnw_report r[2] = {{WNW_INIT(wnw_report)}, {WNW_INIT(wnw_report)}};
        for (int k = 0; k < 2; k++) {
            s[k] = session_with(&f, local_recipes[i],
                                (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.5),
                                          .phase = k ? WNW_PHASE_CHUNK : WNW_PHASE_END, .chunk = N},
                                NULL, &p[k]);
            assert_ok(wnw_session_read(s[k], f.tokens, N, &r[k]));
        }
        assert_same_logits(s[0], s[1]);
        assert_same_cache(s[0], s[1]);
        assert_int_equal(r[0].entries_after, r[1].entries_after);
        assert_int_equal(r[0].kv_bytes_after, r[1].kv_bytes_after);
        for (int k = 0; k < 2; k++) {
            wnw_session_free(s[k]);
            wnw_policy_free(p[k]);
        }
    }
    test_close(&f);
}

/* END without rules and with them is the same thing. */
static void rules_at_the_end_are_compress(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int i = 0; i < N_LOCAL; i++) {
        wnw_policy *p[2];
        wnw_session *s[2];
        wnw_report r[2] = {{WNW_INIT(wnw_report)}, {WNW_INIT(wnw_report)}};
        const wnw_size size = size_ratio(0.5);
        for (int k = 0; k < 2; k++)
            s[k] =
                session_with(&f, local_recipes[i], (wnw_run){WNW_INIT(wnw_run), .size = size}, NULL, &p[k]);
        assert_ok(wnw_session_read(s[0], f.tokens, N, &r[0]));
        test_prefill(s[1], f.tokens, N);
        assert_ok(wnw_session_compress(s[1], p[1], &size, &r[1]));
        assert_same_logits(s[0], s[1]);
        assert_same_cache(s[0], s[1]);
        assert_int_equal(r[0].entries_before, r[1].entries_before);
        assert_int_equal(r[0].entries_after, r[1].entries_after);
        assert_int_equal(r[0].kv_bytes_before, r[1].kv_bytes_before);
        assert_int_equal(r[0].kv_bytes_after, r[1].kv_bytes_after);
        assert_float_equal(r[0].kept_mean, r[1].kept_mean, 1e-9);
        for (int k = 0; k < 2; k++) {
            wnw_session_free(s[k]);
            wnw_policy_free(p[k]);
        }
    }
    test_close(&f);
}

/* Budgets after every chunk; the cache never holds more than budget + chunk. */
static void chunks_keep_their_budget(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int i = 0; i < 4; i++) {
        static const char *const recipes[] = {"snapkv:window=16", "knorm", "snapkv:window=16+adakv", "tova"};
        wnw_policy *p;
        wnw_report r = {WNW_INIT(wnw_report)};
        /* Two pieces of chunks of 50: after 300 and 370 tokens. */
        wnw_session *s = session_with(
            &f, recipes[i],
            (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.7), .phase = WNW_PHASE_CHUNK, .chunk = 50},
            NULL, &p);
        assert_ok(wnw_session_read(s, f.tokens, 300, &r));
        assert_float_equal(test_mean_entries(s), 90, 0);
        assert_float_equal(r.kept_mean, 90, 1e-9);
        assert_int_equal(r.entries_before, 300 * f.info.n_layer * f.info.n_head_kv);
        assert_int_equal(r.entries_after, 90 * f.info.n_layer * f.info.n_head_kv);
        assert_cmp(r.kv_bytes_before, <, wnw__cache_bytes_for(&s->cache, 220));
        assert_ok(wnw_session_read(s, f.tokens + 300, 70, &r));
        assert_float_equal(test_mean_entries(s), 111, 0); /* 0.3 x 370 */
        assert_int_equal(wnw_session_n_past(s), 370);
        assert_ok(wnw__cache_check(&s->cache));
        wnw_session_free(s);
        wnw_policy_free(p);

        s = session_with(
            &f, recipes[i],
            (wnw_run){WNW_INIT(wnw_run), .size = size_budget(40), .phase = WNW_PHASE_CHUNK, .chunk = 30},
            NULL, &p);
        assert_ok(wnw_session_read(s, f.tokens, 30, &r)); /* fits */
        assert_float_equal(test_mean_entries(s), 30, 0);
        assert_ok(wnw_session_read(s, f.tokens + 30, 200, &r));
        assert_float_equal(test_mean_entries(s), 40, 0);
        /* The newest entry is the last token: positions go on counting. */
        const int32_t n = wnw_cache_n(s, 0, 0);
        if (i % 2 == 0) /* a window is kept */
            assert_int_equal(wnw_cache_positions(s, 0, 0)[n - 1], 229);
        assert_ok(wnw_session_decode(s, f.tokens[230]));
        assert_int_equal(wnw_session_n_past(s), 231);
        assert_int_equal(wnw_cache_positions(s, 0, 0)[wnw_cache_n(s, 0, 0) - 1], 230);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

/* With slack a session keeps what compressing by hand keeps: to the larger size after every chunk but the last. */
static void slack_equals_two_sizes(void **state)
{
    (void)state;
    static const struct {
        wnw_size size, between;
        double slack;
    } rows[] = {
        {{.kind = WNW_SIZE_BUDGET, .budget = 40}, {.kind = WNW_SIZE_BUDGET, .budget = 80}, 2},
        {{.kind = WNW_SIZE_BUDGET, .budget = 40}, {.kind = WNW_SIZE_BUDGET, .budget = 40}, 1},
        {{.kind = WNW_SIZE_RATIO, .ratio = 0.5}, {.kind = WNW_SIZE_RATIO, .ratio = 0}, 2},
        {{.kind = WNW_SIZE_BUDGET, .budget = 40}, {.kind = WNW_SIZE_RATIO, .ratio = 0}, 1e300},
    };
    enum { CHUNK = 50, LENGTH = 220 };
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p;
        const wnw_run_more more = {WNW_INIT(wnw_run_more), .chunk_slack = rows[i].slack};
        const wnw_run run = {WNW_INIT(wnw_run), .size = rows[i].size, .phase = WNW_PHASE_CHUNK,
                             .chunk = CHUNK, .more = &more};
        wnw_session *s = session_with(&f, "keydiff", run, NULL, &p);
        wnw_session *by_hand = test_session_new(f.m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
        assert_ok(wnw_session_read(s, f.tokens, LENGTH, NULL));
        for (int32_t at = 0; at < LENGTH; at += CHUNK) {
            const int32_t n = LENGTH - at < CHUNK ? LENGTH - at : CHUNK;
            assert_ok(wnw_session_prefill(by_hand, f.tokens + at, n, NULL, NULL));
            assert_ok(
                wnw_session_compress(by_hand, p, at + n < LENGTH ? &rows[i].between : &rows[i].size, NULL));
        }
        assert_same_cache(s, by_hand);
        assert_same_logits(s, by_hand);
        assert_ok(wnw__cache_check(&s->cache));
        wnw_session_free(by_hand);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

static void bad_slack_is_refused(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_session *s = test_session_new(f.m, &(struct test_session){.n_ctx = 128, .n_threads = 1});
    wnw_policy *p = test_policy("keydiff"), *blocks = test_policy("lagkv:sink=4,lag=16");
    const struct {
        const wnw_policy *policy;
        double slack;
        wnw_phase phase;
        bool sized;
        int status;
    } rows[] = {
        {p, 2, WNW_PHASE_CHUNK, true, WNW_OK},
        {p, 0, WNW_PHASE_END, false, WNW_OK},
        {p, 1, WNW_PHASE_END, true, WNW_OK},
        {p, 2, WNW_PHASE_END, true, WNW_E_ARG},
        {p, 2, WNW_PHASE_LAYER, true, WNW_E_ARG},
        {p, 2, WNW_PHASE_CHUNK, false, WNW_E_ARG},
        {blocks, 2, WNW_PHASE_CHUNK, true, WNW_E_ARG},
        {NULL, 2, WNW_PHASE_END, false, WNW_E_ARG},
        {p, 0.5, WNW_PHASE_CHUNK, true, WNW_E_RANGE},
        {p, -2, WNW_PHASE_CHUNK, true, WNW_E_RANGE},
        {p, INFINITY, WNW_PHASE_CHUNK, true, WNW_E_RANGE},
        {p, NAN, WNW_PHASE_CHUNK, true, WNW_E_RANGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wnw_run_more more = {WNW_INIT(wnw_run_more), .chunk_slack = rows[i].slack};
        const wnw_run run = {WNW_INIT(wnw_run), .policy = rows[i].policy, .phase = rows[i].phase,
                             .more = &more, .size = rows[i].sized ? size_ratio(0.5) : (wnw_size){0}};
        assert_int_equal(wnw_session_begin(s, &run), rows[i].status);
    }
    wnw_policy_free(blocks);
    wnw_policy_free(p);
    wnw_session_free(s);
    test_close(&f);
}

/* ---- Decoding ---- */

static void decode_holds_the_target(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    static const struct {
        const char *recipe;
        int32_t every;
        int64_t target;
        wnw_size size;
        int32_t want; /* entries after compressing */
    } row[] = {
        {"tova", 1, 0, {.kind = WNW_SIZE_BUDGET, .budget = 40}, 40},
        {"tova", 1, 25, {.kind = WNW_SIZE_BUDGET, .budget = 40}, 25},
        {"snapkv:window=8", 7, 0, {.kind = WNW_SIZE_RATIO, .ratio = 0.5}, 50},
        {"snapkv:window=32", 7, 0, {.kind = WNW_SIZE_RATIO, .ratio = 0.9}, 10}, /* the window shrinks */
        {"streaming_llm", 3, 64, {.kind = WNW_SIZE_BUDGET, .budget = 50}, 64},
        {"knorm+adakv", 16, 0, {.kind = WNW_SIZE_BYTES, .bytes = 0}, 30},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        wnw_policy *p;
        wnw_size size = row[i].size;
        if (size.kind == WNW_SIZE_BYTES)
            size.bytes = 30 * (uint64_t)(f.info.n_layer * f.info.n_head_kv) *
                         wnw_kv_entry_bytes(WNW_KV_F16, f.info.n_embd_head);
        wnw_session *s = session_with(
            &f, row[i].recipe,
            (wnw_run){WNW_INIT(wnw_run), .size = size, .every = row[i].every, .target = row[i].target}, NULL,
            &p);
        assert_ok(wnw_session_read(s, f.tokens, 100, NULL));
        double before = test_mean_entries(s);
        for (int32_t k = 1; k <= 60; k++) {
            assert_ok(wnw_session_decode(s, f.tokens[100 + k]));
            const double now = test_mean_entries(s);
            double want = before + 1;
            if (k % row[i].every == 0 && want > row[i].want)
                want = row[i].want;
            if (now != want)
                fail_msg("%s: %g entries after %d tokens, expected %g", row[i].recipe, now, k, want);
            before = now;
        }
        assert_int_equal(wnw_session_n_past(s), 160);
        assert_ok(wnw__cache_check(&s->cache));
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

/* StreamingLLM while decoding: sinks and the last entries, by their original positions. */
static void decode_positions(void **state)
{
    (void)state;
    struct test_model f;
    wnw_policy *p;
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_session *s = session_with(
        &f, "streaming_llm", (wnw_run){WNW_INIT(wnw_run), .size = size_budget(20), .every = 1}, NULL, &p);
    assert_ok(wnw_session_read(s, f.tokens, 100, NULL));
    test_decode(s, f.tokens, 30);
    for (int32_t il = 0; il < f.info.n_layer; il++) {
        const int32_t *pos = wnw_cache_positions(s, il, 0);
        assert_int_equal(wnw_cache_n(s, il, 0), 20);
        for (int32_t i = 0; i < 20; i++)
            assert_int_equal(pos[i], i < 4 ? i : 110 + i);
    }
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* DuoAttention: streaming heads hold sinks and the most recent entries while retrieval heads grow, a copy and
 * a second turn included; with slide=0 all grow. */
static void streaming_heads_slide(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int slide = 0; slide < 2; slide++) {
        char recipe[96];
        wnw_policy *p;
        snprintf(recipe, sizeof recipe, "streaming_llm:sinks=4+duo:source=prompt,last=20,sinks=4,slide=%d",
                 slide);
        wnw_session *s = session_with(&f, recipe, (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.4)}, NULL,
                                      &p),
                    *copy;
        assert_ok(wnw_session_read(s, f.tokens, 100, NULL));
        int32_t count[64], n_stream = 0;
        const int32_t n_head = f.info.n_layer * f.info.n_head_kv;
        assert_in_range(n_head, 2, 64);
        for (int32_t i = 0; i < n_head; i++) {
            count[i] = wnw_cache_n(s, i / f.info.n_head_kv, i % f.info.n_head_kv);
            n_stream += count[i] < 100;
        }
        assert_in_range(n_stream, 1, n_head - 1); /* both kinds are there */
        test_decode(s, f.tokens, 15);
        assert_ok(wnw_session_copy(&copy, s));
        for (int32_t k = 15; k < 50; k++) {
            assert_ok(wnw_session_decode(s, f.tokens[k]));
            assert_ok(wnw_session_decode(copy, f.tokens[k]));
        }
        assert_same_cache(s, copy);
        for (int32_t i = 0; i < n_head; i++) {
            const int32_t il = i / f.info.n_head_kv, ih = i % f.info.n_head_kv;
            const int32_t n = wnw_cache_n(s, il, ih), *pos = wnw_cache_positions(s, il, ih);
            const bool slides = slide && count[i] < 100;
            assert_int_equal(n, slides ? count[i] : count[i] + 50);
            for (int32_t e = 0; e < n && slides; e++)
                assert_int_equal(pos[e], e < 4 ? e : 150 - n + e);
        }
        assert_ok(wnw__cache_check(&s->cache));
        assert_ok(wnw_session_read(s, f.tokens + 100, 40, NULL));
        assert_ok(wnw_session_decode(s, f.tokens[0]));
        assert_ok(wnw__cache_check(&s->cache));
        wnw_session_free(copy);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

/* Rows move inside the arena: one token in, one entry out maps no page. */
static void small_evictions_stay_in_place(void **state)
{
    (void)state;
    struct test_model f;
    wnw_policy *p;
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_session *s = session_with(
        &f, "tova", (wnw_run){WNW_INIT(wnw_run), .size = size_budget(200), .every = 1}, NULL, &p);
    assert_ok(wnw_session_read(s, f.tokens, N, NULL));
    test_decode(s, f.tokens, 3);
    const uint8_t *k0 = s->cache.layers[0].k, *v1 = s->cache.layers[1].v;
    const uint64_t bytes = wnw__cache_bytes(&s->cache);
    test_decode(s, f.tokens, 100);
    assert_ptr_equal(k0, s->cache.layers[0].k);
    assert_ptr_equal(v1, s->cache.layers[1].v);
    assert_int_equal(wnw__cache_bytes(&s->cache), bytes);
    assert_float_equal(test_mean_entries(s), 200, 0);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    for (int m = 0; m < n; m++) {
        struct test_model f;
        wnw_policy *p[2];
        wnw_session *s[2];
        test_open(&f, names[m], N_CTX, 11);
        for (int i = 0; i < 2; i++) {
            s[i] = session_with(&f, m % 2 ? "snapkv:window=8+adakv" : "lagkv:sink=4,lag=16,retain=0.3",
                                (wnw_run){WNW_INIT(wnw_run), .size = m % 2 ? size_budget(48) : (wnw_size){0},
                                          .phase = WNW_PHASE_CHUNK, .chunk = 77, .every = 5},
                                &(struct test_session){.n_threads = i + 1}, &p[i]);
            assert_ok(wnw_session_read(s[i], f.tokens, N, NULL));
            test_decode(s[i], f.tokens, 33);
        }
        assert_same_cache(s[0], s[1]);
        assert_same_logits(s[0], s[1]);
        for (int i = 0; i < 2; i++) {
            wnw_session_free(s[i]);
            wnw_policy_free(p[i]);
        }
        test_close(&f);
    }
}

/* The ring of window queries against all queries of the prompt, which are stored separately; then against
 * the queries of tokens that were decoded instead. */
static void window_holds_the_last_queries(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_policy *p[2] = {test_policy("snapkv:window=24"), test_policy("noncausal")};
    const size_t row = (size_t)f.info.n_head * (size_t)f.info.n_embd_head;
    wnw_session *s[2];
    for (int i = 0; i < 2; i++) {
        wnw_session_params sp = wnw_session_default_params();
        sp.n_ctx = N_CTX;
        sp.n_ubatch = 64;
        sp.n_threads = 1;
        sp.kv_type = WNW_KV_F32;
        assert_ok(wnw_session_new(&s[i], f.m, &sp));
    }
    assert_ok(test_observe(s[0], (const wnw_policy *const *)p, 2));
    test_prefill(s[0], f.tokens, 133); /* 64, 64 and 5 */
    const struct wnw__window *w = wnw__recorders_find(&s[0]->recorders, &wnw__window_recorder);
    const struct wnw__token_rows *queries = wnw__recorders_find(&s[0]->recorders, &wnw__queries_recorder);
    assert_int_equal(w->cap, 24);
    for (int32_t il = 0; il < f.info.n_layer; il++) {
        const struct wnw__token_rows_layer *all = &queries->layers[il];
        assert_int_equal(w->layers[il].n, 24);
        assert_int_equal(w->layers[il].end, 133);
        assert_int_equal(all->n, 133);
        for (int32_t at = 133 - 24; at < 133; at++)
            assert_memory_equal(wnw__window_at(w, il, at), wnw__token_rows_at(queries, il, at),
                                row * sizeof(float));
    }
    assert_ok(wnw_session_begin(
        s[1], &(wnw_run){WNW_INIT(wnw_run), .policy = p[0], .size = size_budget(500), .every = 1}));
    assert_ok(wnw_session_read(s[1], f.tokens, 120, NULL));
    test_decode(s[1], f.tokens + 120, 13);
    const struct wnw__window *v = wnw__recorders_find(&s[1]->recorders, &wnw__window_recorder);
    for (int32_t il = 0; il < f.info.n_layer; il++) {
        assert_int_equal(v->layers[il].n, 24);
        assert_int_equal(v->layers[il].end, 133);
    }
    for (size_t i = 0; i < (size_t)f.info.n_layer * 24 * row; i++)
        assert_float_equal((double)v->q[i], (double)w->q[i], test_rounding(1e-3, 32));
    for (int i = 0; i < 2; i++) {
        wnw_session_free(s[i]);
        wnw_policy_free(p[i]);
    }
    test_close(&f);
}

/* ---- Turns ---- */

static void second_turn_counts_all_tokens(void **state)
{
    (void)state;
    struct test_model f;
    wnw_policy *p;
    wnw_report r = {WNW_INIT(wnw_report)};
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_session *s =
        session_with(&f, "snapkv:window=8", (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.5)}, NULL, &p);
    assert_ok(wnw_session_read(s, f.tokens, 100, &r));
    assert_float_equal(test_mean_entries(s), 50, 0);
    test_decode(s, f.tokens, 10);
    assert_float_equal(test_mean_entries(s), 60, 0);
    assert_ok(wnw_session_read(s, f.tokens + 110, 90, &r));
    assert_float_equal(test_mean_entries(s), 100, 0); /* half of 200 */
    assert_int_equal(r.entries_before, 150 * f.info.n_layer * f.info.n_head_kv);
    assert_int_equal(wnw_session_n_past(s), 200);
    /* The window is the end of the second piece. */
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(wnw_cache_positions(s, 1, 0)[92 + i], 192 + i);
    /* A copy follows the same rules. */
    wnw_session *c;
    assert_ok(wnw_session_copy(&c, s));
    assert_ok(wnw_session_read(s, f.tokens + 200, 64, &r));
    assert_ok(wnw_session_read(c, f.tokens + 200, 64, &r));
    assert_same_cache(s, c);
    assert_same_logits(s, c);
    wnw_session_free(c);
    /* After a reset the rules remain and the counts are 0. */
    assert_ok(wnw_session_reset(s));
    assert_ok(wnw_session_read(s, f.tokens, 60, &r));
    assert_float_equal(test_mean_entries(s), 30, 0);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

/* Scoring is a time of its own in every phase, so that nobody takes it for reading. */
static void scoring_is_reported(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_CHUNK; phase++) {
        wnw_policy *p;
        wnw_report r = {WNW_INIT(wnw_report)};
        wnw_session *s = session_with(
            &f, "knorm", (wnw_run){WNW_INIT(wnw_run), .size = size_ratio(0.5), .phase = (wnw_phase)phase},
            NULL, &p);
        assert_ok(wnw_session_read(s, f.tokens, N, &r));
        assert_cmp(r.observe_ms, >, 0);
        assert_cmp(r.score_ms, >, 0);
        assert_cmp(r.select_ms, >, 0);
        assert_cmp(r.compact_ms, >, 0);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&f);
}

/* ---- Refusals ---- */

static void bad_rules_are_refused(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N_CTX, 11);
    wnw_session *s = test_session_new(f.m, &(struct test_session){.n_ctx = 128, .n_threads = 1});
    wnw_policy *p = test_policy("snapkv:window=32");
    const wnw_run bad[] = {
        {WNW_INIT(wnw_run), .every = 1},
        {WNW_INIT(wnw_run), .policy = p, .phase = WNW_PHASE_DECODE},
        {WNW_INIT(wnw_run), .policy = p, .phase = (wnw_phase)77},
        {WNW_INIT(wnw_run), .policy = p, .phase = WNW_PHASE_CHUNK, .chunk = -1},
        {WNW_INIT(wnw_run), .policy = p, .every = -1},
        {WNW_INIT(wnw_run), .policy = p, .every = 1, .target = -1},
        {WNW_INIT(wnw_run), .policy = p, .every = 4, .target = 31}, /* the window has 32 */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_cmp(wnw_session_begin(s, &bad[i]), <, 0);
        assert_string_not_equal(wnw_last_error(), "");
    }
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .every = 4, .target = 32}));
    /* More than any cache holds; every + target must not overflow on the way. */
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .every = INT32_MAX, .target = INT64_MAX}));
    /* What the size cannot hold: refused, the session is as good as before. */
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = size_budget(20), .phase = WNW_PHASE_LAYER}));
    assert_error(wnw_session_read(s, f.tokens, 100, NULL), WNW_E_RANGE);
    assert_int_equal(wnw_session_n_past(s), 0);
    /* No rules: reading is prefill. */
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run)}));
    wnw_report r = {WNW_INIT(wnw_report)};
    assert_ok(wnw_session_read(s, f.tokens, 100, &r));
    assert_float_equal(r.kept_mean, 100, 0);
    assert_int_equal(r.entries_before, r.entries_after);
    wnw_policy_free(p);
    wnw_session_free(s);
    test_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_equals_end_on_every_model),
        cmocka_unit_test(layer_equals_end_for_every_policy),
        cmocka_unit_test(layer_is_near_end_in_long_pieces),
        cmocka_unit_test(layer_equals_end_for_every_cache),
        cmocka_unit_test(layer_bounds_memory),
        cmocka_unit_test(cancelled_layer_leaves_nothing),
        cmocka_unit_test(one_chunk_is_the_end),
        cmocka_unit_test(rules_at_the_end_are_compress),
        cmocka_unit_test(chunks_keep_their_budget),
        cmocka_unit_test(decode_holds_the_target),
        cmocka_unit_test(decode_positions),
        cmocka_unit_test(streaming_heads_slide),
        cmocka_unit_test(small_evictions_stay_in_place),
        cmocka_unit_test(window_holds_the_last_queries),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(second_turn_counts_all_tokens),
        cmocka_unit_test(scoring_is_reported),
        cmocka_unit_test(bad_rules_are_refused),
        cmocka_unit_test(slack_equals_two_sizes),
        cmocka_unit_test(bad_slack_is_refused),
    };
    return cmocka_run_group_tests_name("phases", tests, NULL, NULL);
}
