/* SPDX-License-Identifier: MIT */
/* What the files of the cache share. */
#ifndef WNW_CACHE_IMPL_H
#define WNW_CACHE_IMPL_H

#include "cache/cache.h"

/* Rows of every head: of all entries, and in a cache with a tail those of quantised entries and of the tail. */
struct wnw__kv_caps {
    int32_t *entry, *quantised, *tail; /* [n_head_kv]; one allocation, which begins at `entry` */
};

static inline int64_t wnw__cache_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Capacities of 0, to be released with free(caps.entry); caps.entry is NULL if memory ran out. */
struct wnw__kv_caps wnw__cache_caps_new(const struct wnw__cache *c);
/* Makes *l a layer without entries that has the given capacities. */
int wnw__cache_layer_new(const struct wnw__cache *c, struct wnw__kv_layer *l, const struct wnw__kv_caps *caps,
                         int32_t n_swa);
/* The same without arenas, and of a cache with a tail without what only that has. */
int wnw__cache_layer_new_bare(const struct wnw__cache *c, struct wnw__kv_layer *l,
                              const struct wnw__kv_caps *caps, int32_t n_swa);
void wnw__cache_layer_free(struct wnw__kv_layer *l);
/* Sets the numbers of rows row .. row+n-1 to the values that they have before they are known. */
void wnw__cache_empty_numbers(const struct wnw__cache *c, struct wnw__kv_layer *l, int64_t row, int32_t n);
/* Gives every head of layer il these capacities; each is at least what the head holds. On failure nothing changes. */
int wnw__cache_resize_layer(struct wnw__cache *c, int32_t il, const struct wnw__kv_caps *caps);
/* Bytes of the arenas of keys and values of a layer with these capacities. */
uint64_t wnw__cache_caps_bytes(const struct wnw__cache *c, const struct wnw__kv_caps *caps);

/* Copies the positions and numbers of n entries, row by row. dst and src may be the same layer. */
void wnw__cache_copy_numbers(const struct wnw__cache *c, struct wnw__kv_layer *dst, int64_t to,
                             const struct wnw__kv_layer *src, int64_t from, int64_t n);
/* Copies the entries keep[0 .. n_keep-1] of a head of src, ascending, to the same head of dst, with their
 * positions and numbers, and counts them. keep = NULL: the first n_keep. dst and src may be the same layer. */
void wnw__cache_gather_head(const struct wnw__cache *c, struct wnw__kv_layer *dst,
                            const struct wnw__kv_layer *src, int32_t ih, const int32_t *keep, int32_t n_keep);

/* ---- The tail (cache_tail.c); the cache has one ---- */

/* Allocates the arrays of a layer's tail, for heads that have stored nothing yet. */
int wnw__cache_tail_new(const struct wnw__cache *c, struct wnw__kv_tail *t, int32_t n_swa);
void wnw__cache_tail_free(struct wnw__kv_tail *t);
/* Maps arenas of f16 rows with the given capacities in a tail that has none. */
int wnw__cache_tail_map(const struct wnw__cache *c, struct wnw__kv_tail *t, const int32_t *cap);
/* Forgets the entries of a layer, whose own arenas are gone, and frees the arenas of its tail. */
void wnw__cache_tail_clear(const struct wnw__cache *c, struct wnw__kv_layer *l);
/* Sets the capacities that a head needs for n more entries: rows of quantised entries and of the tail. At most
 * n_at_once entries are written before they are counted. */
void wnw__cache_tail_need(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih, int32_t n,
                          int32_t n_at_once, int32_t *quantised, int32_t *tail);
/* Moves those blocks out of the tails of a layer that n new entries, which are not counted yet, push out. */
void wnw__cache_tail_push(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t n);
/* Number of quantised entries among the first n of a head from which nothing was dropped. */
int32_t wnw__cache_tail_n_quantised(const struct wnw__cache *c, int32_t n_swa, int32_t n);
int wnw__cache_tail_check(const struct wnw__cache *c, int32_t il);

uint8_t *wnw__cache_map_pages(size_t bytes);
size_t wnw__cache_page_round(size_t bytes);

#endif
