/* SPDX-License-Identifier: MIT */
/* Models of families that llama.cpp's own test of its architectures writes (archs/), as files for the length of a test. */
#ifndef WNW_TESTS_GENERATED_H
#define WNW_TESTS_GENERATED_H

#include "asserts.h"

struct test_generated {
    char folder[40];
};

/* Has n models written. A name is that of a family and, after a dash, of its kind ("llama-moe"). Skips the test where that program was
 * not built. */
void test_generate(struct test_generated *g, const char *const *names, size_t n);
/* Whether the model was written; its path in any case. */
bool test_generated_path(const struct test_generated *g, char *out, size_t cap, const char *name);
/* Removes the files. */
void test_generated_remove(struct test_generated *g);

#endif
