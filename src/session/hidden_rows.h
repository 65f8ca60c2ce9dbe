/* SPDX-License-Identifier: MIT */
/* The hidden states of a piece between two layers, when it is read layer by layer. */
#ifndef WNW_HIDDEN_ROWS_H
#define WNW_HIDDEN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* Belongs to one reader and is used by one thread. */
struct wnw__hidden_rows;

/* Room for n rows of n_embd values, which are taken out n_most at a time or fewer. If `half`, they are stored in f16, each row
 * with a power of two of its own: half the memory, and values are off by 2^-11 of themselves at most, those below
 * 2^-28 of their row's largest by 2^-39 of that one. Otherwise they are stored as they are. E_NOMEM. */
int wnw__hidden_rows_new(struct wnw__hidden_rows **out, int32_t n, int32_t n_embd, int32_t n_most, bool half);
void wnw__hidden_rows_free(struct wnw__hidden_rows *h);

/* Rows at .. at + n - 1 as float32 [n][n_embd], valid until the next call; without `load` they are to be written, not read. */
float *wnw__hidden_rows_take(struct wnw__hidden_rows *h, int32_t at, int32_t n, bool load);
/* Stores the rows that were taken last. */
void wnw__hidden_rows_put(struct wnw__hidden_rows *h);

#endif
