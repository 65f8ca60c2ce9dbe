/* SPDX-License-Identifier: MIT */
/* Reading a prompt layer by layer (phase LAYER). */
#ifndef WNW_LAYER_MAJOR_H
#define WNW_LAYER_MAJOR_H

#include "session/rules/rules.h"

/* Reads n checked tokens layer by layer; each layer is compressed as soon as all tokens have been through it.
 * Its times are added to those of the report, and kv_bytes_before becomes the most bytes that the cache had.
 * A failure before the first token leaves the session as it was, a later one leaves it empty. */
int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n,
                          const struct wnw__compression *compression, wnw_report *report);

/* ---- layer_major_rows.c: the hidden states of a piece between two layers ---- */

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
