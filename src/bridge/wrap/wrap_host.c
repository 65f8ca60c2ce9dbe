/* SPDX-License-Identifier: MIT */
/*
 * What the host reads of X's memory while it looks at a graph or plans: copies, which tensors point to for that time. So what
 * looks at graphs of the device WINNOW looks at those of a wrapped one, too.
 */
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

/* Weights stay as they are, and are written once. */
static int read_tensor(void **out, struct wnw__wrap *w, const struct ggml_tensor *t,
                       ggml_backend_buffer_t buffer)
{
    if (ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE)
        return wnw__wrap_input_read(out, w, t);
    *out = malloc(ggml_nbytes(t) + 1);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory to read %zu bytes of %s", ggml_nbytes(t), w->name);
    ggml_backend_tensor_get(t, *out, 0, ggml_nbytes(t));
    return WNW_OK;
}

int wnw__wrap_host_add(struct wnw__wrap_host *h, struct wnw__wrap *w, const struct ggml_tensor *t)
{
    if (!t)
        return WNW_OK;
    ggml_backend_buffer_t buffer = t->view_src ? t->view_src->buffer : t->buffer;
    if (!buffer || ggml_backend_buffer_is_host(buffer))
        return WNW_OK;
    for (int32_t i = 0; i < h->n; i++)
        if (h->list[i].t == t)
            return WNW_OK;
    if (h->n == h->cap) {
        const int32_t cap = h->cap > 0 ? 2 * h->cap : 16;
        struct wnw__wrap_shown *more = realloc(h->list, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory to list what is read of %s", w->name);
        h->list = more;
        h->cap = cap;
    }
    void *copy;
    WNW_TRY(read_tensor(&copy, w, t, buffer));
    struct ggml_tensor *mine = (struct ggml_tensor *)(uintptr_t)t;
    h->list[h->n++] = (struct wnw__wrap_shown){.t = mine, .copy = copy, .data = t->data};
    if (h->shown)
        mine->data = copy;
    return WNW_OK;
}

const float *wnw__wrap_sinks(struct wnw__bridge_layer *l, const struct ggml_tensor *sinks)
{
    if (ggml_backend_buffer_is_host(sinks->buffer))
        return sinks->data;
    if (!l->wrap->sinks && (l->wrap->sinks = malloc(ggml_nbytes(sinks))))
        ggml_backend_tensor_get(sinks, l->wrap->sinks, 0, ggml_nbytes(sinks));
    return l->wrap->sinks;
}

void wnw__wrap_host_show(struct wnw__wrap_host *h, bool shown)
{
    for (int32_t i = 0; i < h->n; i++)
        h->list[i].t->data = shown ? h->list[i].copy : h->list[i].data;
    h->shown = shown;
}

void wnw__wrap_host_free(struct wnw__wrap_host *h)
{
    wnw__wrap_host_show(h, false);
    for (int32_t i = 0; i < h->n; i++)
        free(h->list[i].copy);
    free(h->list);
    *h = (struct wnw__wrap_host){0};
}
