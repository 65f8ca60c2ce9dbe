/* SPDX-License-Identifier: MIT */
/* Products of few rows with stored ones: scores (mul_rows) and sums of values (accumulate), every type and size. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const wnw_kv_type types[] = {WNW_KV_F16, WNW_KV_F32, WNW_KV_Q8_0, WNW_KV_Q4_0};
enum { N_TYPE = sizeof types / sizeof *types };

static bool is_blocked(wnw_kv_type type)
{
    return type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0;
}

/* Stored rows, and their values. */
struct rows {
    void *packed;
    float *value;
};

static struct rows rows_of(wnw_kv_type type, int32_t n, int32_t d)
{
    const size_t total = (size_t)n * (size_t)d;
    float *x = test_random_floats(total, 5, 2.0f);
    struct rows r = {.packed = malloc(wnw__row_bytes(type, d) * (size_t)n),
                     .value = malloc(total * sizeof *x)};
    assert_non_null(r.packed);
    assert_non_null(r.value);
    wnw__rows_from_f32(type, x, n, d, r.packed);
    wnw__rows_to_f32(type, r.packed, n, d, r.value);
    free(x);
    return r;
}

static void rows_free(struct rows *r)
{
    free(r->packed);
    free(r->value);
}

static void check_scores(const struct wnw__vec *vec, wnw_kv_type type, int32_t na, int32_t nb, int32_t d)
{
    struct rows b = rows_of(type, nb, d);
    const int32_t ld = nb + 3;
    float *a = test_random_floats((size_t)(na * d), 6, 1.0f), *out = malloc((size_t)(na * ld) * sizeof *out);
    assert_non_null(out);
    for (int32_t i = 0; i < na * ld; i++)
        out[i] = 777.0f;
    vec->mul_rows(type, a, na, b.packed, wnw__row_bytes(type, d), nb, d, 0.5f, out, ld);
    for (int32_t r = 0; r < na; r++) {
        double most = 0.0;
        for (int32_t c = 0; c < d; c++)
            most = fmax(most, fabs((double)a[r * d + c]));
        for (int32_t j = 0; j < nb; j++) {
            double sum = 0.0, size = 0.0;
            for (int32_t c = 0; c < d; c++) {
                const double x = (double)b.value[j * d + c];
                sum += 0.5 * (double)a[r * d + c] * x;
                size += 0.5 * fabs(x);
            }
            /* Each sum is rounded once; queries may be rounded to 15 bits of the largest, half a unit off at most. */
            const double rounding = size * most * d * 0x1p-24;
            assert_near(sum, out[r * ld + j], rounding + (is_blocked(type) ? size * most / 65534.0 : 0.0));
        }
        for (int32_t j = nb; j < ld; j++)
            assert_cmp(out[r * ld + j], ==, 777.0f);
    }
    rows_free(&b);
    free(a);
    free(out);
}

static void scores_equal_loops(void **state)
{
    (void)state;
    static const int32_t d[] = {32, 64, 80, 96, 128, 256, 512, 576};
    static const int32_t size[][2] = {{1, 1}, {2, 4}, {3, 64}, {4, 63}, {5, 2}, {7, 64}, {8, 5}};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < N_TYPE; i++)
            for (size_t j = 0; j < sizeof d / sizeof *d; j++)
                for (size_t k = 0; k < sizeof size / sizeof *size; k++)
                    if (wnw__row_bytes(types[i], d[j]) > 0)
                        check_scores(wnw__vec_at(t), types[i], size[k][0], size[k][1], d[j]);
}

/* A row of 512 times -128 or 127 and a query that is as large everywhere: no sum of whole numbers overflows. By hand, with a
 * scale of 1: 3 * 512 * 127 = 195072, -3 * 512 * 128 = -196608; a query of zeros gives 0. */
static void largest_numbers(void **state)
{
    (void)state;
    enum { D = 512, BLOCKS = D / 32 };
    uint8_t row[2][BLOCKS * 34];
    float a[3][D];
    for (int b = 0; b < BLOCKS; b++)
        for (int j = 0; j < 2; j++) {
            uint8_t *block = row[j] + b * 34;
            block[0] = 0x00; /* 1 in f16 */
            block[1] = 0x3c;
            memset(block + 2, j ? 0x80 : 0x7f, 32);
        }
    for (int c = 0; c < D; c++) {
        a[0][c] = 3.0f;
        a[1][c] = -3.0f;
        a[2][c] = 0.0f;
    }
    for (int t = 0; wnw__vec_at(t); t++) {
        float out[3][2];
        wnw__vec_at(t)->mul_rows(WNW_KV_Q8_0, a[0], 3, row, sizeof row[0], 2, D, 1.0f, out[0], 2);
        assert_near(195072.0, out[0][0], 0.05);
        assert_near(-196608.0, out[0][1], 0.05);
        assert_near(-195072.0, out[1][0], 0.05);
        assert_near(196608.0, out[1][1], 0.05);
        assert_cmp(out[2][0], ==, 0.0f);
        assert_cmp(out[2][1], ==, 0.0f);
    }
}

static void check_values(const struct wnw__vec *vec, wnw_kv_type type, int32_t rows, int32_t n, int32_t d)
{
    struct rows v = rows_of(type, n, d);
    float *p = test_random_floats((size_t)rows * WNW_TILE, 7, 1.0f),
          *corr = test_random_floats((size_t)rows, 8, 1.0f);
    float *o = test_random_floats((size_t)(rows * d), 9, 1.0f),
          *was = malloc((size_t)(rows * d) * sizeof *was);
    assert_non_null(was);
    memcpy(was, o, (size_t)(rows * d) * sizeof *was);
    vec->accumulate(type, p, rows, corr, v.packed, wnw__row_bytes(type, d), n, d, o);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t c = 0; c < d; c++) {
            double sum = (double)corr[r] * (double)was[r * d + c];
            for (int32_t k = 0; k < n; k++)
                sum += (double)p[r * WNW_TILE + k] * (double)v.value[k * d + c];
            assert_near(sum, o[r * d + c], (n + 1) * 2.0 * n * 0x1p-24);
        }
    rows_free(&v);
    free(p);
    free(corr);
    free(o);
    free(was);
}

static void values_equal_loops(void **state)
{
    (void)state;
    static const int32_t d[] = {32, 64, 96, 128, 256}; /* rows are padded to multiples of 32 */
    static const int32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13}, n[] = {1, 2, 63, WNW_TILE};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < N_TYPE; i++)
            for (size_t j = 0; j < sizeof d / sizeof *d; j++)
                for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
                    for (size_t l = 0; l < sizeof n / sizeof *n; l++)
                        check_values(wnw__vec_at(t), types[i], rows[k], n[l], d[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_equal_loops),
        cmocka_unit_test(largest_numbers),
        cmocka_unit_test(values_equal_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
