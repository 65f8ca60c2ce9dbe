/* SPDX-License-Identifier: MIT */
/* Products of bf16 pairs: numbers by hand, and every version that this machine can run against the scalar one. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOR_EACH_VERSION(v)                  \
    for (int i_ = 0; wnw__bf16_at(i_); i_++) \
        for (const struct wnw__bf16 *v = wnw__bf16_at(i_); v; v = NULL)

static uint32_t pair(float first, float second)
{
    uint32_t out;
    const float src[2] = {first, second};
    wnw__bf16_scalar()->pair_rows(src, 2, 1, &out);
    return out;
}

/* The rows' values become the halves of words, rounded to 8 bits of mantissa. */
static void pairs_by_hand(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint32_t bits;
    } cases[] = {
        {0.0f, 0x0000},
        {1.0f, 0x3f80},
        {-2.0f, 0xc000},
        {1.00390625f, 0x3f80} /* 1 + 2^-8: a tie */,
        {1.01171875f, 0x3f82} /* 1 + 3 * 2^-8: a tie, to even */,
        {1.004f, 0x3f81},
        {3.3895314e38f, 0x7f7f},
        {3.4e38f, 0x7f80} /* beyond the largest */,
        {INFINITY, 0x7f80},
        {-INFINITY, 0xff80},
        {1e-39f, 0x0000} /* subnormal */,
        {-1e-39f, 0x8000},
        {1.17549435e-38f, 0x0080},
    };
    enum { N = sizeof cases / sizeof *cases };
    FOR_EACH_VERSION(v)
    {
        float x[2 * N];
        uint32_t got[N];
        for (int i = 0; i < N; i++) {
            x[i] = cases[i].x;
            x[N + i] = cases[N - 1 - i].x;
        }
        v->pair_rows(x, 2, N, got);
        for (int i = 0; i < N; i++)
            assert_int_equal(got[i], cases[i].bits | cases[N - 1 - i].bits << 16);
        x[3] = NAN;
        v->pair_rows(x, 1, N, got); /* the missing row counts as zeros */
        assert_int_equal(got[1], 0x3f80);
        assert_cmp(got[3] & 0x7fffu, >, 0x7f80u);
        assert_int_equal(got[3] >> 16, 0);
    }
}

static void pairs_agree(void **state)
{
    (void)state;
    static const int32_t rows[] = {1, 2, 5, 64, 80}, ld[] = {1, 3, 12, 16, 40, 64};
    for (size_t r = 0; r < 5; r++)
        for (size_t l = 0; l < 6; l++) {
            const int32_t n = rows[r], words = (n + 1) / 2 * ld[l];
            float *src = test_random_floats((size_t)(n * ld[l]), 7, 5.0f);
            uint32_t *want = calloc((size_t)words, sizeof *want),
                     *got = calloc((size_t)words + 1, sizeof *got);
            wnw__bf16_scalar()->pair_rows(src, n, ld[l], want);
            FOR_EACH_VERSION(v)
            {
                got[words] = 0xdeadbeef;
                v->pair_rows(src, n, ld[l], got);
                assert_memory_equal(got, want, (size_t)words * sizeof *got);
                assert_int_equal(got[words], 0xdeadbeef);
                float *place = malloc((size_t)(n * ld[l]) * sizeof *place);
                assert_non_null(place);
                memcpy(place, src, (size_t)(n * ld[l]) * sizeof *place);
                v->pair_rows(place, n, ld[l], (uint32_t *)(void *)place);
                assert_memory_equal(place, want, (size_t)words * sizeof *want);
                free(place);
            }
            free(src);
            free(want);
            free(got);
        }
}

/* Rows in f16 give the pairs of the same rows in float32. */
static void f16_agrees(void **state)
{
    (void)state;
    static const int32_t d[] = {32, 64, 96, 256}, rows[] = {1, 2, 15, 16, 33, 64};
    for (size_t i = 0; i < 4; i++)
        for (size_t r = 0; r < 6; r++) {
            const int32_t n = rows[r];
            const size_t size = (size_t)n * (size_t)d[i], tile = (size_t)d[i] * WNW_TILE;
            float *x = test_random_floats(size, 5, 30.0f), *f = calloc(tile, sizeof *f),
                  *kt = calloc(tile, sizeof *kt);
            uint16_t *h = malloc(size * sizeof *h);
            uint32_t *want = calloc(tile / 2, sizeof *want), *got = calloc(tile / 2, sizeof *got);
            wnw__rows_from_f32(WNW_KV_F16, x, n, d[i], h);
            wnw__rows_to_f32(WNW_KV_F16, h, n, d[i], f);
            for (int32_t j = 0; j < n; j++)
                for (int32_t c = 0; c < d[i]; c++)
                    kt[c * WNW_TILE + j] = f[j * d[i] + c];
            FOR_EACH_VERSION(v)
            {
                wnw__bf16_scalar()->pair_rows(kt, d[i], WNW_TILE, want);
                v->keys_f16(h, n, d[i], got);
                for (int32_t c = 0; c < d[i] / 2; c++)
                    assert_memory_equal(got + c * WNW_TILE, want + c * WNW_TILE, (size_t)n * sizeof *got);
                wnw__bf16_scalar()->pair_rows(f, n, d[i], want);
                v->values_f16(h, n, d[i], got);
                assert_memory_equal(got, want, (size_t)((n + 1) / 2 * d[i]) * sizeof *got);
            }
            free(x);
            free(f);
            free(kt);
            free(h);
            free(want);
            free(got);
        }
}

/* Row 0 is (1, 2, 3, 0), row 1 is (0, 0, 0, 4); entry j is (j, 1, -1, 2). */
static void products_by_hand(void **state)
{
    (void)state;
    FOR_EACH_VERSION(v)
    {
        uint32_t q[2 * 16] = {0}, kt[2 * WNW_TILE];
        float s[16 * WNW_TILE];
        const int32_t mr = v->panel_rows;
        assert_in_range(mr, 2, 16);
        q[0] = pair(1, 2);
        q[mr] = pair(3, 0);
        q[mr + 1] = pair(0, 4);
        for (int j = 0; j < WNW_TILE; j++) {
            kt[j] = pair((float)j, 1);
            kt[WNW_TILE + j] = pair(-1, 2);
        }
        v->mul_panels(q, 1, 2, kt, s);
        for (int j = 0; j < WNW_TILE; j++) {
            assert_near(s[j], j + 2 - 3, 0);
            assert_near(s[WNW_TILE + j], 8, 0);
        }
    }
}

/* Half of value 0, all of value 1 and a quarter of value 2, after an output of 8 that counts a quarter. */
static void values_by_hand(void **state)
{
    (void)state;
    FOR_EACH_VERSION(v)
    {
        uint32_t p[WNW_TILE / 2] = {pair(0.5f, 1), pair(0.25f, 0)}, values[2 * WNW_TILE_PAD];
        float o[WNW_TILE_PAD];
        const float corr = 0.25f;
        for (int c = 0; c < WNW_TILE_PAD; c++) {
            values[c] = pair((float)c, 10);
            values[WNW_TILE_PAD + c] = pair(100, 0);
            o[c] = 8;
        }
        v->accumulate(p, 1, &corr, values, 2, WNW_TILE_PAD, o);
        for (int c = 0; c < WNW_TILE_PAD; c++)
            assert_near(o[c], 2 + 0.5 * c + 10 + 25, 0);
    }
}

static uint32_t *random_pairs(size_t n, uint32_t seed)
{
    float *x = test_random_floats(2 * n, seed, 3.0f);
    uint32_t *p = malloc(n * sizeof *p);
    assert_non_null(p);
    wnw__bf16_scalar()->pair_rows(x, 2, (int32_t)n, p);
    free(x);
    return p;
}

/* Bit for bit: both round after every product. Panels of the versions have different numbers of rows. */
static void products_agree(void **state)
{
    (void)state;
    const struct wnw__bf16 *best = wnw__bf16_best(), *scalar = wnw__bf16_scalar();
    enum { ROWS = 48 };
    for (int32_t n_pair = 1; best && n_pair <= 128; n_pair += n_pair < 4 ? 1 : 31) {
        uint32_t *row = random_pairs(ROWS * (size_t)n_pair, 3),
                 *kt = random_pairs((size_t)n_pair * WNW_TILE, 4);
        float *s[2];
        for (int b = 0; b < 2; b++) {
            const struct wnw__bf16 *v = b ? best : scalar;
            const int32_t mr = v->panel_rows;
            uint32_t *q = malloc(ROWS * (size_t)n_pair * sizeof *q);
            s[b] = calloc(ROWS * WNW_TILE, sizeof **s);
            assert_int_equal(ROWS % mr, 0);
            for (int32_t r = 0; r < ROWS; r++)
                for (int32_t c = 0; c < n_pair; c++)
                    q[r / mr * n_pair * mr + c * mr + r % mr] = row[r * n_pair + c];
            v->mul_panels(q, ROWS / mr, n_pair, kt, s[b]);
            free(q);
        }
        assert_memory_equal(s[1], s[0], ROWS * WNW_TILE * sizeof **s);
        free(row);
        free(kt);
        free(s[0]);
        free(s[1]);
    }
}

static void values_agree(void **state)
{
    (void)state;
    static const int32_t rows[] = {1, 3, 4, 12, 17, 41}, ld[] = {32, 64, 96, 256}, n_pair[] = {1, 7, 32};
    const struct wnw__bf16 *best = wnw__bf16_best();
    for (size_t i = 0; best && i < 6 * 4 * 3; i++) {
        const int32_t n = rows[i % 6], l = ld[i / 6 % 4], k = n_pair[i / 24];
        const size_t size = (size_t)n * (size_t)l;
        uint32_t *p = random_pairs((size_t)n * WNW_TILE / 2, 5), *v = random_pairs((size_t)k * (size_t)l, 6);
        float *a = test_random_floats(size, 7, 2.0f), *b = malloc(size * sizeof *b),
              *corr = test_random_floats((size_t)n, 8, 1.0f);
        assert_non_null(b);
        memcpy(b, a, size * sizeof *b);
        best->accumulate(p, n, corr, v, k, l, a);
        wnw__bf16_scalar()->accumulate(p, n, corr, v, k, l, b);
        assert_memory_equal(a, b, size * sizeof *a);
        free(p);
        free(v);
        free(a);
        free(b);
        free(corr);
    }
}

/* All scores are 0; then one is ln 4, two are hidden, and the others are 0. */
static void softmax_by_hand(void **state)
{
    (void)state;
    FOR_EACH_VERSION(v)
    {
        float s[4 * WNW_TILE] = {0}, m[4], l[4] = {0}, corr[4];
        uint32_t p[4 * WNW_TILE / 2];
        for (int r = 0; r < 4; r++)
            m[r] = -3.4028235e38f;
        v->softmax_tile(s, 1, m, l, corr, false, p);
        assert_near(m[0], 0, 0);
        assert_near(l[0], WNW_TILE, 0);
        assert_near(corr[0], 0, 0);
        for (int c = 0; c < WNW_TILE / 2; c++)
            assert_int_equal(p[c], 0x3f803f80);
        memset(s, 0, sizeof s);
        s[3] = logf(4.0f);
        s[4] = s[WNW_TILE - 1] = -INFINITY;
        v->softmax_tile(s, 1, m, l, corr, true, p);
        assert_near(m[0], logf(4.0f), 0);
        assert_near(corr[0], 0.25, 1e-6);
        assert_near(l[0], WNW_TILE / 4.0 + 1 + (WNW_TILE - 3) / 4.0, 1e-5);
        assert_near(s[0], 0.25, 1e-6);
        assert_near(s[3], 1, 0);
        assert_near(s[4], 0, 0);
        assert_int_equal(p[0], pair(0.25f, 0.25f));
        assert_int_equal(p[1], pair(0.25f, 1));
        assert_int_equal(p[2], pair(0, 0.25f));
        assert_int_equal(p[WNW_TILE / 2 - 1], pair(0.25f, 0));
    }
}

/* Over three tiles against double precision; rows that see nothing of a tile, and scores that underflow. */
static void softmax_agrees(void **state)
{
    (void)state;
    enum { ROWS = 7, ROOM = 8 };
    FOR_EACH_VERSION(v)
    {
        float m[ROOM] = {0}, l[ROOM] = {0}, corr[ROOM];
        double want_m[ROWS], want_l[ROWS] = {0};
        for (int r = 0; r < ROWS; r++) {
            m[r] = -3.4028235e38f;
            want_m[r] = -HUGE_VAL;
        }
        for (uint32_t tile = 0; tile < 3; tile++) {
            float *s = test_random_floats(ROOM * WNW_TILE, 10 + tile, 40.0f), keep[ROOM * WNW_TILE];
            uint32_t p[ROOM * WNW_TILE / 2], again[ROOM * WNW_TILE / 2];
            for (int c = 0; c < WNW_TILE; c++)
                s[(int)tile * WNW_TILE + c] = -INFINITY;
            s[5 * WNW_TILE + 9] = -500;
            memcpy(keep, s, sizeof keep);
            float m2[ROOM], l2[ROOM], corr2[ROOM];
            memcpy(m2, m, sizeof m);
            memcpy(l2, l, sizeof l);
            v->softmax_tile(keep, ROWS, m2, l2, corr2, true, again);
            for (int r = 0; r < ROWS; r++) {
                const double before = want_m[r];
                for (int c = 0; c < WNW_TILE; c++)
                    want_m[r] = fmax(want_m[r], (double)s[r * WNW_TILE + c]);
                want_l[r] *= before > -HUGE_VAL ? exp(before - want_m[r]) : 0;
                for (int c = 0; c < WNW_TILE && want_m[r] > -HUGE_VAL; c++) {
                    const double e = exp((double)s[r * WNW_TILE + c] - want_m[r]);
                    want_l[r] += e;
                    assert_near(keep[r * WNW_TILE + c], e, 1e-5 * e + 1e-37);
                }
                if (before > -HUGE_VAL && want_m[r] > -HUGE_VAL)
                    assert_near(corr2[r], exp(before - want_m[r]), 1e-5);
            }
            v->softmax_tile(s, ROWS, m, l, corr, false, p);
            assert_memory_equal(m, m2, ROWS * sizeof *m);
            assert_memory_equal(l, l2, ROWS * sizeof *l);
            assert_memory_equal(corr, corr2, ROWS * sizeof *corr);
            assert_memory_equal(p, again, ROWS * WNW_TILE / 2 * sizeof *p);
            for (int i = 0; i < ROWS * WNW_TILE / 2; i++)
                assert_int_equal(p[i], pair(keep[2 * i], keep[2 * i + 1]));
            free(s);
        }
        for (int r = 0; r < ROWS; r++) {
            assert_near(m[r], want_m[r], 0);
            assert_near(l[r], want_l[r], 1e-5 * want_l[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_by_hand),  cmocka_unit_test(pairs_agree),
        cmocka_unit_test(f16_agrees),     cmocka_unit_test(products_by_hand),
        cmocka_unit_test(values_by_hand), cmocka_unit_test(products_agree),
        cmocka_unit_test(values_agree),   cmocka_unit_test(softmax_by_hand),
        cmocka_unit_test(softmax_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
