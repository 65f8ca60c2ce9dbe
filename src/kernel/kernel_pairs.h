/* SPDX-License-Identifier: MIT */
/*
 * Products of rows of whole numbers, and sums of exponentials of what comes out: a part of kernel_body.h. Instruction sets
 * define
 *   VA, PAIR_ROWS              VW sums of products of words; rows per register block
 *   v_words(p) v_word(x)       VW words from memory; VW times the word x;
 *   v_no_products()            sums of nothing
 *   v_add_products(a, w, x)    a + the products of both halves of each word of w and x, signed 16 bits each;
 *   v_sum_products(a)          the sums as VW floats
 */

/* The largest length of a row in units. Sums of products, and each part of a sum, are at most its square. A signed word
 * holds that for any elements. */
#define PAIR_LENGTH 32000.0f

/* x[d][WNW_TILE] -> tile[d / 2, rounded up][WNW_TILE] and unit[WNW_TILE]: column j of x is unit[j] times the two halves of the
 * words in column j. Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits. Each product is a statement, so
 * that no compiler makes it part of a sum: the bits are the same on every CPU. */
static void pairs_of(const float *x, int32_t d, uint32_t *tile, float *unit)
{
    const VF shift = v_set1(12582912.0f);
    float by[WNW_TILE];
    for (int32_t j = 0; j < WNW_TILE; j += VW) {
        VF square = v_set1(0.0f);
        for (int32_t c = 0; c < d; c++) {
            const VF v = v_load(x + (int64_t)c * WNW_TILE + j), own = v * v;
            square = square + own;
        }
        v_store(unit + j, square);
    }
    for (int32_t j = 0; j < WNW_TILE; j++) {
        const float length = sqrtf(unit[j]);
        by[j] = length > 0.0f ? PAIR_LENGTH / length : 0.0f;
        unit[j] = length * (1.0f / PAIR_LENGTH);
    }
    for (int32_t c = 0; c < d; c += 2) {
        const float *low = x + (int64_t)c * WNW_TILE, *high = low + WNW_TILE;
        for (int32_t j = 0; j < WNW_TILE; j += VW) {
            const VF f = v_load(by + j), even = v_load(low + j) * f;
            VU w = (VU)(even + shift) & 0xffffu;
            if (c + 1 < d) {
                const VF odd = v_load(high + j) * f;
                w = w | (VU)(odd + shift) << 16;
            }
            memcpy(tile + (int64_t)(c / 2) * WNW_TILE + j, &w, sizeof w);
        }
    }
}

static void mul_pairs(const uint32_t *panel, const float *panel_unit, int32_t n_panel, int32_t n_pair,
                      const uint32_t *tile, const float *tile_unit, float *out, int64_t ld)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        const VF u0 = v_load(tile_unit + j), u1 = v_load(tile_unit + j + VW);
        for (int32_t p = 0; p < n_panel; p++) {
            const uint32_t *a = panel + (int64_t)p * n_pair * PAIR_ROWS, *b = tile + j;
            const float *unit = panel_unit + p * PAIR_ROWS;
            float *to = out + (int64_t)p * PAIR_ROWS * ld + j;
            VA acc[PAIR_ROWS][2];
            UNROLL
            for (int r = 0; r < PAIR_ROWS; r++)
                acc[r][0] = acc[r][1] = v_no_products();
            for (int32_t k = 0; k < n_pair; k++, a += PAIR_ROWS, b += WNW_TILE) {
                const VS b0 = v_words(b), b1 = v_words(b + VW);
                UNROLL
                for (int r = 0; r < PAIR_ROWS; r++) {
                    const VS w = v_word(a[r]);
                    acc[r][0] = v_add_products(acc[r][0], w, b0);
                    acc[r][1] = v_add_products(acc[r][1], w, b1);
                }
            }
            UNROLL
            for (int r = 0; r < PAIR_ROWS; r++) {
                const VF f = v_set1(unit[r]);
                v_store(to + r * ld, v_sum_products(acc[r][0]) * (f * u0));
                v_store(to + r * ld + VW, v_sum_products(acc[r][1]) * (f * u1));
            }
        }
    }
}

/* ---- Sums of exponentials ---- */

static void sum_rows(const float *s, int64_t ld, int32_t rows, float *m, float *l)
{
    for (int32_t r = 0; r < rows; r++, s += ld) {
        VF a = v_load(s);
        UNROLL
        for (int j = VW; j < WNW_TILE; j += VW)
            a = v_max(a, v_load(s + j));
        const float here = v_hmax(a), most = here > m[r] ? here : m[r];
        float last[VW];
        v_store(last, v_exp(v_set1(m[r] - most)));
        const VF top = v_set1(most);
        VF sum = v_set1(0.0f);
        UNROLL
        for (int j = 0; j < WNW_TILE; j += VW)
            sum += v_exp(v_load(s + j) - top);
        l[r] = l[r] * last[0] + v_hsum(sum);
        m[r] = most;
    }
}

static void sum_columns(const float *s, int32_t rows, float *m, float *l)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        const VF m0 = v_load(m + j), m1 = v_load(m + j + VW);
        VF t0 = m0, t1 = m1;
        for (int32_t r = 0; r < rows; r++) {
            t0 = v_max(t0, v_load(s + (int64_t)r * WNW_TILE + j));
            t1 = v_max(t1, v_load(s + (int64_t)r * WNW_TILE + j + VW));
        }
        VF l0 = v_load(l + j) * v_exp(m0 - t0), l1 = v_load(l + j + VW) * v_exp(m1 - t1);
        for (int32_t r = 0; r < rows; r++) {
            l0 += v_exp(v_load(s + (int64_t)r * WNW_TILE + j) - t0);
            l1 += v_exp(v_load(s + (int64_t)r * WNW_TILE + j + VW) - t1);
        }
        v_store(m + j, t0);
        v_store(m + j + VW, t1);
        v_store(l + j, l0);
        v_store(l + j + VW, l1);
    }
}

static void raise_to(float *best, const float *s, int64_t ld, int32_t rows, const float *less)
{
    for (int32_t j = 0; j < WNW_TILE; j += 4 * VW) {
        VF most[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            most[i] = v_load(best + j + i * VW);
        for (int32_t r = 0; r < rows; r++) {
            const VF off = v_set1(less[r]);
            UNROLL
            for (int i = 0; i < 4; i++)
                most[i] = v_max(most[i], v_load(s + r * ld + j + i * VW) - off);
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            v_store(best + j + i * VW, most[i]);
    }
}

static void exps(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += VW)
        v_store(x + i, v_exp(v_load(x + i)));
}
