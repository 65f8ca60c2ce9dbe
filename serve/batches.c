/* SPDX-License-Identifier: MIT */
#include "serve/batches.h"

#include <stdlib.h>

struct serve_batch *serve_batches_find(struct serve_batches *all, const void *of)
{
    for (int32_t i = 0; i < all->n; i++)
        if (all->batch[i].of == of)
            return &all->batch[i];
    if (all->n == SERVE_MAX_BATCHES)
        return NULL;
    all->batch[all->n].of = of;
    return &all->batch[all->n++];
}

void serve_batches_forget(struct serve_batches *all, const void *of)
{
    for (int32_t i = 0; of && i < all->n; i++)
        if (all->batch[i].of == of) {
            free(all->batch[i].row);
            all->batch[i] = all->batch[--all->n];
            all->batch[all->n] = (struct serve_batch){0};
        }
}

void serve_batch_add(struct serve_batch *b, int32_t i, int32_t seq, int32_t token)
{
    if (!b || i != b->n || seq < 0 || seq >= 64)
        return;
    if (b->n == b->room) {
        const int32_t room = b->room > 0 ? 2 * b->room : 512;
        struct serve_row *row = realloc(b->row, (size_t)room * sizeof *row);
        if (!row)
            return;
        b->row = row;
        b->room = room;
    }
    b->row[b->n++] = (struct serve_row){.seqs = UINT64_C(1) << seq, .token = token};
}

struct serve_row *serve_batch_row(struct serve_batch *b, int32_t i)
{
    return b && i >= 0 && i < b->n ? &b->row[i] : NULL;
}

struct serve_rows serve_batch_rows_of(const struct serve_batch *b, int32_t seq)
{
    struct serve_rows r = {0};
    for (int32_t i = 0; i < b->n; i++)
        if (b->row[i].seqs >> seq & 1) {
            r.ends = b->row[i].output;
            r.n_silent += !r.ends;
            r.n++;
        }
    return r;
}

const struct serve_row *serve_batch_first_of(const struct serve_batch *b, int32_t seq)
{
    for (int32_t i = 0; i < b->n; i++)
        if (b->row[i].seqs >> seq & 1)
            return &b->row[i];
    return NULL;
}
