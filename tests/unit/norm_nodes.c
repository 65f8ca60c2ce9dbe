/* SPDX-License-Identifier: MIT */
/* Norms with weights in one node: the bits of ggml's two nodes, for every shape, in place, with any number of threads. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <ggml-cpu.h>
#include <stdlib.h>
#include <string.h>

static const float eps = 1e-6f;

static struct ggml_context *new_context(void)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)8 << 20});
    assert_non_null(ctx);
    return ctx;
}

static void fill(struct ggml_tensor *t, uint32_t seed, float size)
{
    float *x = test_random_floats((size_t)ggml_nelements(t), seed, size);
    memcpy(t->data, x, ggml_nbytes(t));
    free(x);
}

static void run(struct ggml_context *ctx, struct ggml_tensor *y, int n_threads)
{
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    ggml_build_forward_expand(gf, y);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, gf, n_threads), GGML_STATUS_SUCCESS);
}

/* What ggml computes in two nodes: the norm is an output, so that it cannot be left out. */
static struct ggml_tensor *reference(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *w)
{
    struct ggml_tensor *norm = ggml_rms_norm(ctx, x, eps), *y = ggml_mul(ctx, norm, w);
    ggml_set_output(norm);
    run(ctx, y, 1);
    return y;
}

static int most_threads(void)
{
#ifdef __SANITIZE_THREAD__
    return 1; /* OpenMP's barriers are not seen there */
#else
    return 3;
#endif
}

static void equals_ggml(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{64, 1, 1, 1},  {640, 1, 1, 1}, {33, 3, 1, 1},   {256, 4, 5, 1},
                                        {128, 1, 9, 1}, {80, 2, 3, 3},  {576, 11, 1, 1}, {1, 7, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n_threads = 1; n_threads <= most_threads(); n_threads++) {
            struct ggml_context *ctx = new_context();
            const int64_t *n = shapes[i];
            struct ggml_tensor *x = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, n[0], n[1], n[2], n[3]),
                               *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n[0]);
            fill(x, (uint32_t)i + 1, i % 2 ? 1e3f : 1.0f);
            fill(w, 77, 2.0f);
            const struct ggml_tensor *y = reference(ctx, x, w);
            struct ggml_tensor *ours = wnw__norm_node(ctx, x, w, &eps);
            run(ctx, ours, n_threads);
            assert_true(ggml_are_same_shape(ours, y));
            assert_memory_equal(ours->data, y->data, ggml_nbytes(y));
            ggml_free(ctx);
        }
}

/* Heads among other numbers of a row, as where queries, keys and values are one product. */
static void equals_ggml_on_views(void **state)
{
    (void)state;
    enum { D = 96, HEADS = 3, ROWS = 5, ROW = 700 };
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *all = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ROW, ROWS),
                       *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, D);
    fill(all, 5, 1.0f);
    fill(w, 6, 1.0f);
    struct ggml_tensor *x = ggml_view_3d(ctx, all, D, HEADS, ROWS, 100 * sizeof(float), all->nb[1], 20);
    const struct ggml_tensor *y = reference(ctx, x, w);
    struct ggml_tensor *ours = wnw__norm_node(ctx, x, w, &eps);
    run(ctx, ours, most_threads());
    assert_memory_equal(ours->data, y->data, ggml_nbytes(y));
    ggml_free(ctx);
}

static void works_in_place(void **state)
{
    (void)state;
    enum { N = 200, ROWS = 7 };
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N, ROWS),
                       *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    fill(x, 8, 1.0f);
    fill(w, 9, 1.0f);
    const struct ggml_tensor *y = reference(ctx, x, w);
    struct ggml_tensor *ours = wnw__norm_node(ctx, x, w, &eps);
    ours->data = x->data;
    run(ctx, ours, most_threads());
    assert_memory_equal(x->data, y->data, ggml_nbytes(y));
    ggml_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_ggml),
        cmocka_unit_test(equals_ggml_on_views),
        cmocka_unit_test(works_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
