/* SPDX-License-Identifier: MIT */
/* Products of quantised weights: hand-computed numbers, every kernel this machine can run against the scalar one, and
 * all of them against ggml's own reading of the weights in double precision. */
#include "asserts.h"
#include "peek_arrays.h"
#include "random.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum ggml_type types[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                       GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};
#define N_TYPE (sizeof types / sizeof *types)

/* ---- Activations ---- */

static void act_by_hand(void **state)
{
    (void)state;
    for (int t = 0; wnw__matmul_at(t); t++) {
        float x[64] = {[0] = 254, [1] = 3, [2] = 5, [3] = -7, [16] = 2, [17] = -254};
        struct wnw__act a;
        for (int i = 32; i < 64; i++)
            x[i] = 1e-33f; /* counts as zero */
        wnw__matmul_at(t)->act_from_f32(x, 64, 1, &a);
        /* scale 254 / 127 = 2; 1.5, 2.5 and -3.5 are ties, which go to the even side */
        assert_float_equal(a.scale[0], 2, 0);
        const int want[4] = {127, 2, 2, -4};
        for (int i = 0; i < 4; i++)
            assert_int_equal(a.q[i], want[i]);
        assert_int_equal(a.q[16], 1);
        assert_int_equal(a.q[17], -127);
        assert_float_equal(a.sum16[0], 2 * 127, 0);
        assert_float_equal(a.sum16[1], 2 * -126, 0);
        assert_float_equal(a.sum32[0], 2 * 1, 0);
        assert_float_equal(a.scale[1], 0, 0);
        assert_int_equal(a.q[40], 0);
    }
}

static void act_of_damage(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; wnw__matmul_at(t); t++)
        for (size_t i = 0; i < 3; i++) {
            float x[64];
            struct wnw__act a;
            for (int k = 0; k < 64; k++)
                x[k] = 1;
            x[5] = bad[i];
            wnw__matmul_at(t)->act_from_f32(x, 64, 1, &a);
            assert_true(isnan(a.scale[0]));
            assert_int_equal(a.q[4], 0);
            assert_int_equal(a.q[5], 0);
            assert_int_equal(a.q[32], 127); /* the next block is whole */
        }
}

static void act_equals_scalar(void **state)
{
    (void)state;
    enum { MOST = 544, TOKENS = 3 };
    float *x = test_random_floats(MOST, 9, 40);
    for (int t = 0; wnw__matmul_at(t); t++)
        for (int32_t k = 32; k <= MOST; k += 32) {
            struct wnw__act ours[3 * TOKENS], want[3 * TOKENS];
            memset(ours, 0, sizeof ours);
            memset(want, 0, sizeof want);
            wnw__matmul_at(t)->act_from_f32(x, k, TOKENS, ours + 1);
            wnw__matmul_scalar()->act_from_f32(x, k, TOKENS, want + 1);
            for (int32_t c = 0; c < k; c += WNW_CHUNK) {
                const struct wnw__act *a = &ours[1 + c / WNW_CHUNK * TOKENS],
                                      *b = &want[1 + c / WNW_CHUNK * TOKENS];
                const size_t n = (size_t)(k - c < WNW_CHUNK ? k - c : WNW_CHUNK);
                assert_memory_equal(a->q, b->q, n);
                assert_memory_equal(a->scale, b->scale, n / 32 * sizeof(float));
                assert_memory_equal(a->sum32, b->sum32, n / 32 * sizeof(float));
                assert_memory_equal(a->sum16, b->sum16, n / 16 * sizeof(float));
            }
        }
    free(x);
}

/* ---- Weights ---- */

/* Rows of the type as a file has them. */
static uint8_t *quantised(enum ggml_type type, int32_t n_row, int32_t k, uint32_t seed)
{
    float *w = test_random_floats((size_t)n_row * (size_t)k, seed, 0.7f);
    uint8_t *rows = malloc(ggml_row_size(type, k) * (size_t)n_row);
    assert_non_null(rows);
    ggml_quantize_chunk(type, w, rows, 0, n_row, k, NULL);
    free(w);
    return rows;
}

static float *dequantised(enum ggml_type type, const uint8_t *rows, int32_t n_row, int32_t k)
{
    float *w = malloc((size_t)n_row * (size_t)k * sizeof *w);
    assert_non_null(w);
    ggml_get_type_traits(type)->to_float(rows, w, (int64_t)n_row * k);
    return w;
}

/* w = d u + m is what ggml reads, in every column of strips that are full and not. */
static void strips_equal_ggml(void **state)
{
    (void)state;
    enum { K = 512 };
    const int32_t n_rows[] = {1, 37, 64};
    struct wnw__strip *s = malloc(sizeof *s);
    assert_non_null(s);
    for (size_t i = 0; i < N_TYPE; i++)
        for (size_t j = 0; j < 3; j++) {
            const struct wnw__weight_type *type = wnw__weight_type((int32_t)types[i]);
            const size_t stride = ggml_row_size(types[i], K);
            uint8_t *rows = quantised(types[i], n_rows[j], K, (uint32_t)i);
            float *w = dequantised(types[i], rows, n_rows[j], K);
            assert_non_null(type);
            assert_int_equal(ggml_row_size(types[i], type->k_unit), type->unit_bytes);
            for (int32_t from = 0; from < K; from += WNW_CHUNK) {
                wnw__matmul_scalar()->unpack[type->id].to_strip(rows, stride, n_rows[j], from, WNW_CHUNK, s);
                for (int32_t r = 0; r < WNW_STRIP; r++)
                    for (int32_t c = 0; c < WNW_CHUNK; c++) {
                        const int32_t b = c / type->block, u = s->u[c / 4][r][c % 4];
                        const float want = r < n_rows[j] ? w[r * K + from + c] : 0.0f;
                        assert_in_range(u, 0, type->u_max);
                        assert_float_equal(s->d[b][r] * (float)u + s->m[b][r], want, 2e-6f);
                    }
            }
            free(rows);
            free(w);
        }
    free(s);
}

static void types_of_others(void **state)
{
    (void)state;
    assert_null(wnw__weight_type((int32_t)GGML_TYPE_F32));
    assert_null(wnw__weight_type((int32_t)GGML_TYPE_F16));
    assert_null(wnw__weight_type((int32_t)GGML_TYPE_Q2_K));
    assert_null(wnw__weight_type(-1));
}

/* ---- Products ---- */

/* y [n_tok][n_row] by kernel `which`; by_eight: rows lie so. */
static float *multiplied_as(const struct wnw__matmul_kernel *kernel, enum ggml_type type, const uint8_t *rows,
                            bool by_eight, int32_t n_row, int32_t k, const float *x, int32_t n_tok)
{
    const size_t n_act = (size_t)wnw__n_chunks(k) * (size_t)n_tok;
    struct wnw__act *act = calloc(n_act, sizeof *act);
    struct wnw__matmul_work *scratch = malloc(sizeof *scratch);
    float *y = malloc((size_t)n_row * (size_t)n_tok * sizeof *y);
    assert_non_null(act);
    assert_non_null(scratch);
    assert_non_null(y);
    for (int32_t t = 0; t < n_tok; t++)
        kernel->act_from_f32(x + (int64_t)t * k, k, n_tok, act + t);
    const struct wnw__matmul p = {.kernel = kernel,
                                  .type = wnw__weight_type((int32_t)type),
                                  .rows = rows,
                                  .stride = ggml_row_size(type, k),
                                  .n_row = n_row,
                                  .k = k,
                                  .n_tok = n_tok,
                                  .act = act,
                                  .y = y,
                                  .ld = n_row,
                                  .by_eight = by_eight};
    for (int32_t i = 0; i < wnw__matmul_pieces(&p); i++)
        wnw__matmul_piece(&p, i, scratch);
    free(act);
    free(scratch);
    return y;
}

static float *multiplied(const struct wnw__matmul_kernel *kernel, enum ggml_type type, const uint8_t *rows,
                         int32_t n_row, int32_t k, const float *x, int32_t n_tok)
{
    return multiplied_as(kernel, type, rows, false, n_row, k, x, n_tok);
}

/* Weights 1 but for row 2, whose are -2; activations 1, 2, 3 in all columns of three tokens: 32, -64, ... */
static void product_by_hand(void **state)
{
    (void)state;
    float w[3 * 32], x[3 * 32];
    uint8_t rows[3 * 34];
    for (int i = 0; i < 96; i++) {
        w[i] = i < 64 ? 1.0f : -2.0f;
        x[i] = (float)(1 + i / 32);
    }
    ggml_quantize_chunk(GGML_TYPE_Q8_0, w, rows, 0, 3, 32, NULL);
    for (int t = 0; wnw__matmul_at(t); t++) {
        float *y = multiplied(wnw__matmul_at(t), GGML_TYPE_Q8_0, rows, 3, 32, x, 3);
        for (int tok = 0; tok < 3; tok++)
            for (int r = 0; r < 3; r++)
                assert_float_equal(y[tok * 3 + r], 32.0f * (float)(tok + 1) * (r < 2 ? 1.0f : -2.0f),
                                   0.02f * 32.0f);
        free(y);
    }
}

static const struct {
    int32_t n_row, k256, n_tok; /* k256: columns in units of 256 where the type wants that, else of 32 */
} shapes[] = {{1, 1, 1}, {63, 2, 2}, {64, 9, 3}, {65, 3, 4}, {130, 5, 5}, {128, 1, 7}, {7, 18, 31}};

static double largest(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
    return most;
}

static void kernels_equal_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPE; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            const int32_t n_row = shapes[j].n_row,
                          k = shapes[j].k256 * wnw__weight_type((int32_t)types[i])->k_unit,
                          n_tok = shapes[j].n_tok;
            const size_t n = (size_t)n_row * (size_t)n_tok;
            uint8_t *rows = quantised(types[i], n_row, k, 100 + (uint32_t)j);
            float *x = test_random_floats((size_t)n_tok * (size_t)k, 7, 5);
            float *want = multiplied(wnw__matmul_scalar(), types[i], rows, n_row, k, x, n_tok);
            const double tolerance = 1e-5 * largest(want, n) + 1e-6;
            for (int t = 0; wnw__matmul_at(t); t++) {
                float *y = multiplied(wnw__matmul_at(t), types[i], rows, n_row, k, x, n_tok);
                for (size_t e = 0; e < n; e++)
                    assert_float_equal(y[e], want[e], (float)tolerance);
                free(y);
            }
            free(rows);
            free(x);
            free(want);
        }
}

/* Rounding activations to 8 bits costs less than half a percent of a product's size; weights cost nothing. */
static void products_near_double(void **state)
{
    (void)state;
    enum { ROWS = 70, K = 768, TOKENS = 11 };
    for (size_t i = 0; i < N_TYPE; i++) {
        uint8_t *rows = quantised(types[i], ROWS, K, 3);
        float *w = dequantised(types[i], rows, ROWS, K), *x = test_random_floats(TOKENS * K, 8, 2);
        for (int t = 0; wnw__matmul_at(t); t++) {
            float *y = multiplied(wnw__matmul_at(t), types[i], rows, ROWS, K, x, TOKENS);
            double wrong = 0, size = 0;
            for (int tok = 0; tok < TOKENS; tok++)
                for (int r = 0; r < ROWS; r++) {
                    double want = 0;
                    for (int c = 0; c < K; c++)
                        want += (double)w[r * K + c] * (double)x[tok * K + c];
                    wrong += (want - y[tok * ROWS + r]) * (want - y[tok * ROWS + r]);
                    size += want * want;
                }
            assert_cmp(size, >, 0);
            assert_float_equal((float)sqrt(wrong / size), 0, 0.005f);
            free(y);
        }
        free(rows);
        free(w);
        free(x);
    }
}

/* The same bits for a token with any other tokens. */
static void tokens_are_independent(void **state)
{
    (void)state;
    enum { ROWS = 65, K = 512, TOKENS = 13 };
    for (size_t i = 0; i < N_TYPE; i++) {
        uint8_t *rows = quantised(types[i], ROWS, K, 4);
        float *x = test_random_floats(TOKENS * K, 5, 2);
        for (int t = 0; wnw__matmul_at(t); t++) {
            float *all = multiplied(wnw__matmul_at(t), types[i], rows, ROWS, K, x, TOKENS);
            for (int first = 0; first < TOKENS; first += 4) {
                const int n = TOKENS - first < 4 ? TOKENS - first : 4;
                float *some = multiplied(wnw__matmul_at(t), types[i], rows, ROWS, K, x + first * K, n);
                assert_memory_equal(some, all + first * ROWS, (size_t)(n * ROWS) * sizeof *some);
                free(some);
            }
            free(all);
        }
        free(rows);
        free(x);
    }
}

/* Eight rows where they are give the bits of the form of 16 rows, over the smallest matrices, too: a read beyond
 * the rows is seen by the sanitizers, because they end where their memory does. */
static void rows_in_place_equal_their_form(void **state)
{
    (void)state;
    const int32_t n_rows[] = {8, 23, 41}, units[] = {1, 3, 9};
    for (size_t i = 0; i < N_TYPE; i++)
        for (size_t j = 0; j < 3; j++)
            for (int32_t n_tok = 1; n_tok < 9; n_tok += 1 + n_tok / 4) {
                const int32_t n_row = n_rows[j], k = units[j] * wnw__weight_type((int32_t)types[i])->k_unit;
                uint8_t *rows = quantised(types[i], n_row, k, 20 + (uint32_t)j);
                float *x = test_random_floats((size_t)n_tok * (size_t)k, 6, 3);
                for (int t = 0; wnw__matmul_at(t); t++) {
                    struct wnw__matmul_kernel form = *wnw__matmul_at(t);
                    memset(form.few, 0, sizeof form.few);
                    float *y = multiplied(wnw__matmul_at(t), types[i], rows, n_row, k, x, n_tok);
                    float *want = multiplied(&form, types[i], rows, n_row, k, x, n_tok);
                    assert_memory_equal(y, want, (size_t)(n_row * n_tok) * sizeof *y);
                    free(y);
                    free(want);
                }
                free(rows);
                free(x);
            }
}

/* More tokens than one strip is multiplied with, over several chunks, one of them not full. */
static void many_tokens(void **state)
{
    (void)state;
    enum { ROWS = 66, K = WNW_CHUNK + 32, TOKENS = WNW_TOKENS + 14 };
    uint8_t *rows = quantised(GGML_TYPE_Q4_1, ROWS, K, 9);
    float *x = test_random_floats(TOKENS * K, 11, 2);
    for (int t = 0; wnw__matmul_at(t); t++) {
        float *all = multiplied(wnw__matmul_at(t), GGML_TYPE_Q4_1, rows, ROWS, K, x, TOKENS);
        for (int first = 0; first < TOKENS; first += TOKENS / 2) {
            float *half =
                multiplied(wnw__matmul_at(t), GGML_TYPE_Q4_1, rows, ROWS, K, x + first * K, TOKENS / 2);
            assert_memory_equal(half, all + first * ROWS, (size_t)(TOKENS / 2 * ROWS) * sizeof *half);
            free(half);
        }
        free(all);
    }
    free(rows);
    free(x);
}

/* Shares have the same work, where the last strip's four parts count as one strip, and together all pieces. */
static void shares_by_hand(void **state)
{
    (void)state;
    static const struct {
        int32_t n_row, n_tok, n_share, first[4];
    } cases[] = {
        {576, 512, 2, {0, 4, 12}},   /* 9 strips: 4, and 4 with the parts */
        {192, 512, 2, {0, 1, 6}},    /* 3 strips */
        {192, 512, 3, {0, 1, 2, 6}}, /* the third: the parts */
        {1536, 512, 2, {0, 12, 27}}, /* 24 strips */
        {576, 127, 3, {0, 3, 6, 9}}, /* too few tokens for parts */
        {64, 512, 2, {0, 2, 4}},     /* parts alone */
        {200, 4, 2, {0, 3, 7}},      /* pieces of 32 rows */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct wnw__matmul p = {.n_row = cases[i].n_row, .n_tok = cases[i].n_tok, .k = 32};
        for (int32_t k = 0; k <= cases[i].n_share; k++)
            assert_int_equal(wnw__matmul_share(&p, k, cases[i].n_share), cases[i].first[k]);
        assert_int_equal(wnw__matmul_share(&p, cases[i].n_share, cases[i].n_share), wnw__matmul_pieces(&p));
    }
}

/* ---- Rows by eight ---- */

/* Scale and minimum i of the 12 bytes p, as ggml reads them. */
static void scale_and_min(const uint8_t *p, int i, uint8_t *scale, uint8_t *min)
{
    *scale = (uint8_t)(i < 4 ? p[i] & 63 : (p[i + 4] & 15) | (p[i - 4] >> 6) << 4);
    *min = (uint8_t)(i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | (p[i] >> 6) << 4);
}

/* Writes them, into bytes that were 0. */
static void put_scale_and_min(uint8_t *p, int i, uint8_t scale, uint8_t min)
{
    if (i < 4) {
        p[i] |= scale;
        p[i + 4] |= min;
        return;
    }
    p[i + 4] |= (uint8_t)((scale & 15) | (min & 15) << 4);
    p[i - 4] |= (uint8_t)(scale >> 4 << 6);
    p[i] |= (uint8_t)(min >> 4 << 6);
}

/* One chunk of eight rows, whose units are `stride` bytes from each other. */
static void chunk_by_eight(const uint8_t *units, size_t stride, uint8_t *to)
{
    uint8_t *scales = to + 32, *values = scales + 96;
    memset(scales, 0, 96);
    for (int r = 0; r < WNW_EIGHT; r++, units += stride) {
        memcpy(to + 2 * r, units, 2);
        memcpy(to + 16 + 2 * r, units + 2, 2);
        for (int i = 0; i < 8; i++) {
            uint8_t scale, min;
            scale_and_min(units + 4, i, &scale, &min);
            put_scale_and_min(scales + 12 * i, r, scale, min);
        }
        for (int i = 0; i < 16; i++)
            memcpy(values + 64 * i + 8 * r, units + 16 + 8 * i, 8);
    }
}

/* n_row rows of Q4_K, by eight; released with free. */
static uint8_t *rows_by_eight(const uint8_t *rows, int32_t n_row, int32_t k)
{
    const size_t stride = ggml_row_size(GGML_TYPE_Q4_K, k);
    uint8_t *out = malloc((size_t)n_row * stride);
    assert_non_null(out);
    for (int32_t r = 0; r < n_row; r += WNW_EIGHT)
        for (int32_t c = 0; c < k / WNW_CHUNK; c++)
            chunk_by_eight(rows + (size_t)r * stride + (size_t)c * WNW_EIGHT_UNIT, stride,
                           out + (size_t)r * stride + (size_t)c * WNW_EIGHT * WNW_EIGHT_UNIT);
    return out;
}

/* They are the same rows: products are the same bits. */
static void rows_by_eight_equal_the_file(void **state)
{
    (void)state;
    static const struct {
        int32_t n_row, k256, n_tok;
    } cases[] = {{8, 1, 12}, {64, 2, 13}, {88, 3, 31}, {200, 1, 150}, {128, 5, 600}};
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
        const int32_t n_row = cases[j].n_row, k = cases[j].k256 * WNW_CHUNK, n_tok = cases[j].n_tok;
        uint8_t *rows = quantised(GGML_TYPE_Q4_K, n_row, k, 300 + (uint32_t)j);
        uint8_t *eight = rows_by_eight(rows, n_row, k), plain[WNW_EIGHT][WNW_EIGHT_UNIT];
        float *x = test_random_floats((size_t)n_tok * (size_t)k, 7, 5);
        wnw__rows_of_eight(eight, plain);
        for (int r = 0; r < WNW_EIGHT; r++)
            assert_memory_equal(plain[r], rows + (size_t)r * ggml_row_size(GGML_TYPE_Q4_K, k),
                                WNW_EIGHT_UNIT);
        for (int t = 0; wnw__matmul_at(t); t++) {
            const struct wnw__matmul_kernel *kernel = wnw__matmul_at(t);
            float *want = multiplied(kernel, GGML_TYPE_Q4_K, rows, n_row, k, x, n_tok);
            float *got = multiplied_as(kernel, GGML_TYPE_Q4_K, eight, true, n_row, k, x, n_tok);
            assert_memory_equal(got, want, (size_t)n_row * (size_t)n_tok * sizeof *got);
            free(want);
            free(got);
        }
        free(rows);
        free(eight);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_by_hand),
        cmocka_unit_test(many_tokens),
        cmocka_unit_test(act_by_hand),
        cmocka_unit_test(act_of_damage),
        cmocka_unit_test(act_equals_scalar),
        cmocka_unit_test(strips_equal_ggml),
        cmocka_unit_test(types_of_others),
        cmocka_unit_test(product_by_hand),
        cmocka_unit_test(kernels_equal_scalar),
        cmocka_unit_test(products_near_double),
        cmocka_unit_test(tokens_are_independent),
        cmocka_unit_test(rows_in_place_equal_their_form),
        cmocka_unit_test(rows_by_eight_equal_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
