/* SPDX-License-Identifier: MIT */
/* Scores of bytes: numbers by hand, and every version that this machine can run against the scalar one. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOR_EACH_VERSION(v)                    \
    for (int i_ = 0; wnw__score8_at(i_); i_++) \
        for (const struct wnw__score8 *v = wnw__score8_at(i_); v; v = NULL)

enum { D = 32, MOST_ROWS = 48 };

/* Queries of a version: rows x[n][d] in its panels, and what became of them. */
struct packed {
    uint32_t *word;
    float *scale, *square;
    int32_t *first;
    int32_t n_panel;
};

static struct packed pack(const struct wnw__score8 *v, const float *x, int32_t n, int32_t d)
{
    const int32_t mr = v->panel_rows;
    struct packed p = {.n_panel = (n + mr - 1) / mr};
    const size_t rows = (size_t)p.n_panel * (size_t)mr;
    float *panels = calloc(rows * (size_t)d, sizeof *panels);
    p.word = calloc(rows * (size_t)d / 4, sizeof *p.word);
    p.scale = calloc(rows, sizeof *p.scale);
    p.square = calloc(rows, sizeof *p.square);
    p.first = calloc(rows, sizeof *p.first);
    assert_true(panels && p.word && p.scale && p.square && p.first);
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            panels[(i / mr * d + c) * mr + i % mr] = x[i * d + c];
    v->queries(panels, p.n_panel, d, p.word, p.scale, p.square, p.first);
    free(panels);
    return p;
}

static void packed_free(struct packed *p)
{
    free(p->word);
    free(p->scale);
    free(p->square);
    free(p->first);
}

static uint16_t *halves(const float *x, size_t n)
{
    uint16_t *h = malloc(n * sizeof *h);
    assert_non_null(h);
    wnw__rows_from_f32(WNW_KV_F16, x, 1, (int32_t)n, h);
    return h;
}

/* The largest element, 254, makes the scale 2, with which -127 becomes -63.5, to even -64, and -3 becomes -1.5, to even -2. */
static void bytes_by_hand(void **state)
{
    (void)state;
    FOR_EACH_VERSION(v)
    {
        float x[2 * D] = {254.0f, -127.0f, 2.0f, -3.0f, 5.0f};
        struct packed p = pack(v, x, 2, D);
        assert_near(p.scale[0], 2, 0);
        assert_near(p.scale[1], 0, 0);
        const uint8_t want[8] = {127, (uint8_t)-64, 1, (uint8_t)-2, 2, 0, 0, 0};
        assert_memory_equal(&p.word[0], want, 4);
        assert_memory_equal(&p.word[v->panel_rows], want + 4, 4);
        assert_int_equal(p.word[1], 0);
        assert_int_equal(p.first[0], -128 * (127 - 64 + 1 - 2 + 2));
        assert_int_equal(p.first[1], 0);
        assert_near(p.square[0], 254 * 254 + 127 * 127 + 4 + 9 + 25, 0);
        packed_free(&p);
    }
}

/* The query (254, 4, 0, ...) has the scale 2, keys (127, j, 0, ..., -1) have 1, and key 5 is 0. */
static void products_by_hand(void **state)
{
    (void)state;
    float q[D] = {254.0f, 4.0f}, x[WNW_TILE][D] = {{0}};
    for (int j = 0; j < WNW_TILE; j++) {
        x[j][0] = j == 5 ? 0.0f : 127.0f;
        x[j][31] = j == 5 ? 0.0f : -1.0f;
        x[j][1] = j == 5 ? 0.0f : (float)j;
    }
    uint16_t *h = halves(x[0], WNW_TILE * D);
    FOR_EACH_VERSION(v)
    {
        uint32_t k[D / 4 * WNW_TILE];
        float scale[WNW_TILE], s[16 * WNW_TILE];
        struct packed p = pack(v, q, 1, D);
        const struct wnw__score8_size size = v->keys(h, D, k, scale);
        const uint8_t first[4] = {255, 128 + 7, 128, 128}, last[4] = {128, 128, 128, 127};
        assert_memory_equal(&k[7], first, 4);
        assert_memory_equal(&k[7 * WNW_TILE + 7], last, 4);
        assert_near(scale[7], 1, 0);
        assert_near(scale[5], 0, 0);
        assert_near(size.scale, 1, 0);
        assert_near(size.square, 127 * 127 + 63 * 63 + 1, 0);
        v->mul_panels(p.word, p.scale, p.first, 1, D, k, scale, s);
        for (int j = 0; j < WNW_TILE; j++)
            assert_near(s[j], j == 5 ? 0 : 254 * 127 + 4 * j, 0);
        packed_free(&p);
    }
    free(h);
}

/* A value that is not finite shows in the size of its tile and the scale of its query, for any values after it. */
static void damage_shows(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        float *x = test_random_floats(WNW_TILE * D, 3, 1.0f), scale[WNW_TILE];
        uint32_t k[D / 4 * WNW_TILE];
        x[17 * D + 9] = bad[i];
        uint16_t *h = halves(x, WNW_TILE * D);
        FOR_EACH_VERSION(v)
        {
            struct packed p = pack(v, x, WNW_TILE, D);
            assert_true(!isfinite(v->keys(h, D, k, scale).scale));
            assert_true(!isfinite(p.scale[17]));
            assert_true(isfinite(p.scale[16]));
            packed_free(&p);
        }
        free(x);
        free(h);
    }
}

/* Bit for bit, for every number of elements that heads have. */
static void versions_agree(void **state)
{
    (void)state;
    static const int32_t dims[] = {32, 64, 96, 128, 160, 256};
    const struct wnw__score8 *best = wnw__score8_best(), *scalar = wnw__score8_scalar();
    for (size_t i = 0; best && i < 6; i++) {
        const int32_t d = dims[i], n = MOST_ROWS;
        float *q = test_random_floats((size_t)(n * d), 3, 2.0f),
              *x = test_random_floats((size_t)(WNW_TILE * d), 4, 20.0f);
        for (int32_t c = 0; c < d; c++)
            q[5 * d + c] = x[6 * d + c] = 0.0f;
        uint16_t *h = halves(x, (size_t)(WNW_TILE * d));
        float *s[2], scale[2][WNW_TILE];
        uint32_t *k[2];
        struct wnw__score8_size size[2];
        float square[2][MOST_ROWS];
        for (int b = 0; b < 2; b++) {
            const struct wnw__score8 *v = b ? best : scalar;
            struct packed p = pack(v, q, n, d);
            s[b] = calloc(MOST_ROWS * WNW_TILE, sizeof **s);
            k[b] = calloc((size_t)d / 4 * WNW_TILE, sizeof **k);
            size[b] = v->keys(h, d, k[b], scale[b]);
            memcpy(square[b], p.square, sizeof square[b]);
            assert_int_equal(n % v->panel_rows, 0);
            v->mul_panels(p.word, p.scale, p.first, p.n_panel, d, k[b], scale[b], s[b]);
            packed_free(&p);
        }
        assert_memory_equal(k[1], k[0], (size_t)d / 4 * WNW_TILE * sizeof **k);
        assert_memory_equal(scale[1], scale[0], sizeof scale[0]);
        assert_memory_equal(s[1], s[0], MOST_ROWS * WNW_TILE * sizeof **s);
        assert_memory_equal(&size[1], &size[0], sizeof *size);
        assert_memory_equal(square[1], square[0], sizeof square[0]);
        for (int b = 0; b < 2; b++) {
            free(s[b]);
            free(k[b]);
        }
        free(q);
        free(x);
        free(h);
    }
}

/* Against products in double precision: the error is what the sizes say, and not much less. */
static void error_is_foretold(void **state)
{
    (void)state;
    enum { N = 48, DIM = 64 };
    float *q = test_random_floats(N * DIM, 5, 1.0f), *x = test_random_floats(WNW_TILE * DIM, 6, 1.0f);
    uint16_t *h = halves(x, WNW_TILE * DIM);
    wnw__rows_to_f32(WNW_KV_F16, h, WNW_TILE, DIM, x);
    FOR_EACH_VERSION(v)
    {
        float s[N * WNW_TILE], scale[WNW_TILE];
        uint32_t k[DIM / 4 * WNW_TILE];
        const struct wnw__score8_size b = v->keys(h, DIM, k, scale);
        struct packed p = pack(v, q, N, DIM);
        double sum = 0, most = 0;
        v->mul_panels(p.word, p.scale, p.first, p.n_panel, DIM, k, scale, s);
        for (int i = 0; i < N * WNW_TILE; i++) {
            double want = 0;
            for (int c = 0; c < DIM; c++)
                want += (double)q[i / WNW_TILE * DIM + c] * (double)x[i % WNW_TILE * DIM + c];
            sum += (s[i] - want) * (s[i] - want);
        }
        for (int i = 0; i < N; i++)
            most += (double)(p.scale[i] * p.scale[i] * b.square + b.scale * b.scale * p.square[i]) / 12 / N;
        const double got = sum / (N * WNW_TILE);
        assert_cmp(got, <, most);
        assert_cmp(got, >, most / 4);
        packed_free(&p);
    }
    free(q);
    free(x);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_by_hand),  cmocka_unit_test(products_by_hand),  cmocka_unit_test(damage_shows),
        cmocka_unit_test(versions_agree), cmocka_unit_test(error_is_foretold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
