/* SPDX-License-Identifier: MIT */
/* Attention of several slices at once: the bits of every slice alone, and close to the reference. */
#include "asserts.h"
#include "peek_arrays.h"
#include "random.h"
#include "threads.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLICES = 9, N_HEAD_KV = 3, N_LAYER = 2, SLIDING = 1, N_SWA = 50 }; /* layer 1 has a window */

/* See unit/attend.c. */
#define TOLERANCE 3e-5 /* TOLERANCE_I16 there */

struct sequence {
    int32_t n_row;
    wnw_kv_type type;
    int32_t len[N_HEAD_KV], n_past;
};

struct shape {
    const char *name;
    int32_t group, d, growth;
    struct sequence seq[MAX_SLICES]; /* up to the first with n_row = 0 */
};

struct fixture {
    const struct shape *shape;
    struct wnw__attend_shared *shared;
    struct wnw__cache cache[MAX_SLICES];
    struct wnw__attend_slice slice[MAX_SLICES];
    struct wnw__attend_batch batch;
    struct wnw__attend_op op;
    size_t n_q;                      /* floats */
    float *q, *k, *v, *out, *expect; /* of all rows */
};

/* Entries of every head and layer, random, at positions spread over 0 .. n_past-1 as an evicted cache has them;
 * what lies after them is not a number, so that reading a row too many shows. */
static void fill_cache(struct wnw__cache *c, const struct sequence *seq, int32_t d, int32_t growth,
                       uint32_t seed)
{
    static const int32_t n_swa[N_LAYER] = {[SLIDING] = N_SWA};
    int32_t longest = 0;
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
        longest = seq->len[ih] > longest ? seq->len[ih] : longest;
    assert_int_equal(wnw__cache_init(c, N_LAYER, N_HEAD_KV, d, seq->type, growth, n_swa), WNW_OK);
    for (int32_t il = 0; il < N_LAYER; il++) {
        assert_int_equal(wnw__cache_reserve_layer(c, il, longest + seq->n_row, true), WNW_OK);
        struct wnw__kv_layer *l = &c->layers[il];
        memset(l->k, growth == WNW_CACHE_GROWTH ? 0xff : 0, (size_t)l->n_rows * c->row_bytes);
        memset(l->v, growth == WNW_CACHE_GROWTH ? 0xff : 0, (size_t)l->n_rows * c->row_bytes);
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
            const size_t n = (size_t)seq->len[ih] * (size_t)d, at = (size_t)l->off[ih] * c->row_bytes;
            float *x = test_random_floats(n, seed + 2u * (uint32_t)(il * N_HEAD_KV + ih), 2.0f);
            float *y = test_random_floats(n, seed + 2u * (uint32_t)(il * N_HEAD_KV + ih) + 1u, 1.0f);
            wnw__rows_from_f32(seq->type, x, seq->len[ih], d, l->k + at);
            wnw__rows_from_f32(seq->type, y, seq->len[ih], d, l->v + at);
            for (int32_t i = 0; i < seq->len[ih]; i++)
                l->pos[l->off[ih] + i] = (int32_t)((int64_t)i * seq->n_past / seq->len[ih]);
            l->len[ih] = seq->len[ih];
            free(x);
            free(y);
        }
    }
}

static void fixture_init(struct fixture *f, const struct shape *shape, int32_t n_threads)
{
    memset(f, 0, sizeof *f);
    f->shape = shape;
    int32_t n_slice = 0, n_row = 0;
    for (; n_slice < MAX_SLICES && shape->seq[n_slice].n_row > 0; n_slice++) {
        const struct sequence *seq = &shape->seq[n_slice];
        fill_cache(&f->cache[n_slice], seq, shape->d, shape->growth ? shape->growth : WNW_CACHE_GROWTH,
                   1000u * (uint32_t)n_slice);
        f->slice[n_slice] = (struct wnw__attend_slice){
            .cache = &f->cache[n_slice], .first_row = n_row, .n_row = seq->n_row, .n_past = seq->n_past};
        n_row += seq->n_row;
    }
    f->batch = (struct wnw__attend_batch){.slice = f->slice, .n_slice = n_slice, .n_row = n_row};
    const size_t row = (size_t)n_row * (size_t)shape->d;
    f->n_q = row * (size_t)(N_HEAD_KV * shape->group);
    f->q = test_random_floats(f->n_q, 1, 1.0f);
    f->k = test_random_floats(row * N_HEAD_KV, 2, 1.0f);
    f->v = test_random_floats(row * N_HEAD_KV, 3, 1.0f);
    f->out = calloc(f->n_q, sizeof *f->out);
    f->expect = calloc(f->n_q, sizeof *f->expect);
    assert_non_null(f->out);
    assert_non_null(f->expect);
    const struct wnw__attend_dims dims = {
        .model = {.n_head = N_HEAD_KV * shape->group, .n_head_kv = N_HEAD_KV, .d = shape->d},
        .n_threads = n_threads,
        .n_ubatch = n_row};
    assert_int_equal(wnw__attend_shared_new(&f->shared, &dims), WNW_OK);
    assert_int_equal(wnw__attend_shared_keep_rows(f->shared, true), WNW_OK);
    f->op = (struct wnw__attend_op){
        .shared = f->shared, .scale = 1.0f / sqrtf((float)shape->d), .batch = &f->batch};
}

static void fixture_free(struct fixture *f)
{
    wnw__attend_shared_free(f->shared);
    for (int32_t i = 0; i < f->batch.n_slice; i++)
        wnw__cache_free(&f->cache[i]);
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->out);
    free(f->expect);
}

static void run_thread(void *user, int ith, int nth)
{
    const struct fixture *f = user;
    wnw__attend_run(&f->op, f->q, NULL, NULL, f->out, ith, nth);
}

static void store_and_run(void *user, int ith, int nth)
{
    const struct fixture *f = user;
    wnw__attend_run(&f->op, f->q, f->k, f->v, f->out, ith, nth);
}

/* The whole batch in one layer. storing: new rows are stored by the thread that takes their piece. */
static void run(struct fixture *f, int32_t il, bool storing, int nth)
{
    f->op.il = il;
    memset(f->out, 0xff, f->n_q * sizeof *f->out);
    assert_int_equal(wnw__attend_shared_reserve(f->shared, &f->batch, il, il + 1), WNW_OK);
    for (int i = 0; !storing && i < nth; i++)
        wnw__attend_store(&f->op, f->k, f->v, i, nth);
    test_on_threads(nth, storing ? store_and_run : run_thread, f);
}

static bool may_store(const struct fixture *f)
{
    return wnw__attend_is_decode(f->shared, f->batch.n_row);
}

static void spoil_new_rows(const struct wnw__cache *c, int32_t il, int32_t n)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        const size_t at = (size_t)(l->off[ih] + l->len[ih]) * c->row_bytes;
        memset(l->k + at, 0xff, (size_t)n * c->row_bytes);
        memset(l->v + at, 0xff, (size_t)n * c->row_bytes);
    }
}

static uint8_t *copy_of(const void *from, size_t n)
{
    uint8_t *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, from, n);
    return copy;
}

/* Runs slice i as a batch of its own, with scratch of its own, and compares with what the batch gave. */
static void compare_with_alone(const struct fixture *f, int32_t il, int32_t i)
{
    const struct wnw__attend_slice *in_batch = &f->slice[i];
    const struct wnw__kv_layer *l = &f->cache[i].layers[il];
    const size_t bytes = (size_t)l->n_rows * f->cache[i].row_bytes, d = (size_t)f->shape->d;
    const size_t n_head = (size_t)(N_HEAD_KV * f->shape->group), first = (size_t)in_batch->first_row,
                 n_row = (size_t)in_batch->n_row;
    struct wnw__attend_slice slice = *in_batch;
    slice.first_row = 0;
    const struct wnw__attend_batch batch = {.slice = &slice, .n_slice = 1, .n_row = slice.n_row};
    struct wnw__attend_dims dims = f->shared->dims;
    struct wnw__attend_op op = {.il = il, .scale = f->op.scale, .batch = &batch};
    dims.n_threads = 1;
    assert_int_equal(wnw__attend_shared_new(&op.shared, &dims), WNW_OK);
    assert_int_equal(wnw__attend_shared_reserve(op.shared, &batch, il, il + 1), WNW_OK);
    assert_int_equal(wnw__attend_shared_keep_rows(op.shared, true), WNW_OK);
    float *out = calloc(n_row * n_head * d, sizeof *out);
    uint8_t *k = copy_of(l->k, bytes), *v = copy_of(l->v, bytes);
    assert_non_null(out);
    spoil_new_rows(&f->cache[i], il, slice.n_row);
    wnw__attend_store(&op, f->k + first * N_HEAD_KV * d, f->v + first * N_HEAD_KV * d, 0, 1);
    wnw__attend_run(&op, f->q + first * n_head * d, NULL, NULL, out, 0, 1);
    assert_memory_equal(k, l->k, bytes);
    assert_memory_equal(v, l->v, bytes);
    assert_memory_equal(f->out + first * n_head * d, out, n_row * n_head * d * sizeof *out);
    for (size_t h = 0; h < n_head; h++) {
        const size_t at = h * (size_t)f->batch.n_row + first;
        assert_memory_equal(f->shared->row_max + at, op.shared->row_max + h * n_row, n_row * sizeof(float));
        assert_memory_equal(f->shared->row_norm + at, op.shared->row_norm + h * n_row, n_row * sizeof(float));
    }
    wnw__attend_shared_free(op.shared);
    free(out);
    free(k);
    free(v);
}

#define F16  WNW_KV_F16
#define F32  WNW_KV_F32
#define Q8_0 WNW_KV_Q8_0
#define Q4_0 WNW_KV_Q4_0

static const struct shape shapes[] = {
    {"one sequence", 3, 64, 0, {{1, F16, {300, 5, 900}, 1000}}},
    {"two tokens, ragged heads", 3, 64, 0, {{1, F16, {300, 5, 900}, 1000}, {1, F16, {0, 77, 20}, 90}}},
    {"decoding, every type and an empty cache",
     3,
     64,
     0,
     {{1, F16, {300, 5, 900}, 1000},
      {1, Q8_0, {40, 40, 40}, 40},
      {1, F32, {0, 0, 0}, 0},
      {1, Q4_0, {64, 65, 1200}, 4000}}},
    {"more tokens than one slice of few rows may have",
     2,
     32,
     0,
     {{1, F16, {30, 5, 9}, 40},
      {1, F16, {31, 300, 9}, 350},
      {1, F16, {32, 5, 600}, 700},
      {1, F16, {33, 5, 9}, 40},
      {1, F16, {34, 5, 9}, 40},
      {1, F16, {35, 5, 9}, 40},
      {1, F16, {36, 256, 255}, 256},
      {1, F16, {37, 257, 9}, 300},
      {1, F16, {38, 5, 512}, 600}}},
    {"prompts and tokens mixed",
     3,
     64,
     0,
     {{1, F16, {300, 5, 900}, 1000},
      {40, Q8_0, {0, 0, 0}, 0},
      {3, F32, {70, 7, 700}, 800},
      {130, F16, {61, 150, 5}, 200},
      {1, Q4_0, {9000, 1, 33}, 20000}}},
    {"two prompts", 1, 80, 0, {{33, F16, {0, 0, 0}, 0}, {96, F32, {10, 500, 499}, 600}}},
    {"large groups",
     33,
     32,
     0,
     {{1, F16, {300, 5, 9}, 400}, {2, F16, {30, 9, 90}, 90}, {9, F32, {1, 2, 3}, 7}}},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void slices_do_not_see_each_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct fixture f;
        fixture_init(&f, &shapes[i], 3);
        for (int32_t il = 0; il < N_LAYER; il++)
            for (int storing = 0; storing <= may_store(&f); storing++)
                for (int nth = 1; nth <= 5; nth++) { /* more than there is scratch for, too */
                    run(&f, il, storing, nth);
                    for (int32_t k = 0; k < f.batch.n_slice; k++)
                        compare_with_alone(&f, il, k);
                }
        fixture_free(&f);
    }
}

static void agrees_with_reference(void **state)
{
    (void)state;
    test_has_one_thread();
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct fixture f;
        fixture_init(&f, &shapes[i], 1);
        for (int v = 0; wnw__vec_at(v); v++)
            for (int32_t il = 0; il < N_LAYER; il++) {
                f.shared->vec = wnw__vec_at(v);
                f.shared->bf16 = NULL;
                f.shared->score8 = NULL;
                run(&f, il, false, 1);
                wnw__attend_ref(&f.op, f.q, f.expect);
                const double e = test_relative_error(f.out, f.expect, f.n_q);
                if (!(e <= TOLERANCE))
                    fail_msg("%s, layer %d, %s: error %g", shapes[i].name, (int)il, f.shared->vec->name, e);
            }
        fixture_free(&f);
    }
}

/* One operation and its scratch, other slices: their order, rows and lengths change, the number of rows stays. */
static void slices_may_change_between_runs(void **state)
{
    (void)state;
    static const int32_t n_row[][4] = {
        {1, 3, 40, 1}, {40, 1, 1, 3}, {1, 1, 1, 42}, {11, 12, 11, 11}, {1, 3, 40, 1}};
    static const struct shape shape = {"",
                                       3,
                                       64,
                                       0,
                                       {{1, F16, {300, 5, 900}, 1000},
                                        {3, Q8_0, {70, 7, 700}, 800},
                                        {40, F16, {61, 150, 5}, 200},
                                        {1, F32, {0}, 0}}};
    struct fixture f;
    fixture_init(&f, &shape, 2);
    for (size_t round = 0; round < sizeof n_row / sizeof *n_row; round++) {
        for (int32_t i = 0, row = 0; i < 4; i++) {
            f.slice[i].first_row = row;
            f.slice[i].n_row = n_row[round][i];
            row += n_row[round][i];
            assert_int_equal(wnw__cache_reserve_layer(&f.cache[i], 0, n_row[round][i], true), WNW_OK);
        }
        run(&f, 0, false, 2);
        for (int32_t i = 0; i < 4; i++) {
            compare_with_alone(&f, 0, i);
            wnw__cache_commit_layer(&f.cache[i], 0, f.slice[i].n_past, f.slice[i].n_row);
            f.slice[i].n_past += f.slice[i].n_row;
        }
    }
    fixture_free(&f);
}

/* ---- In graphs ---- */

struct graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *gf;
    ggml_gallocr_t alloc;
    struct ggml_tensor *q, *k, *v, *out;
    struct wnw__attend_ggml *ag;
};

static struct ggml_tensor *input(struct ggml_context *ctx, int64_t d, int64_t n_head, int64_t n_row)
{
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, d, n_head, n_row);
    ggml_set_input(t);
    return t;
}

static void compute(struct fixture *f, struct graph *g, bool with_ggml)
{
    const int64_t d = f->shape->d, n_row = f->batch.n_row;
    *g = (struct graph){
        .ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)4 << 20, .no_alloc = true})};
    assert_non_null(g->ctx);
    g->gf = ggml_new_graph(g->ctx);
    g->q = input(g->ctx, d, (int64_t)N_HEAD_KV * f->shape->group, n_row);
    g->k = input(g->ctx, d, N_HEAD_KV, n_row);
    g->v = input(g->ctx, d, N_HEAD_KV, n_row);
    if (with_ggml)
        assert_int_equal(wnw__attend_ggml_new(&g->ag, &f->batch), WNW_OK);
    g->out = with_ggml ? wnw__attend_ggml_build(g->ag, g->ctx, g->gf, &f->op, g->q, g->k, g->v)
                       : wnw__attend_own(g->ctx, &f->op, g->q, g->k, g->v);
    assert_int_equal(g->out->ne[0], d * N_HEAD_KV * f->shape->group);
    assert_int_equal(g->out->ne[1], n_row);
    ggml_set_output(g->out);
    ggml_build_forward_expand(g->gf, g->out);
    assert_in_range(ggml_graph_n_nodes(g->gf), 1, 16 + (int)wnw__attend_ggml_nodes(&f->batch));
    g->alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(g->alloc, g->gf));
    ggml_backend_tensor_set(g->q, f->q, 0, ggml_nbytes(g->q));
    ggml_backend_tensor_set(g->k, f->k, 0, ggml_nbytes(g->k));
    ggml_backend_tensor_set(g->v, f->v, 0, ggml_nbytes(g->v));
    if (with_ggml)
        assert_int_equal(wnw__attend_ggml_fill(g->ag), WNW_OK);
    struct ggml_cplan plan = ggml_graph_plan(g->gf, 2, NULL);
    plan.work_data = malloc(plan.work_size + 1);
    assert_non_null(plan.work_data);
    assert_int_equal(ggml_graph_compute(g->gf, &plan), GGML_STATUS_SUCCESS);
    free(plan.work_data);
    ggml_backend_tensor_get(g->out, f->out, 0, ggml_nbytes(g->out));
}

static void graph_free(struct graph *g)
{
    wnw__attend_ggml_free(g->ag);
    ggml_gallocr_free(g->alloc);
    ggml_free(g->ctx);
}

static void own_operation_in_a_graph(void **state)
{
    (void)state;
    test_has_one_thread(); /* winnow's; OpenMP's barriers are not seen there */
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int32_t il = 0; il < N_LAYER; il++) {
            struct fixture f;
            struct graph g;
            fixture_init(&f, &shapes[i], 2);
            f.op.il = il;
            f.shared->bf16 = NULL;
            f.shared->score8 = NULL;
            assert_int_equal(wnw__attend_shared_reserve(f.shared, &f.batch, il, il + 1), WNW_OK);
            compute(&f, &g, false);
            wnw__attend_ref(&f.op, f.q, f.expect);
            const double e = test_relative_error(f.out, f.expect, f.n_q);
            if (!(e <= TOLERANCE))
                fail_msg("%s, layer %d: error %g", shapes[i].name, (int)il, e);
            graph_free(&g);
            fixture_free(&f);
        }
}

/* With an f32 cache ggml rounds no more than we do; with others decision 019 says how much more. */
static void ggml_attention_agrees(void **state)
{
    (void)state;
    test_has_one_thread(); /* winnow's; OpenMP's barriers are not seen there */
    static const struct shape with_ggml[] = {
        {"decoding",
         3,
         64,
         256,
         {{1, F32, {300, 5, 900}, 1000}, {1, F32, {0, 77, 20}, 90}, {1, F32, {0}, 0}}},
        {"mixed, ragged and not",
         2,
         32,
         256,
         {{33, F32, {0}, 0},
          {1, F32, {50, 50, 50}, 60},
          {5, F32, {7, 300, 12}, 333},
          {70, F32, {9, 9, 9}, 9}}},
    };
    for (size_t i = 0; i < sizeof with_ggml / sizeof *with_ggml; i++)
        for (int32_t il = 0; il < N_LAYER; il++) {
            struct fixture f;
            struct graph g;
            fixture_init(&f, &with_ggml[i], 1);
            f.op.il = il;
            compute(&f, &g, true);
            wnw__attend_ref(&f.op, f.q, f.expect);
            const double e = test_relative_error(f.out, f.expect, f.n_q);
            if (!(e <= TOLERANCE))
                fail_msg("%s, layer %d: error %g", with_ggml[i].name, (int)il, e);
            graph_free(&g);
            fixture_free(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_do_not_see_each_other),   cmocka_unit_test(agrees_with_reference),
        cmocka_unit_test(slices_may_change_between_runs), cmocka_unit_test(own_operation_in_a_graph),
        cmocka_unit_test(ggml_attention_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
