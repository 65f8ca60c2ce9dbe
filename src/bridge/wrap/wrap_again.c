/* SPDX-License-Identifier: MIT */
/*
 * Our graphs that a server has. ggml's client names a graph by its number if libllama's scheduler has numbered it, and sends all
 * nodes of any other one. To write and to read them takes a twentieth of a small model's token. So where the last graph that went to a device comes
 * again, the client is given one of a single node in its place. Its name tells the relay which graph is meant (wrap/wrap_guard.c).
 */
#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_guard.h"

#include <stdlib.h>

/* The graph that is given in place of another one; NULL: no memory. It lives as long as the device. */
static struct ggml_cgraph *in_place(struct wnw__wrap_sent *s)
{
    const size_t size = ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false);
    if (s->in_place)
        return s->in_place;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true});
    if (!ctx)
        return NULL;
    struct ggml_tensor *node = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    ggml_set_name(node, WNW_GUARD_AGAIN);
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    s->in_place = ggml_new_graph_custom(ctx, 1, false);
    ggml_graph_add_node(s->in_place, node);
    return s->in_place;
}

enum ggml_status wnw__wrap_compute(struct wnw__wrap *w, ggml_backend_t x, struct ggml_cgraph *graph,
                                   uint64_t what)
{
    struct wnw__wrap_sent *s = &w->sent;
    if (!w->guard)
        return x->iface.graph_compute(x, graph);
    pthread_mutex_lock(&s->lock);
    struct ggml_cgraph *again =
        what != 0 && s->what == what && s->connection == wnw__guard_connection(w->guard) ? in_place(s) : NULL;
    const enum ggml_status status = x->iface.graph_compute(x, again ? again : graph);
    s->what = status == GGML_STATUS_SUCCESS ? what : 0;
    s->connection = wnw__guard_connection(w->guard);
    pthread_mutex_unlock(&s->lock);
    return status;
}
