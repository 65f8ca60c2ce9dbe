/* SPDX-License-Identifier: MIT */
#include "generated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The program, which the build names where it makes it. */
#ifndef WNW_TEST_LLAMA_ARCHS
#define WNW_TEST_LLAMA_ARCHS ""
#endif

/* It takes a pattern of families' names, and writes all kinds of each. */
static void pattern_of(char *out, size_t cap, const char *const *names, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        const char *end = strrchr(names[i], '-');
        assert_non_null(end);
        len +=
            (size_t)snprintf(out + len, cap - len, "%s%.*s", i ? "|" : "", (int)(end - names[i]), names[i]);
        assert_cmp(len, <, cap);
    }
}

void test_generate(struct test_generated *g, const char *const *names, size_t n)
{
    char command[4096], pattern[2048];
    *g = (struct test_generated){.folder = "/tmp/winnow-generated-XXXXXX"};
    if (!*WNW_TEST_LLAMA_ARCHS)
        skip();
    pattern_of(pattern, sizeof pattern, names, n);
    assert_non_null(mkdtemp(g->folder));
    const int len =
        snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive '%s' -s 1 -o %s -a '^(%s)$' >%s/log 2>&1",
                 WNW_TEST_LLAMA_ARCHS, g->folder, pattern, g->folder);
    assert_in_range(len, 1, sizeof command - 1);
    assert_int_equal(system(command), 0);
}

bool test_generated_path(const struct test_generated *g, char *out, size_t cap, const char *name)
{
    const int len = snprintf(out, cap, "%s/%s.gguf", g->folder, name);
    assert_in_range(len, 1, cap - 1);
    return access(out, R_OK) == 0;
}

void test_generated_remove(struct test_generated *g)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", g->folder);
    assert_int_equal(system(command), 0);
}
