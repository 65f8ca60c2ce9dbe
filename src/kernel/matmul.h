/* SPDX-License-Identifier: MIT */
/*
 * Products of quantised weights with many tokens, y[t][r] = sum_k w[r][k] x[t][k], in 8-bit integers. Both sides
 * are cut into blocks along k; a weight is w = d u + m with u an unsigned byte and d, m of its block, an activation
 * x = a q with q a signed byte and a of its block of 32:
 *
 *     y[t][r] = sum over blocks of  a d sum(u q)  +  m a sum(q)
 *
 * Whatever the type of the file, a strip of WNW_STRIP rows is brought into this form a chunk of WNW_CHUNK columns
 * at a time while it is in the first-level cache, and multiplied with all tokens there; no second copy of the
 * weights exists. Activations lose what ggml's own products with quantised weights lose, which round them to 8 bits
 * in blocks of 32 or 256 too.
 *
 * A result depends on its row, its token and k alone, in a fixed order: neither on the number of threads nor on
 * which other tokens are there.
 */
#ifndef WNW_MATMUL_H
#define WNW_MATMUL_H

#include "winnow.h"

enum {
    WNW_STRIP = 64,          /* rows */
    WNW_CHUNK = 256,         /* columns */
    WNW_ACT_TINY = 27 << 23, /* 2^-100 as bits of a float: a block of smaller activations counts as zero */
};

/* Activations of one token in one chunk. */
struct wnw__act {
    int8_t q[WNW_CHUNK];
    float scale[WNW_CHUNK / 32]; /* a */
    float sum32[WNW_CHUNK / 32]; /* a sum(q) of each block of 32 */
    float sum16[WNW_CHUNK / 16]; /* the same of blocks of 16 */
};

/* One chunk of a strip: the four bytes of columns 4 g .. 4 g + 3 of all rows stand side by side. */
struct wnw__strip {
    uint8_t u[WNW_CHUNK / 4][WNW_STRIP][4];
    float d[WNW_CHUNK / 16][WNW_STRIP], m[WNW_CHUNK / 16][WNW_STRIP]; /* of block i in rows i */
};

/* A type of weights that can be brought into strips. */
struct wnw__weight_type {
    int32_t ggml_type;
    int32_t k_unit;    /* k must be a multiple of it */
    int32_t block;     /* 16 or 32 columns share d and m */
    int32_t u_max;     /* largest u */
    size_t unit_bytes; /* of k_unit weights in the file */
    /* n rows, `stride` bytes apart, columns from .. from + n_col - 1 (multiples of 32, within one chunk); rows behind n
     * become 0. */
    void (*unpack)(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,
                   struct wnw__strip *out);
};

/* NULL where products with that type are not ours. */
const struct wnw__weight_type *wnw__weight_type(int32_t ggml_type);

/* Chunks of k columns. */
static inline int32_t wnw__n_chunks(int32_t k)
{
    return (k + WNW_CHUNK - 1) / WNW_CHUNK;
}

/* y[t][WNW_STRIP] += (first: =) strip . act[t] for n_tok tokens; y rows ld floats apart; n_block blocks. */
typedef void (*wnw__matmul_fn)(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                               const struct wnw__act *act, int32_t n_tok, bool first, float *y, int64_t ld);
struct wnw__matmul_kernel {
    const char *name;
    wnw__matmul_fn multiply;
    /* x[k], k a multiple of 32, of one token to its records act[chunk * n_tok]. A block with a value that is not finite
     * gets a scale that is not a number, so that damage shows in the product. The same bits in every kernel. */
    void (*act_from_f32)(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act);
};
/* NULL where the compiler was not asked for the instruction set. */
const struct wnw__matmul_kernel *wnw__matmul_scalar(void);
const struct wnw__matmul_kernel *wnw__matmul_avx2(void);
const struct wnw__matmul_kernel *wnw__matmul_avxvnni(void);
const struct wnw__matmul_kernel *wnw__matmul_vnni(void);
/* The i-th best this CPU can run, NULL past the last. */
const struct wnw__matmul_kernel *wnw__matmul_at(int i);

/* A product, cut into strips of rows that threads can take. */
struct wnw__matmul {
    const struct wnw__matmul_kernel *kernel;
    const struct wnw__weight_type *type;
    const uint8_t *rows; /* [n_row], stride bytes apart */
    size_t stride;
    int32_t n_row, k, n_tok;
    const struct wnw__act *act; /* [wnw__n_chunks(k)][n_tok] */
    float *y;                   /* [n_tok][ld] */
    int64_t ld;
};

/* Rows of strip i, 0 <= i < (n_row + WNW_STRIP - 1) / WNW_STRIP, for all tokens. */
void wnw__matmul_strip(const struct wnw__matmul *p, int32_t i, struct wnw__strip *scratch);

#endif
