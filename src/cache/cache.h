/* SPDX-License-Identifier: MIT */
/*
 * The key-value cache. Each layer has one arena of keys, one of values and one of positions. Inside an arena
 * the KV heads lie one after the other (head-major), each with its own length and capacity:
 *
 *     row off[ih] .. off[ih] + len[ih]   entries of KV head ih, ascending position
 *     row off[ih] + len[ih] .. + cap[ih] room to grow
 *
 * A row is one key (or value) of d elements in the cache's type. Keys are stored after RoPE. Each arena of
 * keys or values is mapped pages of its own, so that freeing it returns its memory to the system at once. A
 * cache belongs to one thread at a time.
 */
#ifndef WNW_CACHE_H
#define WNW_CACHE_H

#include "base/err.h"
#include "winnow_method.h"

/* The capacity of a head grows in blocks of 32 entries. With the ggml attention a block has 256 entries,
 * because that attention pads its key range to a multiple of 256 (as llama.cpp does, so that both split the
 * keys alike). */
#define WNW_CACHE_GROWTH      32
#define WNW_CACHE_GROWTH_GGML 256

/* Numbers that belong to an entry and move with it. */
enum wnw__aux {
    WNW_AUX_ATTN_SUM, /* sum of attention from all queries so far, one plane per query head of the group */
    WNW_AUX_ATTN_MAX, /* maximum of that attention, with the same planes */
    WNW_AUX_PROJ,     /* first of one kind per wnw_proj_norm, one plane each; negative = not computed yet */
    WNW_AUX_HEAD_PROJ =
        WNW_AUX_PROJ + WNW_N_PROJ_NORMS, /* the same norms per query head: one plane per head of the group */
    WNW_N_AUX = WNW_AUX_HEAD_PROJ + WNW_N_PROJ_NORMS
};

struct wnw__kv_layer {
    uint8_t *k, *v;        /* arenas, mapped_bytes each; NULL while nothing is stored */
    int32_t *pos;          /* [n_rows] positions, parallel to the rows */
    int64_t *off;          /* [n_head_kv] first row of each head */
    int32_t *cap, *len;    /* [n_head_kv] rows reserved, rows in use */
    int64_t n_rows;        /* sum of cap */
    size_t mapped_bytes;   /* of one arena: n_rows x row_bytes, rounded up to pages */
    int32_t n_swa;         /* sliding window in tokens, 0 = global layer */
    int32_t n_final;       /* first entries of every head that a recursive policy has settled */
    int32_t n_mixed;       /* a position below it may be another token in each head (renumber.c) */
    float *aux[WNW_N_AUX]; /* [planes][n_rows], parallel to the rows, or NULL; see wnw__cache_set_aux */
};

struct wnw__cache {
    int32_t n_layer, n_head_kv, d;
    wnw_kv_type type;
    int32_t growth;   /* entries per growth block of one head */
    size_t row_bytes; /* of one key or one value */
    struct wnw__kv_layer *layers;
    int32_t aux_planes[WNW_N_AUX]; /* planes of each kind; 0 = the kind is not kept */
};

/* Makes *c a cache without entries, which wnw__cache_free frees. growth: entries per growth block (see
 * above). n_swa[n_layer]: sliding window of each layer in tokens, 0 = global layer. */
int wnw__cache_init(struct wnw__cache *c, int32_t n_layer, int32_t n_head_kv, int32_t d, wnw_kv_type type,
                    int32_t growth, const int32_t *n_swa);
void wnw__cache_free(struct wnw__cache *c);
/* Drops all entries and returns the memory. */
void wnw__cache_clear(struct wnw__cache *c);

/* Replaces the entries of dst, a cache of the same shape, type and growth, by a copy of those of src, with
 * the same room to grow and the numbers that belong to them. After a failure dst may only be given to
 * wnw__cache_free. */
int wnw__cache_copy(struct wnw__cache *dst, const struct wnw__cache *src);

/* Makes room for n more entries in every head of layer il. With `exact` there is no slack beyond the growth
 * block (a prompt's length is known); otherwise capacity grows by an eighth, so that decoding copies rarely.
 * The numbers of the new entries are set to their empty values; the forward pass may fill them before it
 * commits the entries. On failure the entries are unchanged. */
int wnw__cache_reserve_layer(struct wnw__cache *c, int32_t il, int32_t n, bool exact);

/* Gives each head of layer il room for exactly cap[ih] >= len[ih] entries. On failure nothing changes. */
int wnw__cache_resize_layer(struct wnw__cache *c, int32_t il, const int32_t *cap);

/* Counts n new rows per head as entries. The attention has written them behind len; their positions are
 * first, first+1, ... */
void wnw__cache_commit_layer(struct wnw__cache *c, int32_t il, int32_t first, int32_t n);

/* Moves the entries of layer il whose indices are keep[ih][0 .. n_keep[ih]-1] (ascending, below len) to new
 * storage without slack beyond the growth block, and frees the old storage. On E_NOMEM the layer is
 * unchanged. */
int wnw__cache_keep_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                          const int32_t *n_keep);

/* The same for small evictions between which each head grows again by `room` entries: rows move down in place
 * and the storage stays, unless new storage with that room would be smaller by at least an eighth. */
int wnw__cache_thin_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                          int32_t room);

enum wnw__stored { WNW_KEYS, WNW_VALUES };
/* These convert n stored rows of layer il to float[n][d], and back to the cache's type. `row` is the first
 * row in the layer's numbering: entry i of head ih is row off[ih] + i. Outside this folder only the attention
 * and the code that observes it read or write the bytes of keys and values in another way. */
void wnw__cache_read(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                     float *dst);
void wnw__cache_write(struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                      const float *src);

/* Drops the entries [from, from + n) of one head in place; its storage stays. */
void wnw__cache_drop(struct wnw__cache *c, int32_t il, int32_t ih, int32_t from, int32_t n);

/* Keeps n_plane numbers of a kind with every entry from now on; with n_plane = 0 the kind is no longer kept.
 * Present and new entries start at the kind's empty value (0, or -1 for projected norms). On failure nothing
 * changes; n_plane = 0 cannot fail. */
int wnw__cache_set_aux(struct wnw__cache *c, enum wnw__aux kind, int32_t n_plane);
/* The numbers [n_rows] of one plane of a kind. The kind must be kept. */
static inline float *wnw__cache_aux(const struct wnw__kv_layer *l, enum wnw__aux kind, int32_t plane)
{
    return l->aux[kind] + (int64_t)plane * l->n_rows;
}

/* Drops the newest entries, those at positions >= n_past, without freeing their memory. */
void wnw__cache_rewind(struct wnw__cache *c, int32_t n_past);

/* If layer il has a sliding window, drops the entries that no token at position >= next can see. */
int wnw__cache_trim_swa(struct wnw__cache *c, int32_t il, int32_t next);

uint64_t wnw__cache_bytes(const struct wnw__cache *c);  /* bytes mapped for keys and values */
int64_t wnw__cache_entries(const struct wnw__cache *c); /* entries in all layers and heads */
/* Bytes that an uncompressed cache of n tokens would map. */
uint64_t wnw__cache_bytes_for(const struct wnw__cache *c, int32_t n);

/* Checks every invariant, for tests and debug builds: positions ascend, len <= cap, heads do not overlap. */
int wnw__cache_check(const struct wnw__cache *c);

#endif
