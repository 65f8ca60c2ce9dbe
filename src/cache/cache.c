/* SPDX-License-Identifier: MIT */
#include "cache/cache.h"

#include "kernel/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static size_t page_round(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void free_rows(struct wnw__kv_layer *l)
{
    if (l->k)
        munmap(l->k, l->mapped_bytes);
    if (l->v)
        munmap(l->v, l->mapped_bytes);
    free(l->pos);
    l->k = l->v = NULL;
    l->pos = NULL;
    l->n_rows = 0;
    l->mapped_bytes = 0;
}

static void layer_free(struct wnw__kv_layer *l)
{
    free_rows(l);
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        free(l->aux[kind]);
    free(l->off);
    free(l->cap);
    free(l->len);
    *l = (struct wnw__kv_layer){.n_swa = l->n_swa};
}

/* The value that a number of the kind has before it is known. */
static float aux_empty(int kind)
{
    return kind >= WNW_AUX_PROJ ? -1.0f : 0.0f;
}

/* Allocates [n_plane][n_rows] empty values and one more, so that NULL always means that memory ran out. */
static float *aux_new(int kind, int32_t n_plane, int64_t n_rows)
{
    const size_t n = (size_t)n_plane * (size_t)n_rows;
    float *aux = malloc((n + 1) * sizeof *aux);
    for (size_t i = 0; aux && i <= n; i++)
        aux[i] = aux_empty(kind);
    return aux;
}

static uint8_t *map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Makes *l a layer without entries that has the given capacities. */
static int layer_new(const struct wnw__cache *c, struct wnw__kv_layer *l, const int32_t *cap, int32_t n_swa)
{
    const size_t n = (size_t)c->n_head_kv;
    *l = (struct wnw__kv_layer){.n_swa = n_swa};
    l->off = calloc(n, sizeof *l->off);
    l->cap = calloc(n, sizeof *l->cap);
    l->len = calloc(n, sizeof *l->len);
    if (!l->off || !l->cap || !l->len)
        goto fail;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        l->off[ih] = l->n_rows;
        l->cap[ih] = cap[ih];
        l->n_rows += cap[ih];
    }
    for (int kind = 0; kind < WNW_N_AUX; kind++) {
        if (c->aux_planes[kind] > 0 && !(l->aux[kind] = aux_new(kind, c->aux_planes[kind], l->n_rows)))
            goto fail;
    }
    if (l->n_rows == 0)
        return WNW_OK;
    l->mapped_bytes = page_round((size_t)l->n_rows * c->row_bytes);
    l->pos = malloc((size_t)l->n_rows * sizeof *l->pos);
    l->k = map_pages(l->mapped_bytes);
    l->v = map_pages(l->mapped_bytes);
    if (!l->pos || !l->k || !l->v)
        goto fail;
    return WNW_OK;

fail:
    layer_free(l);
    return wnw__fail(WNW_E_NOMEM, "no memory for a cache layer of %lld entries", (long long)l->n_rows);
}

/* Makes layers without entries, for a cache that has no layers yet. */
static int new_layers(struct wnw__cache *c)
{
    int32_t *cap = calloc((size_t)c->n_head_kv, sizeof *cap);
    int rc = cap ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for an empty cache");
    for (int32_t il = 0; rc == WNW_OK && il < c->n_layer; il++)
        rc = layer_new(c, &c->layers[il], cap, c->layers[il].n_swa);
    free(cap);
    return rc;
}

int wnw__cache_init(struct wnw__cache *c, int32_t n_layer, int32_t n_head_kv, int32_t d, wnw_kv_type type,
                    int32_t growth, const int32_t *n_swa)
{
    *c = (struct wnw__cache){
        .n_layer = n_layer, .n_head_kv = n_head_kv, .d = d, .type = type, .growth = growth};
    c->row_bytes = wnw__row_bytes(type, d);
    if (c->row_bytes == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "KV type %s needs a head size that is a multiple of 32, this model has %d",
                         wnw_kv_type_name(type), (int)d);
    c->layers = calloc((size_t)n_layer, sizeof *c->layers);
    if (!c->layers)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d cache layers", (int)n_layer);
    for (int32_t il = 0; il < n_layer; il++)
        c->layers[il].n_swa = n_swa ? n_swa[il] : 0;
    const int rc = new_layers(c);
    if (rc != WNW_OK)
        wnw__cache_free(c);
    return rc;
}

void wnw__cache_free(struct wnw__cache *c)
{
    for (int32_t il = 0; c->layers && il < c->n_layer; il++)
        layer_free(&c->layers[il]);
    free(c->layers);
    *c = (struct wnw__cache){0};
}

void wnw__cache_clear(struct wnw__cache *c)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        struct wnw__kv_layer *l = &c->layers[il];
        free_rows(l);
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            l->off[ih] = 0;
            l->cap[ih] = l->len[ih] = 0;
        }
        for (int kind = 0; kind < WNW_N_AUX; kind++) {
            float *small = l->aux[kind] ? realloc(l->aux[kind], sizeof *small) : NULL;
            l->aux[kind] = small ? small : l->aux[kind]; /* a block that could not shrink is kept */
        }
        l->n_final = l->n_mixed = 0;
    }
}

/* Copies n rows with their positions and numbers. dst and src may be the same layer. */
static void copy_rows(const struct wnw__cache *c, struct wnw__kv_layer *dst, int64_t to,
                      const struct wnw__kv_layer *src, int64_t from, int64_t n)
{
    if (n <= 0 || (dst == src && to == from))
        return;
    const size_t rb = c->row_bytes;
    memmove(dst->k + (size_t)to * rb, src->k + (size_t)from * rb, (size_t)n * rb);
    memmove(dst->v + (size_t)to * rb, src->v + (size_t)from * rb, (size_t)n * rb);
    memmove(dst->pos + to, src->pos + from, (size_t)n * sizeof *dst->pos);
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            memmove(wnw__cache_aux(dst, (enum wnw__aux)kind, p) + to,
                    wnw__cache_aux(src, (enum wnw__aux)kind, p) + from, (size_t)n * sizeof(float));
}

/* Empties the numbers of the n rows behind each head's entries, where rewound entries may have left some. */
static void empty_numbers(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t n)
{
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            for (int32_t ih = 0; ih < c->n_head_kv; ih++)
                for (int32_t i = 0; i < n; i++)
                    wnw__cache_aux(l, (enum wnw__aux)kind, p)[l->off[ih] + l->len[ih] + i] = aux_empty(kind);
}

int wnw__cache_resize_layer(struct wnw__cache *c, int32_t il, const int32_t *cap)
{
    struct wnw__kv_layer *l = &c->layers[il], fresh;
    WNW_TRY(layer_new(c, &fresh, cap, l->n_swa));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        fresh.len[ih] = l->len[ih];
        copy_rows(c, &fresh, fresh.off[ih], l, l->off[ih], l->len[ih]);
    }
    fresh.n_final = l->n_final;
    fresh.n_mixed = l->n_mixed;
    layer_free(l);
    *l = fresh;
    return WNW_OK;
}

int wnw__cache_reserve_layer(struct wnw__cache *c, int32_t il, int32_t n, bool exact)
{
    struct wnw__kv_layer *l = &c->layers[il];
    bool enough = true;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        enough = enough && l->cap[ih] - l->len[ih] >= n;
    if (enough) {
        empty_numbers(c, l, n);
        return WNW_OK;
    }

    int32_t *cap = calloc((size_t)c->n_head_kv, sizeof *cap);
    if (!cap)
        return wnw__fail(WNW_E_NOMEM, "no memory to grow cache layer %d", (int)il);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        int64_t need = (int64_t)l->len[ih] + n;
        if (!exact && need < (int64_t)l->cap[ih] + l->cap[ih] / 8)
            need = (int64_t)l->cap[ih] + l->cap[ih] / 8;
        cap[ih] = (int32_t)round_up(need, c->growth);
    }
    const int rc = wnw__cache_resize_layer(c, il, cap);
    free(cap);
    return rc;
}

int wnw__cache_copy(struct wnw__cache *dst, const struct wnw__cache *src)
{
    memcpy(dst->aux_planes, src->aux_planes, sizeof dst->aux_planes);
    for (int32_t il = 0; il < src->n_layer; il++) {
        const struct wnw__kv_layer *l = &src->layers[il];
        struct wnw__kv_layer copy;
        WNW_TRY(layer_new(dst, &copy, l->cap, l->n_swa));
        for (int32_t ih = 0; ih < src->n_head_kv; ih++) {
            copy.len[ih] = l->len[ih];
            copy_rows(dst, &copy, copy.off[ih], l, l->off[ih], l->len[ih]);
        }
        copy.n_final = l->n_final;
        copy.n_mixed = l->n_mixed;
        layer_free(&dst->layers[il]);
        dst->layers[il] = copy;
    }
    return WNW_OK;
}

void wnw__cache_commit_layer(struct wnw__cache *c, int32_t il, int32_t first, int32_t n)
{
    struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        int32_t *pos = l->pos + l->off[ih] + l->len[ih];
        for (int32_t i = 0; i < n; i++)
            pos[i] = first + i;
        l->len[ih] += n;
    }
}

static void drop_aux(struct wnw__cache *c, enum wnw__aux kind)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        free(c->layers[il].aux[kind]);
        c->layers[il].aux[kind] = NULL;
    }
    c->aux_planes[kind] = 0;
}

int wnw__cache_set_aux(struct wnw__cache *c, enum wnw__aux kind, int32_t n_plane)
{
    if (n_plane == 0) {
        drop_aux(c, kind);
        return WNW_OK;
    }
    float **fresh = calloc((size_t)c->n_layer, sizeof *fresh);
    bool ok = fresh != NULL;
    for (int32_t il = 0; ok && il < c->n_layer; il++)
        ok = (fresh[il] = aux_new((int)kind, n_plane, c->layers[il].n_rows)) != NULL;
    for (int32_t il = 0; fresh && il < c->n_layer; il++) {
        float *old = ok ? c->layers[il].aux[kind] : fresh[il];
        if (ok)
            c->layers[il].aux[kind] = fresh[il];
        free(old);
    }
    free(fresh);
    if (!ok)
        return wnw__fail(WNW_E_NOMEM, "no memory for numbers of the cached entries");
    c->aux_planes[kind] = n_plane;
    return WNW_OK;
}

void wnw__cache_rewind(struct wnw__cache *c, int32_t n_past)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        struct wnw__kv_layer *l = &c->layers[il];
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            while (l->len[ih] > 0 && l->pos[l->off[ih] + l->len[ih] - 1] >= n_past)
                l->len[ih]--;
    }
}

/* Copies the kept entries of a head. Neighbours are copied together: window methods keep long runs. */
static void gather_head(const struct wnw__cache *c, struct wnw__kv_layer *dst, int64_t to,
                        const struct wnw__kv_layer *src, int64_t from, const int32_t *keep, int32_t n_keep)
{
    for (int32_t i = 0; i < n_keep;) {
        int32_t run = 1;
        while (i + run < n_keep && keep[i + run] == keep[i] + run)
            run++;
        copy_rows(c, dst, to + i, src, from + keep[i], run);
        i += run;
    }
}

/* Moves the kept entries to new storage with capacities cap[n_head_kv]. */
static int move_kept(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                     const int32_t *cap)
{
    struct wnw__kv_layer *l = &c->layers[il], tight;
    WNW_TRY(layer_new(c, &tight, cap, l->n_swa));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        tight.len[ih] = n_keep[ih];
        gather_head(c, &tight, tight.off[ih], l, l->off[ih], keep[ih], n_keep[ih]);
    }
    tight.n_mixed = l->n_mixed;
    layer_free(l);
    *l = tight;
    return WNW_OK;
}

/* Allocates cap[n_head_kv], room for the kept entries and `room` more in each head; *n_rows is their sum. */
static int32_t *kept_caps(const struct wnw__cache *c, int32_t il, const int32_t *n_keep, int32_t room,
                          int64_t *n_rows)
{
    int32_t *cap = calloc((size_t)c->n_head_kv, sizeof *cap);
    *n_rows = 0;
    if (!cap)
        wnw__fail(WNW_E_NOMEM, "no memory to compact cache layer %d", (int)il);
    for (int32_t ih = 0; cap && ih < c->n_head_kv; ih++) {
        cap[ih] = (int32_t)round_up((int64_t)n_keep[ih] + room, c->growth);
        *n_rows += cap[ih];
    }
    return cap;
}

int wnw__cache_keep_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep)
{
    int64_t n_rows;
    int32_t *cap = kept_caps(c, il, n_keep, 0, &n_rows);
    const int rc = cap ? move_kept(c, il, keep, n_keep, cap) : WNW_E_NOMEM;
    free(cap);
    return rc;
}

static uint8_t *stored_at(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    return (what == WNW_KEYS ? l->k : l->v) + (size_t)row * c->row_bytes;
}

void wnw__cache_read(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                     float *dst)
{
    wnw__rows_to_f32(c->type, stored_at(c, il, what, row), n, c->d, dst);
}

void wnw__cache_write(struct wnw__cache *c, int32_t il, enum wnw__stored what, int64_t row, int32_t n,
                      const float *src)
{
    wnw__rows_from_f32(c->type, src, n, c->d, stored_at(c, il, what, row));
}

void wnw__cache_drop(struct wnw__cache *c, int32_t il, int32_t ih, int32_t from, int32_t n)
{
    struct wnw__kv_layer *l = &c->layers[il];
    copy_rows(c, l, l->off[ih] + from, l, l->off[ih] + from + n, l->len[ih] - from - n);
    l->len[ih] -= n;
}

int wnw__cache_thin_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                          int32_t room)
{
    struct wnw__kv_layer *l = &c->layers[il];
    int64_t n_rows;
    int32_t *cap = kept_caps(c, il, n_keep, room, &n_rows);
    int rc = cap ? WNW_OK : WNW_E_NOMEM;
    if (rc == WNW_OK && l->n_rows - n_rows >= (l->n_rows + 7) / 8) {
        rc = move_kept(c, il, keep, n_keep, cap);
    } else if (rc == WNW_OK) {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            gather_head(c, l, l->off[ih], l, l->off[ih], keep[ih], n_keep[ih]);
            l->len[ih] = n_keep[ih];
        }
    }
    free(cap);
    return rc;
}

/* Every head of a sliding-window layer holds the same positions, because no policy touches such a layer. */
static int trim_layer(struct wnw__cache *c, int32_t il, int32_t next)
{
    struct wnw__kv_layer *l = &c->layers[il];
    const int32_t len = l->len[0];
    int32_t first = 0;
    while (first < len && next - l->pos[l->off[0] + first] >= l->n_swa)
        first++;
    if (first < c->growth)
        return WNW_OK;
    int32_t *index = malloc(((size_t)(len - first) + 1) * sizeof *index);
    const int32_t **keep = calloc((size_t)c->n_head_kv, sizeof *keep);
    int32_t *n_keep = calloc((size_t)c->n_head_kv, sizeof *n_keep);
    int rc = WNW_E_NOMEM;
    if (!index || !keep || !n_keep) {
        wnw__fail(rc, "no memory to trim cache layer %d", (int)il);
        goto done;
    }
    for (int32_t i = first; i < len; i++)
        index[i - first] = i;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        keep[ih] = index;
        n_keep[ih] = len - first;
    }
    rc = wnw__cache_keep_layer(c, il, keep, n_keep);
done:
    free(index);
    free(keep);
    free(n_keep);
    return rc;
}

int wnw__cache_trim_swa(struct wnw__cache *c, int32_t il, int32_t next)
{
    return c->layers[il].n_swa > 0 && c->layers[il].n_rows > 0 ? trim_layer(c, il, next) : WNW_OK;
}

uint64_t wnw__cache_bytes(const struct wnw__cache *c)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++)
        bytes += 2 * (uint64_t)c->layers[il].mapped_bytes;
    return bytes;
}

int64_t wnw__cache_entries(const struct wnw__cache *c)
{
    int64_t n = 0;
    for (int32_t il = 0; il < c->n_layer; il++) {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            n += c->layers[il].len[ih];
    }
    return n;
}

uint64_t wnw__cache_bytes_for(const struct wnw__cache *c, int32_t n)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const int32_t n_swa = c->layers[il].n_swa;
        const int32_t n_held = n_swa > 0 && n_swa < n ? n_swa : n;
        const int64_t rows = round_up(n_held, c->growth) * c->n_head_kv;
        bytes += 2 * (uint64_t)page_round((size_t)rows * c->row_bytes);
    }
    return bytes;
}

int wnw__cache_check(const struct wnw__cache *c)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        int64_t row = 0;
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            if (l->off[ih] != row || l->len[ih] < 0 || l->len[ih] > l->cap[ih])
                return wnw__fail(WNW_E_RANGE, "cache layer %d head %d: offset, length and capacity disagree",
                                 (int)il, (int)ih);
            row += l->cap[ih];
            for (int32_t i = 1; i < l->len[ih]; i++) {
                if (l->pos[l->off[ih] + i] <= l->pos[l->off[ih] + i - 1])
                    return wnw__fail(WNW_E_RANGE,
                                     "cache layer %d head %d: positions do not ascend at entry %d", (int)il,
                                     (int)ih, (int)i);
            }
        }
        if (row != l->n_rows || (size_t)row * c->row_bytes > l->mapped_bytes)
            return wnw__fail(WNW_E_RANGE, "cache layer %d: heads do not fill the arena", (int)il);
    }
    return WNW_OK;
}
