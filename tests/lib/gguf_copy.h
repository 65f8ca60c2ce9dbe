/* SPDX-License-Identifier: MIT */
/* Copies of the tests' models with other keys, as files for the length of a test. */
#ifndef WNW_TESTS_GGUF_COPY_H
#define WNW_TESTS_GGUF_COPY_H

#include "gguf_edit.h"

struct test_gguf_copy {
    struct test_gguf file; /* keys of file.g may be changed before the copy is written */
    char path[64];
};

/* Reads a model of the cache folder. */
struct test_gguf_copy test_gguf_copy_of(const char *name);
/* Sets one token's text and, unless type < 0, its type. */
void test_gguf_copy_token(struct test_gguf_copy *c, int at, const char *text, int type);
/* Writes the file at c->path. */
void test_gguf_copy_write(const struct test_gguf_copy *c);
/* Removes the file and releases c. */
void test_gguf_copy_remove(struct test_gguf_copy *c);

#endif
