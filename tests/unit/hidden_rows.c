/* SPDX-License-Identifier: MIT */
/* Hidden states that wait between layers, as they are and in f16. */
#include "asserts.h"

#include "peek_session.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 50, D = 37, MOST = 8 };

static float *random_rows(void)
{
    float *x = test_random_floats(N * D, 3, 1.0f);
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D; c++)
            x[i * D + c] =
                ldexpf(x[i * D + c], i * 4 - 100 + (c == 5 ? 12 : 0)); /* one large value in a row */
    return x;
}

static void put_all(struct wnw__hidden_rows *h, const float *x)
{
    for (int at = 0; at < N; at += MOST) {
        const int n = N - at < MOST ? N - at : MOST;
        memcpy(wnw__hidden_rows_take(h, at, n, false), x + at * D, (size_t)(n * D) * sizeof *x);
        wnw__hidden_rows_put(h);
    }
}

static void float32_is_kept(void **state)
{
    struct wnw__hidden_rows *h;
    float *x = random_rows();
    (void)state;
    assert_ok(wnw__hidden_rows_new(&h, N, D, MOST, false));
    put_all(h, x);
    assert_memory_equal(wnw__hidden_rows_take(h, 0, N, true), x, N * D * sizeof *x);
    assert_memory_equal(wnw__hidden_rows_take(h, 9, 2, true), x + 9 * D, 2 * D * sizeof *x);
    wnw__hidden_rows_free(h);
    free(x);
}

static void f16_is_near(void **state)
{
    struct wnw__hidden_rows *h;
    float *x = random_rows();
    (void)state;
    assert_ok(wnw__hidden_rows_new(&h, N, D, MOST, true));
    put_all(h, x);
    for (int at = N - 3; at >= 0; at--) {
        const float *got = wnw__hidden_rows_take(h, at, 3, true);
        for (int i = 0; i < 3; i++) {
            float top = 0;
            for (int c = 0; c < D; c++)
                top = fmaxf(top, fabsf(x[(at + i) * D + c]));
            for (int c = 0; c < D; c++) {
                const double want = x[(at + i) * D + c];
                assert_near(got[i * D + c], want, ldexp(fabs(want), -11) + ldexp(top, -39));
            }
        }
        wnw__hidden_rows_put(h); /* what f16 holds stays as it is */
    }
    wnw__hidden_rows_free(h);
    free(x);
}

/* f16 has eleven bits: 2049 lies between 2048 and 2050, next to 1 as next to 2^20; powers of two are exact. */
static void f16_by_hand(void **state)
{
    struct wnw__hidden_rows *h;
    (void)state;
    assert_ok(wnw__hidden_rows_new(&h, 4, 4, 4, true));
    const float x[16] = {2049, 1, 0, -3, 1048576, 2051, 3.0e-5f, 8, INFINITY, 1, NAN, 2, 0, 0, 0, 0};
    memcpy(wnw__hidden_rows_take(h, 0, 4, false), x, sizeof x);
    wnw__hidden_rows_put(h);
    const float *got = wnw__hidden_rows_take(h, 0, 4, true);
    assert_values(got, 0, 2048, 1, 0, -3, 1048576, 2052);
    assert_near(got[6], 3.0e-5, 0x1p-19); /* below 2^-28 of the largest */
    assert_near(got[7], 8, 0);
    assert_true(isinf(got[8]) && isnan(got[10]));
    assert_near(got[9], 1, 0);
    for (int i = 12; i < 16; i++)
        assert_near(got[i], 0, 0);
    wnw__hidden_rows_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(float32_is_kept), cmocka_unit_test(f16_is_near),
                                       cmocka_unit_test(f16_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
