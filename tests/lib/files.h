/* SPDX-License-Identifier: MIT */
/* Files of a test's own. The test removes those that have a name. */
#ifndef WNW_TESTS_FILES_H
#define WNW_TESTS_FILES_H

#include "asserts.h"

#include <stdio.h>

/* Makes an empty file. The XXXXXX that `path` ends with become what no other file there is called. */
void test_file_new(char *path);
/* The same with these bytes in it. */
void test_file_of(char *path, const void *bytes, size_t n);

/* What a function writes to standard error: between the two calls it goes to a file without a name. */
struct test_stderr {
    FILE *file;
    int was; /* standard error, outside */
};
void test_stderr_begin(struct test_stderr *s);
/* said[n] gets what came, as far as it has room, and ends with a NUL. Returns how many bytes came. */
size_t test_stderr_end(struct test_stderr *s, char *said, size_t n);

#endif
