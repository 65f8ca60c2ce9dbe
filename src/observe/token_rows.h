/* SPDX-License-Identifier: MIT */
/* One row of numbers per layer for every token of a prompt: what recorders of whole prompts keep, in float32 or rounded to f16.
 * They take about as much memory as the prompt's hidden states, or half of it, and serve one compression. */
#ifndef WNW_TOKEN_ROWS_H
#define WNW_TOKEN_ROWS_H

#include "forward/recorder.h"

struct wnw__token_rows {
    int32_t n_layer;
    size_t row;       /* numbers of one position */
    wnw_kv_type type; /* WNW_KV_F32 or WNW_KV_F16 */
    struct wnw__token_rows_layer {
        void *q; /* [n][row] at positions end - n .. end - 1; NULL while there are none */
        int32_t n, end, cap;
    } * layers; /* [n_layer] */
};

/* *out is freed with wnw__token_rows_close; NULL after a failure. E_NOMEM */
int wnw__token_rows_open(struct wnw__token_rows **out, int32_t n_layer, size_t row, wnw_kv_type type);
/* The row of position end - n + i of a layer, as it is stored. */
const void *wnw__token_rows_at(const struct wnw__token_rows *k, int32_t il, int32_t i);

/* The functions of a recorder's type that rows are enough for; rec is a struct wnw__token_rows. */
int wnw__token_rows_copy(void **rec, const void *from, const struct wnw__record_shape *shape);
void wnw__token_rows_close(void *rec);
int wnw__token_rows_reserve(void *rec, const struct wnw__record_pass *pass);
void wnw__token_rows_take(void *rec, const struct wnw__record_rows *r, int ith, int nth);
void wnw__token_rows_commit(void *rec, const struct wnw__record_pass *pass);
void wnw__token_rows_told(void *rec, int32_t from, int32_t to, enum wnw__event event);
void wnw__token_rows_rewound(void *rec, int32_t n_past);

#endif
