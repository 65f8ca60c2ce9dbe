/* SPDX-License-Identifier: MIT */
#include "serve/sequences.h"

#include <stdlib.h>
#include <string.h>

bool serve_sequences_init(struct serve_sequences *s, int32_t n, int32_t n_cells)
{
    *s = (struct serve_sequences){.n = n, .n_cells = n_cells};
    s->of = calloc((size_t)n, sizeof *s->of);
    s->owners = calloc((size_t)n_cells, sizeof *s->owners);
    s->dead = malloc((size_t)n_cells * sizeof *s->dead);
    if (s->of && s->owners && s->dead)
        return true;
    serve_sequences_free(s);
    return false;
}

void serve_sequences_free(struct serve_sequences *s)
{
    for (int32_t i = 0; s->of && i < s->n; i++) {
        free(s->of[i].pos);
        free(s->of[i].cell);
        free(s->of[i].token);
        free(s->of[i].at);
    }
    free(s->of);
    free(s->owners);
    free(s->dead);
    *s = (struct serve_sequences){0};
}

static bool need_room(struct serve_sequence *q, int32_t n)
{
    if (n <= q->room)
        return true;
    const int32_t room = n > 2 * q->room ? n + 256 : 2 * q->room;
    int32_t *pos = realloc(q->pos, (size_t)room * sizeof *pos);
    if (pos)
        q->pos = pos;
    int32_t *cell = pos ? realloc(q->cell, (size_t)room * sizeof *cell) : NULL;
    if (cell)
        q->cell = cell;
    int32_t *token = cell ? realloc(q->token, (size_t)room * sizeof *token) : NULL;
    if (token)
        q->token = token;
    int32_t *at = token ? realloc(q->at, (size_t)room * sizeof *at) : NULL;
    if (!at)
        return false;
    q->at = at;
    q->room = room;
    return true;
}

bool serve_sequences_add(struct serve_sequences *s, int32_t seq, int32_t pos, int32_t cell, int32_t token)
{
    struct serve_sequence *q = &s->of[seq];
    if (cell < 0 || cell >= s->n_cells || !need_room(q, q->n + 1))
        return false;
    q->pos[q->n] = q->at[q->n] = pos;
    q->token[q->n] = token;
    q->cell[q->n++] = cell;
    s->n_live += s->owners[cell]++ == 0;
    return true;
}

static bool is_within(int32_t pos, int32_t from, int32_t to)
{
    return pos >= from && (to < 0 || pos < to);
}

static void lose(struct serve_sequences *s, int32_t cell)
{
    if (--s->owners[cell] == 0) {
        s->dead[s->n_dead++] = cell;
        s->n_live--;
    }
}

void serve_sequences_rm(struct serve_sequences *s, int32_t seq, int32_t from, int32_t to)
{
    for (int32_t i = seq < 0 ? 0 : seq; i < (seq < 0 ? s->n : seq + 1); i++) {
        struct serve_sequence *q = &s->of[i];
        int32_t n = 0;
        for (int32_t k = 0; k < q->n; k++) {
            if (is_within(q->pos[k], from, to)) {
                lose(s, q->cell[k]);
                continue;
            }
            q->pos[n] = q->pos[k];
            q->at[n] = q->at[k];
            q->token[n] = q->token[k];
            q->cell[n++] = q->cell[k];
        }
        q->n = n;
    }
}

void serve_sequences_cut(struct serve_sequences *s, int32_t seq, int32_t n)
{
    struct serve_sequence *q = &s->of[seq];
    while (q->n > n)
        lose(s, q->cell[--q->n]);
}

bool serve_sequences_cp(struct serve_sequences *s, int32_t seq, int32_t other, int32_t from, int32_t to)
{
    const struct serve_sequence *q = &s->of[seq];
    struct serve_sequence *o = &s->of[other];
    for (int32_t k = 0; k < q->n; k++) {
        if (!is_within(q->pos[k], from, to))
            continue;
        if (!serve_sequences_add(s, other, q->pos[k], q->cell[k], q->token[k]))
            return false;
        o->at[o->n - 1] = q->at[k];
    }
    return true;
}

void serve_sequences_shift(struct serve_sequences *s, int32_t seq, int32_t from, int32_t to, int32_t by)
{
    for (int32_t i = seq < 0 ? 0 : seq; i < (seq < 0 ? s->n : seq + 1); i++)
        for (int32_t k = 0; k < s->of[i].n; k++)
            if (is_within(s->of[i].pos[k], from, to)) {
                s->of[i].pos[k] += by;
                s->of[i].at[k] += by;
            }
}

void serve_sequences_close_up(struct serve_sequences *s, int32_t seq)
{
    for (int32_t k = 0; k < s->of[seq].n; k++)
        s->of[seq].pos[k] = k;
}

int32_t serve_sequences_removed(const struct serve_sequences *s, int32_t seq)
{
    const struct serve_sequence *q = &s->of[seq];
    return q->n > 0 ? q->at[q->n - 1] - q->pos[q->n - 1] : 0;
}

/* Has the last cells come before the first `n_first`. False: no memory. */
static bool turn(int32_t *cells, int32_t n, int32_t n_first)
{
    int32_t *first = malloc((size_t)n_first * sizeof *first);
    if (!first)
        return false;
    memcpy(first, cells, (size_t)n_first * sizeof *first);
    memmove(cells, cells + n_first, (size_t)(n - n_first) * sizeof *cells);
    memcpy(cells + n - n_first, first, (size_t)n_first * sizeof *first);
    free(first);
    return true;
}

bool serve_sequences_order(const bool *is_free, int32_t n_cells, int32_t *cells, int32_t n)
{
    int32_t k = 0, n_gaps = 0, n_first = 0, n_left = 0;
    bool begins = false, ends = false, in_gap = false;
    if (n < 2)
        return true;
    if (!is_free)
        return cells[n - 1] - cells[0] == n - 1;
    for (int32_t cell = 0; cell < n_cells; cell++) {
        const bool is = k < n && cells[k] == cell;
        if (is && !is_free[cell])
            return false;
        if (!is_free[cell])
            continue;
        if (k == 0 && n_left == 0)
            begins = is; /* the first free cell is one of them */
        ends = is;       /* and so may be the last */
        n_left += !is;
        if (is && in_gap) {
            n_gaps++;
            n_first = k;
        }
        in_gap = !is && k > 0;
        k += is;
    }
    if (n_gaps == 0)
        return n_left > 0 && k == n;
    /* It went on at the first cell. */
    return n_gaps == 1 && k == n && begins && ends && turn(cells, n, n_first);
}
