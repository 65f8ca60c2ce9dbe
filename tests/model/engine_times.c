/* SPDX-License-Identifier: MIT */
/* What an engine says of its passes: the parts add up to the whole, by a clock that work moves; the work is that of a model
 * counted by hand, and measuring changes no bit of a result. */
#include "helpers.h"
#include "winnow_study.h"

#include <stdlib.h>

#include "peek_session.h"
#include "ticks.h"

enum { N = 600, N_UBATCH = 128, N_DECODE = 24 };

struct fixture {
    struct test_model t;
    wnw_engine *e;
    wnw_session *s;
};

static void open_fixture(struct fixture *f, const char *name, wnw_attn attn, int32_t n_threads)
{
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_ubatch = N_UBATCH,
                                      .n_threads = n_threads, .attn = attn};
    test_open(&f->t, name, N + N_DECODE, 3);
    assert_ok(wnw_engine_new(&f->e, f->t.m, &params));
    assert_ok(wnw_session_new_on(&f->s, f->e, NULL));
}

static void close_fixture(struct fixture *f)
{
    wnw_session_free(f->s);
    wnw_engine_free(f->e);
    test_close(&f->t);
}

static wnw_engine_times times_of(const wnw_engine *e)
{
    wnw_engine_times times = {WNW_INIT(wnw_engine_times)};
    assert_ok(wnw_engine_get_times(e, &times));
    return times;
}

static double sum_ms(const wnw_engine_times *t)
{
    return t->weights.ms + t->attention.ms + t->observation.ms + t->logits.ms + t->other.ms;
}

static void decode(struct fixture *f, int32_t n)
{
    test_decode(f->s, f->t.tokens + N, n);
}

/* ---- Times ---- */

static const struct row {
    const char *name, *model;
    wnw_attn attn;
    int32_t n_threads;
    const char *policy;
} rows[] = {
    {"own attention", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1, NULL},
    {"two threads", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 2, NULL},
    {"ggml attention", "tiny/tiny-llama.gguf", WNW_ATTN_GGML, 1, NULL},
    {"own products", "tiny/tiny-llama-q4_0.gguf", WNW_ATTN_OWN, 1, NULL},
    {"biases", "tiny/tiny-qwen2.gguf", WNW_ATTN_OWN, 1, NULL},
    {"sliding windows", "tiny/tiny-gemma3.gguf", WNW_ATTN_OWN, 1, NULL},
    {"newest queries", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1, "snapkv"},
    {"columns", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1, "h2o"},
    {"queries before RoPE", "tiny/tiny-qwen3.gguf", WNW_ATTN_OWN, 2, "expected_attention"},
};

static void adds_up(void **state)
{
    const struct row *row = *state;
    struct fixture f;
    open_fixture(&f, row->model, row->attn, row->n_threads);
    wnw_policy *p = row->policy ? test_policy(row->policy) : NULL;
    assert_ok(test_observe(f.s, (const wnw_policy *const *)&p, p != NULL));
    assert_ok(wnw_engine_measure(f.e, true));
    const int before = test_work_done().graph;
    const double start = wnw__now_ms();
    test_prefill(f.s, f.t.tokens, N);
    decode(&f, N_DECODE);
    const double total = wnw__now_ms() - start;
    const int n_graph = test_work_done().graph - before;
    const wnw_engine_times t = times_of(f.e);
    assert_int_equal(t.n_pass, (N + N_UBATCH - 1) / N_UBATCH + N_DECODE);
    assert_int_equal(t.n_token, N + N_DECODE);
    assert_cmp(t.weights.ms, >, 0);
    assert_cmp(t.attention.ms, >, 0);
    assert_cmp(t.logits.ms, >, 0);
    assert_cmp(t.other.ms, >, 0);
    if (p)
        assert_cmp(t.observation.ms, >, 0);
    else
        assert_cmp(t.observation.ms, ==, 0);
    /* All that is computed, and of the rest all but one look at the clock between passes. */
    assert_cmp(n_graph, >=, t.n_pass);
    assert_cmp(total, >=, TEST_WORK * n_graph);
    assert_cmp(sum_ms(&t), ==, total - (double)(t.n_pass + 1));
    wnw_policy_free(p);
    close_fixture(&f);
}

/* ---- Results ---- */

static void changes_nothing(void **state)
{
    const struct row *row = *state;
    struct fixture plain, timed;
    open_fixture(&plain, row->model, row->attn, row->n_threads);
    open_fixture(&timed, row->model, row->attn, row->n_threads);
    wnw_policy *p = row->policy ? test_policy(row->policy) : NULL;
    assert_ok(test_observe(plain.s, (const wnw_policy *const *)&p, p != NULL));
    assert_ok(test_observe(timed.s, (const wnw_policy *const *)&p, p != NULL));
    assert_ok(wnw_engine_measure(timed.e, true));
    test_prefill(plain.s, plain.t.tokens, N);
    test_prefill(timed.s, timed.t.tokens, N);
    assert_same_logits(plain.s, timed.s);
    for (int32_t i = 0; i < 6; i++) {
        assert_ok(wnw_engine_measure(timed.e, i % 2 == 0)); /* graphs with marks and without */
        assert_ok(wnw_session_decode(plain.s, plain.t.tokens[N + i]));
        assert_ok(wnw_session_decode(timed.s, timed.t.tokens[N + i]));
        assert_same_logits(plain.s, timed.s);
    }
    assert_same_cache(plain.s, timed.s);
    wnw_policy_free(p);
    close_fixture(&plain);
    close_fixture(&timed);
}

static void off_and_on(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1);
    test_prefill(f.s, f.t.tokens, 50);
    wnw_engine_times t = times_of(f.e);
    assert_int_equal(t.n_pass, 0);
    assert_cmp(sum_ms(&t), ==, 0);
    assert_cmp(t.weights.ops, ==, 0);
    assert_ok(wnw_engine_measure(f.e, true));
    decode(&f, 3);
    assert_ok(wnw_engine_measure(f.e, false));
    t = times_of(f.e);
    decode(&f, 2);
    assert_int_equal(times_of(f.e).n_pass, 3);
    assert_cmp(times_of(f.e).weights.ops, ==, t.weights.ops);
    assert_ok(wnw_engine_measure(f.e, true));
    assert_int_equal(times_of(f.e).n_pass, 0);
    assert_cmp(times_of(f.e).attention.bytes, ==, 0);
    close_fixture(&f);
}

/* ---- Work, by hand ---- */

/* tiny-llama: 4 layers of hidden size 128 with 4 query heads and 2 KV heads of 32 elements, 256 wide in between, all
 * weights in float32; its cache in f16. */
enum { L = 4, E = 128, F = 256, H = 4, K = 2, D = 32 };
enum { ATTN_WEIGHTS = E * H * D + 2 * E * K * D + H * D * E, FFN_WEIGHTS = 3 * E * F, ENTRY = 2 * K * D * 2 };

static void prompt_by_hand(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1);
    wnw_policy *p = test_policy("h2o");
    assert_ok(test_observe(f.s, (const wnw_policy *const *)&p, 1));
    assert_ok(wnw_engine_measure(f.e, true));
    const double n = 200, first = N_UBATCH, second = 200 - N_UBATCH; /* two ubatches */
    test_prefill(f.s, f.t.tokens, 200);
    const wnw_engine_times t = times_of(f.e);
    assert_int_equal(t.n_pass, 2);
    /* After the last layer's attention only rows with wanted logits are computed: the last of each ubatch. */
    assert_cmp(
        t.weights.ops, ==,
        2 * (L * n * ATTN_WEIGHTS - (n - 2) * H * D * E + (L - 1) * n * FFN_WEIGHTS + 2.0 * FFN_WEIGHTS));
    assert_cmp(t.weights.bytes, ==, 2 * 4.0 * L * (ATTN_WEIGHTS + FFN_WEIGHTS));
    assert_cmp(t.logits.ops, ==, 2 * 2.0 * E * f.t.info.n_vocab);
    assert_cmp(t.logits.bytes, ==, 2 * 4.0 * E * f.t.info.n_vocab);
    const double pairs = n * (n + 1) / 2;
    assert_cmp(t.attention.ops, ==, L * H * 4.0 * D * pairs);
    /* Written: every entry once. Read: those of the first ubatch twice. */
    assert_cmp(t.attention.bytes, ==, L * (double)ENTRY * (n + first + (first + second)));
    assert_cmp(t.observation.ops, ==, 0); /* the attention leaves the sums of a prompt's columns */
    assert_cmp(t.other.ops, ==, 0);
    assert_ok(wnw_session_decode(f.s, 7)); /* a token is multiplied with all keys again, for its columns */
    assert_cmp(times_of(f.e).observation.ops, ==, L * H * 2.0 * D * (n + 1));
    wnw_policy_free(p);
    close_fixture(&f);
}

/* Where nothing records it, the last layer's attention is computed for the runs of 96 rows alone that have a wanted one: of
 * 128 rows the last 32. */
static void last_layer_by_hand(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1);
    assert_ok(wnw_engine_measure(f.e, true));
    test_prefill(f.s, f.t.tokens, N_UBATCH);
    const double pairs = 128 * 129 / 2, left_out = 96 * 97 / 2;
    assert_cmp(times_of(f.e).attention.ops, ==, H * 4.0 * D * (L * pairs - left_out));
    close_fixture(&f);
}

static void decoding_by_hand(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, 1);
    wnw_session *other;
    test_prefill(f.s, f.t.tokens, 100);
    assert_ok(wnw_session_copy(&other, f.s));
    assert_ok(wnw_session_decode(other, 5));
    assert_ok(wnw_engine_measure(f.e, true));
    assert_ok(wnw_decode_batch(f.e, (wnw_session *[]){f.s, other}, (const int32_t[]){7, 8}, 2));
    const wnw_engine_times t = times_of(f.e);
    assert_int_equal(t.n_pass, 1);
    assert_int_equal(t.n_token, 2);
    /* Two rows, one pass over the weights, two caches. */
    assert_cmp(t.weights.ops, ==, 2 * 2.0 * L * (ATTN_WEIGHTS + FFN_WEIGHTS));
    assert_cmp(t.weights.bytes, ==, 4.0 * L * (ATTN_WEIGHTS + FFN_WEIGHTS));
    assert_cmp(t.logits.ops, ==, 2 * 2.0 * E * f.t.info.n_vocab);
    assert_cmp(t.attention.ops, ==, L * H * 4.0 * D * (101 + 102));
    assert_cmp(t.attention.bytes, ==, L * (double)ENTRY * (102 + 103));
    wnw_session_free(other);
    close_fixture(&f);
}

/* Every row of a sliding layer sees its window alone. */
static void pairs_by_counting(void **state)
{
    (void)state;
    for (int32_t window = 0; window < 9; window++)
        for (int32_t len = 0; len < 12; len++)
            for (int32_t n = 1; n < 12; n++) {
                int32_t lens[] = {len};
                const struct wnw__kv_layer layer = {.len = lens, .n_swa = window};
                double want = 0;
                for (int32_t t = 0; t < n; t++)
                    want += window > 0 && len + t + 1 > window ? window : len + t + 1;
                assert_cmp(wnw__attend_pairs(&layer, 0, n), ==, want);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_and_on), cmocka_unit_test(prompt_by_hand), cmocka_unit_test(last_layer_by_hand),
        cmocka_unit_test(decoding_by_hand), cmocka_unit_test(pairs_by_counting)};
    const int failed = cmocka_run_group_tests_name("work and switches", tests, NULL, NULL);
    return failed + run_rows(adds_up, rows) + run_rows(changes_nothing, rows);
}
