/* SPDX-License-Identifier: MIT */
/*
 * What the model tests share: finding models and data, making sessions, comparing logits. Everything that
 * goes wrong here fails the running cmocka test with a sentence that says what to do.
 */
#ifndef WNW_TESTS_HELPERS_H
#define WNW_TESTS_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "winnow.h"

/* Fails the test with wnw_last_error() unless expr is WNW_OK. */
#define assert_ok(expr) test_assert_status((expr), WNW_OK, #expr, __FILE__, __LINE__)
/* Fails the test unless expr is the error `code`, with a sentence for the user. */
#define assert_error(expr, code) test_assert_status((expr), (code), #expr, __FILE__, __LINE__)
void test_assert_status(int rc, int want, const char *expr, const char *file, int line);

/* $WINNOW_CACHE/models/<name>, default ~/.cache/winnow. The test fails if there is no such file. */
void test_model_path(char *out, size_t cap, const char *name);
/* Whether there is such a file; its path in any case. */
bool test_has_model(char *out, size_t cap, const char *name);
/* The model, opened; released with wnw_model_free. */
wnw_model *test_model_open(const char *name);

#define TEST_NAME_MAX 96

/* Whether no tensor of the GGUF file is quantised. */
bool test_all_float(const char *path);
/* Name, for test_model_open, of the tiny model of this architecture with float32 weights and most KV heads. */
void test_tiny_model_of(char name[TEST_NAME_MAX], const char *arch);

/* The .gguf files of $WINNOW_CACHE/models/tiny, sorted; at most cap. The test fails if there are none. */
int test_tiny_models(char (*names)[TEST_NAME_MAX], int cap);

/* tests/golden/<name>. */
void test_golden_path(char *out, size_t cap, const char *name);
/* Whitespace separated token ids; *n is how many. Released with free. */
int32_t *test_read_tokens(const char *path, int32_t *n);
/* n token ids in 0..n_vocab-1 that depend only on the seed. Released with free. */
int32_t *test_random_tokens(int32_t n, int32_t n_vocab, uint64_t seed);
/* Next number of a 64-bit generator (splitmix64); the same on every machine. */
uint64_t test_random(uint64_t *state);

struct test_session {
    wnw_kv_type kv_type;
    wnw_attn attn;
    int32_t n_ctx;
    int32_t n_threads; /* 0 = usable cores, at most 2 */
};
wnw_session *test_session_new(const wnw_model *m, const struct test_session *want);
/* Tokens without any callback. */
void test_prefill(wnw_session *s, const int32_t *tokens, int32_t n);
/* The policy of a recipe; released with wnw_policy_free. */
wnw_policy *test_policy(const char *recipe);

/* How far logits are from their reference, gathered over any number of positions. */
struct test_diff {
    int64_t n;          /* positions compared */
    int64_t top1;       /* of which the most likely token is the same */
    int64_t identical;  /* of which every bit is the same */
    double kl_sum;      /* KL(reference || ours), nats */
    double kl_max;      /* over positions */
    double max_abs;     /* largest difference of one logit */
    double err2, ref2;  /* sums of squares: of the difference, of the reference about its mean */
    double flip_margin; /* largest lead that a reference token had which ours did not put first */
};
void test_diff_add(struct test_diff *d, const float *ref, const float *ours, int32_t n_vocab);
double test_diff_kl(const struct test_diff *d); /* mean over positions */
/* Normalised mean square error: err2 / ref2. Free of the scale of the logits. */
double test_diff_nmse(const struct test_diff *d);
void test_diff_print(const char *what, const struct test_diff *d);

/* Index of the largest logit, the lowest of equals. */
int32_t test_argmax(const float *logits, int32_t n_vocab);

#endif
