/* SPDX-License-Identifier: MIT */
/* Copies of the tests' models with other keys, for the length of a test. */
#ifndef WNW_TESTS_GGUF_FILES_H
#define WNW_TESTS_GGUF_FILES_H

#include <gguf.h>

struct test_gguf {
    struct gguf_context *gguf;
    struct ggml_context *tensors;
    char path[64];
};

/* Reads a model of the cache folder; keys may be changed before it is written. */
struct test_gguf test_gguf_load(const char *name);
/* Sets one token's text and, unless type < 0, its type. */
void test_gguf_set_token(struct test_gguf *f, int at, const char *text, int type);
/* Writes the file at f->path. */
void test_gguf_write(struct test_gguf *f);
/* Removes the file and releases f. */
void test_gguf_clear(struct test_gguf *f);

#endif
