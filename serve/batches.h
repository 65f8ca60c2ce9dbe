/* SPDX-License-Identifier: MIT */
/* The batches that the server makes: which sequences each row is of, and where a prompt ends: its last row wants logits. */
#ifndef WNW_SERVE_BATCHES_H
#define WNW_SERVE_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

struct serve_row {
    uint64_t seqs; /* a bit for each */
    int32_t token; /* -1: what is no text has none */
    int32_t pos;   /* in the cache */
    int32_t at;    /* as the server counts it */
    bool output;
};
struct serve_batch {
    const void *of;        /* libllama's */
    struct serve_row *row; /* [n] */
    int32_t n, room;
};
enum { SERVE_MAX_BATCHES = 16 };
struct serve_batches {
    struct serve_batch batch[SERVE_MAX_BATCHES];
    int32_t n;
};

/* What is known of a batch; NULL: there are too many. */
struct serve_batch *serve_batches_find(struct serve_batches *all, const void *of);
void serve_batches_forget(struct serve_batches *all, const void *of);
/* Adds row i, which is the next one or is passed over, of a sequence from 0 to 63, with its token or -1. */
void serve_batch_add(struct serve_batch *b, int32_t i, int32_t seq, int32_t token);
/* A row; NULL: there is none, or no batch. */
struct serve_row *serve_batch_row(struct serve_batch *b, int32_t i);

/* Rows of a sequence in a batch. */
struct serve_rows {
    int32_t n, n_silent; /* all, and those that want no logits: they are a prompt's */
    bool ends;           /* the last one wants them */
};
struct serve_rows serve_batch_rows_of(const struct serve_batch *b, int32_t seq);
/* The first of them; NULL: there is none. */
const struct serve_row *serve_batch_first_of(const struct serve_batch *b, int32_t seq);

#endif
