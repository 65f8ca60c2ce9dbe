/* SPDX-License-Identifier: MIT */
/*
 * Products of quantised weights with tokens, y[t][r] = sum_k w[r][k] x[t][k], in 8-bit integers. Both sides
 * are cut into blocks along k; a weight is w = d u + m with u an unsigned byte and d, m of its block, an
 * activation x = a q with q a signed byte and a of its block of 32:
 *
 *     y[t][r] = sum over blocks of  a d sum(u q)  +  m a sum(q)
 *
 * Whatever the type of the file, rows are brought into one form, a chunk of WNW_CHUNK columns at a time,
 * while they are in the first-level cache, and multiplied with all tokens there; no second copy of the
 * weights exists. For many tokens that form is a strip of 64 rows, for few tokens one of 16 rows, which costs
 * less to make. Activations lose what ggml's own products with quantised weights lose, which round them to 8
 * bits in blocks of 32 or 256 too.
 *
 * With one kernel a result depends on its row, its token and k alone, bit for bit: neither on the number of
 * threads nor on how many other tokens are there.
 */
#ifndef WNW_MATMUL_H
#define WNW_MATMUL_H

#include "winnow.h"

enum {
    WNW_STRIP = 64,          /* rows */
    WNW_ROWS = 16,           /* the same for few tokens */
    WNW_CHUNK = 256,         /* columns */
    WNW_ACT_TINY = 27 << 23, /* 2^-100 as bits of a float: a block of smaller activations counts as zero */
};

/* Types of weights: X(id, name, columns per unit of the file, columns that share d and m, largest u, bytes
 * per unit). */
#define WNW_WEIGHT_TYPES(X)         \
    X(Q4_0, q4_0, 32, 32, 15, 18)   \
    X(Q4_1, q4_1, 32, 32, 15, 20)   \
    X(Q5_0, q5_0, 32, 32, 31, 22)   \
    X(Q5_1, q5_1, 32, 32, 31, 24)   \
    X(Q8_0, q8_0, 32, 32, 255, 34)  \
    X(Q4_K, q4_k, 256, 32, 15, 144) \
    X(Q5_K, q5_k, 256, 32, 31, 176) \
    X(Q6_K, q6_k, 256, 16, 63, 210)

enum wnw__weight_id {
#define WNW_X(id, name, k_unit, block, u_max, bytes) WNW_WEIGHT_##id,
    WNW_WEIGHT_TYPES(WNW_X)
#undef WNW_X
        WNW_N_WEIGHT_TYPES
};

struct wnw__weight_type {
    enum wnw__weight_id id;
    int32_t ggml_type;
    int32_t k_unit, block, u_max;
    size_t unit_bytes;
};

/* NULL where products with that type are not ours. */
const struct wnw__weight_type *wnw__weight_type(int32_t ggml_type);

/* Activations of one token in one chunk. */
struct wnw__act {
    int8_t q[WNW_CHUNK];
    float scale[WNW_CHUNK / 32]; /* a */
    float sum32[WNW_CHUNK / 32]; /* a sum(q) of each block of 32 */
    float sum16[WNW_CHUNK / 16]; /* the same of blocks of 16 */
};

/* Chunks of k columns. */
static inline int32_t wnw__n_chunks(int32_t k)
{
    return (k + WNW_CHUNK - 1) / WNW_CHUNK;
}

/* One chunk of 64 rows: the four bytes of columns 4 g .. 4 g + 3 of all rows stand side by side. d and m of
 * block i are in [i]. */
struct wnw__strip {
    uint8_t u[WNW_CHUNK / 4][WNW_STRIP][4];
    float d[WNW_CHUNK / 16][WNW_STRIP], m[WNW_CHUNK / 16][WNW_STRIP];
};

/* One chunk of 16 rows: 16 bytes of every row side by side, row r in slot wnw__slot_of_row(r), an order in
 * which adding up neighbours leaves the sums of the rows in theirs. */
struct wnw__rows {
    uint8_t u[WNW_CHUNK / 16][WNW_ROWS][16];
    float d[WNW_CHUNK / 16][WNW_ROWS], m[WNW_CHUNK / 16][WNW_ROWS];
};
static inline int32_t wnw__slot_of_row(int32_t r)
{
    return 4 * (r % 4) + r / 4;
}

/* n rows, `stride` bytes apart, columns from .. from + n_col - 1 (multiples of 32, within one chunk); what is
 * left of the 64 or 16 rows becomes 0. */
struct wnw__unpack {
    void (*to_strip)(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,
                     struct wnw__strip *out);
    void (*to_rows)(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,
                    struct wnw__rows *out);
};

struct wnw__matmul_kernel {
    const char *name;
    /* x[k], k a multiple of 32, of one token to its records act[chunk * n_tok]. A block with a value that is
     * not finite gets a scale that is not a number, so that damage shows in the product. The same bits in
     * every kernel. */
    void (*act_from_f32)(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act);
    struct wnw__unpack unpack[WNW_N_WEIGHT_TYPES];
    /* y[t] += (first: =) s . act[t] for n_tok tokens over n_col columns of a chunk; rows of y are ld floats
     * apart, [WNW_STRIP] and [n_row <= WNW_ROWS]. */
    void (*strip)(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, bool first, float *y, int64_t ld);
    void (*rows)(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld);
};
/* NULL where the compiler was not asked for the instruction set. */
const struct wnw__matmul_kernel *wnw__matmul_scalar(void);
const struct wnw__matmul_kernel *wnw__matmul_avx2(void);
const struct wnw__matmul_kernel *wnw__matmul_avxvnni(void);
const struct wnw__matmul_kernel *wnw__matmul_avx512vnni(void);
/* The i-th best this CPU can run, NULL past the last. */
const struct wnw__matmul_kernel *wnw__matmul_at(int i);

/* A product, cut into pieces of WNW_STRIP rows that threads can take. */
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

/* One thread's. */
union wnw__matmul_work {
    struct wnw__strip strip;
    struct wnw__rows rows;
};

/* Piece i, 0 <= i < (n_row + WNW_STRIP - 1) / WNW_STRIP, for all tokens. */
void wnw__matmul_piece(const struct wnw__matmul *p, int32_t i, union wnw__matmul_work *work);

#endif
