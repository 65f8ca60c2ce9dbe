/* SPDX-License-Identifier: MIT */
/* What programs see of a context's cache, and dropping entries: winnow_bridge.h. */
#include "base/err.h"
#include "bridge/watch/watch.h"
#include "winnow_bridge.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

/* A wnw_bridge is a backend. */
static struct wnw__bridge_backend *backend_of(const wnw_bridge *cache)
{
    return (struct wnw__bridge_backend *)(uintptr_t)cache;
}

/* Set while this thread has a context synchronise its backends. */
static _Thread_local struct wnw__bridge_backend **asked;

void wnw__bridge_called(struct wnw__bridge_backend *b)
{
    if (!asked)
        return;
    b->other = *asked; /* a context may have several of our devices */
    *asked = b;
}

int wnw_bridge_find(wnw_bridge **out, void (*synchronize)(struct llama_context *), struct llama_context *ctx)
{
    struct wnw__bridge_backend *found = NULL;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(synchronize);
    WNW_REQUIRE(ctx);
    asked = &found;
    synchronize(ctx);
    asked = NULL;
    if (!found)
        return wnw__fail(
            WNW_E_ARG,
            "nothing of this context is on the device WINNOW: give its model that device and all layers");
    for (struct wnw__bridge_backend *b = found; b; b = b->other) {
        if (b->first != found)
            wnw__bridge_last_forget(b); /* which layers slide is seen in all of them */
        b->first = found;
    }
    *out = (wnw_bridge *)(void *)found;
    return WNW_OK;
}

int32_t wnw_bridge_n_layers(const wnw_bridge *cache)
{
    const struct wnw__bridge_backend *b = backend_of(cache);
    int32_t n = 0;
    for (; b; b = b->other)
        for (int32_t i = 0; i < b->n_cache; i++)
            n += b->caches[i]->n_layer;
    return n;
}

/* Layer i of the list, NULL if there is none. */
static struct wnw__bridge_layer *layer_at(const wnw_bridge *cache, int32_t i)
{
    const struct wnw__bridge_backend *b = backend_of(cache);
    const int32_t asked_for = i;
    for (; b; b = b->other)
        for (int32_t c = 0; i >= 0 && c < b->n_cache; i -= b->caches[c++]->n_layer)
            if (i < b->caches[c]->n_layer)
                return b->caches[c]->layers[i];
    wnw__fail(WNW_E_RANGE, "layer %d of a cache that has %d", (int)asked_for,
              (int)wnw_bridge_n_layers(cache));
    return NULL;
}

int wnw_bridge_get_layer(const wnw_bridge *cache, int32_t i, wnw_bridge_layer *out)
{
    WNW_REQUIRE(cache);
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_bridge_layer, out));
    struct wnw__bridge_layer *l = layer_at(cache, i);
    const struct wnw__bridge_backend *b = backend_of(cache);
    if (!l)
        return WNW_E_RANGE;
    if (l->far && l->kind == WNW_BRIDGE_RAGGED)
        WNW_TRY(l->far->find_holes(l));
    wnw_bridge_layer info = {WNW_INIT(wnw_bridge_layer), .layer = l->il,
                             .ragged = l->kind == WNW_BRIDGE_RAGGED, .bytes = l->far ? l->far->bytes(l) : 0};
    if (l->far && info.ragged) {
        info.n_streams = l->k.n_stream;
        info.n_cells = l->k.n_cell;
        info.n_heads = l->n_head;
        info.n_entries = l->far->entries(l);
        info.key_bytes = (int32_t)ggml_row_size(l->k.type, l->d_k);
        info.entry_bytes = info.key_bytes + (int32_t)(l->v.base ? ggml_row_size(l->v.type, l->d_v) : 0);
        info.query_bytes = (int32_t)wnw__bridge_query_bytes(l);
        info.n_readers = l->info.n_reader;
        info.sliding = wnw__bridge_is_sliding(b, l);
        info.query_numbers = l->info.n_reader * l->info.n_head * l->d_k;
        info.room_entries = l->far->room_entries(l);
    } else if (info.ragged) {
        WNW_TRY(wnw__bridge_layer_trim(l));
        info.room_entries = l->rows.growth;
        info.n_streams = l->k.n_stream;
        info.n_cells = l->k.n_cell;
        info.n_heads = l->n_head;
        info.n_entries = wnw__cache_entries(&l->rows);
        info.bytes = wnw__cache_bytes(&l->rows);
        info.key_bytes = (int32_t)l->rows.row_bytes;
        info.entry_bytes = (int32_t)(l->rows.row_bytes + l->rows.v_row_bytes);
        info.query_bytes = (int32_t)wnw__bridge_query_bytes(l);
        info.n_readers = l->info.n_reader;
        info.sliding = wnw__bridge_is_sliding(b, l);
        info.query_numbers = l->info.n_reader * l->info.n_head * l->d_k;
    }
    wnw__sized_give(out, &info);
    return WNW_OK;
}

/* What a device lacks, so that layers stay whole; "": nothing that is known. */
static const char *why_whole(const wnw_bridge *cache)
{
    const struct wnw__bridge_backend *b = backend_of(cache);
    while (!*b->refused && b->other)
        b = b->other;
    return b->refused;
}

/* The layer, if it is ragged and has that head; else NULL and *rc says why. */
static struct wnw__bridge_layer *head_at(const wnw_bridge *cache, int32_t i, int32_t stream, int32_t head,
                                         int *rc)
{
    struct wnw__bridge_layer *l = layer_at(cache, i);
    *rc = WNW_E_RANGE;
    if (!l)
        return NULL;
    if (l->kind != WNW_BRIDGE_RAGGED) {
        const char *why = why_whole(cache);
        *rc = wnw__fail(WNW_E_UNSUPPORTED,
                        "layer %d of the model is as libllama has it, and no entry of it can be dropped%s%s",
                        (int)l->il, *why ? ": " : "", why);
        return NULL;
    }
    if (stream < 0 || stream >= l->k.n_stream || head < 0 || head >= l->n_head) {
        wnw__fail(WNW_E_RANGE, "stream %d, head %d of a layer with %d streams of %d heads", (int)stream,
                  (int)head, (int)l->k.n_stream, (int)l->n_head);
        return NULL;
    }
    *rc = WNW_OK;
    return l;
}

int wnw_bridge_cells(const wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, int32_t *cells,
                     int32_t n, int32_t *n_cells)
{
    int rc;
    WNW_REQUIRE(cache);
    WNW_REQUIRE(n_cells);
    if (n > 0)
        WNW_REQUIRE(cells);
    const struct wnw__bridge_layer *l = head_at(cache, i, stream, head, &rc);
    if (!l)
        return rc;
    if (l->far) {
        int32_t *list;
        WNW_TRY(l->far->list(l, stream, head, &list, n_cells));
        if (n > 0)
            memcpy(cells, list, (size_t)(n < *n_cells ? n : *n_cells) * sizeof *cells);
        free(list);
        return WNW_OK;
    }
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t ih = stream * l->n_head + head;
    *n_cells = kv->len[ih];
    if (n > 0 && *n_cells > 0)
        memcpy(cells, kv->pos + kv->off[ih], (size_t)(n < *n_cells ? n : *n_cells) * sizeof *cells);
    return WNW_OK;
}

int wnw_bridge_drop(wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, const int32_t *cells,
                    int32_t n)
{
    int rc;
    WNW_REQUIRE(cache);
    if (n > 0)
        WNW_REQUIRE(cells);
    struct wnw__bridge_layer *l = head_at(cache, i, stream, head, &rc);
    if (!l)
        return rc;
    for (int32_t j = 1; j < n; j++)
        if (cells[j] <= cells[j - 1])
            return wnw__fail(WNW_E_ARG, "cells to drop ascend, but %d comes after %d", (int)cells[j],
                             (int)cells[j - 1]);
    if (n <= 0)
        return WNW_OK;
    return l->far ? l->far->drop(l, stream, head, cells, n)
                  : wnw__bridge_layer_drop(l, stream, head, cells, n);
}

int wnw_bridge_set_policy(wnw_bridge *cache, const char *recipe, const wnw_size *size, bool by_itself)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other) {
        if (!recipe) {
            wnw__bridge_watch_clear(&b->watch);
            continue;
        }
        WNW_TRY(wnw__bridge_watch_set_alone(&b->watch, recipe, size, by_itself));
        WNW_TRY(wnw__bridge_watch_check(b));
    }
    return WNW_OK;
}

int wnw_bridge_set_tight(wnw_bridge *cache, bool tight)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other) {
        b->tight = tight;
        for (int32_t i = 0; i < b->n_cache; i++)
            WNW_TRY(wnw__bridge_cache_set_tight(b->caches[i], tight));
    }
    return WNW_OK;
}

int wnw_bridge_set_profiles(wnw_bridge *cache, const char *list)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        WNW_TRY(wnw__bridge_watch_profiles(&b->watch, list));
    return WNW_OK;
}

static int check_chunk(int32_t n)
{
    return n == 0 || n >= WNW_TURNS_LEAST_NEW
               ? WNW_OK
               : wnw__fail(WNW_E_RANGE, "chunks of %d tokens; give 0 for none, or at least %d", (int)n,
                           WNW_TURNS_LEAST_NEW);
}

static int check_setting(const wnw_bridge_setting *s)
{
    if (s->n_parts < 0 || s->n_profiles < 0)
        return wnw__fail(WNW_E_RANGE, "%d parts and %d profiles; give at least 0", (int)s->n_parts,
                         (int)s->n_profiles);
    if ((s->n_parts > 0 && !s->parts) || (s->n_profiles > 0 && !s->profiles))
        return wnw__fail(WNW_E_ARG, "a list of parts or profiles is NULL, and has elements");
    for (int32_t i = 0; i < s->n_parts; i++)
        WNW_REQUIRE(s->parts[i]);
    for (int32_t i = 0; i < s->n_profiles; i++)
        WNW_REQUIRE(s->profiles[i]);
    return check_chunk(s->chunk);
}

int wnw_bridge_set(wnw_bridge *cache, const wnw_bridge_setting *setting)
{
    wnw_bridge_setting own = wnw_bridge_setting_default();
    int32_t n = 0, i = 0;
    WNW_REQUIRE(cache);
    WNW_REQUIRE(setting);
    WNW_TRY(WNW_SIZED_TAKE(wnw_bridge_setting, &own, setting));
    WNW_TRY(check_setting(&own));
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        n++;
    struct wnw__bridge_watch *next = calloc((size_t)n, sizeof *next);
    int rc = next ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a policy");
    for (struct wnw__bridge_backend *b = backend_of(cache); rc == WNW_OK && b; b = b->other)
        rc = wnw__bridge_watch_prepare(&next[i++], b, &own);
    i = 0;
    for (struct wnw__bridge_backend *b = backend_of(cache); rc == WNW_OK && b; b = b->other)
        wnw__bridge_watch_take(&b->watch, &next[i++]);
    for (i = 0; next && i < n; i++)
        wnw__bridge_watch_free(&next[i]);
    free(next);
    return rc;
}

/* The sequence of the last row, as far as its layers are on one device. */
static int compress_last(struct wnw__bridge_backend *b)
{
    const bool nothing = !b->watch.policy || !b->watch.last.cache || b->watch.last.n == 0;
    if (nothing && b->watch.policy && *b->watch.last_warning)
        return wnw__fail(b->watch.last_rc, "%s", b->watch.last_warning);
    if (nothing)
        return wnw__fail(WNW_E_ARG, "there is nothing to compress: no policy was set before the last batch");
    return wnw__bridge_compress_last(b);
}

int wnw_bridge_compress(wnw_bridge *cache)
{
    WNW_REQUIRE(cache);
    struct wnw__bridge_backend *b = backend_of(cache);
    if (!b->other)
        return compress_last(b);
    int32_t n = 0;
    for (; b; b = b->other) {
        if (!wnw__bridge_some_layer(b))
            continue;
        WNW_TRY(compress_last(b));
        n++;
    }
    return n > 0 ? WNW_OK
                 : wnw__fail(WNW_E_UNSUPPORTED,
                             "no layer of this cache can be compressed: policies have nothing to act on");
}
