/* SPDX-License-Identifier: MIT */
/*
 * mul_rows for rows in blocks of whole numbers, in integers: a part of kernel_body.h for instruction sets that define
 *   VS                        vector of 2 * VW int16;
 *   v_whole_i16(type, p, w)   the 32 values of a block without their scale -> w[32 / (2 * VW)];
 *   v_round_i16(x, y) 2 * VW floats -> int16; v_dot_i16(a, b) a . b in VW float lanes; sums of pairs are exact.
 * Rows of `a` are rounded to 15 bits and a sign, two hundred times finer than values of a q8_0 block, which have 7 bits.
 */

/* The longest row that goes this way. */
#define I16_COLUMNS 512

/* Rounds mr rows of a, of stride d, to whole numbers: a[r] = unit[r] * rounded[r]. */
INLINE void round_rows(const int mr, const float *a, int32_t d, int16_t rounded[DOT_ROWS][I16_COLUMNS],
                       float unit[DOT_ROWS])
{
    for (int r = 0; r < mr; r++, a += d) {
        VF top = v_set1(0.0f);
        for (int32_t c = 0; c < d; c += VW)
            top = v_max(top, v_abs(v_load(a + c)));
        const float most = v_hmax(top);
        const VF f = v_set1(most > 0.0f ? 32767.0f / most : 0.0f);
        unit[r] = most / 32767.0f;
        for (int32_t c = 0; c < d; c += 2 * VW) {
            const VS w = v_round_i16(v_load(a + c) * f, v_load(a + c + VW) * f);
            memcpy(rounded[r] + c, &w, sizeof w);
        }
    }
}

/* dot_block with mr rows that are unit[r] * a[r]. */
INLINE void dot_block_i16(const wnw_kv_type type, const int mr, int16_t a[DOT_ROWS][I16_COLUMNS],
                          const float unit[DOT_ROWS], const uint8_t *const b[4], int32_t d, uintptr_t next,
                          float sum[DOT_ROWS][4])
{
    const size_t block = wnw__row_bytes(type, 32);
    const bool ahead = next != 0;
    VF acc[DOT_ROWS][4];
    UNROLL
    for (int r = 0; r < mr; r++)
        acc[r][0] = acc[r][1] = acc[r][2] = acc[r][3] = v_set1(0.0f);
    size_t at = 0;
    for (int32_t c = 0; c < d; c += 32, at += block, next += 4 * block) {
        if (ahead)
            prefetch(next, 4 * block);
        UNROLL
        for (int j = 0; j < 4; j++) {
            VS w[32 / (2 * VW)];
            const VF scale = v_scale(type, b[j] + at, 0);
            v_whole_i16(type, b[j] + at + 2, w);
            UNROLL
            for (int r = 0; r < mr; r++)
                acc[r][j] = v_fma(scale, v_dot_i16(a[r] + c, w), acc[r][j]);
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        v_hsum4(sum[r], acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        UNROLL
        for (int j = 0; j < 4; j++)
            sum[r][j] *= unit[r];
    }
}

/* mul_rows_of for mr rows of a. */
INLINE void mul_rows_i16(const wnw_kv_type type, const int mr, const float *a, const uint8_t *b,
                         size_t stride, int32_t nb, int32_t d, bool ahead, float scale, float *out,
                         int64_t ld)
{
    int16_t rounded[DOT_ROWS][I16_COLUMNS];
    float unit[DOT_ROWS];
    round_rows(mr, a, d, rounded, unit);
    for (int32_t j = 0; j < nb; j += 4) {
        const uint8_t *bj[4];
        float sum[DOT_ROWS][4];
        const int32_t nj = four_rows(b, stride, nb, j, bj);
        dot_block_i16(type, mr, rounded, unit, bj, d, ahead ? (uintptr_t)bj[0] + WNW_TILE * stride : 0, sum);
        write_sums(sum, mr, nj, scale, out + j, ld);
    }
}

/* mul_rows_of for the types in blocks. */
INLINE void mul_blocked_rows(const wnw_kv_type type, const float *a, int32_t na, const uint8_t *b,
                             size_t stride, int32_t nb, int32_t d, float scale, float *out, int64_t ld)
{
    if (d > I16_COLUMNS) {
        mul_rows_of(type, a, na, b, stride, nb, d, scale, out, ld);
        return;
    }
    for (int32_t i = 0, step; i < na; i += step) {
        const float *ai = a + (int64_t)i * d;
        float *to = out + i * ld;
        step = na - i < DOT_ROWS ? na - i : DOT_ROWS;
        if (step == 3)
            mul_rows_i16(type, 3, ai, b, stride, nb, d, i == 0, scale, to, ld);
        else if (step == 2)
            mul_rows_i16(type, 2, ai, b, stride, nb, d, i == 0, scale, to, ld);
        else
            mul_rows_i16(type, 1, ai, b, stride, nb, d, i == 0, scale, to, ld);
    }
}
