/* SPDX-License-Identifier: MIT */
/*
 * Memory that libllama asks our device for: reserved addresses, which take memory where they are written. So tensors that
 * are not a cache's keys and values, and layers that stay plain, are as in any other buffer; those of a ragged layer are
 * never written there.
 */
#include "bridge/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- Tensors of keys and values ---- */

/* Parses "cache_k_l3", or with a tag of libllama's "cache_TAGk_l3". Returns 'k' or 'v', 0 if it is another name. tag:
 * the name without that letter. */
static char take_name(const char *name, char *tag, size_t cap, int32_t *il)
{
    const char *end = strrchr(name, '_');
    int n_read = 0;
    if (strncmp(name, "cache_", 6) != 0 || !end || end < name + 6 ||
        sscanf(end, "_l%d%n", il, &n_read) != 1 || end[n_read] != '\0' || (end[-1] != 'k' && end[-1] != 'v'))
        return 0;
    const int n = snprintf(tag, cap, "%.*s%s", (int)(end - 1 - name), name, end);
    return n >= 0 && (size_t)n < cap ? end[-1] : 0;
}

/* The layer with a tag, made if there is none; NULL if memory ran out. */
static struct wnw__bridge_layer *layer_of(struct wnw__bridge_cache *c, const char *tag, int32_t il)
{
    for (int32_t i = 0; i < c->n_layer; i++)
        if (strcmp(c->layers[i]->tag, tag) == 0)
            return c->layers[i];
    if (c->n_layer == c->cap_layer) {
        const int32_t cap = c->cap_layer > 0 ? 2 * c->cap_layer : 64;
        struct wnw__bridge_layer **more = realloc(c->layers, (size_t)cap * sizeof *more);
        if (!more)
            return NULL;
        c->layers = more;
        c->cap_layer = cap;
    }
    struct wnw__bridge_layer *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    snprintf(l->tag, sizeof l->tag, "%s", tag);
    l->il = il;
    l->cache = c;
    c->layers[c->n_layer++] = l;
    return l;
}

static bool fits(const struct ggml_tensor *t)
{
    return t->ne[3] == 1 && ggml_is_contiguous(t) && t->ne[0] <= INT32_MAX &&
           t->ne[1] * t->ne[2] <= INT32_MAX;
}

bool wnw__bridge_is_cache_name(const char *name)
{
    char tag[sizeof((struct wnw__bridge_layer *)0)->tag];
    int32_t il;
    return take_name(name, tag, sizeof tag, &il) != 0;
}

bool wnw__bridge_tensor_init(struct wnw__bridge_cache *c, struct ggml_tensor *t)
{
    char tag[sizeof((struct wnw__bridge_layer *)0)->tag];
    int32_t il;
    const char which = t->view_src ? 0 : take_name(t->name, tag, sizeof tag, &il);
    if (!which || !fits(t))
        return true;
    struct wnw__bridge_layer *l = layer_of(c, tag, il);
    if (!l)
        return false;
    struct wnw__bridge_tensor *mine = which == 'v' ? &l->v : &l->k;
    *mine = (struct wnw__bridge_tensor){.base = t->data,
                                        .type = t->type,
                                        .n_embd = (int32_t)t->ne[0],
                                        .n_cell = (int32_t)t->ne[1],
                                        .n_stream = (int32_t)t->ne[2],
                                        .is_v = which == 'v',
                                        .layer = l};
    t->extra = mine;
    return true;
}

static enum ggml_status init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t)
{
    return wnw__bridge_tensor_init(buffer->context, t) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

struct wnw__bridge_tensor *wnw__bridge_tensor_of(const struct ggml_tensor *t)
{
    const struct ggml_tensor *root = t->view_src ? t->view_src : t;
    const bool ours = root->buffer && root->buffer->iface.get_base == wnw__bridge_buffer_base;
    return ours ? root->extra : NULL;
}

int32_t wnw__bridge_first_stream(const struct ggml_tensor *k)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(k);
    return (int32_t)(k->view_offs / (ggml_row_size(t->type, t->n_embd) * (size_t)t->n_cell));
}

/* ---- Access ---- */

/* The ragged tensor that t is a part of, with the place of t's byte `offset` in it; else NULL. */
static struct wnw__bridge_tensor *ragged(const struct ggml_tensor *t, size_t offset, size_t *at)
{
    struct wnw__bridge_tensor *mine = wnw__bridge_tensor_of(t);
    if (!mine || mine->layer->kind != WNW_BRIDGE_RAGGED)
        return NULL;
    *at = (size_t)((const uint8_t *)t->data - mine->base) + offset;
    return mine;
}

void wnw__bridge_layer_lose(struct wnw__bridge_layer *l)
{
    wnw__log(WNW_LOG_WARN, "winnow: rows of layer %d are lost: %s", (int)l->il, wnw_last_error());
    l->lost = true;
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                       size_t size)
{
    (void)buffer;
    size_t at;
    struct wnw__bridge_tensor *mine = ragged(t, offset, &at);
    if (!mine)
        memcpy((char *)t->data + offset, data, size);
    else if (wnw__bridge_tensor_write(mine, at, size, data) != WNW_OK)
        wnw__bridge_layer_lose(mine->layer);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset,
                       size_t size)
{
    (void)buffer;
    size_t at;
    const struct wnw__bridge_tensor *mine = ragged(t, offset, &at);
    if (mine)
        wnw__bridge_tensor_read(mine, at, size, data);
    else
        memcpy(data, (const char *)t->data + offset, size);
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset,
                          size_t size)
{
    uint8_t some[4096];
    memset(some, value, sizeof some);
    for (size_t at = 0; at < size; at += sizeof some)
        set_tensor(buffer, t, some, offset + at, size - at < sizeof some ? size - at : sizeof some);
}

/* The stream that t is the whole of, -1 if it is another part of its tensor. */
static int32_t whole_stream(const struct wnw__bridge_tensor *mine, const struct ggml_tensor *t)
{
    const size_t bytes = ggml_row_size(mine->type, mine->n_embd) * (size_t)mine->n_cell;
    const size_t at = (size_t)((const uint8_t *)t->data - mine->base);
    return ggml_nbytes(t) == bytes && at % bytes == 0 ? (int32_t)(at / bytes) : -1;
}

static bool cpy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst)
{
    (void)buffer;
    size_t at;
    struct wnw__bridge_tensor *from = ragged(src, 0, &at), *to = ragged(dst, 0, &at);
    if (!from || from != to)
        return false;
    const int32_t a = whole_stream(from, src), b = whole_stream(to, dst);
    if (a < 0 || b < 0)
        return false;
    if (wnw__bridge_layer_copy_stream(to->layer, to->is_v, a, b) != WNW_OK)
        wnw__bridge_layer_lose(to->layer);
    return true;
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    struct wnw__bridge_cache *c = buffer->context;
    for (int32_t i = 0; i < c->n_layer; i++)
        wnw__bridge_layer_clear(c->layers[i]);
    c->unobserved = false;
    if (value == 0 && !c->borrowed && madvise(c->at.base, c->size, MADV_DONTNEED) == 0)
        return; /* the pages are 0 when they are read again, and take no memory until then */
    memset(c->at.base, value, c->size);
}

void wnw__bridge_cache_release(struct wnw__bridge_cache *c)
{
    if (atomic_fetch_sub_explicit(&c->owners, 1, memory_order_acq_rel) == 1)
        free(c);
}

void wnw__bridge_cache_close(struct wnw__bridge_cache *c)
{
    for (int32_t i = 0; i < c->n_layer; i++)
        wnw__bridge_layer_free(c->layers[i]);
    free(c->layers);
    free(c->note);
    c->note = NULL;
    free(c->twin);
    c->twin = NULL;
    if (!c->borrowed)
        munmap(c->at.base, c->size);
    c->layers = NULL;
    c->n_layer = c->cap_layer = 0;
    wnw__bridge_cache_release(c);
}

/* Backends may outlive it. */
static void free_buffer(ggml_backend_buffer_t buffer)
{
    wnw__bridge_cache_close(buffer->context);
}

void *wnw__bridge_buffer_base(ggml_backend_buffer_t buffer)
{
    return ((struct wnw__bridge_addresses *)buffer->context)->base;
}

/* ---- The buffer type ---- */

static const char *get_name(ggml_backend_buffer_type_t buft)
{
    (void)buft;
    return "WINNOW";
}

static size_t get_alignment(ggml_backend_buffer_type_t buft)
{
    (void)buft;
    return 64;
}

struct wnw__bridge_cache *wnw__bridge_cache_new(void *base, size_t size, bool borrowed)
{
    struct wnw__bridge_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->at.base = base;
    c->size = size;
    c->borrowed = borrowed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    c->made = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    atomic_init(&c->owners, 1);
    return c;
}

static ggml_backend_buffer_t new_buffer(uint8_t *base, size_t size, bool borrowed)
{
    static const struct ggml_backend_buffer_i interface = {
        .free_buffer = free_buffer,
        .get_base = wnw__bridge_buffer_base,
        .init_tensor = init_tensor,
        .memset_tensor = memset_tensor,
        .set_tensor = set_tensor,
        .get_tensor = get_tensor,
        .cpy_tensor = cpy_tensor,
        .clear = clear,
    };
    struct wnw__bridge_cache *c = wnw__bridge_cache_new(base, size, borrowed);
    return c ? ggml_backend_buffer_init(wnw__bridge_buffer_type(), interface, c, size) : NULL;
}

ggml_backend_buffer_t wnw__bridge_buffer_over(void *memory, size_t size)
{
    return new_buffer(memory, size, true);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size)
{
    (void)buft;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        wnw__log(WNW_LOG_WARN,
                 "winnow: no addresses for %zu bytes: a smaller context needs fewer; a limit on them (ulimit "
                 "-v) or "
                 "a kernel that does not overcommit (vm.overcommit_memory = 2) allows fewer",
                 size);
        return NULL;
    }
    madvise(base, size, MADV_NOHUGEPAGE); /* a huge page would take memory for what is not written */
    ggml_backend_buffer_t buffer = new_buffer(base, size, false);
    if (!buffer)
        munmap(base, size);
    return buffer;
}

ggml_backend_buffer_type_t wnw__bridge_buffer_type(void)
{
    static struct ggml_backend_buffer_type type = {
        .iface = {.get_name = get_name, .alloc_buffer = alloc_buffer, .get_alignment = get_alignment},
        .device = &wnw__bridge_device,
    };
    return &type;
}

int wnw__bridge_backend_see(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c)
{
    for (int32_t i = 0; i < b->n_cache; i++)
        if (b->caches[i] == c)
            return WNW_OK;
    if (b->n_cache == b->cap_cache) {
        const int32_t cap = b->cap_cache > 0 ? 2 * b->cap_cache : 4;
        struct wnw__bridge_cache **more = realloc(b->caches, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory to note a cache");
        b->caches = more;
        b->cap_cache = cap;
    }
    atomic_fetch_add_explicit(&c->owners, 1, memory_order_relaxed);
    b->caches[b->n_cache++] = c;
    return b->tight ? wnw__bridge_cache_set_tight(c, true) : WNW_OK;
}
