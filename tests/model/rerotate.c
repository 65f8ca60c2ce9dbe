/* SPDX-License-Identifier: MIT */
/* Recipes with +rerotate: heads with tokens of their own, what a session knows of its tokens afterwards,
 * every phase, and timelines longer than the context. model/renumber.c has the turning itself. */
#include "helpers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N = 120, N_MORE = 480, KEEP = 40, N_CTX = 128, CHUNK = 32 };

static const wnw_size keep_size = {.kind = WNW_SIZE_BUDGET, .budget = KEEP};

static wnw_session *session_of(const struct test_model *f, wnw_kv_type type, int32_t n_threads)
{
    return test_session_new(f->m,
                            &(struct test_session){.kv_type = type, .n_ctx = N_CTX, .n_threads = n_threads});
}

/* A session that has read the first N tokens under a policy. */
static wnw_session *read_under(const struct test_model *f, const wnw_policy *p, wnw_kv_type type,
                               int32_t n_threads)
{
    wnw_session *s = session_of(f, type, n_threads);
    assert_ok(test_observe(s, &p, 1));
    test_prefill(s, f->tokens, N);
    return s;
}

static void compress(wnw_session *s, const char *recipe, wnw_size size)
{
    wnw_policy *p = test_policy(recipe);
    assert_ok(wnw_session_compress(s, p, &size, NULL));
    wnw_policy_free(p);
}

/* Must be refused, with the words in the sentence, and leave everything as it was. */
static void refused(wnw_session *s, const char *recipe, const char *words)
{
    wnw_policy *p = test_policy(recipe);
    const int64_t n = wnw__cache_entries(&s->cache);
    const int32_t n_past = wnw_session_n_past(s);
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 20};
    assert_error(wnw_session_compress(s, p, &size, NULL), WNW_E_UNSUPPORTED);
    if (!strstr(wnw_last_error(), words))
        fail_msg("%s: no \"%s\" in: %s", recipe, words, wnw_last_error());
    assert_cmp(wnw__cache_entries(&s->cache), ==, n);
    assert_cmp(wnw_session_n_past(s), ==, n_past);
    wnw_policy_free(p);
}

/* ---- Heads with tokens of their own ---- */

/* Turns the keys of an f32 cache in double precision, entry i of every head to position i; theta by the
 * formula. */
static void turn_by_hand(wnw_session *s)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const bool neox = s->m->arch->rope_type == GGML_ROPE_TYPE_NEOX;
    const int32_t n_pair = hp->n_rot / 2, n = wnw_cache_n(s, 0, 0);
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const struct wnw__kv_layer *l = &s->cache.layers[il];
            assert_int_equal(l->len[ih], n);
            for (int32_t i = 0; i < n; i++) {
                int32_t *pos = &l->pos[l->off[ih] + i];
                float *k = (float *)(void *)(l->k + (size_t)(l->off[ih] + i) * s->cache.row_bytes);
                for (int32_t c = 0; c < n_pair; c++) {
                    const double angle = (i - *pos) * pow((double)hp->rope_freq_base, -2.0 * c / hp->n_rot);
                    float *a = k + (neox ? c : 2 * c), *b = k + (neox ? c + n_pair : 2 * c + 1);
                    const double x = (double)*a, y = (double)*b;
                    *a = (float)(x * cos(angle) - y * sin(angle));
                    *b = (float)(x * sin(angle) + y * cos(angle));
                }
                *pos = i;
            }
        }
    s->n_past = n;
}

static bool heads_differ(const wnw_session *s)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 1; ih < s->cache.n_head_kv; ih++)
            if (memcmp(wnw_cache_positions(s, il, ih), wnw_cache_positions(s, il, 0),
                       (size_t)wnw_cache_n(s, il, 0) * sizeof(int32_t)) != 0)
                return true;
    return false;
}

static void each_head_by_its_rank(void **state)
{
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    (void)state;
    int n_differ = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct test_model f;
        wnw_session *by_hand;
        struct test_diff d = {0}, still = {0};
        test_open_tiny(&f, archs[i], N + N_MORE, 31);
        wnw_policy *p = test_policy("snapkv:window=4+rerotate"), *stay = test_policy("snapkv:window=4");
        wnw_session *s = read_under(&f, p, WNW_KV_F32, 1), *original;
        assert_ok(wnw_session_copy(&by_hand, s));
        assert_ok(wnw_session_copy(&original, s));
        assert_ok(wnw_session_compress(by_hand, stay, &keep_size, NULL));
        assert_ok(wnw_session_compress(original, stay, &keep_size, NULL));
        n_differ += heads_differ(by_hand);
        turn_by_hand(by_hand);
        assert_ok(wnw_session_compress(s, p, &keep_size, NULL));
        assert_int_equal(wnw_session_n_past(s), KEEP);
        for (int32_t k = 0; k < 8; k++) {
            assert_ok(wnw_session_decode(s, f.tokens[N + k]));
            assert_ok(wnw_session_decode(by_hand, f.tokens[N + k]));
            assert_ok(wnw_session_decode(original, f.tokens[N + k]));
            test_diff_add(&d, wnw_session_logits(by_hand), wnw_session_logits(s), f.info.n_vocab);
            test_diff_add(&still, wnw_session_logits(by_hand), wnw_session_logits(original), f.info.n_vocab);
        }
        assert_int_equal(wnw_session_n_past(s), KEEP + 8);
        assert_int_equal(wnw_cache_positions(s, f.info.n_layer - 1, 0)[KEEP],
                         KEEP); /* the first one decoded */
        assert_ok(wnw__cache_check(&s->cache));
        if (!(test_diff_nmse(&d) < test_nmse_most(1e-8)))
            fail_msg("%s: logits differ, normalised error %g", archs[i], test_diff_nmse(&d));
        assert_cmp(test_diff_nmse(&still), >, 1e-7); /* or the comparison sees nothing */
        wnw_policy_free(p);
        wnw_policy_free(stay);
        wnw_session_free(s);
        wnw_session_free(by_hand);
        wnw_session_free(original);
        test_close(&f);
    }
    assert_cmp(n_differ, >, 0);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("snapkv:window=4+rerotate");
    wnw_session *one = read_under(&f, p, WNW_KV_F16, 1), *two = read_under(&f, p, WNW_KV_F16, 2);
    assert_ok(wnw_session_compress(one, p, &keep_size, NULL));
    assert_ok(wnw_session_compress(two, p, &keep_size, NULL));
    for (int32_t il = 0; il < f.info.n_layer; il++)
        for (int32_t ih = 0; ih < f.info.n_head_kv; ih++) {
            const struct wnw__kv_layer *a = &one->cache.layers[il], *b = &two->cache.layers[il];
            assert_memory_equal(a->k + (size_t)a->off[ih] * one->cache.row_bytes,
                                b->k + (size_t)b->off[ih] * two->cache.row_bytes,
                                KEEP * one->cache.row_bytes);
        }
    wnw_policy_free(p);
    wnw_session_free(one);
    wnw_session_free(two);
    test_close(&f);
}

/* ---- Which token a position is ---- */

static void tokens_known_and_unknown(void **state)
{
    (void)state;
    struct test_model f;
    wnw_session *copy;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("snapkv:window=4+rerotate");
    wnw_session *s = read_under(&f, p, WNW_KV_F32, 1);
    const int32_t *const task = f.tokens;
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run),
                      .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .task_tokens = &task,
                                              .n_task_tokens = (const int32_t[]){6},
                                              .policies = (const wnw_policy *const *)&p, .n_policies = 1}}));
    assert_ok(wnw_session_compress(s, p, &keep_size, NULL));
    /* All heads keep the window: those tokens are known. */
    assert_cmp(s->token_log.n_ambiguous, >, 0);
    assert_cmp(s->token_log.n_ambiguous, <=, KEEP - 4);
    assert_memory_equal(s->token_log.tokens + KEEP - 4, f.tokens + N - 4, 4 * sizeof *f.tokens);
    assert_cmp(s->cache.layers[0].n_ambiguous, >, 0);
    assert_ok(wnw_session_copy(&copy, s));
    wnw_session *const both[] = {s, copy};
    for (int i = 0; i < 2; i++) {
        refused(both[i], "kvcompose:cross_head=0+uniform", "a second time");
        refused(both[i], "kvzip+equal", "a second time");
        refused(both[i], "kvcompose:task=question+uniform", "by position");
        refused(both[i], "knorm+layer_mean", "by position");
        refused(both[i], "knorm+layer_max", "by position");
        refused(both[i], "snapkv:window=4+retrieval_heads:heads=random", "by position");
        refused(both[i], "compilerkv:window=4,table=none+uniform", "by position");
        refused(both[i], "defensivekv:window=4+equal", "by position");
        refused(both[i], "knorm+chunkkv:chunk=4", "by position");
        refused(both[i], "observed_attention", "which new positions do not tell");
        compress(both[i], "knorm", (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 30}); /* by itself */
        assert_ok(wnw_session_decode(both[i], 1));
        compress(both[i], "kvcompose:task=question,cross_head=0+uniform",
                 (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 25});
    }
    wnw_session_free(copy);
    /* Only what all heads have read since is left: nothing is ambiguous any more. */
    assert_ok(wnw_session_decode(s, 2));
    assert_ok(wnw_session_decode(s, 3));
    compress(s, "streaming_llm:sinks=0", (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 2});
    compress(s, "knorm+layer_mean", (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 1});
    assert_ok(wnw_session_reset(s));
    assert_int_equal(s->token_log.n_ambiguous, 0);
    test_prefill(s, f.tokens, N);
    compress(s, "knorm+layer_mean", keep_size);
    wnw_policy_free(p);
    wnw_session_free(s);
    test_close(&f);
}

/* One list per layer: heads agree, layers do not. The same tokens everywhere: everything is known. */
static void lists_of_a_layer_and_of_all(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("knorm+layer_mean+rerotate"), *q = test_policy("streaming_llm+rerotate");
    wnw_session *s = read_under(&f, p, WNW_KV_F32, 1), *t = read_under(&f, q, WNW_KV_F32, 1);
    assert_ok(wnw_session_compress(s, p, &keep_size, NULL));
    for (int32_t il = 0; il < f.info.n_layer; il++)
        assert_int_equal(s->cache.layers[il].n_ambiguous, 0);
    assert_cmp(s->token_log.n_ambiguous, >, 0);
    refused(s, "compilerkv:window=4,table=none+uniform", "by position");
    compress(s, "knorm+layer_max+rerotate", (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 30});
    assert_int_equal(wnw_session_n_past(s), 30);
    assert_int_equal(s->cache.layers[0].n_ambiguous, 0);

    assert_ok(wnw_session_compress(t, q, &keep_size, NULL));
    assert_int_equal(t->token_log.n_ambiguous, 0);
    for (int32_t i = 0; i < KEEP; i++)
        assert_int_equal(t->token_log.tokens[i], f.tokens[i < 4 ? i : N - KEEP + i]);
    compress(t, "kvcompose+uniform+rerotate", (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 30});
    assert_int_equal(wnw_session_n_past(t), 30);
    refused(t, "kvzip+equal", "a second time");
    wnw_policy_free(p);
    wnw_policy_free(q);
    wnw_session_free(s);
    wnw_session_free(t);
    test_close(&f);
}

/* Refused before the cache changes: heads of different length, and layers that count in original positions. */
static void uneven_caches(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("knorm+adakv"), *q = test_policy("streaming_llm+rerotate");
    wnw_session *s = read_under(&f, p, WNW_KV_F32, 1);
    assert_ok(wnw_session_compress(s, p, &keep_size, NULL));
    assert_int_not_equal(wnw_cache_n(s, 0, 0), wnw_cache_n(s, 0, 1));
    const int64_t n = wnw__cache_entries(&s->cache);
    assert_error(wnw_session_compress(s, q, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = N}, NULL),
                 WNW_E_UNSUPPORTED);
    assert_cmp(wnw__cache_entries(&s->cache), ==, n);
    assert_cmp(wnw_session_n_past(s), ==, N);
    wnw_session_free(s);
    test_close(&f);
    test_open_tiny(&f, "gemma3", N + N_MORE, 31);
    s = read_under(&f, q, WNW_KV_F16, 1);
    refused(s, "streaming_llm+rerotate", "sliding window");
    const wnw_run rules = {WNW_INIT(wnw_run), .policy = q, .size = keep_size};
    assert_error(wnw_session_begin(s, &rules), WNW_E_UNSUPPORTED);
    wnw_policy_free(p);
    wnw_policy_free(q);
    wnw_session_free(s);
    test_close(&f);
}

/* ---- Longer than the context ---- */

static wnw_run chunks(const wnw_policy *p, wnw_size size)
{
    return (wnw_run){WNW_INIT(wnw_run), .policy = p, .size = size, .phase = WNW_PHASE_CHUNK, .chunk = CHUNK};
}

/* 600 tokens through a context of 128: the same bits as reading and compressing by hand. */
static void long_prompts(void **state)
{
    (void)state;
    static const char *const recipes[] = {"streaming_llm+rerotate", "snapkv:window=8+rerotate",
                                          "knorm+layer_mean+rerotate", "h2o+rerotate"};
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *s = session_of(&f, WNW_KV_F16, 1), *by_hand = session_of(&f, WNW_KV_F16, 1);
        const wnw_run rules = chunks(p, keep_size);
        wnw_report r = {WNW_INIT(wnw_report)};
        assert_ok(wnw_session_begin(s, &rules));
        if (wnw_session_read(s, f.tokens, N + N_MORE, &r) != WNW_OK)
            fail_msg("%s: %s", recipes[i], wnw_last_error());
        assert_ok(test_observe(by_hand, (const wnw_policy *const *)&p, 1));
        for (int32_t at = 0; at < N + N_MORE; at += CHUNK) {
            test_prefill(by_hand, f.tokens + at, N + N_MORE - at < CHUNK ? N + N_MORE - at : CHUNK);
            assert_ok(wnw_session_compress(by_hand, p, &keep_size, NULL));
        }
        assert_int_equal(wnw_session_n_past(s), KEEP);
        assert_int_equal(wnw_session_n_past(by_hand), KEEP);
        assert_memory_equal(wnw_session_logits(s), wnw_session_logits(by_hand),
                            (size_t)f.info.n_vocab * sizeof(float));
        wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
        assert_ok(wnw_cache_get_stats(s, &stats));
        assert_cmp(stats.bytes_full, ==, wnw__cache_bytes_for(&s->cache, N + N_MORE));
        assert_cmp(r.entries_before, ==, (int64_t)(N + N_MORE) * f.info.n_layer * f.info.n_head_kv);
        wnw_session_free(s);
        wnw_session_free(by_hand);
        wnw_policy_free(p);
    }
    test_close(&f);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("streaming_llm+rerotate"), *still = test_policy("streaming_llm");
    const wnw_size just = {.kind = WNW_SIZE_BUDGET, .budget = N_CTX - CHUNK},
                   over = {.kind = WNW_SIZE_BUDGET, .budget = N_CTX - CHUNK + 1},
                   half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5},
                   tenth = {.kind = WNW_SIZE_RATIO, .ratio = 0.9};
    wnw_run at_end = chunks(p, keep_size), large = chunks(p, keep_size);
    at_end.phase = WNW_PHASE_END;
    large.chunk = N_CTX + 1;
    const struct {
        wnw_run rules;
        int want;
    } cases[] = {
        {chunks(p, just), WNW_OK},  {chunks(p, over), WNW_E_FULL},          {chunks(p, half), WNW_E_FULL},
        {chunks(p, tenth), WNW_OK}, {chunks(still, keep_size), WNW_E_FULL}, {at_end, WNW_E_FULL},
        {large, WNW_E_FULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_session *s = session_of(&f, WNW_KV_F16, 1);
        assert_ok(wnw_session_begin(s, &cases[i].rules));
        const int rc = wnw_session_read(s, f.tokens, N + N_MORE, NULL);
        if (rc != cases[i].want)
            fail_msg("case %zu: %d, not %d: %s", i, rc, cases[i].want, wnw_last_error());
        if (rc != WNW_OK)
            assert_int_equal(wnw_session_n_past(s), 0); /* said before anything is read */
        wnw_session_free(s);
    }
    /* A ratio counts all that was read, over turns: 540, then 600 tokens. */
    wnw_session *s = session_of(&f, WNW_KV_F16, 1);
    const wnw_run rules = chunks(p, tenth);
    assert_ok(wnw_session_begin(s, &rules));
    assert_ok(wnw_session_read(s, f.tokens, 540, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), 54);
    assert_ok(wnw_session_read(s, f.tokens + 540, 60, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), 60);
    assert_int_equal(wnw_session_n_past(s), 60);
    /* Without eviction the context ends where it ends. */
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run)}));
    assert_ok(wnw_session_prefill(s, f.tokens, N_CTX - 60, NULL, NULL));
    assert_error(wnw_session_decode(s, 1), WNW_E_FULL);
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_policy_free(still);
    test_close(&f);
}

/* Every preset that can have new positions, in every phase that it says it can work in. */
static void presets_that_count_anew(void **state)
{
    (void)state;
    struct test_model f;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int n_chunk = 0, n_refused = 0;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        char recipe[512];
        wnw_policy *p;
        if (!strstr(info.kind, "preset") || strstr(info.recipe, "rerotate"))
            continue;
        snprintf(recipe, sizeof recipe, "%s+rerotate", info.name);
        if (wnw_policy_parse(&p, recipe, NULL) != WNW_OK) {
            n_refused++;
            continue;
        }
        /* A ratio, because a budget must hold a window. */
        wnw_run rules = chunks(p, (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.9});
        wnw_session *s = session_of(&f, WNW_KV_F16, 1);
        const bool chunked = wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL);
        const bool full =
            strcmp(p->part[WNW_PART_SCORER].head.name, "full") == 0; /* with a content rule too */
        rules.every = wnw_policy_allows(p, WNW_PHASE_DECODE, NULL) ? 8 : 0;
        if (!chunked || full)
            rules.phase = WNW_PHASE_END;
        if (wnw__policy_is_recursive(p))
            rules.size = (wnw_size){.kind = WNW_SIZE_NONE};
        if (wnw_policy_needs(p).flags & WNW_NEED_PROFILE || wnw__policy_is_recursive(p)) {
            wnw_session_free(s); /* blocks of 128 and more do not fit this context */
            wnw_policy_free(p);
            continue;
        }
        if (wnw_session_begin(s, &rules) != WNW_OK ||
            wnw_session_read(s, f.tokens, rules.phase == WNW_PHASE_CHUNK ? N + N_MORE : N, NULL) != WNW_OK)
            fail_msg("%s: %s", recipe, wnw_last_error());
        for (int32_t k = 0; k < 200 && rules.every > 0 && !full; k++)
            if (wnw_session_decode(s, f.tokens[k]) != WNW_OK)
                fail_msg("%s: %s", recipe, wnw_last_error());
        if (!full)
            assert_cmp(wnw_session_n_past(s), <, (N + N_MORE) / 10 + 8);
        assert_all_finite(wnw_session_logits(s), f.info.n_vocab);
        assert_ok(wnw__cache_check(&s->cache));
        n_chunk += rules.phase == WNW_PHASE_CHUNK;
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    print_message("%d presets read 600 tokens in a context of 128, %d cannot have new positions\n", n_chunk,
                  n_refused);
    assert_cmp(n_chunk, >, 10);
    assert_cmp(n_refused, >, 10);
    test_close(&f);
}

/* Blocks that settle one after the other, for ever. */
static void blocks_for_ever(void **state)
{
    (void)state;
    struct test_model f;
    test_open_tiny(&f, "llama", N + N_MORE, 31);
    wnw_policy *p = test_policy("lagkv:lag=8,sink=4,retain=0.125+rerotate");
    const wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .phase = WNW_PHASE_CHUNK};
    wnw_session *s = session_of(&f, WNW_KV_F16, 1);
    assert_ok(wnw_session_begin(s, &rules));
    assert_ok(wnw_session_read(s, f.tokens, N + N_MORE, NULL)); /* 4 + 600 / 8 + a block or two */
    assert_cmp(wnw_session_n_past(s), <, N_CTX);
    assert_int_equal(wnw_session_n_past(s), wnw_cache_n(s, 0, 0));
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_head_by_its_rank),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(tokens_known_and_unknown),
        cmocka_unit_test(lists_of_a_layer_and_of_all),
        cmocka_unit_test(uneven_caches),
        cmocka_unit_test(long_prompts),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(presets_that_count_anew),
        cmocka_unit_test(blocks_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
