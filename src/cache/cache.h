/* SPDX-License-Identifier: MIT */
/*
 * The key-value cache: per layer one arena of keys, one of values and one of positions. Inside an arena the
 * heads lie one after the other (head-major), each with its own length and capacity:
 *
 *     row off[ih] .. off[ih] + len[ih]   entries of KV head ih, ascending position
 *     row off[ih] + len[ih] .. + cap[ih] room to grow
 *
 * A row is one key (or value) of d elements in the cache's type. Keys are stored after RoPE. Arenas are
 * mapped pages of their own, so that giving one back returns its memory to the system at once. Belongs to one
 * thread at a time.
 */
#ifndef WNW_CACHE_H
#define WNW_CACHE_H

#include "base/err.h"
#include "winnow_method.h"

/* Capacity of a head grows in blocks: of this many entries, or of 256 for the ggml attention, which pads its
 * key range to that (as llama.cpp does, so that both split the keys alike). */
#define WNW_CACHE_GROWTH      32
#define WNW_CACHE_GROWTH_GGML 256

/* Numbers that belong to an entry and move with it. */
enum wnw__aux {
    WNW_AUX_ATTN_SUM, /* planes: query heads of the group. What the entry received of all queries so far */
    WNW_AUX_ATTN_MAX,
    WNW_AUX_PROJ, /* first of one kind per wnw_proj_norm, one plane each; negative = not computed yet */
    WNW_AUX_HEAD_PROJ =
        WNW_AUX_PROJ + WNW_N_PROJ_NORMS, /* the same of query heads, as many planes as a group has */
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
    int32_t n_mixed;       /* positions below may be of other tokens in other heads (renumber.c) */
    float *aux[WNW_N_AUX]; /* [planes][n_rows], parallel to the rows, or NULL; see wnw__cache_set_aux */
};

struct wnw__cache {
    int32_t n_layer, n_head_kv, d;
    wnw_kv_type type;
    int32_t growth;   /* entries per growth block of one head */
    size_t row_bytes; /* of one key or one value */
    struct wnw__kv_layer *layers;
    int32_t aux_planes[WNW_N_AUX]; /* 0 = not kept */
};

/* n_swa[n_layer]: window of each layer, 0 = global. */
int wnw__cache_init(struct wnw__cache *c, int32_t n_layer, int32_t n_head_kv, int32_t d, wnw_kv_type type,
                    int32_t growth, const int32_t *n_swa);
void wnw__cache_free(struct wnw__cache *c);
/* Drops all entries and returns the memory. */
void wnw__cache_clear(struct wnw__cache *c);

/* Replaces the entries of dst, a cache of the same shape, type and growth, by a copy of those of src, with
 * the same room to grow and the numbers that belong to them. After a failure dst may only be given to
 * wnw__cache_free.
 */
int wnw__cache_copy(struct wnw__cache *dst, const struct wnw__cache *src);

/* Makes room for n more entries in every head of layer il. exact: no slack beyond the growth block (prefill
 * knows its length); otherwise capacity grows by an eighth, so that decoding copies rarely. Numbers of the
 * new entries are empty from here on: the forward pass may fill them before it commits the entries. Entries
 * are untouched on failure. */
int wnw__cache_reserve_layer(struct wnw__cache *c, int32_t il, int32_t n, bool exact);

/* Gives the heads of layer il room for cap[ih] >= len[ih] entries, no more and no less. Unchanged on
 * failure. */
int wnw__cache_resize_layer(struct wnw__cache *c, int32_t il, const int32_t *cap);

/* Takes n rows per head, written by the attention behind len, into account; their positions are first,
 * first+1, ... */
void wnw__cache_commit_layer(struct wnw__cache *c, int32_t il, int32_t first, int32_t n);

/* Keeps the entries of layer il whose indices are keep[ih][0 .. n_keep[ih]-1] (ascending, within len) in
 * tight new storage and frees the old. The old storage stays valid when E_NOMEM is returned. */
int wnw__cache_keep_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                          const int32_t *n_keep);

/* The same for small evictions between which the layer grows again by `room` entries: rows move down in place
 * and the storage stays, unless at least an eighth of it would come free with that room set aside. */
int wnw__cache_thin_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                          int32_t room);

enum wnw__stored { WNW_KEYS, WNW_VALUES };
/* n stored rows of layer il from row `row` on (the layer's numbering: off[ih] + i) as float[n][d], and back
 * in the cache's type. Above this folder nobody else looks at the bytes of keys and values, but for attention
 * and what observes it. */
void wnw__cache_read(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                     float *dst);
void wnw__cache_write(struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                      const float *src);

/* Drops the entries [from, from + n) of one head in place; its storage stays. */
void wnw__cache_drop(struct wnw__cache *c, int32_t il, int32_t ih, int32_t from, int32_t n);

/* Keeps n_plane numbers of a kind with every entry from now on; 0 = no longer. New and present entries start
 * at the kind's empty value (0, or -1 for projected norms). Nothing changes on failure; 0 cannot fail. */
int wnw__cache_set_aux(struct wnw__cache *c, enum wnw__aux kind, int32_t n_plane);
/* Row `row` of a layer's plane. */
static inline float *wnw__cache_aux(const struct wnw__kv_layer *l, enum wnw__aux kind, int32_t plane)
{
    return l->aux[kind] + (int64_t)plane * l->n_rows;
}

/* Drops the newest entries, those at positions >= n_past, without giving back their memory. */
void wnw__cache_rewind(struct wnw__cache *c, int32_t n_past);

/* Layer il, if it has a sliding window: drops entries that no token at position >= next can see. */
int wnw__cache_trim_swa(struct wnw__cache *c, int32_t il, int32_t next);

uint64_t wnw__cache_bytes(const struct wnw__cache *c);  /* mapped for keys and values */
int64_t wnw__cache_entries(const struct wnw__cache *c); /* over all layers and heads */
/* Bytes that an uncompressed cache of n tokens would map. */
uint64_t wnw__cache_bytes_for(const struct wnw__cache *c, int32_t n);

/* Every invariant: positions ascending, len <= cap, heads do not overlap. For tests and debug builds. */
int wnw__cache_check(const struct wnw__cache *c);

#endif
