/* SPDX-License-Identifier: MIT */
/*
 * Products of quantised weights with tokens, y[t][r] = sum_k w[r][k] x[t][k], in 8-bit integers. Both sides
 * are cut into blocks along k. A weight is w = d u + m with an unsigned byte u and its block's d and m; an
 * activation is x = a q with a signed byte q and its block's a, where a block has 32 activations:
 *
 *     y[t][r] = sum over blocks of  a d sum(u q)  +  m a sum(q)
 *
 * For many tokens, rows of every type of the file are brought into the same form, strips of 64 rows, one chunk
 * of WNW_CHUNK columns at a time. The chunk stays in the first-level cache and is multiplied with all tokens
 * there, so no second copy of the weights exists. For few tokens, eight rows of the file are multiplied where
 * they are (kernel/matmul_few.h); what is left of them has a form of 16 rows, which is also the reference. Activations lose as much precision as in ggml's own products with quantised weights, which
 * round them to 8 bits in blocks of 32 or 256, too.
 *
 * ggml keeps some weights in a form of its own for single tokens. Rows of Q4_K that lie by eight can be multiplied with many tokens
 * there. They become rows of the file again one chunk at a time, which are brought into the form of a strip.
 *
 * With the same kernel a result depends on its row, its token and k alone, bit for bit: neither on the number
 * of threads nor on the number of other tokens.
 */
#ifndef WNW_MATMUL_H
#define WNW_MATMUL_H

#include "winnow.h"

#include <math.h>
#include <string.h>

enum {
    WNW_STRIP = 64,       /* rows of the form for many tokens */
    WNW_ROWS = 16,        /* rows of the form for few tokens */
    WNW_FEW = 8,          /* rows that few tokens are multiplied with where they are */
    WNW_CHUNK = 256,      /* columns of either */
    WNW_TOKENS = 512,     /* tokens that a strip is multiplied with before the next one is made */
    WNW_EIGHT = 8,        /* rows that ggml's form of Q4_K keeps together */
    WNW_EIGHT_UNIT = 144, /* bytes of one of them in a chunk, there and in the file */
    WNW_MANY = 12, /* tokens from which on strips are faster: they cost more to make and less to multiply */
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

/* The type with that number of ggml's, or NULL if our kernels have no products with it. Static. */
const struct wnw__weight_type *wnw__weight_type(int32_t ggml_type);

/* The activations of one token in one chunk. */
struct wnw__act {
    int8_t q[WNW_CHUNK];
    float scale[WNW_CHUNK / 32]; /* a */
    float sum32[WNW_CHUNK / 32]; /* a sum(q) of each block of 32 */
    float sum16[WNW_CHUNK / 16]; /* the same for blocks of 16 */
};

/* The scale of a block whose largest activation has `top` as its bits without the sign, and what its activations are
 * multiplied with, 0 if all of them become 0. */
static inline float wnw__act_scale(uint32_t top, float *by)
{
    float largest;
    memcpy(&largest, &top, sizeof largest);
    const bool finite = top < 0x7f800000u, some = finite && top >= WNW_ACT_TINY;
    *by = some ? 127.0f / largest : 0.0f;
    if (some)
        return largest / 127.0f;
    return finite ? 0.0f : NAN;
}

/* The number of chunks of k columns. */
static inline int32_t wnw__n_chunks(int32_t k)
{
    return (k + WNW_CHUNK - 1) / WNW_CHUNK;
}

/* One chunk of 64 rows. u[g][r] has the four bytes of columns 4 g .. 4 g + 3 of row r; d[i] and m[i] are
 * those of block i. */
struct wnw__strip {
    uint8_t u[WNW_CHUNK / 4][WNW_STRIP][4];
    float d[WNW_CHUNK / 16][WNW_STRIP], m[WNW_CHUNK / 16][WNW_STRIP];
};

/* One chunk of 16 rows. u[g][s] has the 16 bytes of columns 16 g .. 16 g + 15 of the row r with s =
 * wnw__slot_of_row(r). In this order, adding up neighbours leaves the sums in the order of the rows. */
struct wnw__rows {
    uint8_t u[WNW_CHUNK / 16][WNW_ROWS][16];
    float d[WNW_CHUNK / 16][WNW_ROWS], m[WNW_CHUNK / 16][WNW_ROWS];
};
static inline int32_t wnw__slot_of_row(int32_t r)
{
    return 4 * (r % 4) + r / 4;
}

/* Each brings columns from .. from + n_col - 1 (multiples of 32, within one chunk) of n rows, with a stride of
 * `stride` bytes, into its form. The rest of the 64 or 16 rows becomes 0. */
struct wnw__unpack {
    void (*to_strip)(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,
                     struct wnw__strip *out);
    void (*to_rows)(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,
                    struct wnw__rows *out);
};

struct wnw__matmul_kernel {
    const char *name;
    /* Converts x[k] of one token, k a multiple of 32, to its records act[chunk * n_tok]. A block with a value
     * that is not finite gets NaN as its scale, so that damage shows in the product. Every kernel gives the
     * same bits. */
    void (*act_from_f32)(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act);
    struct wnw__unpack unpack[WNW_N_WEIGHT_TYPES];
    /* y[t] [WNW_STRIP] = before[t] + s . act[t] for n_tok tokens over n_col columns of a chunk. The results of tokens
     * have a stride of ld floats; before is [n_tok][WNW_STRIP], may be y, and is 0 if NULL. */
    void (*strip)(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld);
    /* y[t] [n_row] += s . act[t], or = if `first`; n_row <= WNW_ROWS. */
    void (*rows)(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld);
    /* y[t] [WNW_FEW] = WNW_FEW rows of the file, with a stride of `stride` bytes, times act[t] over all k columns.
     * NULL: the kernel has no such product, and `rows` does it. */
    void (*few[WNW_N_WEIGHT_TYPES])(const uint8_t *rows, size_t stride, int32_t k, const struct wnw__act *act,
                                    int32_t n_tok, float *y, int64_t ld);
};
/* Each returns NULL if the compiler was not asked for the instruction set. Static. */
const struct wnw__matmul_kernel *wnw__matmul_scalar(void);
const struct wnw__matmul_kernel *wnw__matmul_avx2(void);
const struct wnw__matmul_kernel *wnw__matmul_avxvnni(void);
const struct wnw__matmul_kernel *wnw__matmul_avx512vnni(void);
const struct wnw__matmul_kernel *wnw__matmul_neondot(void);
/* The i-th best kernel that this CPU can run, NULL past the last. Static and thread-safe. */
const struct wnw__matmul_kernel *wnw__matmul_at(int i);

/* A product, cut into pieces that threads can take. */
struct wnw__matmul {
    const struct wnw__matmul_kernel *kernel;
    const struct wnw__weight_type *type;
    const uint8_t *rows; /* [n_row], with a stride of `stride` bytes */
    size_t stride;
    bool by_eight; /* rows of Q4_K lie by eight: n_row is a multiple of that, n_tok at least WNW_MANY */
    int32_t n_row, k, n_tok;
    const struct wnw__act *act; /* [wnw__n_chunks(k)][n_tok] */
    float *y;                   /* [n_tok][ld] */
    int64_t ld;
};

/* The scratch memory of one thread. Sums over the chunks before the last one have a place of their own: results of
 * the same 64 rows are far from each other in y, a page for each token where there are many rows. */
struct wnw__matmul_work {
    union {
        struct wnw__strip strip;
        struct wnw__rows rows;
    };
    float sums[WNW_TOKENS][WNW_STRIP];
    uint8_t plain[WNW_STRIP][WNW_EIGHT_UNIT]; /* a chunk of rows that lie by eight, as the file has them */
};

/* Brings a chunk of eight rows that lie by eight, [8 * 144] bytes, into the form of the file, rows[8] (kernel/matmul_by_eight.c). */
void wnw__rows_of_eight(const uint8_t *eight, uint8_t (*rows)[WNW_EIGHT_UNIT]);

/* The number of pieces. They are smaller where there are few tokens, so that threads finish together. */
int32_t wnw__matmul_pieces(const struct wnw__matmul *p);
/* The first piece of share i of n, whose work is about the same; i = n: the number of pieces. */
int32_t wnw__matmul_share(const struct wnw__matmul *p, int32_t i, int32_t n);
/* Computes piece i for all tokens. Threads may compute different pieces at once. */
void wnw__matmul_piece(const struct wnw__matmul *p, int32_t i, struct wnw__matmul_work *work);

#endif
