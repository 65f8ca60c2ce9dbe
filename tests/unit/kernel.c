/* SPDX-License-Identifier: MIT */
/* Every vector table this machine can run, against ggml, plain loops and hand-computed numbers. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"
#include "winnow_tools.h"

#include <float.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    wnw_kv_type type;
    enum ggml_type ggml;
    int32_t block; /* elements */
    double step;   /* largest round-trip error, relative to the largest value of a block */
} types[] = {
    {WNW_KV_F16, GGML_TYPE_F16, 1, 0x1p-11},
    {WNW_KV_F32, GGML_TYPE_F32, 1, 0.0},
    /* half a step of amax/127, and the f16 scale is off by 2^-11 */
    {WNW_KV_Q8_0, GGML_TYPE_Q8_0, 32, 0.5 / 127 + 0x1p-11},
    /* the scale is signed amax / -8, the far end of the grid is 7/8: up to one step */
    {WNW_KV_Q4_0, GGML_TYPE_Q4_0, 32, 1.0 / 8 + 0x1p-11},
};
#define N_TYPE (sizeof types / sizeof *types)

static void row_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPE; i++)
        for (int32_t d = 32; d <= 256; d += 32)
            assert_int_equal(wnw__row_bytes(types[i].type, d), ggml_row_size(types[i].ggml, d));
    assert_int_equal(wnw__row_bytes(WNW_KV_F16, 80), 160);
    assert_int_equal(wnw__row_bytes(WNW_KV_Q8_0, 80), 0);
    assert_int_equal(wnw__row_bytes(WNW_KV_Q4_0, 16), 0);
    assert_int_equal(wnw__row_bytes(WNW_KV_F32, 0), 0);
}

/* What ggml's own graph writes into a tensor of the type, which is what the other attention stores. */
static void ggml_rows(enum ggml_type type, const float *src, int32_t d, int32_t n, void *dst)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)16 << 20});
    assert_non_null(ctx);
    struct ggml_tensor *cache = ggml_new_tensor_2d(ctx, type, d, n);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, d, n);
    struct ggml_tensor *index = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n);
    memcpy(x->data, src, (size_t)n * (size_t)d * sizeof *src);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)index->data)[i] = i;
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    ggml_build_forward_expand(gf, ggml_set_rows(ctx, cache, x, index));
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, gf, 1), GGML_STATUS_SUCCESS);
    memcpy(dst, cache->data, ggml_nbytes(cache));
    ggml_free(ctx);
}

static void rows_equal_ggml(void **state)
{
    (void)state;
    static const int32_t d[] = {32, 64, 96, 128, 256, 8, 40, 80, 13};
    const int32_t n = 37;
    for (size_t i = 0; i < N_TYPE; i++)
        for (size_t j = 0; j < sizeof d / sizeof *d; j++) {
            const size_t bytes = wnw__row_bytes(types[i].type, d[j]);
            if (bytes == 0)
                continue;
            float *x = test_random_floats((size_t)(n * d[j]), 5, 3.0f);
            memset(x, 0, (size_t)d[j] * sizeof *x); /* a row of zeros: scale 0 */
            uint8_t *ours = malloc(bytes * (size_t)n), *theirs = malloc(bytes * (size_t)n);
            assert_non_null(ours);
            assert_non_null(theirs);
            wnw__rows_from_f32(types[i].type, x, n, d[j], ours);
            ggml_rows(types[i].ggml, x, d[j], n, theirs);
            assert_memory_equal(ours, theirs, bytes * (size_t)n);
            free(x);
            free(ours);
            free(theirs);
        }
}

static void to_f32_equals_ggml(void **state)
{
    (void)state;
    static const int32_t d[] = {32, 64, 96, 128, 256, 8, 40, 80, 13};
    const int32_t n = 9;
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < N_TYPE; i++)
            for (size_t j = 0; j < sizeof d / sizeof *d; j++) {
                const size_t bytes = wnw__row_bytes(types[i].type, d[j]), total = (size_t)(n * d[j]);
                if (bytes == 0)
                    continue;
                const int32_t ld = d[j] + 5;
                float *x = test_random_floats(total, 6, 3.0f), *expected = malloc(total * sizeof *x);
                float *tight = malloc(total * sizeof *x), *wide = malloc((size_t)(n * ld) * sizeof *x);
                void *packed = malloc(bytes * (size_t)n);
                assert_non_null(expected);
                assert_non_null(tight);
                assert_non_null(wide);
                assert_non_null(packed);
                wnw__rows_from_f32(types[i].type, x, n, d[j], packed);
                if (types[i].type == WNW_KV_F32)
                    memcpy(expected, x, total * sizeof *x);
                else
                    ggml_get_type_traits(types[i].ggml)->to_float(packed, expected, (int64_t)total);
                wnw__vec_at(t)->to_f32(types[i].type, packed, n, d[j], tight, d[j]);
                wnw__vec_at(t)->to_f32(types[i].type, packed, n, d[j], wide, ld);
                assert_memory_equal(tight, expected, total * sizeof *x);
                for (int32_t r = 0; r < n; r++) {
                    assert_memory_equal(wide + r * ld, expected + r * d[j], (size_t)d[j] * sizeof *x);
                    for (int32_t c = d[j]; c < ld; c++)
                        assert_cmp(wide[r * ld + c], ==, 0.0f);
                }
                free(x);
                free(expected);
                free(tight);
                free(wide);
                free(packed);
            }
}

static void every_f16(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++)
        for (uint32_t h = 0; h < 65536; h += 16) {
            uint16_t in[16];
            float out[16];
            for (uint32_t i = 0; i < 16; i++)
                in[i] = (uint16_t)(h + i);
            wnw__vec_at(t)->to_f32(WNW_KV_F16, in, 1, 16, out, 16);
            for (uint32_t i = 0; i < 16; i++) {
                const float expected = ggml_fp16_to_fp32(in[i]);
                if (isnan(expected))
                    assert_true(isnan(out[i]));
                else
                    assert_memory_equal(&out[i], &expected, sizeof expected);
            }
        }
}

static void round_trip_error_is_bounded(void **state)
{
    (void)state;
    const int32_t d = 64, n = 50;
    float *x = test_random_floats((size_t)(n * d), 7, 4.0f), *y = malloc((size_t)(n * d) * sizeof *y);
    void *packed = malloc((size_t)(n * d) * sizeof(float));
    assert_non_null(y);
    assert_non_null(packed);
    for (size_t i = 0; i < N_TYPE; i++) {
        wnw__rows_from_f32(types[i].type, x, n, d, packed);
        wnw__rows_to_f32(types[i].type, packed, n, d, y);
        for (int32_t b = 0; b < n * d; b += types[i].block) {
            double top = 0.0;
            for (int32_t c = b; c < b + types[i].block; c++)
                top = fmax(top, fabs((double)x[c]));
            for (int32_t c = b; c < b + types[i].block; c++)
                assert_near(x[c], y[c], types[i].step * top);
        }
    }
    free(x);
    free(y);
    free(packed);
}

static void mul_nt_equals_loops(void **state)
{
    (void)state;
    static const int32_t size[][3] = {{1, 1, 64},  {1, 7, 64},  {3, 64, 80}, {5, 6, 13}, {4, 4, 8},
                                      {9, 33, 40}, {7, 3, 256}, {2, 5, 3},   {1, 4, 1},  {32, 66, 128}};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            const int32_t na = size[i][0], nb = size[i][1], d = size[i][2], ld = nb + 2;
            float *a = test_random_floats((size_t)(na * d), 8, 1.0f),
                  *b = test_random_floats((size_t)(nb * d), 9, 1.0f);
            float *out = malloc((size_t)(na * ld) * sizeof *out);
            assert_non_null(out);
            for (int32_t j = 0; j < na * ld; j++)
                out[j] = 777.0f;
            wnw__vec_at(t)->mul_rows(WNW_KV_F32, a, na, b, (size_t)d * sizeof *b, nb, d, 0.25f, out, ld);
            for (int32_t r = 0; r < na; r++) {
                for (int32_t j = 0; j < nb; j++) {
                    double sum = 0.0;
                    for (int32_t c = 0; c < d; c++)
                        sum += 0.25 * (double)a[r * d + c] * (double)b[j * d + c];
                    /* d products of at most 0.25, each sum rounded once */
                    assert_near(sum, out[r * ld + j], 0.25 * d * 0x1p-23);
                }
                assert_cmp(out[r * ld + nb], ==, 777.0f);
                assert_cmp(out[r * ld + nb + 1], ==, 777.0f);
            }
            free(a);
            free(b);
            free(out);
        }
}

static void dots_equal_loops(void **state)
{
    (void)state;
    static const int32_t size[][3] = {
        /* n, d, one row of b for all */ {1, 64, 0}, {7, 13, 0}, {5, 80, 1}, {8, 3, 1}};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            const int32_t n = size[i][0], d = size[i][1], lda = d + 3, ldb = size[i][2] ? 0 : d + 1;
            float *a = test_random_floats((size_t)(n * lda), 8, 1.0f),
                  *b = test_random_floats((size_t)(n * (d + 1)), 9, 1.0f), out[9];
            out[n] = 777.0f;
            wnw__vec_at(t)->dots(a, lda, b, ldb, n, d, out);
            for (int32_t r = 0; r < n; r++) {
                double sum = 0;
                for (int32_t c = 0; c < d; c++)
                    sum += (double)a[r * lda + c] * (double)b[r * ldb + c];
                assert_near(out[r], sum, d * 0x1p-23);
            }
            assert_cmp(out[n], ==, 777.0f);
            free(a);
            free(b);
        }
}

/* A lower triangle meets rows in tiles: quadratic forms, and lengths. What lies above the diagonal is not read. */
static void triangles_equal_loops(void **state)
{
    (void)state;
    static const int32_t size[][2] = {/* n, d */ {1, 64}, {64, 13}, {65, 80}, {130, 128}, {3, 6}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        const int32_t n = size[i][0], d = size[i][1];
        float *x = test_random_floats((size_t)(n * d), 8, 1.0f),
              *lower = test_random_floats((size_t)(d * d), 9, 1.0f),
              *tiles = malloc(WNW_TILE_FLOATS(n, d) * sizeof *tiles),
              *triangle = malloc(WNW_TRIANGLE_FLOATS(d) * sizeof *triangle),
              *form = malloc(((size_t)n + 1) * sizeof *form),
              *length = malloc(((size_t)n + 1) * sizeof *length);
        assert_non_null(tiles);
        assert_non_null(triangle);
        assert_non_null(form);
        assert_non_null(length);
        assert_cmp(wnw__vec_at(0)->panel_rows, <=, WNW_PANEL_MOST);
        for (int32_t r = 0; r < d; r++)
            for (int32_t c = r + 1; c < d; c++)
                lower[r * d + c] = NAN;
        form[n] = length[n] = 777.0f;
        wnw__tiles_of(x, n, d, tiles);
        wnw__triangle_of(lower, d, triangle);
        wnw__triangle_forms(triangle, d, tiles, n, form);
        wnw__triangle_lengths(triangle, d, tiles, n, length);
        for (int32_t k = 0; k < n; k++) {
            double quadratic = 0, square = 0;
            for (int32_t r = 0; r < d; r++) {
                double sum = 0;
                for (int32_t c = 0; c <= r; c++)
                    sum += (double)lower[r * d + c] * (double)x[k * d + c];
                quadratic += sum * (double)x[k * d + r];
                square += sum * sum;
            }
            assert_near(form[k], quadratic, d * d * 0x1p-23);
            assert_near(length[k], square, 2 * d * d * sqrt(d) * 0x1p-23);
        }
        assert_cmp(form[n], ==, 777.0f);
        assert_cmp(length[n], ==, 777.0f);
        free(x);
        free(lower);
        free(tiles);
        free(triangle);
        free(form);
        free(length);
    }
}

static void grams_equal_loops(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 13, 32, 64, 80, 128};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int32_t d = sizes[i], ld = (d + 31) / 32 * 32;
        float *x = test_random_floats((size_t)(128 * ld), 8, 1.0f),
              *tile = malloc((size_t)(WNW_TILE * ld) * sizeof *tile),
              *gram = calloc(WNW_GRAM_FLOATS(d), sizeof *gram);
        assert_non_null(tile);
        assert_non_null(gram);
        for (int32_t at = 0; at < 128; at += WNW_TILE) {
            wnw__vec_at(0)->transpose(x + at * ld, ld, tile);
            wnw__gram_add(x + at * ld, ld, d, tile, gram);
        }
        for (int32_t r = 0; r < d; r++)
            for (int32_t c = 0; c <= r; c++) {
                double sum = 0;
                for (int32_t k = 0; k < 128; k++)
                    sum += (double)x[k * ld + r] * (double)x[k * ld + c];
                assert_cmp(wnw__gram_at(d, r, c), <, WNW_GRAM_FLOATS(d));
                assert_near(gram[wnw__gram_at(d, r, c)], sum, 128 * 0x1p-23);
            }
        free(x);
        free(tile);
        free(gram);
    }
}

static void transpose_moves_every_element(void **state)
{
    (void)state;
    static const int32_t d[] = {8, 13, 64, 80};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < 4; i++) {
            const size_t n = (size_t)(WNW_TILE * d[i]);
            float *src = malloc(n * sizeof *src), *dst = malloc(n * sizeof *dst);
            assert_non_null(src);
            assert_non_null(dst);
            for (size_t j = 0; j < n; j++)
                src[j] = (float)j;
            wnw__vec_at(t)->transpose(src, d[i], dst);
            for (int32_t c = 0; c < d[i]; c++)
                for (int32_t j = 0; j < WNW_TILE; j++)
                    assert_cmp(dst[c * WNW_TILE + j], ==, (float)(j * d[i] + c));
            free(src);
            free(dst);
        }
}

static void softmax_by_hand(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++) {
        void (*softmax)(float *, int32_t) = wnw__vec_at(t)->softmax;
        float one[1] = {-123.0f};
        softmax(one, 1);
        assert_cmp(one[0], ==, 1.0f);
        float x[4] = {5.0f, 5.0f + 0.693147181f, -INFINITY, 5.0f}; /* 1 : 2 : 0 : 1 */
        softmax(x, 4);
        assert_near(x[0], 0.25f, 1e-6f);
        assert_near(x[1], 0.5f, 1e-6f);
        assert_near(x[3], 0.25f, 1e-6f);
        assert_cmp(x[2], ==, 0.0f);
        float far[40]; /* one value out of reach of all others: exactly 1 and exactly 0 */
        for (int i = 0; i < 40; i++)
            far[i] = i == 37 ? 1000.0f : i % 2 ? -INFINITY : -1e30f;
        softmax(far, 40);
        for (int i = 0; i < 40; i++)
            assert_cmp(far[i], ==, (i == 37 ? 1.0f : 0.0f));
    }
}

static void softmax_equals_double(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++)
        for (int32_t n = 1; n <= 100; n++) {
            float *x = test_random_floats((size_t)n, (uint32_t)n, 30.0f), *y = malloc((size_t)n * sizeof *y);
            assert_non_null(y);
            memcpy(y, x, (size_t)n * sizeof *x);
            wnw__vec_at(t)->softmax(y, n);
            double top = -INFINITY, sum = 0.0;
            for (int32_t i = 0; i < n; i++)
                top = fmax(top, (double)x[i]);
            for (int32_t i = 0; i < n; i++)
                sum += exp((double)x[i] - top);
            for (int32_t i = 0; i < n; i++) {
                /* x - max is rounded at magnitude up to 60: 60 * 2^-24, and a few more roundings */
                const double p = exp((double)x[i] - top) / sum;
                assert_near(y[i], p, 5e-6 * p);
            }
            free(x);
            free(y);
        }
}

/* exp alone: the maximum is 0 and fixed, so x - m is exact. */
static void exp_is_accurate(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++) {
        float m[WNW_ROWS_PAD] = {0}, l[WNW_ROWS_PAD] = {0}, corr[WNW_ROWS_PAD];
        float s[WNW_TILE], x[WNW_TILE];
        uint32_t seed = 3;
        for (int round = 0; round < 2000; round++) {
            for (int i = 0; i < WNW_TILE; i++)
                s[i] = x[i] = -86.9f * (float)test_lcg(&seed) / 16777216.0f;
            l[0] = 0.0f;
            wnw__vec_at(t)->softmax_tile(s, 1, m, l, corr);
            double sum = 0.0;
            for (int i = 0; i < WNW_TILE; i++) {
                const double e = exp((double)x[i]);
                assert_near(s[i], e, 2e-7 * e);
                sum += e;
            }
            assert_cmp(corr[0], ==, 1.0f);
            assert_cmp(m[0], ==, 0.0f);
            assert_near(l[0], sum, 1e-6 * sum);
        }
    }
}

static void softmax_tile_streams(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++) {
        float m[WNW_ROWS_PAD], l[WNW_ROWS_PAD] = {0}, corr[WNW_ROWS_PAD];
        float s[2 * WNW_TILE];
        for (int r = 0; r < WNW_ROWS_PAD; r++)
            m[r] = -FLT_MAX;
        /* row 0: two visible scores; row 1: nothing visible */
        for (int i = 0; i < 2 * WNW_TILE; i++)
            s[i] = -INFINITY;
        s[3] = 1.0f;
        s[60] = 1.0f;
        wnw__vec_at(t)->softmax_tile(s, 2, m, l, corr);
        assert_cmp(m[0], ==, 1.0f);
        assert_cmp(l[0], ==, 2.0f);
        assert_cmp(corr[0], ==, 0.0f);
        assert_cmp(s[3], ==, 1.0f);
        assert_cmp(s[4], ==, 0.0f);
        assert_cmp(m[1], ==, -FLT_MAX);
        assert_cmp(l[1], ==, 0.0f);
        for (int i = 0; i < WNW_TILE; i++)
            assert_cmp(s[WNW_TILE + i], ==, 0.0f);
        /* a larger score rescales what was there: 2 / 4 + 1 */
        for (int i = 0; i < 2 * WNW_TILE; i++)
            s[i] = -INFINITY;
        s[0] = 1.0f + 1.38629436f;
        wnw__vec_at(t)->softmax_tile(s, 2, m, l, corr);
        assert_near(corr[0], 0.25f, 1e-6f);
        assert_near(l[0], 1.5f, 1e-6f);
        assert_cmp(s[0], ==, 1.0f);
    }
}

/* ---- Rows in whole numbers ---- */

/* The scalar version, the last one. */
static const struct wnw__vec *reference(void)
{
    int t = 0;
    while (wnw__vec_at(t + 1))
        t++;
    return wnw__vec_at(t);
}

static int32_t half_of(const uint32_t *tile, int32_t c, int32_t j)
{
    return (int16_t)(tile[c / 2 * WNW_TILE + j] >> (c % 2 ? 16 : 0));
}

/* Half a unit at most is lost, no length is above 32000 units but for what rounding adds, and every version has the same bits. */
static void pairs_round(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 13, 64, 80, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int32_t d = sizes[i], n_word = (d + 1) / 2 * WNW_TILE;
        float *x = test_random_floats((size_t)(d * WNW_TILE), 12, 5.0f), unit[WNW_TILE], own[WNW_TILE];
        uint32_t *want = malloc((size_t)n_word * sizeof *want), *tile = malloc((size_t)n_word * sizeof *tile);
        assert_non_null(want);
        assert_non_null(tile);
        for (int32_t c = 0; c < d; c++)
            x[c * WNW_TILE + 7] = 0.0f;   /* a row of nothing */
        x[(d - 1) * WNW_TILE + 8] = 1e6f; /* one large element */
        reference()->pairs_of(x, d, want, unit);
        for (int32_t j = 0; j < WNW_TILE; j++) {
            double square = 0;
            for (int32_t c = 0; c < d; c++) {
                const double whole = half_of(want, c, j), u = (double)unit[j];
                assert_near(x[c * WNW_TILE + j], u * whole, 0.5001 * u + 1e-6 * fabs(u * whole));
                square += whole * whole;
            }
            assert_cmp(sqrt(square), <=, 32000 + sqrt(d) / 2 + 1);
            if (d % 2)
                assert_int_equal(want[d / 2 * WNW_TILE + j] >> 16, 0);
        }
        for (int t = 0; wnw__vec_at(t); t++) {
            wnw__vec_at(t)->pairs_of(x, d, tile, own);
            assert_memory_equal(tile, want, (size_t)n_word * sizeof *tile);
            assert_memory_equal(own, unit, sizeof unit);
        }
        free(x);
        free(want);
        free(tile);
    }
}

/* Sums are exact for any words, up to the largest that two rows of full length give. */
static void pairs_multiply(void **state)
{
    (void)state;
    enum { N_PANEL = 2, LD = WNW_TILE + 5 };
    static const int32_t sizes[] = {1, 2, 7, 32, 40, 128};
    for (int t = 0; wnw__vec_at(t); t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const struct wnw__vec *v = wnw__vec_at(t);
            const int32_t n_pair = sizes[i], rows = v->pair_rows, n_row = N_PANEL * rows;
            uint32_t *panel = malloc((size_t)(n_row * n_pair) * sizeof *panel),
                     *tile = malloc((size_t)(n_pair * WNW_TILE) * sizeof *tile), seed = 5;
            float *out = malloc((size_t)(n_row * LD) * sizeof *out), unit[WNW_TILE],
                  panel_unit[2 * WNW_PAIR_ROWS];
            assert_non_null(panel);
            assert_non_null(tile);
            assert_non_null(out);
            assert_in_range(rows, 1, WNW_PAIR_ROWS);
            const int32_t most = (int32_t)(32000 / sqrt(2 * n_pair));
            for (int32_t k = 0; k < n_row * n_pair + n_pair * WNW_TILE; k++) {
                const uint32_t low = (uint32_t)(k % 3 ? (int32_t)(test_lcg(&seed) % (uint32_t)most) - most / 2
                                                      : -most),
                               high = (uint32_t)(k % 5 ? (int32_t)(test_lcg(&seed) % (uint32_t)most) : -most);
                *(k < n_row * n_pair ? panel + k : tile + k - n_row * n_pair) = (low & 0xffff) | high << 16;
            }
            for (int32_t j = 0; j < WNW_TILE; j++)
                unit[j] = 0.25f + 0.01f * (float)j;
            for (int32_t r = 0; r < n_row; r++)
                panel_unit[r] = 0.001f * (float)(r + 1);
            for (int32_t k = 0; k < n_row * LD; k++)
                out[k] = 777.0f;
            v->mul_pairs(panel, panel_unit, N_PANEL, n_pair, tile, unit, out, LD);
            for (int32_t r = 0; r < n_row; r++)
                for (int32_t j = 0; j < LD; j++) {
                    int64_t sum = 0;
                    for (int32_t k = 0; k < n_pair && j < WNW_TILE; k++) {
                        const uint32_t a = panel[(r / rows * n_pair + k) * rows + r % rows],
                                       b = tile[k * WNW_TILE + j];
                        sum += (int64_t)(int16_t)a * (int16_t)b +
                               (int64_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
                    }
                    const float want =
                        j < WNW_TILE ? (float)(int32_t)sum * (panel_unit[r] * unit[j]) : 777.0f;
                    assert_in_range(llabs(sum), 0, INT32_MAX);
                    assert_cmp(out[r * LD + j], ==, want);
                }
            free(panel);
            free(tile);
            free(out);
        }
}

/* Rows through tiles and panels, the way scorers take: as in double but for half a unit of each element. */
static void pairs_of_rows(void **state)
{
    (void)state;
    static const int32_t size[][3] = {
        /* rows, keys, d */ {1, 64, 64}, {64, 3, 13}, {17, 20, 80}, {13, 64, 128}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        const int32_t na = size[i][0], nb = size[i][1], d = size[i][2];
        float *a = test_random_floats((size_t)(na * d), 8, 1.0f),
              *b = test_random_floats((size_t)(nb * d), 9, 1.0f),
              *room = malloc(WNW_PAIR_ROOM(d) * sizeof *room),
              *out = malloc(WNW_PAIR_UNITS * WNW_TILE * sizeof *out), unit[WNW_TILE],
              panel_unit[WNW_PAIR_UNITS];
        uint32_t *tile = malloc(WNW_PAIR_TILE(d) * sizeof *tile),
                 *panels = malloc(WNW_PAIR_PANELS(d) * sizeof *panels);
        assert_non_null(room);
        assert_non_null(out);
        assert_non_null(tile);
        assert_non_null(panels);
        wnw__pair_tile(a, na, d, tile, unit, room);
        const int32_t n_panel = wnw__pair_panels(tile, unit, na, d, 0.25f, panels, panel_unit);
        assert_int_equal(n_panel, (na + wnw__pair_rows() - 1) / wnw__pair_rows());
        wnw__pair_tile(b, nb, d, tile, unit, room);
        wnw__mul_pairs(panels, panel_unit, n_panel, d, tile, unit, out, WNW_TILE);
        for (int32_t r = 0; r < n_panel * wnw__pair_rows(); r++)
            for (int32_t j = 0; j < WNW_TILE; j++) {
                double sum = 0, x = 0, y = 0;
                for (int32_t c = 0; c < d && r < na && j < nb; c++) {
                    sum += 0.25 * (double)a[r * d + c] * (double)b[j * d + c];
                    x += (double)a[r * d + c] * (double)a[r * d + c];
                    y += (double)b[j * d + c] * (double)b[j * d + c];
                }
                /* each element of one is off by half a unit, times the sum of the other's, at most its length * sqrt(d) */
                assert_near(out[r * WNW_TILE + j], sum, 0.25 * sqrt(x * y) * sqrt(d) / 32000 * 1.01);
            }
        free(a);
        free(b);
        free(room);
        free(out);
        free(tile);
        free(panels);
    }
}

/* ---- Sums of exponentials ---- */

static void sums_stream(void **state)
{
    (void)state;
    enum { N = 3, LD = N * WNW_TILE + 3 };
    for (int t = 0; wnw__vec_at(t); t++) {
        const struct wnw__vec *v = wnw__vec_at(t);
        float *s = test_random_floats(WNW_TILE * LD, 4, 40.0f), m[WNW_TILE], l[WNW_TILE];
        s[5] = -INFINITY;
        for (int j = 0; j < WNW_TILE; j++)
            s[2 * LD + j] = -INFINITY; /* a tile that nothing is seen of */
        for (int r = 0; r < WNW_TILE; r++) {
            m[r] = -FLT_MAX;
            l[r] = 0;
        }
        for (int k = 0; k < N; k++)
            v->sum_rows(s + k * WNW_TILE, LD, 7, m, l);
        for (int r = 0; r < 7; r++) {
            double sum = 0;
            for (int c = 0; c < N * WNW_TILE; c++)
                sum += exp((double)s[r * LD + c] - (double)m[r]);
            assert_near(l[r], sum, 5e-6 * sum);
            assert_cmp(l[r], >=, 1.0f);
        }
        assert_cmp(l[7], ==, 0.0f);
        for (int r = 0; r < WNW_TILE; r++) {
            m[r] = -FLT_MAX;
            l[r] = 0;
        }
        float *columns = test_random_floats(9 * WNW_TILE, 6, 40.0f);
        for (int r = 0; r < 9; r++)
            columns[r * WNW_TILE + 3] = -INFINITY;
        v->sum_columns(columns, 4, m, l);
        v->sum_columns(columns + 4 * WNW_TILE, 5, m, l);
        for (int j = 0; j < WNW_TILE; j++) {
            double sum = 0;
            for (int r = 0; r < 9; r++)
                sum += exp((double)columns[r * WNW_TILE + j] - (double)m[j]);
            assert_near(l[j], sum, 5e-6 * sum);
            assert_cmp(l[j], >=, j == 3 ? 0.0f : 1.0f);
        }
        free(s);
        free(columns);
    }
}

static void raise_by_hand(void **state)
{
    (void)state;
    for (int t = 0; wnw__vec_at(t); t++) {
        float best[WNW_TILE], s[2][WNW_TILE + 1], x[WNW_TILE];
        const float less[] = {2.0f, -1.0f};
        for (int j = 0; j < WNW_TILE; j++) {
            best[j] = j == 9 ? 100.0f : -INFINITY;
            s[0][j] = (float)j;
            s[1][j] = (float)(40 - j);
            x[j] = -1.5f * (float)j;
        }
        s[1][WNW_TILE] = s[0][WNW_TILE] = 1e9f;
        wnw__vec_at(t)->raise_to(best, s[0], WNW_TILE + 1, 2, less);
        for (int j = 0; j < WNW_TILE; j++)
            assert_cmp(best[j], ==, j == 9 ? 100.0f : (float)(j - 2 > 41 - j ? j - 2 : 41 - j));
        wnw__vec_at(t)->exps(x, WNW_TILE);
        for (int j = 0; j < WNW_TILE; j++)
            assert_near(x[j], j >= 58 ? 0 : exp(-1.5 * j), j >= 58 ? 0 : 2e-7 * exp(-1.5 * j));
    }
}

/* (3, 4, 0, ...) over 32 elements has a mean square of 25 / 32, which an epsilon of 7 / 32 makes 1. */
static void rms_norm_by_hand(void **state)
{
    (void)state;
    for (int v = 0; wnw__vec_at(v); v++) {
        float x[32] = {3.0f, 4.0f}, w[32] = {1.0f, 0.5f, 9.0f}, out[32];
        wnw__vec_at(v)->rms_norm(x, w, 32, 7.0f / 32, out);
        assert_near(out[0], 3, 1e-6);
        assert_near(out[1], 2, 1e-6);
        assert_near(out[2], 0, 0);
    }
}

/* Rows that are converted in place, as long as those of models. */
static void rms_norm_equals_double(void **state)
{
    (void)state;
    static const int32_t sizes[] = {32, 576, 896, 4096};
    for (int i = 0; i < 4; i++)
        for (int v = 0; wnw__vec_at(v); v++) {
            const int32_t n = sizes[i];
            float *x = test_random_floats((size_t)n, 3, 20.0f), *w = test_random_floats((size_t)n, 4, 2.0f),
                  *out = malloc((size_t)n * sizeof *out);
            double square = 0;
            assert_non_null(out);
            for (int32_t c = 0; c < n; c++)
                square += (double)x[c] * (double)x[c];
            const double scale = 1 / sqrt(square / n + 1e-5);
            wnw__vec_at(v)->rms_norm(x, w, n, 1e-5f, out);
            for (int32_t c = 0; c < n; c++) {
                const double want = (double)x[c] * scale * (double)w[c];
                assert_near(out[c], want, 1e-6 * fabs(want));
            }
            free(x);
            free(w);
            free(out);
        }
}

/* From -200 to 200: where the exponential has no number to be, the gate is shut or open. */
static void swiglu_equals_double(void **state)
{
    (void)state;
    enum { N = 4032 };
    static float gate[N], up[N], out[N];
    for (int i = 0; i < N; i++) {
        gate[i] = (float)(i - N / 2) * 0.1f;
        up[i] = i % 2 ? 1.0f : -3.0f;
    }
    gate[5] = 0.0f;
    for (int v = 0; wnw__vec_at(v); v++) {
        wnw__vec_at(v)->swiglu(gate, up, N, out);
        for (int i = 0; i < N; i++) {
            const double g = (double)gate[i], want = (double)up[i] * g / (1 + exp(-g));
            assert_near(out[i], want, 3e-7 * fabs(want) + 1e-34);
        }
    }
}

static void machine(void **state)
{
    (void)state;
    const char *name = wnw_kernel_name();
    if (wnw__bf16_best())
        assert_string_equal(name, "avx512-bf16");
    else
        assert_string_equal(name, wnw__vec_at(0)->name);
    name = wnw__vec_at(0)->name;
    assert_true(!strcmp(name, "avx512") || !strcmp(name, "avx2") || !strcmp(name, "neon") ||
                !strcmp(name, "scalar"));
    int n = 0;
    while (wnw__vec_at(n))
        n++;
    assert_in_range(n, 1, 3);
    assert_string_equal(wnw__vec_at(n - 1)->name, "scalar");
    assert_cmp(wnw_usable_cores(), >=, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_sizes),
        cmocka_unit_test(rows_equal_ggml),
        cmocka_unit_test(to_f32_equals_ggml),
        cmocka_unit_test(every_f16),
        cmocka_unit_test(round_trip_error_is_bounded),
        cmocka_unit_test(mul_nt_equals_loops),
        cmocka_unit_test(dots_equal_loops),
        cmocka_unit_test(triangles_equal_loops),
        cmocka_unit_test(grams_equal_loops),
        cmocka_unit_test(transpose_moves_every_element),
        cmocka_unit_test(softmax_by_hand),
        cmocka_unit_test(softmax_equals_double),
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(softmax_tile_streams),
        cmocka_unit_test(pairs_round),
        cmocka_unit_test(pairs_multiply),
        cmocka_unit_test(pairs_of_rows),
        cmocka_unit_test(sums_stream),
        cmocka_unit_test(raise_by_hand),
        cmocka_unit_test(rms_norm_by_hand),
        cmocka_unit_test(rms_norm_equals_double),
        cmocka_unit_test(swiglu_equals_double),
        cmocka_unit_test(machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
