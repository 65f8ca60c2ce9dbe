/* SPDX-License-Identifier: MIT */
/* Frequencies that observations report: a rotation by hand with them is ggml's rotation. */
#include "helpers.h"
#include "peek_arrays.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, N_TOK = 5 };

static const int32_t positions[N_TOK] = {0, 1, 7, 100, 2000};

static struct wnw__hparams hparams(int32_t n_rot)
{
    return (struct wnw__hparams){.n_layer = 12,
                                 .n_embd_head = D,
                                 .n_rot = n_rot,
                                 .rope_freq_base = 500000.0f,
                                 .rope_freq_scale = 0.25f,
                                 .rope_freq_base_swa = 10000.0f,
                                 .rope_freq_scale_swa = 1.0f};
}

static void rotate_by_ggml(const struct wnw__rope *r, int mode, int32_t n_rot, const float *factors,
                           const float *x, float *out)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)16 << 20});
    assert_non_null(ctx);
    struct ggml_tensor *in = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, 1, N_TOK);
    struct ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, N_TOK);
    struct ggml_tensor *ff = factors ? ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_rot / 2) : NULL;
    memcpy(in->data, x, sizeof(float) * D * N_TOK);
    memcpy(pos->data, positions, sizeof positions);
    if (ff)
        memcpy(ff->data, factors, (size_t)n_rot / 2 * sizeof *factors);
    struct ggml_tensor *y =
        ggml_rope_ext(ctx, in, pos, ff, n_rot, mode, 8192, r->base, r->scale, 0.0f, 1.0f, 32.0f, 1.0f);
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    ggml_build_forward_expand(gf, y);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, gf, 1), GGML_STATUS_SUCCESS);
    memcpy(out, y->data, sizeof(float) * D * N_TOK);
    ggml_free(ctx);
}

static void rotate_by_hand(const float *theta, bool neox, int32_t n_rot, const float *x, float *out)
{
    memcpy(out, x, sizeof(float) * D * N_TOK);
    for (int32_t t = 0; t < N_TOK; t++) {
        for (int32_t i = 0; i < n_rot / 2; i++) {
            const int32_t a = t * D + (neox ? i : 2 * i), b = t * D + (neox ? i + n_rot / 2 : 2 * i + 1);
            const double angle = (double)positions[t] * (double)theta[i];
            out[a] = (float)((double)x[a] * cos(angle) - (double)x[b] * sin(angle));
            out[b] = (float)((double)x[a] * sin(angle) + (double)x[b] * cos(angle));
        }
    }
}

static void check(struct wnw__hparams hp, int32_t il, bool neox, bool with_factors)
{
    float theta[D / 2], factors[D / 2], x[D * N_TOK], want[D * N_TOK], got[D * N_TOK];
    uint64_t seed = 3;
    for (int32_t i = 0; i < D / 2; i++)
        factors[i] = i < 8 ? 1.0f : 1.0f + 0.25f * (float)(i - 7);
    for (int32_t i = 0; i < D * N_TOK; i++)
        x[i] = (float)(test_random(&seed) >> 40) / 0x1p23f - 1.0f;
    const struct wnw__rope r = wnw__rope_of_layer(&hp, il);
    wnw__rope_theta(&hp, il, with_factors ? factors : NULL, theta);
    rotate_by_ggml(&r, neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, hp.n_rot,
                   with_factors ? factors : NULL, x, want);
    rotate_by_hand(theta, neox, hp.n_rot, x, got);
    /* ggml multiplies the angle up in float: 2000 rad are off by some 1e-4 after a few steps. */
    for (int32_t i = 0; i < D * N_TOK; i++)
        if (fabsf(got[i] - want[i]) > 1e-3f)
            fail_msg("element %d of token %d: %g, ggml has %g", (int)i % D, (int)i / D, (double)got[i],
                     (double)want[i]);
}

static void rotation_is_ggmls(void **state)
{
    (void)state;
    for (int neox = 0; neox < 2; neox++)
        for (int factors = 0; factors < 2; factors++) {
            check(hparams(D), 0, neox, factors);
            check(hparams(D / 2), 0, neox, factors); /* the rest of the head stays as it is */
        }
}

static void sliding_layers_have_their_own_base(void **state)
{
    (void)state;
    struct wnw__hparams hp = hparams(D);
    hp.n_swa = 512;
    for (int32_t il = 0; il < hp.n_layer; il++)
        hp.swa[il] = il % 6 < 5;
    check(hp, 0, true, false);
    check(hp, 5, true, false);
    float sliding[D / 2], global[D / 2];
    wnw__rope_theta(&hp, 0, NULL, sliding);
    wnw__rope_theta(&hp, 5, NULL, global);
    assert_float_equal(sliding[0], 1.0f, 0.0f);
    assert_float_equal(global[0], 0.25f, 0.0f);
    /* pair 16 of 32: base^(-1/2) */
    assert_float_equal(sliding[16], 0.01f, 1e-7f);
    assert_float_equal(global[16], 0.25f / sqrtf(500000.0f), 1e-9f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_is_ggmls),
        cmocka_unit_test(sliding_layers_have_their_own_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
