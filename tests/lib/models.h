/* SPDX-License-Identifier: MIT */
/* Models and files that tests read. A test fails with what to do where one is missing. */
#ifndef WNW_TESTS_MODELS_H
#define WNW_TESTS_MODELS_H

#include "asserts.h"

/* $WINNOW_CACHE/models/<name>, default ~/.cache/winnow. The test fails if there is no such file. */
void test_model_path(char *out, size_t cap, const char *name);
/* Whether there is such a file; its path in any case. */
bool test_has_model(char *out, size_t cap, const char *name);
/* The model, opened; released with wnw_model_free. */
wnw_model *test_model_open(const char *name);

#define TEST_NAME_MAX 96
#define TEST_TINY_MAX 32 /* tiny models at most */

/* Whether no tensor of the GGUF file is quantised. */
bool test_all_float(const char *path);
/* Writes a copy of the model with all weights in float32, `out` becomes its path. To be removed by the caller. */
void test_float32_copy(char *out, size_t cap, const char *name);
/* Name, for test_model_open, of a tiny model of this architecture with float32 weights: the one that has most
 * KV heads. */
void test_tiny_model_of(char name[TEST_NAME_MAX], const char *arch);
/* The same, opened; released with wnw_model_free. */
wnw_model *test_tiny_open(const char *arch);

/* The .gguf files of $WINNOW_CACHE/models/tiny, sorted; at most cap. The test fails if there are none. */
int test_tiny_models(char (*names)[TEST_NAME_MAX], int cap);

/* An open model with tokens to read. */
struct test_model {
    wnw_model *m;
    wnw_model_info info;
    int32_t *tokens; /* [n_tokens] of the open call, random numbers of its seed */
};
void test_open(struct test_model *t, const char *name, int32_t n_tokens, uint64_t seed);
/* The one test_tiny_model_of finds. */
void test_open_tiny(struct test_model *t, const char *arch, int32_t n_tokens, uint64_t seed);
void test_close(struct test_model *t);
/* Functions of a group of tests whose fixture is a model, or begins with one: *state becomes t. */
int test_set_up(void **state, struct test_model *t, const char *name, int32_t n_tokens, uint64_t seed);
int test_set_up_tiny(void **state, struct test_model *t, const char *arch, int32_t n_tokens, uint64_t seed);
int test_tear_down(void **state);

/* tests/golden/<name>. */
void test_golden_path(char *out, size_t cap, const char *name);
/* The token ids of tests/golden/tokens.txt; *n is how many. Released with free. */
int32_t *test_golden_tokens(int32_t *n);

#endif
