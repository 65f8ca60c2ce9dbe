/* SPDX-License-Identifier: MIT */
/*
 * A layer of a cache as one block of bytes, for files (docs/reference/wkv.md). The parts come in this order. Gaps are only before
 * the start of a page.
 *
 *     positions       [head][len] int32;
 *     numbers         [kind][plane][head][len] float, of the kinds that the cache keeps, in the order of enum wnw__aux;
 *     rows of tails   [head] keys, then values: len - n_quantised f16 rows each; nothing without a tail;
 *     other rows      [head] keys, then values: n_quantised rows each, or len without a tail; the keys and the values of
 *                     every head begin a page of WNW_STORED_PAGE bytes
 *
 * The block ends where its last page ends; what lies between is 0. Because rows begin pages, the arenas of a layer can be the pages
 * of the file. Pages are read when they are touched. Processes that use the file share them. The system copies a page when an entry
 * is written.
 */
#ifndef WNW_CACHE_STORED_H
#define WNW_CACHE_STORED_H

#include "cache/cache.h"

#include <stddef.h>

#define WNW_STORED_PAGE 4096

/* How many entries a layer has. n_first and n_quantised are those of its tail; NULL without one. */
struct wnw__stored_counts {
    const int32_t *len, *n_first, *n_quantised; /* [n_head_kv] */
    int32_t n_settled, n_ambiguous;
};

/* The counts of layer il, borrowed from the cache. */
struct wnw__stored_counts wnw__cache_stored_counts(const struct wnw__cache *c, int32_t il);
/* E_FORMAT with a sentence unless layer il of a cache that has read n_past tokens can have these counts. The cache has the
 * shape, the windows and the tail that it will have; its entries are not looked at. */
int wnw__cache_stored_check(const struct wnw__cache *c, int32_t il, const struct wnw__stored_counts *counts,
                            int32_t n_past);
/* The same of the positions with which a block of such counts begins: they ascend and are below n_past; those of a sliding
 * window follow each other up to the last one. */
int wnw__cache_stored_check_positions(const struct wnw__cache *c, int32_t il,
                                      const struct wnw__stored_counts *counts, const int32_t *pos,
                                      int32_t n_past);
/* Bytes of the block of a layer with these counts, which were checked; WNW_SIZE_TOO_LARGE (base/sizes.h) where they have more than 64
 * bits. */
uint64_t wnw__cache_stored_bytes(const struct wnw__cache *c, const struct wnw__stored_counts *counts);
/* Bytes of that block before the rows of its first head that are not in a tail, and bytes that the keys, or the values, of head ih
 * take there. Those of a head follow those of the one before, keys first. */
uint64_t wnw__cache_stored_front(const struct wnw__cache *c, const struct wnw__stored_counts *counts);
uint64_t wnw__cache_stored_rows(const struct wnw__cache *c, const struct wnw__stored_counts *counts,
                                enum wnw__stored what, int32_t ih);

/* Takes the next n bytes of a block; returns a status. */
typedef int (*wnw__put_fn)(void *to, const void *bytes, size_t n);
/* Gives the block of layer il to `put`, piece by piece; ends with the first failure. */
int wnw__cache_store_layer(const struct wnw__cache *c, int32_t il, wnw__put_fn put, void *to);

/* A block to load. */
struct wnw__stored_block {
    int fd; /* the file that it lies in from byte `at` on */
    uint64_t at;
    bool copied; /* all rows are copied */
};
/* Replaces the entries of layer il by those of a block whose size, counts and positions were checked. There is room for `room` more; at most
 * n_at_once of them are written before they are counted. Rows that fill pages are mapped and not read, if that takes at most a quarter more
 * addresses than copies would. E_NOMEM; E_IO or E_FORMAT if the file cannot be read. The layer is unchanged after a failure. A file whose rows are
 * mapped must not be shortened as long as the layer lives; it may be replaced or removed. */
int wnw__cache_load_layer(struct wnw__cache *c, int32_t il, const struct wnw__stored_counts *counts,
                          const struct wnw__stored_block *block, int32_t room, int32_t n_at_once);

#endif
