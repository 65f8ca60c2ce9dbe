/* SPDX-License-Identifier: MIT */
/*
 * Asserts that show the values they compare, in addition to those of cmocka, which is included here. A table of cases
 * runs as one cmocka test per row, so that the output has the name of the row and the other rows still run.
 */
#ifndef WNW_TESTS_ASSERTS_H
#define WNW_TESTS_ASSERTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "winnow.h"

/* expr returns WNW_OK; else wnw_last_error() is shown. */
#define assert_ok(expr) test_status((expr), WNW_OK, #expr, __FILE__, __LINE__)
/* expr returns the error `code` and leaves a sentence for the user. */
#define assert_error(expr, code) test_status((expr), (code), #expr, __FILE__, __LINE__)
/* The sentence about the last error holds `part`. */
#define assert_says(part) assert_contains(wnw_last_error(), part)

/* a op b, for numbers of any type; b is evaluated a second time to be shown. */
#define assert_cmp(a, op, b)                                                                        \
    do {                                                                                            \
        const __typeof__(a) of_a_ = (a);                                                            \
        if (!(of_a_ op(b)))                                                                         \
            test_cmp_failed(#a, #op, #b, (long double)of_a_, (long double)(b), __FILE__, __LINE__); \
    } while (0)

/* |got - want| <= tolerance; no NaN is near anything. */
#define assert_near(got, want, tolerance) \
    test_near((double)(got), (double)(want), (double)(tolerance), #got, __FILE__, __LINE__)

/* Arrays of n elements; the first difference is shown with its index. want: float * or double *. */
#define assert_floats_near(got, want, n, tolerance) \
    _Generic((want),                                                                                         \
        float *: test_floats_near,                                                                           \
        const float *: test_floats_near,                                                                     \
        double *: test_doubles_near,                                                                         \
        const double *: test_doubles_near)(got, want, (int64_t)(n), (double)(tolerance), #got, __FILE__, __LINE__)
/* The first elements of got are these: assert_values(got, 1e-6, 0.5, 1.5). */
#define assert_values(got, tolerance, ...)                                               \
    test_doubles_near(got, (const double[]){__VA_ARGS__},                                \
                      (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), \
                      (double)(tolerance), #got, __FILE__, __LINE__)
#define assert_ints(got, ...)                                                                         \
    test_same_ints(got, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}), #got, \
                   __FILE__, __LINE__)
/* All of x[n] is a number. */
#define assert_all_finite(x, n) test_all_finite(x, (int64_t)(n), #x, __FILE__, __LINE__)

#define assert_contains(text, part) test_contains(text, part, true, #text, __FILE__, __LINE__)
#define assert_lacks(text, part)    test_contains(text, part, false, #text, __FILE__, __LINE__)

/* These two compare as cmocka's and show more: integers in decimal; arrays of floats and of 32-bit integers with the
 * index and both values of the first element whose bits differ. */
#undef assert_int_equal
#define assert_int_equal(a, b) test_int_equal((intmax_t)(a), (intmax_t)(b), #a, #b, __FILE__, __LINE__)
#undef assert_memory_equal
#define assert_memory_equal(got, want, bytes) \
    _Generic((got), \
        float *: test_same_floats, \
        const float *: test_same_floats, \
        int32_t *: test_same_ints, \
        const int32_t *: test_same_ints, \
        default: test_same_bytes)(got, want, (size_t)(bytes), #got, __FILE__, __LINE__)

/* max |a - b| / max |b| of n floats; infinite where one is not a number or b is all 0. */
double test_relative_error(const float *a, const float *b, size_t n);
/* sum a b of n floats, in double precision. */
double test_dot(const float *a, const float *b, int32_t n);

void test_status(int rc, int want, const char *expr, const char *file, int line);
void test_cmp_failed(const char *a, const char *op, const char *b, long double of_a, long double of_b,
                     const char *file, int line);
void test_near(double got, double want, double tolerance, const char *what, const char *file, int line);
void test_floats_near(const float *got, const float *want, int64_t n, double tolerance, const char *what,
                      const char *file, int line);
void test_doubles_near(const float *got, const double *want, int64_t n, double tolerance, const char *what,
                       const char *file, int line);
void test_same_floats(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                      int line);
void test_same_ints(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                    int line);
void test_same_bytes(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                     int line);
void test_all_finite(const float *x, int64_t n, const char *what, const char *file, int line);
void test_contains(const char *text, const char *part, bool wanted, const char *what, const char *file,
                   int line);
void test_int_equal(intmax_t a, intmax_t b, const char *of_a, const char *of_b, const char *file, int line);

/* Skips the test that calls it under ThreadSanitizer, which compares threads: a test with a single one at a time costs
 * most of its time there, and could never fail. */
void test_has_one_thread(void);

/* Whether the test runs under AddressSanitizer or ThreadSanitizer, which look at what code and its threads do with memory, many times more
 * slowly. What code computes is tested without them. */
bool test_looks_at_memory(void);
/* Whether a test of all combinations of three or more lists of sizes takes this one, `sum` being that of its numbers in the lists. Under
 * sanitizers that is a third of them, in which every two sizes occur together, as long as another list has three sizes. */
bool test_takes_sizes(size_t sum);

/* Runs test(&row) for every row of an array whose elements begin with `const char *name`, as a group of cmocka
 * tests of these names. Returns how many failed, as cmocka_run_group_tests. set_up and tear_down may be NULL; *state is
 * between them alone. */
#define run_rows(test, rows) \
    test_run_rows(#test, test, rows, sizeof(rows) / sizeof *(rows), sizeof *(rows), NULL, NULL)
#define run_rows_with(test, rows, set_up, tear_down) \
    test_run_rows(#test, test, rows, sizeof(rows) / sizeof *(rows), sizeof *(rows), set_up, tear_down)
int test_run_rows(const char *group, CMUnitTestFunction test, const void *rows, size_t n, size_t size,
                  CMFixtureFunction set_up, CMFixtureFunction tear_down);

#endif
