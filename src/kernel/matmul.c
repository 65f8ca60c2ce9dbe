/* SPDX-License-Identifier: MIT */
#include "kernel/matmul.h"

#include "kernel/cpu.h"
#include "kernel/noise.h"

const struct wnw__matmul_kernel *wnw__matmul_at(int i)
{
    const struct wnw__matmul_kernel *usable[4];
    int n = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (wnw__matmul_avx512vnni() && !wnw__cpu_lacks_avx512vnni())
        usable[n++] = wnw__matmul_avx512vnni();
    if (wnw__matmul_avxvnni() && !wnw__cpu_lacks_avxvnni())
        usable[n++] = wnw__matmul_avxvnni();
    if (wnw__matmul_avx2() && !wnw__cpu_lacks_avx2())
        usable[n++] = wnw__matmul_avx2();
#elif defined(__aarch64__)
    if (wnw__matmul_neondot() && !wnw__cpu_lacks_dotprod())
        usable[n++] = wnw__matmul_neondot();
#endif
    usable[n++] = wnw__matmul_scalar();
    return i >= 0 && i < n ? usable[i] : NULL;
}

/* Rows of a piece for fewer tokens. */
enum { FEW_PIECE = 4 * WNW_FEW };

/* The last strip is cut into PARTS parts if each has at least PART_TOKENS tokens. */
enum { PARTS = 4, PART_TOKENS = 32 };

/* Tokens that are multiplied with a strip in turn; a multiple of those that kernels take together, three or four. */
enum { TURN_TOKENS = 48 };

static int32_t columns_of(const struct wnw__matmul *p, int32_t c)
{
    return p->k - c < WNW_CHUNK ? p->k - c : WNW_CHUNK;
}

/* Bytes of a chunk of a row. */
static size_t chunk_bytes(const struct wnw__matmul *p)
{
    return (size_t)WNW_CHUNK / (size_t)p->type->k_unit * p->type->unit_bytes;
}

/* Where the chunk from column c on of a row is, which may be after the last one. */
static uintptr_t chunk_at(const struct wnw__matmul *p, int32_t r, int32_t c)
{
    const uintptr_t rows = (uintptr_t)p->rows;
    const size_t chunk = (size_t)(c / WNW_CHUNK);
    if (!p->by_eight)
        return rows + (size_t)r * p->stride + chunk * chunk_bytes(p);
    return rows + (size_t)(r - r % WNW_EIGHT) * p->stride +
           (chunk * WNW_EIGHT + (size_t)(r % WNW_EIGHT)) * WNW_EIGHT_UNIT;
}

/* What is multiplied after the current chunk: 64 rows of `bytes` bytes, from column c on. */
struct ahead {
    int32_t first, c;
    size_t bytes;
};

/* The next chunk of the strip, or the first one of the next strip. */
static struct ahead after(const struct wnw__matmul *p, int32_t first, int32_t c)
{
    const bool last = p->k - c <= WNW_CHUNK;
    const size_t chunk = chunk_bytes(p), left = p->stride - (last ? 0 : (size_t)(c / WNW_CHUNK + 1) * chunk);
    return (struct ahead){.first = last ? first + WNW_STRIP : first,
                          .c = last ? 0 : c + WNW_CHUNK,
                          .bytes = chunk < left ? chunk : left};
}

/* Asks for part i of n of it. Rows after the last one are asked for in vain. */
static void ask_for(const struct wnw__matmul *p, const struct ahead *a, int32_t i, int32_t n)
{
    for (int32_t r = WNW_STRIP * i / n; r < WNW_STRIP * (i + 1) / n; r++) {
        const uintptr_t row = chunk_at(p, a->first + r, a->c);
        for (size_t at = 0; at < a->bytes + 63; at += 64)
            __builtin_prefetch((const void *)(row + (at < a->bytes ? at : a->bytes - 1)), 0, 2);
    }
}

/* Rows of the file from which a form is made, and the column of its first one. */
struct source {
    const uint8_t *rows;
    size_t stride;
    int32_t from;
};

/* The chunk from column c on of n rows. */
static struct source source_of(const struct wnw__matmul *p, int32_t first, int32_t n, int32_t c,
                               struct wnw__matmul_work *w)
{
    if (!p->by_eight)
        return (struct source){p->rows + (size_t)first * p->stride, p->stride, c};
    for (int32_t r = 0; r < n; r += WNW_EIGHT)
        wnw__rows_of_eight((const uint8_t *)chunk_at(p, first + r, c), w->plain + r);
    return (struct source){w->plain[0], WNW_EIGHT_UNIT, 0};
}

/* Rows first .. first + 63 for the tokens from .. from + n - 1, n at most WNW_TOKENS. While tokens are multiplied with a chunk,
 * the next one is asked for, a few rows at a time: a core has room for few requests. */
static void full_strip(const struct wnw__matmul *p, int32_t first, int32_t from, int32_t n,
                       struct wnw__matmul_work *w)
{
    float *y = p->y + first + from * p->ld;
    for (int32_t c = 0; c < p->k; c += WNW_CHUNK) {
        const bool last = p->k - c <= WNW_CHUNK;
        const struct wnw__act *act = p->act + (int64_t)(c / WNW_CHUNK) * p->n_tok + from;
        const struct ahead ahead = after(p, first, c);
        const struct source s = source_of(p, first, WNW_STRIP, c, w);
        p->kernel->unpack[p->type->id].to_strip(s.rows, s.stride, WNW_STRIP, s.from, columns_of(p, c),
                                                &w->strip);
        for (int32_t t = 0, i = 0; t < n; t += TURN_TOKENS, i++) {
            const int32_t n_turn = n - t < TURN_TOKENS ? n - t : TURN_TOKENS;
            ask_for(p, &ahead, i, (n + TURN_TOKENS - 1) / TURN_TOKENS);
            p->kernel->strip(&w->strip, p->type, columns_of(p, c), act + t, n_turn,
                             c == 0 ? NULL : w->sums[t], last ? y + t * p->ld : w->sums[t],
                             last ? p->ld : WNW_STRIP);
        }
    }
    wnw__noise_at(p->kernel->name, y, p->ld, n, first, WNW_STRIP);
}

static void some_rows(const struct wnw__matmul *p, int32_t first, int32_t n, struct wnw__matmul_work *w)
{
    for (int32_t c = 0; c < p->k; c += WNW_CHUNK) {
        const struct source s = source_of(p, first, n, c, w);
        p->kernel->unpack[p->type->id].to_rows(s.rows, s.stride, n, s.from, columns_of(p, c), &w->rows);
        p->kernel->rows(&w->rows, p->type, columns_of(p, c), p->act + (int64_t)(c / WNW_CHUNK) * p->n_tok,
                        p->n_tok, c == 0, n, p->y + first, p->ld);
    }
}

/* Rows first .. end - 1 for few tokens. */
static void few_rows(const struct wnw__matmul *p, int32_t first, int32_t end, struct wnw__matmul_work *w)
{
    int32_t r = first;
    if (p->kernel->few[p->type->id] && !p->by_eight)
        for (; r + WNW_FEW <= end; r += WNW_FEW)
            p->kernel->few[p->type->id](p->rows + (size_t)r * p->stride, p->stride, p->k, p->act, p->n_tok,
                                        p->y + r, p->ld);
    for (; r < end; r += WNW_ROWS)
        some_rows(p, r, end - r < WNW_ROWS ? end - r : WNW_ROWS, w);
    wnw__noise_at(p->kernel->name, p->y + first, p->ld, p->n_tok, first, end - first);
}

static int32_t rows_of_piece(const struct wnw__matmul *p)
{
    return p->n_tok < WNW_MANY ? FEW_PIECE : WNW_STRIP;
}

/* The parts into which the tokens of the last whole strip are cut. Matrices of nine or three strips are common: two
 * threads would wait for each other at the end of every product. Each part brings the strip into its form again. */
static int32_t n_parts(const struct wnw__matmul *p)
{
    return p->n_tok < PARTS * PART_TOKENS || p->n_row < WNW_STRIP ? 1 : PARTS;
}

int32_t wnw__matmul_pieces(const struct wnw__matmul *p)
{
    return (p->n_row + rows_of_piece(p) - 1) / rows_of_piece(p) + n_parts(p) - 1;
}

int32_t wnw__matmul_share(const struct wnw__matmul *p, int32_t i, int32_t n)
{
    const int32_t parts = n_parts(p), n_uncut = wnw__matmul_pieces(p) - parts;
    const int64_t work = (int64_t)(n_uncut + 1) * parts * i / n; /* before the share, in parts of a strip */
    return (int32_t)(work < (int64_t)n_uncut * parts ? work / parts : work - (int64_t)n_uncut * (parts - 1));
}

/* Rows first .. first + 63 for part i of n of the tokens. */
static void part_of_strip(const struct wnw__matmul *p, int32_t first, int32_t i, int32_t n,
                          struct wnw__matmul_work *work)
{
    const int32_t end = (int32_t)((int64_t)p->n_tok * (i + 1) / n);
    for (int32_t t = (int32_t)((int64_t)p->n_tok * i / n); t < end; t += WNW_TOKENS)
        full_strip(p, first, t, end - t < WNW_TOKENS ? end - t : WNW_TOKENS, work);
}

void wnw__matmul_piece(const struct wnw__matmul *p, int32_t i, struct wnw__matmul_work *work)
{
    const int32_t rows = rows_of_piece(p), parts = n_parts(p), n_uncut = wnw__matmul_pieces(p) - parts;
    if (rows == FEW_PIECE) {
        few_rows(p, i * rows, p->n_row - i * rows < rows ? p->n_row : (i + 1) * rows, work);
        return;
    }
    /* Rows that are no whole strip come before the last strip, whose parts are the smallest pieces. */
    const int32_t n_whole = p->n_row / WNW_STRIP;
    if (i < n_whole - 1)
        part_of_strip(p, i * WNW_STRIP, 0, 1, work);
    else if (i < n_uncut || n_whole == 0)
        few_rows(p, n_whole * WNW_STRIP, p->n_row, work);
    else
        part_of_strip(p, (n_whole - 1) * WNW_STRIP, i - n_uncut, parts, work);
}
