/* SPDX-License-Identifier: MIT */
/*
 * The orthonormal Hadamard matrix of blocks, by butterflies: a part of kernel_body.h. Every result of a step is one sum of
 * two numbers, so all instruction sets give the same bits.
 */

/* x[i ^ side] of every lane i; sides below VW. */
INLINE VF across(VF x, const int side)
{
    VF y;
    UNROLL
    for (int i = 0; i < VW; i++)
        y[i] = x[i ^ side];
    return y;
}

/* One step inside of vectors: lanes i and i ^ side become their sum and their difference. */
INLINE void step_inside(float *x, int64_t n, const int side)
{
    VF sign;
    UNROLL
    for (int i = 0; i < VW; i++)
        sign[i] = i & side ? -1.0f : 1.0f;
    for (int64_t i = 0; i < n; i += VW) {
        const VF a = v_load(x + i);
        v_store(x + i, a * sign + across(a, side));
    }
}

/* One step between vectors at a distance of `side`. */
INLINE void step_between(float *x, int64_t n, int32_t side)
{
    for (int64_t i = 0; i < n; i += 2 * side)
        for (int32_t j = 0; j < side; j += VW) {
            const VF a = v_load(x + i + j), b = v_load(x + i + j + side);
            v_store(x + i + j, a + b);
            v_store(x + i + j + side, a - b);
        }
}

static void hadamard(float *x, int64_t n, int32_t block)
{
    const VF scale = v_set1(1.0f / sqrtf((float)block));
    step_inside(x, n, 1);
    step_inside(x, n, 2);
    if (VW > 4)
        step_inside(x, n, 4 % VW);
    if (VW > 8)
        step_inside(x, n, 8 % VW);
    for (int32_t side = VW; side < block; side *= 2)
        step_between(x, n, side);
    for (int64_t i = 0; i < n; i += VW)
        v_store(x + i, v_load(x + i) * scale);
}
