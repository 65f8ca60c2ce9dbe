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
 *
 * A quantised cache may have a tail (decision 035): the newest entries of every head, and its first ones,
 * are f16 rows in arenas of their own, and the entries between them are rows of the cache's type. An
 * entry is always stored in one of the two ways:
 *
 *     entries   0 .. n_first - 1                       row i of the tail's arena
 *               n_first .. n_first + n_quantised - 1   row i - n_first of the arena of quantised entries
 *               n_first + n_quantised .. len - 1       row i - n_quantised of the tail's arena
 *
 * The oldest WNW_CACHE_BLOCK entries of a tail leave it together when n_tail entries follow them; they are
 * quantised then. So a head that has seen n_tail entries has a tail of n_tail to n_tail + WNW_CACHE_BLOCK - 1. Which
 * entries are quantised for a new token depends on the number of entries alone, not on how many rows are read at once
 * (wnw__cache_quantised_to).
 *
 * Rows may be rotated (decision 069): every block of k_block elements of a stored key, of v_block elements of a value, is
 * the original one times a Hadamard matrix. wnw__cache_read and wnw__cache_write take and give the original ones.
 */
#ifndef WNW_CACHE_H
#define WNW_CACHE_H

#include "base/err.h"
#include "base/room.h"

/* Entries that leave a tail together; the tile of the attention, so that the border between quantised entries
 * and tail falls between tiles. */
#define WNW_CACHE_BLOCK 64
/* The shortest tail. Rows of one decode step never leave the tail in that step. */
#define WNW_CACHE_TAIL_MIN 32
/* The longest one, so that numbers of entries stay far from the end of int32_t. */
#define WNW_CACHE_TAIL_MAX (1 << 24)

/* How many kinds of wnw_proj_norm there are. */
enum { WNW_AUX_PROJ_KINDS = 3 };

/* Numbers that belong to an entry and move with it. */
enum wnw__aux {
    WNW_AUX_ATTN_SUM, /* sum of attention from all queries so far, one plane per query head of the group */
    WNW_AUX_ATTN_MAX, /* maximum of that attention, with the same planes */
    WNW_AUX_SETTLED, /* 1 where a recursive policy has settled the entry, in one plane: under libllama alone */
    WNW_AUX_BIAS,    /* what attention adds to the logits of the entry (decision 070); one plane */
    WNW_AUX_GATE, /* score that a gate gave the token when it was read, one plane; not a number = it was not asked */
    WNW_AUX_NOTE, /* what a selector noted of the entry at the last compression, one plane; not a number = nothing */
    WNW_AUX_PROJ, /* first of one kind per wnw_proj_norm, one plane each; negative = not computed yet */
    WNW_AUX_HEAD_PROJ =
        WNW_AUX_PROJ +
        WNW_AUX_PROJ_KINDS, /* the same norms per query head: one plane per head of the group */
    WNW_N_AUX = WNW_AUX_HEAD_PROJ + WNW_AUX_PROJ_KINDS
};

/* What a layer has only in a cache with a tail; all NULL otherwise. */
struct wnw__kv_tail {
    uint8_t *k, *v;                 /* arenas of f16 rows, mapped_bytes each; NULL while nothing is stored */
    int64_t *off, *quantised_off;   /* [n_head_kv] first row of each head: here; in the layer's arenas */
    int32_t *cap, *quantised_cap;   /* [n_head_kv] rows reserved */
    int32_t *n_first, *n_quantised; /* [n_head_kv] see above */
    size_t mapped_bytes;
};

struct wnw__kv_layer {
    uint8_t *k, *v;           /* arenas; NULL while nothing is stored */
    int32_t *pos;             /* [n_rows] positions, parallel to the rows */
    int64_t *off;             /* [n_head_kv] first row of each head */
    int32_t *cap, *len;       /* [n_head_kv] rows reserved, rows in use */
    int64_t n_rows;           /* sum of cap */
    size_t mapped_bytes;      /* of the arena of keys: its rows x row_bytes, rounded up to pages */
    size_t v_mapped_bytes;    /* the same of the arena of values */
    bool of_file;             /* their pages may be those of a file */
    struct wnw__kv_tail tail; /* then off, cap and n_rows count entries, which pos and aux are parallel to */
    int32_t n_swa;            /* sliding window or chunk in tokens, 0 = global layer */
    int32_t n_settled;        /* first entries of every head that a recursive policy has settled */
    int32_t n_ambiguous;      /* a position below it may be another token in each head (renumber.c) */
    float *aux[WNW_N_AUX];    /* [planes][n_rows], parallel to the rows, or NULL; see wnw__cache_set_aux */
};

struct wnw__cache {
    int32_t n_layer, n_head_kv, d;
    wnw_kv_type type;
    int32_t growth;           /* entries per growth block of one head */
    size_t row_bytes;         /* of one key, and of one value unless wnw__cache_init_rows made the cache */
    size_t v_row_bytes;       /* of one value; 0 = there are none */
    int32_t k_block, v_block; /* see above; 0 = not rotated */
    int32_t n_tail;           /* least entries of a tail; 0 = no tail */
    size_t tail_row_bytes;
    struct wnw__kv_layer *layers;
    int32_t aux_planes[WNW_N_AUX]; /* planes of each kind; 0 = the kind is not kept */
    /* Layers with a window see the tokens of their own chunk of n_swa in place of the last n_swa. */
    bool chunked;
    /* Heads have room for no more than what their entries need, in whole growth blocks: nothing is kept for later growth, and
     * each freed block goes back at once. Rows move more often. */
    bool tight;
};

/* The first position that a token at position pos sees in a layer. */
static inline int32_t wnw__cache_first_seen(const struct wnw__cache *c, const struct wnw__kv_layer *l,
                                            int32_t pos)
{
    if (l->n_swa <= 0)
        return 0;
    if (c->chunked)
        return pos / l->n_swa * l->n_swa;
    return pos < l->n_swa ? 0 : pos - l->n_swa + 1;
}

/* Makes *c a cache without entries and without a tail, which wnw__cache_free frees. growth: entries per
 * growth block (see above). n_swa[n_layer]: sliding window of each layer in tokens, 0 = global layer. */
int wnw__cache_init(struct wnw__cache *c, int32_t n_layer, int32_t n_head_kv, int32_t d, wnw_kv_type type,
                    int32_t growth, const int32_t *n_swa);
/* The same for a cache of one layer whose rows are bytes of a form that the caller alone knows: keys of key_bytes > 0
 * each and values of value_bytes, 0 = none. What converts rows (wnw__cache_read and others) cannot be called, and it
 * gets no tail. */
int wnw__cache_init_rows(struct wnw__cache *c, int32_t n_head_kv, size_t key_bytes, size_t value_bytes);
/* Gives a cache that has never held an entry a tail of n_tail >= WNW_CACHE_TAIL_MIN entries. On failure it
 * has none. */
int wnw__cache_set_tail(struct wnw__cache *c, int32_t n_tail);
/* Has a cache that has never held an entry, and whose head size is a multiple of 32, store all its rows rotated. */
void wnw__cache_rotate(struct wnw__cache *c);
void wnw__cache_free(struct wnw__cache *c);
/* Drops all entries and releases the memory. */
void wnw__cache_clear(struct wnw__cache *c);

/* Replaces the entries of dst by a copy of those of src, with the numbers that belong to them. Both caches have the
 * same shape, type and growth. dst gets the same room to grow as src. After a failure dst may only be given to
 * wnw__cache_free. */
int wnw__cache_copy(struct wnw__cache *dst, const struct wnw__cache *src);

/* Makes room for n more entries in every head of layer il, which are written before they are counted. With
 * `tight` there is no slack beyond the growth block (a prompt's length is known); otherwise capacity grows by
 * an eighth, unless the cache is tight, so that decoding copies rarely. The numbers of the new entries are set to their empty values;
 * the forward pass may fill them before it commits the entries. On failure the entries are unchanged. */
int wnw__cache_reserve_layer(struct wnw__cache *c, int32_t il, int32_t n, bool tight);
/* Gives back the room of layer il, of a cache without a tail, beyond the growth blocks that its entries need. On failure the
 * layer is unchanged. */
int wnw__cache_trim_layer(struct wnw__cache *c, int32_t il);
/* Makes room for a prompt of n tokens. At most n_at_once are written before they are counted. */
int wnw__cache_expect_layer(struct wnw__cache *c, int32_t il, int32_t n, int32_t n_at_once);

/* Counts n new rows per head as entries. The attention has written them after len, and has quantised those
 * entries that the last of them finds quantised (wnw__cache_quantised_to, wnw__cache_quantise); their positions are first,
 * first+1, ... */
void wnw__cache_commit_layer(struct wnw__cache *c, int32_t il, int32_t first, int32_t n);

/* Makes an entry with each of the positions pos[0 .. n-1] in heads from .. to-1 of layer il, unless a head has one
 * already; pos ascends. Rows of new entries are not set. The cache has no tail. On failure no entry is there that was
 * not before. */
int wnw__cache_place(struct wnw__cache *c, int32_t il, int32_t from, int32_t to, const int32_t *pos,
                     int32_t n);
/* Sets the numbers of entry i of a head to those of a new one: another token has taken its position. */
void wnw__cache_renew(const struct wnw__cache *c, int32_t il, int32_t ih, int32_t i);
/* The first entry of a head whose position is at least pos; the length if there is none. */
int32_t wnw__cache_find(const struct wnw__kv_layer *l, int32_t ih, int32_t pos);

/* Gives back what reading a prompt needed of a layer's tail beyond its entries. On failure nothing
 * changes. */
int wnw__cache_release_tail(struct wnw__cache *c, int32_t il);

/* A state to which a cache can return after more tokens were read. */
struct wnw__cache_mark;
int wnw__cache_mark_new(struct wnw__cache_mark **out, const struct wnw__cache *c);
void wnw__cache_mark_free(struct wnw__cache_mark *m);
/* Goes back to the mark: drops the entries that were added since, without freeing their memory. The entries of the mark must be
 * there still: only reading may have changed the cache. */
void wnw__cache_mark_rewind(struct wnw__cache *c, const struct wnw__cache_mark *m);
/* After that, gives every head the room that it had. On failure some layers may have more. */
int wnw__cache_mark_release(struct wnw__cache *c, const struct wnw__cache_mark *m);

/* Moves the entries of layer il whose indices are keep[ih][0 .. n_keep[ih]-1] (ascending, below len) to new
 * storage without slack beyond the growth block, and frees the old storage. On E_NOMEM the layer is
 * unchanged. */
int wnw__cache_keep_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                          const int32_t *n_keep);
/* Bytes that keys and values of layer il are allocated in after that. 0: out of memory. */
uint64_t wnw__cache_bytes_keeping(const struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                                  const int32_t *n_keep);

/* The same for small evictions between which each head grows again by `room` entries: rows move down in place
 * and the storage stays, unless new storage with that room would be smaller by at least an eighth, or in a tight cache at all. */
int wnw__cache_keep_in_place(struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                             const int32_t *n_keep, int32_t room);

enum wnw__stored { WNW_KEYS, WNW_VALUES };
/* These convert entries i .. i+n-1 of KV head ih of layer il to float[n][d], and back to the type in which
 * each is stored. Reading may go on after the entries, where the attention has written new rows. Outside
 * this folder only the attention and the code that observes it read or write the bytes of keys and values in
 * another way. */
void wnw__cache_read(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int32_t ih, int32_t i,
                     int32_t n, float *dst);
void wnw__cache_write(struct wnw__cache *c, int32_t il, enum wnw__stored what, int32_t ih, int32_t i,
                      int32_t n, const float *src);

/* The size of the blocks that keys or values are rotated by; 0 = they are not. */
static inline int32_t wnw__cache_block(const struct wnw__cache *c, enum wnw__stored what)
{
    return what == WNW_KEYS ? c->k_block : c->v_block;
}
/* Stores one key or value x[d] of the cache in a row of the type at `to`. */
void wnw__cache_store(const struct wnw__cache *c, enum wnw__stored what, wnw_kv_type type, const float *x,
                      uint8_t *to);

/* Rows of one type, one after the other, that hold consecutive entries. */
struct wnw__kv_rows {
    wnw_kv_type type;
    size_t row_bytes;
    uint8_t *k, *v; /* of the first entry */
    int32_t n;      /* entries */
};
/* The entries from .. to-1 of a head, or the first of them that are stored alike; from < to. Entries after
 * len are new rows that are not counted yet. */
struct wnw__kv_rows wnw__cache_rows(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                                    int32_t from, int32_t to);
/* Entries from .. to-1 as rows of the cache's type, which wnw__cache_quantise has written where they still are in
 * the tail.
 * The cache has a tail, and from >= n_first. */
struct wnw__kv_rows wnw__cache_quantised_rows(const struct wnw__cache *c, const struct wnw__kv_layer *l,
                                              int32_t ih, int32_t from, int32_t to);
/* The t-th new token of a head finds its entries n_first .. this - 1 quantised. INT32_MAX without a tail. The
 * result for t + 1 new tokens, one read after the other, is the same as for each of them in its turn. */
int32_t wnw__cache_quantised_to(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                                int32_t t);
/* Writes entries (or new rows) from .. to-1 of a head's tail as quantised ones too. Threads may do so for
 * different entries at a time. Results depend on the f16 rows alone. */
void wnw__cache_quantise(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih, int32_t from,
                         int32_t to);

/* Whether the entries of layer il at positions below next are what they were before the tokens from next on came:
 * WNW_OK, or E_UNSUPPORTED with the reason. It holds if nothing else has dropped entries since. */
int wnw__cache_can_rewind(const struct wnw__cache *c, int32_t il, int32_t next);
/* Drops the entries at positions >= next of all layers, after wnw__cache_can_rewind. Storage stays. */
void wnw__cache_rewind(struct wnw__cache *c, int32_t next);

/* Drops the entries [from, from + n) of one head in place; its storage stays. */
void wnw__cache_drop(struct wnw__cache *c, int32_t il, int32_t ih, int32_t from, int32_t n);

/* Keeps n_plane numbers of a kind with every entry from now on; with n_plane = 0 the kind is no longer kept.
 * Present and new entries start at the kind's empty value (0; -1 for projected norms; not a number for gates and notes). On failure nothing
 * changes; n_plane = 0 cannot fail. */
int wnw__cache_set_aux(struct wnw__cache *c, enum wnw__aux kind, int32_t n_plane);
/* The numbers [n_rows] of one plane of a kind. The kind must be kept. */
static inline float *wnw__cache_aux(const struct wnw__kv_layer *l, enum wnw__aux kind, int32_t plane)
{
    return l->aux[kind] + (int64_t)plane * l->n_rows;
}

/* The biases of the entries of KV head ih; NULL = no entry of the cache has one. */
static inline const float *wnw__cache_bias(const struct wnw__kv_layer *l, int32_t ih)
{
    return l->aux[WNW_AUX_BIAS] ? l->aux[WNW_AUX_BIAS] + l->off[ih] : NULL;
}

/* If layer il has a sliding window, drops the entries that no token at position >= next can see. */
int wnw__cache_drop_unseen(struct wnw__cache *c, int32_t il, int32_t next);

uint64_t wnw__cache_bytes(const struct wnw__cache *c);     /* bytes mapped for keys and values */
uint64_t wnw__cache_bytes_swa(const struct wnw__cache *c); /* those of layers with a sliding window */
uint64_t
wnw__cache_meta_bytes(const struct wnw__cache *c);      /* of positions and of numbers kept with entries */
int64_t wnw__cache_entries(const struct wnw__cache *c); /* entries in all layers and heads */
uint64_t wnw__cache_entry_bytes(const struct wnw__cache *c); /* of their keys and values, without room */
/* The most entries of one head that can be f16 rows of a tail; 0 without a tail. */
int32_t wnw__cache_most_f16(const struct wnw__cache *c);
/* What holds of every head in a cache with a tail, in memory and in files: of len entries, the first n_first and the last ones
 * are f16 rows, and n_quantised between them are not; the last ones are fewer than n_tail + WNW_CACHE_BLOCK. A head without a
 * quantised entry may have any n_first that its layer allows. n_swa: the layer's. */
bool wnw__cache_tail_fits(const struct wnw__cache *c, int32_t n_swa, int32_t len, int32_t n_first,
                          int32_t n_quantised);
/* The most that any head of a layer without a sliding window has after n more tokens. */
int32_t wnw__cache_f16_after(const struct wnw__cache *c, int32_t n);
/* Bytes that an uncompressed cache of n tokens would map. */
uint64_t wnw__cache_bytes_for(const struct wnw__cache *c, int32_t n);

/* Checks every invariant, for tests and debug builds: positions ascend, len <= cap, heads do not overlap. */
int wnw__cache_check(const struct wnw__cache *c);

#endif
