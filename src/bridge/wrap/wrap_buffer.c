/* SPDX-License-Identifier: MIT */
/*
 * Memory of a wrapped device. libllama gets buffers that X made, so that X knows them as its own. Only a cache's keys and values
 * get our own buffer: addresses without memory. Such a cache is known by the names of its tensors, whose sizes libllama asks
 * for just before.
 */
#include "base/said.h"
#include "bridge/wrap/wrap.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static struct wnw__wrap *wrap_of_type(ggml_backend_buffer_type_t type)
{
    return type->context;
}

/* ---- Keys and values ---- */

/* A buffer of a cache. Where X limits the size of buffers, libllama asks for several, and a layer's keys and values may be in two. */
struct piece {
    struct wnw__bridge_addresses at; /* first */
    size_t size;
    struct wnw__bridge_cache *cache;
};

/* The cache whose buffers this thread asks for one after the other; NULL: the next buffer is another one's. */
static _Thread_local struct wnw__bridge_cache *asked_cache;

static struct wnw__wrap_layer *wrap_of_layer(const struct wnw__bridge_tensor *t)
{
    return t ? t->layer->wrap : NULL;
}

static enum ggml_status init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t)
{
    struct wnw__wrap *w = wrap_of_type(buffer->buft);
    if (!wnw__bridge_tensor_init(((struct piece *)buffer->context)->cache, t))
        return GGML_STATUS_ALLOC_FAILED;
    const struct wnw__bridge_tensor *mine = t->view_src ? NULL : t->extra;
    int rc = mine ? wnw__wrap_can_store(w, t) : WNW_OK;
    if (rc == WNW_OK && mine && !mine->layer->wrap)
        rc = wnw__wrap_layer_new(mine->layer, w);
    if (rc == WNW_OK)
        return GGML_STATUS_SUCCESS;
    wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    wnw__hear(GGML_LOG_LEVEL_ERROR, wnw_last_error(),
              NULL); /* the reason, before ggml says that something failed */
    return GGML_STATUS_ALLOC_FAILED;
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                       size_t size)
{
    (void)buffer;
    struct wnw__bridge_tensor *mine = wnw__bridge_tensor_of(t);
    const struct wnw__wrap_layer *w = wrap_of_layer(mine);
    if (!w)
        return; /* init_tensor has refused it */
    const size_t at = (size_t)((const uint8_t *)t->data - mine->base) + offset;
    const size_t row = ggml_row_size(mine->type, mine->n_embd);
    if (!mine->is_v && size > 0 && mine->layer->n_head > 0)
        wnw__wrap_renew(mine->layer, (int64_t)(at / row), (int64_t)((at + size - 1) / row - at / row) + 1);
    const int rc =
        w->ragged ? wnw__wrap_rows_write(mine, at, size, data) : wnw__wrap_rect_write(mine, at, size, data);
    if (rc != WNW_OK)
        wnw__bridge_layer_lose(mine->layer);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset,
                       size_t size)
{
    (void)buffer;
    const struct wnw__bridge_tensor *mine = wnw__bridge_tensor_of(t);
    const struct wnw__wrap_layer *w = wrap_of_layer(mine);
    memset(data, 0, size);
    if (!w)
        return;
    const size_t at = (size_t)((const uint8_t *)t->data - mine->base) + offset;
    const int rc =
        w->ragged ? wnw__wrap_rows_read(mine, at, size, data) : wnw__wrap_rect_read(mine, at, size, data);
    if (rc != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: layer %d was not read: %s", (int)mine->layer->il, wnw_last_error());
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset,
                          size_t size)
{
    uint8_t *some = malloc(size);
    if (!some) {
        wnw__log(WNW_LOG_WARN, "winnow: no memory to fill a cache of %zu bytes", size);
        return;
    }
    memset(some, value, size);
    set_tensor(buffer, t, some, offset, size);
    free(some);
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    (void)value; /* libllama knows 0 alone */
    const struct wnw__bridge_cache *c = ((struct piece *)buffer->context)->cache;
    for (int32_t i = 0; i < c->n_layer; i++)
        wnw__wrap_layer_clear(c->layers[i]);
}

/* The cache ends with its last buffer. Backends may outlive it. */
static void free_buffer(ggml_backend_buffer_t buffer)
{
    struct piece *p = buffer->context;
    struct wnw__bridge_cache *c = p->cache;
    wnw__wrap_freed(wrap_of_type(buffer->buft)); /* the context frees others, too */
    munmap(p->at.base, p->size);
    free(p);
    if (--c->n_buffer > 0)
        return;
    for (int32_t i = 0; i < c->n_layer; i++)
        wnw__wrap_layer_free(c->layers[i]);
    asked_cache = NULL;
    wnw__bridge_cache_close(c);
}

static ggml_backend_buffer_t new_addresses(ggml_backend_buffer_type_t type, size_t size)
{
    static const struct ggml_backend_buffer_i interface = {
        .free_buffer = free_buffer,
        .get_base = wnw__bridge_buffer_base,
        .init_tensor = init_tensor,
        .memset_tensor = memset_tensor,
        .set_tensor = set_tensor,
        .get_tensor = get_tensor,
        .clear = clear,
    };
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        wnw__log(WNW_LOG_WARN, "winnow: no addresses for %zu bytes: a smaller context needs fewer", size);
        return NULL;
    }
    struct piece *p = malloc(sizeof *p);
    struct wnw__bridge_cache *c = asked_cache ? asked_cache : wnw__bridge_cache_new(NULL, 0, true);
    if (!p || !c) {
        munmap(base, size);
        free(p);
        if (c && !asked_cache)
            wnw__bridge_cache_close(c);
        return NULL;
    }
    *p = (struct piece){.at = {base}, .size = size, .cache = c};
    c->n_buffer++;
    asked_cache = c;
    return ggml_backend_buffer_init(type, interface, p, size);
}

/* ---- Inputs of graphs ---- */

/* Where inputs at `at` are noted; NULL: they are not. Under `lock`. */
static struct wnw__wrap_input *find_input(struct wnw__wrap *w, const void *at)
{
    for (int32_t i = 0; i < WNW_WRAP_INPUTS; i++)
        if (w->inputs[i].at == at)
            return &w->inputs[i];
    return NULL;
}

/* The same, in place of the oldest if need be. Under `lock`. */
static struct wnw__wrap_input *need_input(struct wnw__wrap *w, const void *at)
{
    struct wnw__wrap_input *in = find_input(w, at);
    if (in)
        return in;
    in = &w->inputs[w->next];
    w->next = (w->next + 1) % WNW_WRAP_INPUTS;
    free(in->copy);
    *in = (struct wnw__wrap_input){.at = at};
    return in;
}

/* Numbers of cells are copied always, since graphs are looked at while nobody wants them yet. A part that is written alone leaves no copy. */
void wnw__wrap_note(struct wnw__wrap *w, const struct ggml_tensor *t, const void *data, size_t offset,
                    size_t size)
{
    const bool whole = offset == 0 && size == ggml_nbytes(t) && size > 0;
    pthread_mutex_lock(&w->lock);
    struct wnw__wrap_input *in =
        whole && t->type == GGML_TYPE_I64 ? need_input(w, t->data) : find_input(w, t->data);
    if (in) {
        if (!whole || in->n != size) {
            free(in->copy);
            in->copy = whole ? malloc(size) : NULL;
            in->n = in->copy ? size : 0;
        }
        if (in->copy)
            memcpy(in->copy, data, size);
    }
    pthread_mutex_unlock(&w->lock);
}

/* In place of X's own function in buffers of X. */
static void set_noted(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                      size_t size)
{
    struct wnw__wrap *w = NULL;
    for (size_t i = 0; i < ggml_backend_dev_count() && !w; i++) {
        w = wnw__wrap_of(ggml_backend_dev_get(i));
        w = w && w->xt == buffer->buft ? w : NULL;
    }
    if (!w)
        return; /* X's buffers are of its device */
    wnw__wrap_note(w, t, data, offset, size);
    w->set_tensor(buffer, t, data, offset, size);
}

/* Copies what was noted of t. false: nothing was, but will be. */
static bool copy_noted(struct wnw__wrap *w, const struct ggml_tensor *t, void *to, size_t n)
{
    if (!w->set_tensor)
        return false;
    pthread_mutex_lock(&w->lock);
    struct wnw__wrap_input *in = need_input(w, t->data);
    const bool found = in->copy && in->n == n;
    if (found)
        memcpy(to, in->copy, n);
    if (t->type != GGML_TYPE_I64) { /* it is read once, and masks are large */
        free(in->copy);
        *in = (struct wnw__wrap_input){.at = in->at};
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

int wnw__wrap_input_read(void **out, struct wnw__wrap *w, const struct ggml_tensor *t)
{
    const size_t n = ggml_nbytes(t);
    *out = malloc(n + 1);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory to read %zu bytes of %s", n, w->name);
    if (!copy_noted(w, t, *out, n))
        ggml_backend_tensor_get(t, *out, 0, n);
    return WNW_OK;
}

int wnw__wrap_cells(int64_t **out, struct wnw__wrap *w, const struct ggml_tensor *index)
{
    void *x;
    const int rc = wnw__wrap_input_read(&x, w, index);
    *out = x;
    return rc;
}

/* ---- The buffer type ---- */

static const char *get_name(ggml_backend_buffer_type_t type)
{
    return wrap_of_type(type)->name;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    return ggml_backend_buft_get_alignment(wrap_of_type(type)->xt);
}

/* libllama asks for it once before all buffers of a cache. */
static size_t get_max_size(ggml_backend_buffer_type_t type)
{
    asked_cache = NULL;
    return ggml_backend_buft_get_max_size(wrap_of_type(type)->xt);
}

/* Whether the tensors whose sizes this thread asked for last are a cache's. */
static _Thread_local bool asked_for_cache;

static size_t get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *t)
{
    asked_for_cache = wnw__bridge_is_cache_name(t->name);
    return ggml_backend_buft_get_alloc_size(wrap_of_type(type)->xt, t);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
    struct wnw__wrap *w = wrap_of_type(type);
    const bool is_cache = asked_for_cache;
    asked_for_cache = false;
    wnw__wrap_freed(w); /* libllama frees a smaller one before */
    if (is_cache)
        return new_addresses(type, size);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(w->xt, size);
    if (buffer && w->set_tensor && buffer->iface.set_tensor == w->set_tensor)
        buffer->iface.set_tensor = set_noted;
    return buffer;
}

struct wnw__wrap *wnw__wrap_of_cache(const struct ggml_tensor *t)
{
    const struct ggml_tensor *root = t->view_src ? t->view_src : t;
    const bool ours =
        root->buffer && root->buffer->buft && root->buffer->buft->iface.alloc_buffer == alloc_buffer;
    return ours ? wrap_of_type(root->buffer->buft) : NULL;
}

/* X's own function for writing to its memory, from a small buffer of it. NULL where its memory is the host's. */
static void find_set_tensor(struct wnw__wrap *w)
{
    if (ggml_backend_buft_is_host(w->xt))
        return;
    ggml_backend_buffer_t some = ggml_backend_buft_alloc_buffer(w->xt, 256);
    w->set_tensor = some ? some->iface.set_tensor : NULL;
    ggml_backend_buffer_free(some);
}

void wnw__wrap_buffer_type_init(struct wnw__wrap *w)
{
    w->type = (struct ggml_backend_buffer_type){.iface = {.get_name = get_name,
                                                          .alloc_buffer = alloc_buffer,
                                                          .get_alignment = get_alignment,
                                                          .get_max_size = get_max_size,
                                                          .get_alloc_size = get_alloc_size},
                                                .device = &w->dev,
                                                .context = w};
    find_set_tensor(w);
}
