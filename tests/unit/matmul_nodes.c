/* SPDX-License-Identifier: MIT */
/* Products as nodes of a graph: several weights of one node against each of them alone, a token alone against the same token
 * among others, any number of threads, the same graph again. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <ggml-cpu.h>
#include <stdlib.h>
#include <string.h>

enum { K = 512, N_W = WNW_MATMUL_TOGETHER };

static const enum ggml_type types[N_W] = {GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q5_0};
static const int64_t rows[N_W] = {200, 8, 77}; /* several pieces; less than one; a remainder */

struct fixture {
    struct ggml_context *ctx;
    struct ggml_tensor *w[N_W];
};

static void fixture_init(struct fixture *f)
{
    f->ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)4 << 20});
    assert_non_null(f->ctx);
    for (int i = 0; i < N_W; i++) {
        float *x = test_random_floats((size_t)(K * rows[i]), (uint32_t)(10 + i), 0.5f);
        f->w[i] = ggml_new_tensor_2d(f->ctx, types[i], K, rows[i]);
        ggml_quantize_chunk(types[i], x, f->w[i]->data, 0, rows[i], K, NULL);
        free(x);
    }
}

static struct ggml_tensor *tokens(struct fixture *f, const float *x, int64_t n_tok)
{
    struct ggml_tensor *t = ggml_new_tensor_2d(f->ctx, GGML_TYPE_F32, K, n_tok);
    memcpy(t->data, x, ggml_nbytes(t));
    return t;
}

/* The result of one node of n_w weights and an operand, computed twice. */
static const struct ggml_tensor *compute_of(struct fixture *f, struct ggml_tensor *const *w, int n_w,
                                            const struct wnw__operand *x, int n_threads)
{
    struct wnw__matmul_scratch *scratch;
    assert_int_equal(wnw__matmul_new(&scratch, n_threads, K, 1e-5f), WNW_OK);
    const struct wnw__operand in = wnw__matmul_input(scratch, f->ctx, x);
    struct ggml_tensor *y = wnw__matmul_node(scratch, f->ctx, w, n_w, &in);
    struct ggml_cgraph *gf = ggml_new_graph(f->ctx);
    ggml_build_forward_expand(gf, y);
    for (int i = 0; i < 2; i++) {
        memset(y->data, 0xff, ggml_nbytes(y));
        assert_int_equal(ggml_graph_compute_with_ctx(f->ctx, gf, n_threads), GGML_STATUS_SUCCESS);
    }
    wnw__matmul_free(scratch);
    return y;
}

static const struct ggml_tensor *compute(struct fixture *f, struct ggml_tensor *const *w, int n_w,
                                         struct ggml_tensor *x, int n_threads)
{
    const struct wnw__operand plain = {.kind = WNW_OPERAND_PLAIN, .a = x};
    return compute_of(f, w, n_w, &plain, n_threads);
}

static void together_equals_alone(void **state)
{
    (void)state;
    float *x = test_random_floats(K, 3, 1.0f);
#ifdef __SANITIZE_THREAD__
    const int most_threads = 1; /* OpenMP's barriers are not seen there */
#else
    const int most_threads = 3;
#endif
    for (int n_threads = 1; n_threads <= most_threads; n_threads++) {
        struct fixture f;
        fixture_init(&f);
        struct ggml_tensor *token = tokens(&f, x, 1);
        const struct ggml_tensor *all = compute(&f, f.w, N_W, token, n_threads);
        assert_int_equal(all->ne[0], rows[0] + rows[1] + rows[2]);
        assert_int_equal(all->ne[1], 1);
        const float *part = all->data;
        for (int i = 0; i < N_W; part += rows[i], i++) {
            const struct ggml_tensor *alone = compute(&f, &f.w[i], 1, token, 1);
            assert_memory_equal(part, (const float *)alone->data, (size_t)rows[i] * sizeof *part);
        }
        ggml_free(f.ctx);
    }
    free(x);
}

/* Results in tensors of their own: the same bits. */
static void apart_equals_together(void **state)
{
    (void)state;
    float *x = test_random_floats((size_t)2 * K, 6, 1.0f);
    for (int kind = WNW_OPERAND_PLAIN; kind <= WNW_OPERAND_SWIGLU; kind++) {
        struct fixture f;
        fixture_init(&f);
        struct wnw__matmul_scratch *scratch;
        struct ggml_tensor *y[N_W];
        const struct wnw__operand of = {
            .kind = (enum wnw__operand_kind)kind, .a = tokens(&f, x, 1), .b = tokens(&f, x + K, 1)};
        const struct ggml_tensor *all = compute_of(&f, f.w, N_W, &of, 1);
        for (int i = 0; i < N_W; i++) {
            y[i] = ggml_new_tensor_2d(f.ctx, GGML_TYPE_F32, rows[i], 1);
            memset(y[i]->data, 0xff, ggml_nbytes(y[i]));
        }
        assert_int_equal(wnw__matmul_new(&scratch, 1, K, 1e-5f), WNW_OK);
        const struct wnw__operand in = wnw__matmul_input(scratch, f.ctx, &of);
        struct ggml_cgraph *gf = ggml_new_graph(f.ctx);
        ggml_build_forward_expand(gf, wnw__matmul_node_apart(scratch, f.ctx, f.w, y, N_W, &in));
        assert_int_equal(ggml_graph_compute_with_ctx(f.ctx, gf, 1), GGML_STATUS_SUCCESS);
        const float *part = all->data;
        for (int i = 0; i < N_W; part += rows[i], i++)
            assert_memory_equal(y[i]->data, part, (size_t)rows[i] * sizeof *part);
        wnw__matmul_free(scratch);
        ggml_free(f.ctx);
    }
    free(x);
}

/* Five tokens in one node of three weights: each row of the result has the products one after the other. */
static void tokens_together(void **state)
{
    (void)state;
    enum { N_TOK = 5 };
    float *x = test_random_floats((size_t)K * N_TOK, 4, 1.0f);
    struct fixture f;
    fixture_init(&f);
    const struct ggml_tensor *all = compute(&f, f.w, N_W, tokens(&f, x, N_TOK), 1);
    for (int t = 0; t < N_TOK; t++) {
        const struct ggml_tensor *alone = compute(&f, f.w, N_W, tokens(&f, x + (size_t)t * K, 1), 1);
        assert_memory_equal((const float *)all->data + t * all->ne[0], (const float *)alone->data,
                            (size_t)all->ne[0] * sizeof(float));
    }
    ggml_free(f.ctx);
    free(x);
}

/* Norms and gates that products compute themselves: the same bits as of the rows that the kernels make of them, for a token alone
 * and for several, which lie in the rows of a wider tensor. */
static void operands_are_computed_on_the_way(void **state)
{
    (void)state;
    static const int64_t n_tok[] = {1, 2, 37};
    for (int i = 0; i < 3; i++)
        for (int kind = WNW_OPERAND_RMS_NORM; kind <= WNW_OPERAND_SWIGLU; kind++) {
            const int64_t n = n_tok[i];
            const bool norm = kind == WNW_OPERAND_RMS_NORM;
            struct fixture f;
            fixture_init(&f);
            float *x = test_random_floats((size_t)(2 * K * n), 5, 3.0f),
                  *rows_of = calloc((size_t)(K * n), sizeof *rows_of);
            assert_non_null(rows_of);
            struct ggml_tensor *wide = ggml_new_tensor_2d(f.ctx, GGML_TYPE_F32, 2 * K, n),
                               *w = tokens(&f, x + K, 1);
            memcpy(wide->data, x, ggml_nbytes(wide));
            const struct wnw__operand of = {
                .kind = (enum wnw__operand_kind)kind,
                .a = ggml_view_2d(f.ctx, wide, K, n, wide->nb[1], 0),
                .b = norm ? w : ggml_view_2d(f.ctx, wide, K, n, wide->nb[1], K * sizeof(float))};
            for (int64_t t = 0; t < n; t++)
                if (norm)
                    wnw__vec_at(0)->rms_norm(x + 2 * K * t, x + K, K, 1e-5f, rows_of + K * t);
                else
                    wnw__vec_at(0)->swiglu(x + 2 * K * t, x + 2 * K * t + K, K, rows_of + K * t);
            const struct ggml_tensor *want = compute(&f, &f.w[0], 1, tokens(&f, rows_of, n), 1),
                                     *got = compute_of(&f, &f.w[0], 1, &of, 1);
            assert_memory_equal(got->data, want->data, ggml_nbytes(want));
            free(x);
            free(rows_of);
            ggml_free(f.ctx);
        }
}

/* 512 * 127 * 2 = 130048, in Q8_0 without rounding: the scale is 1. */
static void product_by_hand(void **state)
{
    (void)state;
    float large[K], two[K];
    for (int i = 0; i < K; i++) {
        large[i] = 127.0f;
        two[i] = 2.0f;
    }
    struct fixture f;
    fixture_init(&f);
    for (int64_t r = 0; r < rows[1]; r++)
        ggml_quantize_chunk(GGML_TYPE_Q8_0, large, (uint8_t *)f.w[1]->data + (size_t)r * f.w[1]->nb[1], 0, 1,
                            K, NULL);
    const struct ggml_tensor *y = compute(&f, &f.w[1], 1, tokens(&f, two, 1), 1);
    for (int64_t r = 0; r < rows[1]; r++)
        assert_float_equal(((const float *)y->data)[r], 512 * 127 * 2, 0.05f);
    ggml_free(f.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_equals_alone), cmocka_unit_test(apart_equals_together),
        cmocka_unit_test(tokens_together),       cmocka_unit_test(operands_are_computed_on_the_way),
        cmocka_unit_test(product_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
