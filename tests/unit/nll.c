/* SPDX-License-Identifier: MIT */
/* Likelihoods of tokens and perplexity on plain arrays. */
#include "helpers.h"
#include "peek_session.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>

enum { VOCAB = 5 };

static void uniform_logits(void **state)
{
    (void)state;
    float logits[1000];
    for (int i = 0; i < 1000; i++)
        logits[i] = -321.5f; /* any constant */
    assert_float_equal((float)wnw__nll_of(logits, 1000, 17), logf(1000.0f), 1e-6f);
    assert_float_equal((float)wnw__nll_of(logits, 1, 0), 0.0f, 0.0f);
}

static void by_hand(void **state)
{
    (void)state;
    /* softmax of ln 1, ln 2, ln 3, ln 4 is 0.1, 0.2, 0.3, 0.4 */
    const float logits[] = {0.0f, logf(2.0f), logf(3.0f), logf(4.0f)};
    for (int i = 0; i < 4; i++)
        assert_float_equal((float)wnw__nll_of(logits, 4, i), -logf(0.1f * (float)(i + 1)), 1e-6f);
    const float far[] = {0.0f, 1000.0f, -1000.0f}; /* neither overflows nor becomes NaN */
    assert_float_equal((float)wnw__nll_of(far, 3, 1), 0.0f, 0.0f);
    assert_float_equal((float)wnw__nll_of(far, 3, 2), 2000.0f, 0.0f);
}

static void rows_needed(void **state)
{
    (void)state;
    struct wnw__nll w;
    assert_ok(wnw__nll_init(&w, 0));
    wnw__nll_begin(&w, 0, 100);
    assert_int_equal(wnw__nll_rows(&w, 0, 100), 1); /* nothing is wanted */
    assert_ok(wnw__nll_init(&w, 10));
    assert_int_equal(wnw__nll_rows(&w, 0, 100), 1);
    wnw__nll_begin(&w, 0, 100); /* tokens 90..99, that is, rows 89..98, and the last one */
    assert_int_equal(wnw__nll_rows(&w, 0, 100), 11);
    assert_int_equal(wnw__nll_rows(&w, 0, 64), 1);
    assert_int_equal(wnw__nll_rows(&w, 64, 26), 1); /* row 89 is its last */
    assert_int_equal(wnw__nll_rows(&w, 64, 27), 2);
    assert_int_equal(wnw__nll_rows(&w, 95, 5), 5);
    wnw__nll_begin(&w, 0, 4); /* a prompt shorter than the window */
    assert_int_equal(wnw__nll_rows(&w, 0, 4), 4);
    wnw__nll_free(&w);
}

/* Reads n tokens in batches of n_batch with made-up logits, row t giving token t + 1. */
static void read_all(struct wnw__nll *w, const float *logits, const int32_t *tokens, int32_t n,
                     int32_t n_batch, bool all_rows)
{
    struct wnw__pool pool = {.n_threads = 2, .gather = test_gather};
    wnw__nll_begin(w, 0, n);
    for (int32_t at = 0; at < n; at += n_batch) {
        const int32_t n_now = n - at < n_batch ? n - at : n_batch;
        const int32_t n_rows = all_rows ? n_now : wnw__nll_rows(w, at, n_now);
        const struct wnw__nll_batch b = {.tokens = tokens + at,
                                         .first = at,
                                         .n = n_now,
                                         .before = at > 0 ? logits + (at - 1) * VOCAB : NULL,
                                         .rows = logits + (at + n_now - n_rows) * VOCAB,
                                         .n_rows = n_rows,
                                         .n_vocab = VOCAB,
                                         .pool = &pool};
        wnw__nll_take(w, &b);
    }
}

static double perplexity(const float *logits, const int32_t *tokens, int32_t n, int32_t window)
{
    const int32_t first = window < n ? n - window : 1;
    double sum = 0.0;
    for (int32_t t = first; t < n; t++)
        sum += wnw__nll_of(logits + (t - 1) * VOCAB, VOCAB, tokens[t]);
    return exp(sum / (n - first));
}

static void any_batch(void **state)
{
    (void)state;
    enum { N = 53 };
    static const int32_t sizes[] = {N, 32, 13, 10, 2, 1}, windows[] = {1, 2, 10, 52, 53, 80};
    float logits[N * VOCAB];
    int32_t tokens[N];
    uint64_t seed = 4;
    for (int i = 0; i < N * VOCAB; i++)
        logits[i] = (float)(test_random(&seed) % 1000) / 100.0f;
    for (int i = 0; i < N; i++)
        tokens[i] = (int32_t)(test_random(&seed) % VOCAB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
            for (int all = 0; all < 2; all++) {
                struct wnw__nll w, copy;
                double got;
                assert_ok(wnw__nll_init(&w, windows[k]));
                read_all(&w, logits, tokens, N, sizes[i], all);
                assert_ok(wnw__nll_copy(&copy, &w));
                wnw__nll_free(&w);
                assert_ok(wnw__nll_perplexity(&copy, N, windows[k], &got));
                assert_float_equal((float)(got / perplexity(logits, tokens, N, windows[k])), 1.0f, 1e-6f);
                wnw__nll_free(&copy);
            }
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    const float logits[4 * VOCAB] = {0};
    const int32_t tokens[4] = {0, 1, 2, 3};
    struct wnw__nll w;
    double x;
    assert_ok(wnw__nll_init(&w, 3));
    assert_error(wnw__nll_perplexity(&w, 4, 3, &x), WNW_E_NOT_OBSERVED); /* nothing read */
    assert_error(wnw__nll_perplexity(&w, 1, 3, &x), WNW_E_NOT_OBSERVED); /* one token */
    read_all(&w, logits, tokens, 4, 4, false);
    assert_ok(wnw__nll_perplexity(&w, 4, 3, &x));
    assert_float_equal((float)x, 5.0f, 1e-5f);
    assert_ok(wnw__nll_perplexity(&w, 4, 2, &x));                        /* a smaller window */
    assert_error(wnw__nll_perplexity(&w, 5, 3, &x), WNW_E_NOT_OBSERVED); /* something was read since */
    assert_error(wnw__nll_perplexity(&w, 9, 8, &x), WNW_E_NOT_OBSERVED); /* a larger window */
    wnw__nll_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_logits),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(rows_needed),
        cmocka_unit_test(any_batch),
        cmocka_unit_test(what_is_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
