/* SPDX-License-Identifier: MIT */
#include "asserts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void test_status(int rc, int want, const char *expr, const char *file, int line)
{
    if (rc == want && (want == WNW_OK || wnw_last_error()[0] != '\0'))
        return;
    print_error("%s\n  returned %d (%s), expected %d (%s)\n  last error: \"%s\"\n", expr, rc,
                wnw_strerror(rc), want, wnw_strerror(want), rc == WNW_OK ? "" : wnw_last_error());
    _fail(file, line);
}

void test_cmp_failed(const char *a, const char *op, const char *b, long double of_a, long double of_b,
                     const char *file, int line)
{
    print_error("not %s %s %s\n  but %.19Lg and %.19Lg\n", a, op, b, of_a, of_b);
    _fail(file, line);
}

void test_near(double got, double want, double tolerance, const char *what, const char *file, int line)
{
    if (fabs(got - want) <= tolerance)
        return;
    print_error("%s is %.9g, expected %.9g within %.3g\n", what, got, want, tolerance);
    _fail(file, line);
}

static void element_failed(const char *what, int64_t i, int64_t n, double got, double want, const char *file,
                           int line)
{
    print_error("element %lld of %lld of %s is %.9g, expected %.9g\n", (long long)i, (long long)n, what, got,
                want);
    _fail(file, line);
}

void test_floats_near(const float *got, const float *want, int64_t n, double tolerance, const char *what,
                      const char *file, int line)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance))
            element_failed(what, i, n, (double)got[i], (double)want[i], file, line);
}

void test_doubles_near(const float *got, const double *want, int64_t n, double tolerance, const char *what,
                       const char *file, int line)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            element_failed(what, i, n, (double)got[i], want[i], file, line);
}

/* Index of the first of the n elements of `size` bytes that differs between the arrays; n if they are the same. */
static int64_t first_difference(const void *got, const void *want, int64_t n, size_t size)
{
    const char *a = got, *b = want;
    int64_t i = n > 0 && memcmp(a, b, (size_t)n * size) == 0 ? n : 0; /* as it should be, in one go */
    while (i < n && memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0)
        i++;
    return i;
}

#define SAME_ARRAY(type)                                                                                  \
    const type *a = got, *b = want;                                                                       \
    const int64_t n = (int64_t)(bytes / sizeof *a), i = first_difference(a, b, n, sizeof *a);             \
    test_int_equal((intmax_t)(bytes % sizeof *a), 0, "bytes after the last element", "none", file, line); \
    if (i < n)                                                                                            \
    element_failed(what, i, n, (double)a[i], (double)b[i], file, line)

void test_same_floats(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                      int line)
{
    SAME_ARRAY(float);
}

void test_same_ints(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                    int line)
{
    SAME_ARRAY(int32_t);
}

void test_same_bytes(const void *got, const void *want, size_t bytes, const char *what, const char *file,
                     int line)
{
    SAME_ARRAY(uint8_t);
}

void test_all_finite(const float *x, int64_t n, const char *what, const char *file, int line)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            print_error("element %lld of %lld of %s is %g\n", (long long)i, (long long)n, what, (double)x[i]);
            _fail(file, line);
        }
}

void test_contains(const char *text, const char *part, bool wanted, const char *what, const char *file,
                   int line)
{
    if (text && part && (strstr(text, part) != NULL) == wanted)
        return;
    print_error("%s \"%s\" in %s, which is\n  \"%.600s\"\n", wanted ? "expected" : "not expected",
                part ? part : "(null)", what, text ? text : "(null)");
    _fail(file, line);
}

void test_int_equal(intmax_t a, intmax_t b, const char *of_a, const char *of_b, const char *file, int line)
{
    if (a == b)
        return;
    print_error("%s == %s\n  but %jd and %jd\n", of_a, of_b, a, b);
    _fail(file, line);
}

void test_has_one_thread(void)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
}

bool test_looks_at_memory(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return true;
#else
    return false;
#endif
}

bool test_takes_sizes(size_t sum)
{
    return !test_looks_at_memory() || sum % 3 == 0;
}

/* The fixture of the rows that run. Its state is not the group's, which cmocka would give to the tests in place of their
 * rows. */
static struct {
    CMFixtureFunction set_up, tear_down;
    void *state;
} of_rows;

static int set_up_rows(void **state)
{
    (void)state;
    return of_rows.set_up ? of_rows.set_up(&of_rows.state) : 0;
}

static int tear_down_rows(void **state)
{
    (void)state;
    return of_rows.tear_down ? of_rows.tear_down(&of_rows.state) : 0;
}

int test_run_rows(const char *group, CMUnitTestFunction test, const void *rows, size_t n, size_t size,
                  CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < n; i++) {
        const char *row = (const char *)rows + i * size;
        memcpy(&tests[i].name, row, sizeof tests[i].name);
        tests[i].test_func = test;
        tests[i].initial_state = (void *)(uintptr_t)row;
    }
    of_rows.set_up = set_up;
    of_rows.tear_down = tear_down;
    of_rows.state = NULL;
    const int n_failed = _cmocka_run_group_tests(group, tests, n, set_up_rows, tear_down_rows);
    free(tests);
    return n_failed;
}

double test_relative_error(const float *a, const float *b, size_t n)
{
    double worst = 0.0, top = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double e = fabs((double)a[i] - (double)b[i]);
        if (!(e <= worst))
            worst = isnan(e) ? HUGE_VAL : e;
        top = fmax(top, fabs((double)b[i]));
    }
    return top > 0.0 ? worst / top : HUGE_VAL;
}

/* References of attention spend their time here. Sanitizers, which look at what is tested, make it fifteen times longer. */
#if defined(__GNUC__) && !defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread"), optimize("O3")))
#else
#define UNWATCHED
#endif

/* In four sums, because one would wait for itself. */
UNWATCHED double test_dot(const float *a, const float *b, int32_t n)
{
    double sum[4] = {0};
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}
