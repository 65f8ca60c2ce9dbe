/* SPDX-License-Identifier: MIT */
/* Rotation of stored rows (decision 069): the matrix, and attention over rotated caches. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The matrix ---- */

/* The definition, which the butterflies are tested against. */
static double element(int32_t i, int32_t j, int32_t block)
{
    return (__builtin_popcount((unsigned)(i & j)) % 2 ? -1.0 : 1.0) / sqrt((double)block);
}

static void the_definition_by_hand(void **state)
{
    (void)state;
    /* H_4 (1, 2, 3, 4) = (10, -2, -4, 0) / 2 */
    static const double x4[] = {1, 2, 3, 4}, h4[] = {5, -1, -2, 0};
    /* H_8 (1, 0, 0, 0, 0, 2, 0, -3) = (0, 2, 6, -4, 2, 0, -4, 6) / sqrt(8) */
    static const double x8[] = {1, 0, 0, 0, 0, 2, 0, -3}, h8[] = {0, 2, 6, -4, 2, 0, -4, 6};
    for (int32_t i = 0; i < 4; i++) {
        double sum = 0;
        for (int32_t j = 0; j < 4; j++)
            sum += element(i, j, 4) * x4[j];
        assert_near(sum, h4[i], 1e-12);
    }
    for (int32_t i = 0; i < 8; i++) {
        double sum = 0;
        for (int32_t j = 0; j < 8; j++)
            sum += element(i, j, 8) * x8[j];
        assert_near(sum, h8[i] / sqrt(8.0), 1e-12);
    }
}

enum { N_BLOCK = 5 };
static const int32_t blocks[N_BLOCK] = {16, 32, 64, 128, 256};

static void every_version_is_the_definition(void **state)
{
    (void)state;
    for (int b = 0; b < N_BLOCK; b++) {
        const int32_t block = blocks[b], n = 3 * block;
        float *x = test_random_floats((size_t)n, 5, 4.0f), *first = malloc((size_t)n * sizeof *first),
              *y = malloc((size_t)n * sizeof *y);
        assert_non_null(first);
        assert_non_null(y);
        for (int t = 0; wnw__vec_at(t); t++) {
            memcpy(y, x, (size_t)n * sizeof *y);
            wnw__vec_at(t)->hadamard(y, n, block);
            for (int32_t i = 0; i < n; i++) {
                double sum = 0;
                for (int32_t j = 0; j < block; j++)
                    sum += element(i % block, j, block) * (double)x[i / block * block + j];
                assert_near(y[i], sum, 4e-6);
            }
            if (t == 0)
                memcpy(first, y, (size_t)n * sizeof *y);
            assert_memory_equal(first, y, (size_t)n * sizeof *y);
            /* twice is once not, and lengths stay */
            wnw__vec_at(t)->hadamard(y, n, block);
            for (int32_t i = 0; i < n; i++)
                assert_near(y[i], x[i], 4e-6);
        }
        free(x);
        free(first);
        free(y);
    }
}

/* ---- A cache ---- */

/* Blocks are the largest power of two that divides the head size: up to 256 for keys, 64 for values. */
static const struct block_row {
    int32_t d, k, v;
} block_rows[] = {{32, 32, 32},  {64, 64, 64},  {96, 32, 32},   {128, 128, 64}, {160, 32, 32},
                  {192, 64, 64}, {224, 32, 32}, {256, 256, 64}, {512, 256, 64}, {576, 64, 64}};

static void blocks_of_head_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof block_rows / sizeof *block_rows; i++) {
        struct wnw__cache c;
        assert_ok(wnw__cache_init(&c, 1, 1, block_rows[i].d, WNW_KV_Q8_0, WNW_CACHE_GROWTH, NULL));
        assert_int_equal(wnw__cache_block(&c, WNW_KEYS), 0);
        wnw__cache_rotate(&c);
        assert_int_equal(wnw__cache_block(&c, WNW_KEYS), block_rows[i].k);
        assert_int_equal(wnw__cache_block(&c, WNW_VALUES), block_rows[i].v);
        wnw__cache_free(&c);
    }
    /* 80 and 112 are no multiples of 32, so that no quantised cache has them */
    static const int32_t none[] = {80, 112};
    for (int i = 0; i < 2; i++) {
        struct wnw__cache c;
        assert_error(wnw__cache_init(&c, 1, 1, none[i], WNW_KV_Q4_0, WNW_CACHE_GROWTH, NULL),
                     WNW_E_UNSUPPORTED);
    }
}

static const wnw_kv_type types[] = {WNW_KV_F32, WNW_KV_F16, WNW_KV_Q8_0, WNW_KV_Q4_0};
enum { N_TYPE = 4 };

static struct wnw__cache filled(wnw_kv_type type, int32_t d, int32_t n, bool rotates, const float *x)
{
    struct wnw__cache c;
    assert_ok(wnw__cache_init(&c, 1, 1, d, type, WNW_CACHE_GROWTH, NULL));
    if (rotates)
        wnw__cache_rotate(&c);
    assert_ok(wnw__cache_reserve_layer(&c, 0, n, true));
    wnw__cache_commit_layer(&c, 0, 0, n);
    wnw__cache_write(&c, 0, WNW_KEYS, 0, 0, n, x);
    wnw__cache_write(&c, 0, WNW_VALUES, 0, 0, n, x);
    return c;
}

/* What is read is what was written, to the type's rounding; and where one element of a key is far larger than the others,
 * rows that are rounded after they were rotated are nearer. */
static void rows_come_back(void **state)
{
    (void)state;
    enum { N = 20 };
    static const int32_t sizes[] = {32, 64, 96, 128, 256, 288};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < N_TYPE; t++) {
            const int32_t d = sizes[s];
            float *x = test_random_floats((size_t)(N * d), 9, 1.0f), *y = malloc((size_t)(N * d) * sizeof *y);
            double error[2] = {0};
            assert_non_null(y);
            for (int32_t i = 0; i < N; i++)
                x[i * d + 7] = 40.0f;
            for (int rotates = 0; rotates < 2; rotates++) {
                struct wnw__cache c = filled(types[t], d, N, rotates, x);
                for (int what = 0; what < 2; what++) {
                    wnw__cache_read(&c, 0, what ? WNW_VALUES : WNW_KEYS, 0, 0, N, y);
                    for (int32_t i = 0; i < N * d; i++)
                        error[rotates] += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
                }
                wnw__cache_free(&c);
            }
            if (types[t] == WNW_KV_F32)
                assert_cmp(error[1], <, 1e-8 * N * d);
            if (types[t] == WNW_KV_F16)
                assert_cmp(error[1], <, 1e-4 * N * d);
            if (types[t] == WNW_KV_Q8_0 || types[t] == WNW_KV_Q4_0)
                assert_cmp(error[1], <, error[0]);
            free(x);
            free(y);
        }
}

/* ---- Attention ---- */

struct arrays {
    float *q, *k, *v, *out, *ref;
    size_t n_q, n_k;
};

enum { HEADS = 4, HEADS_KV = 2, LEN = 150 };

static void store(struct wnw__cache *c, const struct arrays *x, int32_t n_row)
{
    const int32_t d = c->d;
    float *row = test_random_floats((size_t)(LEN * d), 3, 1.0f);
    assert_ok(wnw__cache_reserve_layer(c, 0, LEN, true));
    wnw__cache_commit_layer(c, 0, 0, LEN);
    for (int32_t ih = 0; ih < HEADS_KV; ih++) {
        wnw__cache_write(c, 0, WNW_KEYS, ih, 0, LEN, row);
        wnw__cache_write(c, 0, WNW_VALUES, ih, 0, LEN, row);
    }
    free(row);
    (void)x;
    assert_ok(wnw__cache_reserve_layer(c, 0, n_row, true));
}

static const struct attend_row {
    const char *name;
    int32_t d, n_row, n_swa;
    wnw_kv_type type;
} attend_rows[] = {
    {"one query, f32", 64, 1, 0, WNW_KV_F32},
    {"one query, q4_0", 64, 1, 0, WNW_KV_Q4_0},
    {"a few, q8_0", 128, 5, 0, WNW_KV_Q8_0},
    {"many, f32", 64, 70, 0, WNW_KV_F32},
    {"many, f16", 64, 70, 0, WNW_KV_F16},
    {"many, q8_0, blocks of 32", 96, 70, 0, WNW_KV_Q8_0},
    {"many, q4_0, 256 and 64", 256, 70, 0, WNW_KV_Q4_0},
    {"a window, q8_0", 64, 70, 90, WNW_KV_Q8_0},
};

/* Every version against the reference, which takes rows as they were; and in float32 against a cache that is not
 * rotated. */
static void attention_over_rotated_rows(void **state)
{
    const struct attend_row *row = *state;
    const int32_t n_swa = row->n_swa;
    struct arrays x = {.n_q = (size_t)(row->n_row * HEADS * row->d),
                       .n_k = (size_t)(row->n_row * HEADS_KV * row->d)};
    x.q = test_random_floats(x.n_q, 1, 1.0f);
    x.k = test_random_floats(x.n_k, 2, 1.0f);
    x.v = test_random_floats(x.n_k, 4, 1.0f);
    x.out = calloc(x.n_q, sizeof *x.out);
    x.ref = calloc(x.n_q, sizeof *x.ref);
    assert_non_null(x.out);
    assert_non_null(x.ref);
    for (int rotates = 1; rotates >= 0; rotates--) {
        struct wnw__cache c;
        struct wnw__attend_shared *sh;
        assert_ok(
            wnw__cache_init(&c, 1, HEADS_KV, row->d, row->type, WNW_CACHE_GROWTH, n_swa ? &n_swa : NULL));
        if (rotates)
            wnw__cache_rotate(&c);
        store(&c, &x, row->n_row);
        struct wnw__attend_slice slice = {.cache = &c, .n_row = row->n_row, .n_past = LEN};
        struct wnw__attend_batch batch = {.slice = &slice, .n_slice = 1, .n_row = row->n_row};
        const struct wnw__attend_dims dims = {
            .model = {.n_layer = 1, .n_head = HEADS, .n_head_kv = HEADS_KV, .d = row->d},
            .n_threads = 1,
            .n_ubatch = row->n_row};
        assert_ok(wnw__attend_shared_new(&sh, &dims));
        assert_ok(wnw__attend_shared_reserve(sh, &batch, 0, 1));
        struct wnw__attend_op op = {.shared = sh, .scale = 1.0f / sqrtf((float)row->d), .batch = &batch};
        wnw__attend_store(&op, x.k, x.v, 0, 1);
        if (rotates) {
            wnw__attend_ref(&op, x.q, x.ref);
            sh->score8 = NULL;
            sh->bf16 = NULL;
            for (int t = 0; wnw__vec_at(t); t++) {
                sh->vec = wnw__vec_at(t);
                wnw__attend_run(&op, x.q, NULL, NULL, x.out, 0, 1);
                assert_cmp(test_relative_error(x.out, x.ref, x.n_q), <, 3e-5);
            }
            sh->vec = wnw__vec_at(0);
            for (int t = 0; wnw__bf16_at(t); t++) {
                sh->bf16 = wnw__bf16_at(t);
                wnw__attend_run(&op, x.q, NULL, NULL, x.out, 0, 1);
                assert_cmp(test_relative_error(x.out, x.ref, x.n_q), <, 0.02);
            }
        } else if (row->type == WNW_KV_F32) {
            wnw__attend_run(&op, x.q, NULL, NULL, x.out, 0, 1);
            assert_cmp(test_relative_error(x.out, x.ref, x.n_q), <, 5e-6);
        }
        wnw__attend_shared_free(sh);
        wnw__cache_free(&c);
    }
    free(x.q);
    free(x.k);
    free(x.v);
    free(x.out);
    free(x.ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_definition_by_hand),
        cmocka_unit_test(every_version_is_the_definition),
        cmocka_unit_test(blocks_of_head_sizes),
        cmocka_unit_test(rows_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(attention_over_rotated_rows, attend_rows);
}
