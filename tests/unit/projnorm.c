/* SPDX-License-Identifier: MIT */
/* Norms of values after the output projection: hand-computed numbers, the definition in double precision,
 * and what must not change the result. */
#include "helpers.h"
#include "peek_session.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *random_floats(size_t n, uint64_t seed)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(test_random(&seed) >> 40) / 0x1p23f - 1.0f;
    return x;
}

/* Values of n_head_kv heads with n entries each, and room for their norms. */
struct values {
    wnw_kv_type type;
    int32_t n_head_kv, n, d;
    uint8_t *v;
    float *norm;
    struct wnw__proj_values *heads;
};

static struct values values_of(wnw_kv_type type, int32_t n_head_kv, int32_t n, int32_t d, const float *v)
{
    struct values x = {.type = type, .n_head_kv = n_head_kv, .n = n, .d = d};
    const size_t bytes = (size_t)n * wnw__row_bytes(type, d), count = (size_t)n_head_kv * (size_t)n;
    x.v = malloc((size_t)n_head_kv * bytes);
    x.norm = malloc(count * sizeof *x.norm);
    x.heads = calloc((size_t)n_head_kv, sizeof *x.heads);
    assert_non_null(x.v);
    assert_non_null(x.norm);
    assert_non_null(x.heads);
    wnw__rows_from_f32(type, v, (int64_t)count, d, x.v);
    for (size_t i = 0; i < count; i++)
        x.norm[i] = -1.0f;
    for (int32_t ih = 0; ih < n_head_kv; ih++)
        x.heads[ih] = (struct wnw__proj_values){
            .v = x.v + (size_t)ih * bytes, .norm = x.norm + (size_t)ih * (size_t)n, .n = n};
    return x;
}

static void values_free(struct values *x)
{
    free(x->v);
    free(x->norm);
    free(x->heads);
}

/* Norms of all values by the fast version. */
static void fill(const struct wnw__proj_weight *w, wnw_proj_norm kind, struct values *x, int32_t n_threads)
{
    struct wnw__proj *p;
    struct wnw__pool pool = {.n_threads = n_threads, .gather = test_gather};
    assert_ok(wnw__proj_new(&p, 1, x->type));
    assert_ok(wnw__proj_fill(p, &pool, w, 0, kind, x->heads));
    wnw__proj_free(p);
}

/* ---- By hand ---- */

static void one_head(void **state)
{
    (void)state;
    /* v = (1, -2), W_O with outputs (1, 0), (0, 1), (1, 1): v W_O = (1, -2, -1) */
    const float weight[] = {1, 0, 0, 1, 1, 1}, v[] = {1, -2, 0, 0, 3, 4};
    const struct wnw__proj_weight w = {
        .type = GGML_TYPE_F32, .data = weight, .n_head = 1, .n_head_kv = 1, .d = 2, .n_out = 3};
    struct values x = values_of(WNW_KV_F32, 1, 3, 2, v);
    fill(&w, WNW_PROJ_L1, &x, 1);
    assert_float_equal(x.norm[0], 4.0f, 1e-6f);
    assert_float_equal(x.norm[1], 0.0f, 0.0f);
    assert_float_equal(x.norm[2], 14.0f, 1e-5f);
    values_free(&x);
    x = values_of(WNW_KV_F32, 1, 3, 2, v);
    fill(&w, WNW_PROJ_L2, &x, 1);
    assert_float_equal(x.norm[0], sqrtf(6.0f), 1e-6f);
    assert_float_equal(x.norm[1], 0.0f, 0.0f);
    assert_float_equal(x.norm[2], sqrtf(9.0f + 16.0f + 49.0f), 1e-5f);
    values_free(&x);
}

/* A factor of the weight is one of what it gives; norms know no sign. */
static void factor_of_the_weight(void **state)
{
    (void)state;
    const float weight[] = {1, 0, 0, 1, 1, 1}, v[] = {1, -2}, factor = -0.5f;
    struct wnw__proj_weight w = {.type = GGML_TYPE_F32,
                                 .data = weight,
                                 .n_head = 1,
                                 .n_head_kv = 1,
                                 .d = 2,
                                 .n_out = 3,
                                 .factor = &factor};
    static const float want[] = {[WNW_PROJ_L1] = 2.0f, [WNW_PROJ_L2] = 1.2247449f, [WNW_PROJ_SKETCH] = 2.0f};
    for (int kind = 0; kind < WNW_N_PROJ_NORMS; kind++) {
        struct values x = values_of(WNW_KV_F32, 1, 1, 2, v);
        fill(&w, (wnw_proj_norm)kind, &x, 1);
        assert_near(x.norm[0], want[kind], 1e-6);
        assert_near(wnw__proj_norm_ref(&w, 0, (wnw_proj_norm)kind, v), want[kind], 1e-6);
        values_free(&x);
    }
    float y[3];
    assert_ok(wnw__proj_apply(NULL, &w, v, 1, y));
    assert_values(y, 1e-6, -0.5, 1.0, 0.5);
}

static void mean_over_contiguous_groups(void **state)
{
    (void)state;
    /* Six query heads of one dimension, two outputs: W_O^h = (h + 1, -2 (h + 1)). KV head 0 is read by heads
     * 0..2, KV head 1 by heads 3..5. */
    const float weight[] = {1, 2, 3, 4, 5, 6, -2, -4, -6, -8, -10, -12}, v[] = {2, -1};
    const struct wnw__proj_weight w = {
        .type = GGML_TYPE_F32, .data = weight, .n_head = 6, .n_head_kv = 2, .d = 1, .n_out = 2};
    struct values x = values_of(WNW_KV_F32, 2, 1, 1, v);
    fill(&w, WNW_PROJ_L1, &x, 2);
    assert_float_equal(x.norm[0], 2 * 3 * (1 + 2 + 3) / 3.0f, 1e-5f);
    assert_float_equal(x.norm[1], 1 * 3 * (4 + 5 + 6) / 3.0f, 1e-5f);
    values_free(&x);
    x = values_of(WNW_KV_F32, 2, 1, 1, v);
    fill(&w, WNW_PROJ_L2, &x, 2);
    assert_float_equal(x.norm[0], 2 * sqrtf(5.0f * (1 + 4 + 9) / 3.0f), 1e-5f);
    assert_float_equal(x.norm[1], sqrtf(5.0f * (16 + 25 + 36) / 3.0f), 1e-5f);
    values_free(&x);
}

/* ---- Against the definition ---- */

struct shape {
    int32_t n_head, n_head_kv, d, n_out, n;
    enum ggml_type weight;
    wnw_kv_type values;
};

static const struct shape shapes[] = {
    {4, 4, 64, 96, 3, GGML_TYPE_F32, WNW_KV_F32},       /* G = 1, less than a tile */
    {9, 3, 64, 576, 130, GGML_TYPE_Q4_1, WNW_KV_F16},   /* SmolLM2 */
    {8, 2, 128, 1000, 65, GGML_TYPE_F16, WNW_KV_Q8_0},  /* outputs that fill no panel, two blocks */
    {4, 1, 80, 770, 64, GGML_TYPE_Q8_0, WNW_KV_F16},    /* no multiple of the vector length */
    {8, 4, 64, 512, 70, GGML_TYPE_Q6_K, WNW_KV_F32},    /* blocks of 256 lie across four heads */
    {16, 8, 128, 640, 40, GGML_TYPE_Q4_K, WNW_KV_Q4_0}, /* ... and across two */
    {4, 1, 256, 640, 33, GGML_TYPE_BF16, WNW_KV_F16},   /* Gemma 3 270M */
};

/* Random weight of the type; released with free. */
static void *random_weight(const struct shape *s)
{
    const int64_t n_in = (int64_t)s->n_head * s->d;
    float *x = random_floats((size_t)(n_in * s->n_out), 11);
    void *data = malloc(ggml_row_size(s->weight, n_in) * (size_t)s->n_out);
    assert_non_null(data);
    if (s->weight == GGML_TYPE_F32)
        memcpy(data, x, (size_t)(n_in * s->n_out) * sizeof *x);
    else
        assert_cmp(ggml_quantize_chunk(s->weight, x, data, 0, s->n_out, n_in, NULL), >, 0);
    free(x);
    return data;
}

static struct wnw__proj_weight weight_of(const struct shape *s, const void *data)
{
    return (struct wnw__proj_weight){.type = s->weight,
                                     .data = data,
                                     .n_head = s->n_head,
                                     .n_head_kv = s->n_head_kv,
                                     .d = s->d,
                                     .n_out = s->n_out};
}

static void check_shape(const struct shape *s, wnw_proj_norm kind)
{
    void *data = random_weight(s);
    float *v = random_floats((size_t)s->n_head_kv * (size_t)s->n * (size_t)s->d, 5);
    float *stored = malloc((size_t)s->d * sizeof *stored);
    assert_non_null(stored);
    const struct wnw__proj_weight w = weight_of(s, data);
    struct values x = values_of(s->values, s->n_head_kv, s->n, s->d, v);
    fill(&w, kind, &x, 2);
    for (int32_t ih = 0; ih < s->n_head_kv; ih++)
        for (int32_t i = 0; i < s->n; i += 7) {
            const float got = x.heads[ih].norm[i];
            wnw__rows_to_f32(s->values, x.heads[ih].v + (size_t)i * wnw__row_bytes(s->values, s->d), 1, s->d,
                             stored);
            const double want = wnw__proj_norm_ref(&w, ih, kind, stored);
            if (!(fabs((double)got - want) <= 1e-5 * want))
                fail_msg("d %d, %s, kind %d, head %d, entry %d: %.8g, expected %.8g", (int)s->d,
                         ggml_type_name(s->weight), (int)kind, (int)ih, (int)i, (double)got, want);
        }
    values_free(&x);
    free(stored);
    free(v);
    free(data);
}

static void fast_is_the_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < WNW_N_PROJ_NORMS; kind++)
            check_shape(&shapes[i], (wnw_proj_norm)kind);
}

/* Every vector table against plain loops. */
static void kernels_sum_absolute_products(void **state)
{
    (void)state;
    enum { D = 40, PANELS = 3 };
    const struct wnw__vec *vec;
    for (int t = 0; (vec = wnw__vec_at(t)) != NULL; t++) {
        const int32_t rows = vec->panel_rows;
        float *q = random_floats((size_t)(PANELS * D * rows), 1), *kt = random_floats(D * WNW_TILE, 2);
        float sum[WNW_TILE];
        for (int j = 0; j < WNW_TILE; j++)
            sum[j] = 0.5f;
        vec->add_abs(q, PANELS, D, kt, sum);
        for (int j = 0; j < WNW_TILE; j++) {
            double want = 0.5;
            for (int32_t r = 0; r < PANELS * rows; r++) {
                double x = 0.0;
                for (int32_t c = 0; c < D; c++)
                    x += (double)q[(r / rows * D + c) * rows + r % rows] * (double)kt[c * WNW_TILE + j];
                want += fabs(x);
            }
            assert_float_equal(sum[j], (float)want, 1e-5f * (float)want);
        }
        free(q);
        free(kt);
    }
}

/* ---- The sketch ---- */

static void sketch_columns(void **state)
{
    (void)state;
    int32_t column[4096], again[4096];
    assert_int_equal(wnw__proj_columns(WNW_PROJ_L1, 4096, column), 4096);
    assert_int_equal(column[4095], 4095);
    assert_int_equal(wnw__proj_columns(WNW_PROJ_SKETCH, 300, column), 300); /* few: all of them */
    assert_int_equal(column[299], 299);
    assert_int_equal(wnw__proj_columns(WNW_PROJ_SKETCH, 4096, column), WNW_PROJ_SKETCH_COLUMNS);
    assert_int_equal(wnw__proj_columns(WNW_PROJ_SKETCH, 4096, again), WNW_PROJ_SKETCH_COLUMNS);
    assert_memory_equal(column, again, WNW_PROJ_SKETCH_COLUMNS * sizeof *column);
    int32_t low = 0;
    for (int32_t i = 0; i < WNW_PROJ_SKETCH_COLUMNS; i++) {
        assert_cmp(column[i], <, 4096);
        if (i > 0)
            assert_cmp(column[i], >, column[i - 1]);
        low += column[i] < 2048;
    }
    assert_in_range(low, 200, 312); /* 256 +- 11 */
}

static void sketch_is_near_l1(void **state)
{
    (void)state;
    const struct shape s = {8, 2, 64, 2048, 100, GGML_TYPE_F32, WNW_KV_F32};
    void *data = random_weight(&s);
    float *v = random_floats((size_t)s.n_head_kv * (size_t)s.n * (size_t)s.d, 6);
    const struct wnw__proj_weight w = weight_of(&s, data);
    struct values full = values_of(s.values, s.n_head_kv, s.n, s.d, v), sketch = full;
    fill(&w, WNW_PROJ_L1, &full, 2);
    sketch = values_of(s.values, s.n_head_kv, s.n, s.d, v);
    fill(&w, WNW_PROJ_SKETCH, &sketch, 2);
    double worst = 0.0;
    for (int32_t i = 0; i < s.n_head_kv * s.n; i++) {
        const double off = fabs((double)sketch.norm[i] / (double)full.norm[i] - 1.0);
        worst = off > worst ? off : worst;
    }
    /* Mean of 512 x 4 half-normal terms: one standard deviation is 0.75 / sqrt(2048) = 1.7 %. */
    assert_cmp(worst, <, 0.08);
    assert_cmp(worst, >, 1e-4); /* it is a sample */
    values_free(&full);
    values_free(&sketch);
    free(v);
    free(data);
}

/* ---- What must not matter ---- */

static void threads_and_neighbours_do_not_matter(void **state)
{
    (void)state;
    const struct shape s = {6, 3, 64, 900, 200, GGML_TYPE_Q4_0, WNW_KV_F16};
    void *data = random_weight(&s);
    float *v = random_floats((size_t)s.n_head_kv * (size_t)s.n * (size_t)s.d, 8);
    const struct wnw__proj_weight w = weight_of(&s, data);
    const size_t bytes = (size_t)(s.n_head_kv * s.n) * sizeof(float);
    for (int kind = 0; kind < WNW_N_PROJ_NORMS; kind++) {
        struct values one = values_of(s.values, s.n_head_kv, s.n, s.d, v);
        struct values many = values_of(s.values, s.n_head_kv, s.n, s.d, v);
        struct values parts = values_of(s.values, s.n_head_kv, s.n, s.d, v);
        fill(&w, (wnw_proj_norm)kind, &one, 1);
        fill(&w, (wnw_proj_norm)kind, &many, 5);
        assert_memory_equal(one.norm, many.norm, bytes);
        /* Some entries are known already: they stay, and the others come out the same. */
        for (int32_t i = 0; i < s.n_head_kv * s.n; i++)
            parts.norm[i] = i % 3 == 0 ? 7.0f : -1.0f;
        fill(&w, (wnw_proj_norm)kind, &parts, 2);
        for (int32_t i = 0; i < s.n_head_kv * s.n; i++)
            assert_cmp(parts.norm[i], ==, (i % 3 == 0 ? 7.0f : one.norm[i]));
        values_free(&one);
        values_free(&many);
        values_free(&parts);
    }
    free(v);
    free(data);
}

static void nothing_to_do(void **state)
{
    (void)state;
    const float weight[] = {1, 2};
    const struct wnw__proj_weight w = {
        .type = GGML_TYPE_F32, .data = weight, .n_head = 1, .n_head_kv = 1, .d = 2, .n_out = 1};
    struct wnw__proj *p;
    assert_ok(wnw__proj_new(&p, 1, WNW_KV_F32));
    assert_ok(wnw__proj_fill(p, NULL, &w, 0, WNW_PROJ_L1, &(struct wnw__proj_values){.n = 0}));
    wnw__proj_free(p);
    wnw__proj_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_head),
        cmocka_unit_test(factor_of_the_weight),
        cmocka_unit_test(mean_over_contiguous_groups),
        cmocka_unit_test(fast_is_the_definition),
        cmocka_unit_test(kernels_sum_absolute_products),
        cmocka_unit_test(sketch_columns),
        cmocka_unit_test(sketch_is_near_l1),
        cmocka_unit_test(threads_and_neighbours_do_not_matter),
        cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
