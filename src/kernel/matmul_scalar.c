/* SPDX-License-Identifier: MIT */
/* The reference of the products. It computes in the order of the formula. */
#include "kernel/matmul_types.h"

static void act_block(const float *x, struct wnw__act *a, int32_t b)
{
    int8_t *q = a->q + 32 * b;
    int32_t sum[2] = {0, 0};
    uint32_t top = 0;
    float by;
    for (int i = 0; i < 32; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        top = (bits & 0x7fffffff) > top ? bits & 0x7fffffff : top;
    }
    a->scale[b] = wnw__act_scale(top, &by);
    for (int i = 0; i < 32; i++) {
        q[i] = by > 0.0f ? (int8_t)lrintf(x[i] * by) : 0;
        sum[i / 16] += q[i];
    }
    a->sum16[2 * b] = a->scale[b] * (float)sum[0];
    a->sum16[2 * b + 1] = a->scale[b] * (float)sum[1];
    a->sum32[b] = a->scale[b] * (float)(sum[0] + sum[1]);
}

static void act_row(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act)
{
    for (int32_t c = 0; c < k; c += 32)
        act_block(x + c, act + (int64_t)(c / WNW_CHUNK) * n_tok, c % WNW_CHUNK / 32);
}

/* Adds one chunk's part of a result to y, the sum over the chunks before it. u is the row's first byte:
 * `columns` of its bytes are together, and the next ones are `group` bytes after the first. d and m of its blocks
 * have a stride of ld floats. */
static float add(float y, const struct wnw__weight_type *type, int32_t n_col, const struct wnw__act *act,
                 const uint8_t *u, size_t group, int32_t columns, const float *d, const float *m, int32_t ld)
{
    for (int32_t b = 0; b < n_col / type->block; b++) {
        int32_t sum = 0;
        for (int32_t c = b * type->block; c < (b + 1) * type->block; c++)
            sum += u[(size_t)(c / columns) * group + (size_t)(c % columns)] * act->q[c];
        y = fmaf((float)sum, act->scale[b * type->block / 32] * d[b * ld], y);
        y = fmaf(type->block == 32 ? act->sum32[b] : act->sum16[b], m[b * ld], y);
    }
    return y;
}

static void strip(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld)
{
    for (int32_t t = 0; t < n_tok; t++)
        for (int32_t r = 0; r < WNW_STRIP; r++)
            y[t * ld + r] = add(before ? before[t * WNW_STRIP + r] : 0.0f, type, n_col, &act[t], s->u[0][r],
                                sizeof s->u[0], 4, &s->d[0][r], &s->m[0][r], WNW_STRIP);
}

static void rows(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld)
{
    for (int32_t t = 0; t < n_tok; t++)
        for (int32_t r = 0; r < n_row; r++)
            y[t * ld + r] =
                add(first ? 0.0f : y[t * ld + r], type, n_col, &act[t], s->u[0][wnw__slot_of_row(r)],
                    sizeof s->u[0], 16, &s->d[0][r], &s->m[0][r], WNW_ROWS);
}

const struct wnw__matmul_kernel *wnw__matmul_scalar(void)
{
    static const struct wnw__matmul_kernel k = {"scalar", act_row, WNW_MATMUL_UNPACK, strip, rows, {NULL}};
    return &k;
}
