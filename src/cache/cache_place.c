/* SPDX-License-Identifier: MIT */
/* Entries at given positions, which may lie between those that a head has. */
#include "cache/cache_impl.h"

#include <string.h>

int32_t wnw__cache_find(const struct wnw__kv_layer *l, int32_t ih, int32_t pos)
{
    int32_t lo = 0, hi = l->len[ih];
    const int32_t *has = hi > 0 ? l->pos + l->off[ih] : NULL;
    if (hi == 0 || has[hi - 1] < pos)
        return hi;
    if (has[hi - 1] == pos) /* the newest token is looked for the most */
        return hi - 1;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (has[mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void wnw__cache_renew(const struct wnw__cache *c, int32_t il, int32_t ih, int32_t i)
{
    struct wnw__kv_layer *l = &c->layers[il];
    wnw__cache_empty_numbers(c, l, l->off[ih] + i, 1);
}

/* The number of positions among pos[0 .. n-1] that a head has no entry of. */
static int32_t missing(const struct wnw__kv_layer *l, int32_t ih, const int32_t *pos, int32_t n)
{
    int32_t n_missing = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = wnw__cache_find(l, ih, pos[i]);
        if (at == l->len[ih])
            return n_missing + n - i; /* as all after it */
        n_missing += l->pos[l->off[ih] + at] != pos[i];
    }
    return n_missing;
}

/* Moves n rows of a head up by `by`. */
static void move_up(const struct wnw__cache *c, struct wnw__kv_layer *l, int64_t row, int32_t n, int32_t by)
{
    if (n == 0 || by == 0)
        return;
    const size_t k = c->row_bytes, v = c->v_row_bytes;
    memmove(l->pos + row + by, l->pos + row, (size_t)n * sizeof *l->pos);
    memmove(l->k + (size_t)(row + by) * k, l->k + (size_t)row * k, (size_t)n * k);
    if (v > 0)
        memmove(l->v + (size_t)(row + by) * v, l->v + (size_t)row * v, (size_t)n * v);
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++) {
            float *aux = wnw__cache_aux(l, (enum wnw__aux)kind, p);
            memmove(aux + row + by, aux + row, (size_t)n * sizeof *aux);
        }
}

/* Merges the positions into a head that has room for the n_missing new ones, from the last to the first. */
static void merge(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t ih, const int32_t *pos,
                  int32_t n, int32_t n_missing)
{
    int32_t end = l->len[ih], at = end; /* entries below `end` have not moved */
    l->len[ih] += n_missing;
    for (int32_t i = n - 1; i >= 0 && n_missing > 0; i--) {
        while (at > 0 && l->pos[l->off[ih] + at - 1] >= pos[i])
            at--;
        if (at < end && l->pos[l->off[ih] + at] == pos[i])
            continue;
        move_up(c, l, l->off[ih] + at, end - at, n_missing);
        end = at;
        n_missing--;
        l->pos[l->off[ih] + at + n_missing] = pos[i];
        wnw__cache_empty_numbers(c, l, l->off[ih] + at + n_missing, 1);
    }
}

int wnw__cache_place(struct wnw__cache *c, int32_t il, int32_t from, int32_t to, const int32_t *pos,
                     int32_t n)
{
    int32_t most = 0;
    for (int32_t ih = from; ih < to; ih++) {
        const int32_t n_missing = missing(&c->layers[il], ih, pos, n);
        most = n_missing > most ? n_missing : most;
    }
    if (most == 0)
        return WNW_OK;
    WNW_TRY(wnw__cache_reserve_layer(c, il, most, false));
    struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t ih = from; ih < to; ih++)
        merge(c, l, ih, pos, n, missing(l, ih, pos, n));
    return WNW_OK;
}
