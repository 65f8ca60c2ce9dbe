/* SPDX-License-Identifier: MIT */
/* Our devices around other devices: what ggml asks of a device is asked of X. */
#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_connect.h"
#include "bridge/wrap/wrap_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static const char *dev_description(ggml_backend_dev_t dev)
{
    return ((struct wnw__wrap *)dev->context)->description;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *total)
{
    ggml_backend_dev_memory(wnw__wrap_of(dev)->x, n_free, total);
}

/* Not a GPU: libllama would share out layers between it and the real one. */
static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_IGPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
    struct ggml_backend_dev_props inner;
    ggml_backend_dev_get_props(wnw__wrap_of(dev)->x, &inner);
    *props = (struct ggml_backend_dev_props){.name = wnw__wrap_name(dev),
                                             .description = dev_description(dev),
                                             .type = dev_type(dev),
                                             .memory_free = inner.memory_free,
                                             .memory_total = inner.memory_total,
                                             .caps = inner.caps};
}

/* A graph for a server that is lost fails, and libllama says so to its program. */
static enum ggml_status compute_guarded(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    struct wnw__wrap *w = wnw__wrap_of(backend->device);
    pthread_mutex_lock(&w->lock);
    enum ggml_status (*const compute)(ggml_backend_t, struct ggml_cgraph *) = w->compute;
    pthread_mutex_unlock(&w->lock);
    enum ggml_status status = GGML_STATUS_FAILED;
    if (wnw__guard_check(w->guard) == WNW_OK) {
        status = compute(backend, graph);
        if (status == GGML_STATUS_SUCCESS && wnw__guard_check(w->guard) == WNW_OK)
            return status;
        status = GGML_STATUS_FAILED;
    }
    wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    return status;
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params)
{
    (void)params;
    struct wnw__wrap *w = wnw__wrap_of(dev);
    ggml_backend_t backend = wnw__wrap_backend_new(w);
    if (!backend || !w->guard)
        return backend;
    pthread_mutex_lock(&w->lock);
    w->compute = backend->iface.graph_compute;
    pthread_mutex_unlock(&w->lock);
    backend->iface.graph_compute = compute_guarded;
    return backend;
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev)
{
    return &wnw__wrap_of(dev)->type;
}

static ggml_backend_buffer_type_t dev_host_buffer_type(ggml_backend_dev_t dev)
{
    return ggml_backend_dev_host_buffer_type(wnw__wrap_of(dev)->x);
}

static ggml_backend_buffer_t dev_buffer_over(ggml_backend_dev_t dev, void *memory, size_t size,
                                             size_t max_tensor_size)
{
    return ggml_backend_dev_buffer_from_host_ptr(wnw__wrap_of(dev)->x, memory, size, max_tensor_size);
}

/* libllama asks where a weight could live, with a buffer of 0 bytes. */
static bool is_of_weight(const struct wnw__wrap *w, const struct ggml_tensor *op)
{
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *t = op->src[i];
        if (t && t->buffer && t->buffer->buft == &w->type && t->buffer->size == 0)
            return true;
    }
    return false;
}

/* Another machine is asked where the answer decides what is computed there: of weights, and of attention. Other operations are asked for with
 * each new shape of a graph, which would wait for each of them. */
static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    const struct wnw__wrap *w = wnw__wrap_of(dev);
    return op->op == GGML_OP_FLASH_ATTN_EXT || is_of_weight(w, op) ? wnw__wrap_supports(w, op)
                                                                   : ggml_backend_dev_supports_op(w->x, op);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft)
{
    const struct wnw__wrap *w = wnw__wrap_of(dev);
    return buft == &w->type || ggml_backend_dev_supports_buft(w->x, buft);
}

static bool dev_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    return ggml_backend_dev_offload_op(wnw__wrap_of(dev)->x, op);
}

/* Events are X's, and say so: ggml frees them and waits for them by their device. */
static ggml_backend_event_t dev_event_new(ggml_backend_dev_t dev)
{
    return ggml_backend_event_new(wnw__wrap_of(dev)->x);
}

/* ---- Registration ---- */

/* The devices that can be wrapped, one after the other: "CPU, Vulkan0". */
static void list_devices(char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (wnw__wrap_of(dev) || dev == &wnw__bridge_device)
            continue;
        const int n = snprintf(out + len, cap - len, "%s%s", len > 0 ? ", " : "", ggml_backend_dev_name(dev));
        if (n < 0 || (size_t)n >= cap - len) {
            out[len] = '\0';
            return;
        }
        len += (size_t)n;
    }
}

static ggml_backend_dev_t device_of(const char *name)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (!wnw__wrap_of(dev) && dev != &wnw__bridge_device &&
            strcasecmp(ggml_backend_dev_name(dev), name) == 0)
            return dev;
    }
    return NULL;
}

/* Devices that are not registered yet: all are, or none. */
struct made {
    struct wnw__wrap *w[WNW_WRAP_DEVICES];
    struct wnw__guard *guards[WNW_WRAP_DEVICES];
    int32_t n, n_guard;
};

/* How many such devices are registered; *twice: whether one of them is around x. */
static int32_t count_wraps(ggml_backend_dev_t x, bool *twice)
{
    int32_t n = 0;
    *twice = false;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const struct wnw__wrap *w = wnw__wrap_of(ggml_backend_dev_get(i));
        n += w != NULL;
        *twice = *twice || (w && w->x == x);
    }
    return n;
}

static int make_device(struct made *made, ggml_backend_dev_t x, const char *name, struct wnw__guard *guard,
                       ggml_backend_reg_t reg)
{
    bool twice;
    const int32_t n = count_wraps(x, &twice) + made->n;
    for (int32_t i = 0; i < made->n; i++)
        twice = twice || made->w[i]->x == x;
    if (made->n == WNW_WRAP_DEVICES)
        return wnw__fail(WNW_E_ARG, "device '%s' is one too many: %d can be named", name, WNW_WRAP_DEVICES);
    if (twice)
        return wnw__fail(WNW_E_ARG, "device '%s' is named twice: one device is around it", name);
    struct wnw__wrap *w = calloc(1, sizeof *w);
    if (!w)
        return wnw__fail(WNW_E_NOMEM, "no memory for a device around '%s'", name);
    w->x = x;
    w->guard = guard;
    w->xt = ggml_backend_dev_buffer_type(x);
    snprintf(w->name, sizeof w->name, "WINNOW%d", (int)n);
    snprintf(w->description, sizeof w->description, "winnow around %s", name);
    w->remote = guard || strncmp(ggml_backend_dev_name(x), "RPC", 3) == 0;
    w->pad = wnw__wrap_is_gpu(w) ? WNW_DEVICE_STEP : WNW_CACHE_GROWTH;
    atomic_init(&w->freed, 0);
    if (pthread_mutex_init(&w->lock, NULL) != 0 || pthread_mutex_init(&w->sent.lock, NULL) != 0) {
        free(w);
        return wnw__fail(WNW_E_NOMEM, "no lock for a device around '%s'", name);
    }
    wnw__wrap_buffer_type_init(w);
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(x, &props);
    w->dev = (struct ggml_backend_device){
        .iface = {.get_name = wnw__wrap_name,
                  .get_description = dev_description,
                  .get_memory = dev_memory,
                  .get_type = dev_type,
                  .get_props = dev_props,
                  .init_backend = dev_init,
                  .get_buffer_type = dev_buffer_type,
                  .get_host_buffer_type = dev_host_buffer_type,
                  .buffer_from_host_ptr = props.caps.buffer_from_host_ptr ? dev_buffer_over : NULL,
                  .supports_op = dev_supports_op,
                  .supports_buft = dev_supports_buft,
                  .offload_op = dev_offload_op,
                  .event_new = dev_event_new},
        .reg = reg,
        .context = w};
    made->w[made->n++] = w;
    return WNW_OK;
}

/* The relay to a server that has devices already, under this name or another; NULL: there is none. */
static const struct wnw__guard *guard_of(const struct made *made, const struct sockaddr_in *at)
{
    for (int32_t i = 0; i < made->n_guard; i++)
        if (wnw__guard_is_at(made->guards[i], at))
            return made->guards[i];
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const struct wnw__wrap *w = wnw__wrap_of(ggml_backend_dev_get(i));
        if (w && w->guard && wnw__guard_is_at(w->guard, at))
            return w->guard;
    }
    return NULL;
}

/* Those of a server: "rpc:HOST:PORT". */
static int make_remote(struct made *made, const char *name, ggml_backend_reg_t reg)
{
    struct wnw__guard *g;
    ggml_backend_reg_t remote;
    struct sockaddr_in at;
    if (made->n_guard == WNW_WRAP_DEVICES)
        return wnw__fail(WNW_E_ARG, "device '%s' is one too many: %d can be named", name, WNW_WRAP_DEVICES);
    WNW_TRY(wnw__connect_where(&at, name + 4));
    const struct wnw__guard *same = guard_of(made, &at);
    if (same)
        return wnw__fail(WNW_E_ARG, "device '%s' is named twice: rpc:%s is the same server", name,
                         wnw__guard_name(same));
    WNW_TRY(wnw__guard_start(&g, &at, name + 4));
    made->guards[made->n_guard++] = g;
    WNW_TRY(wnw__wrap_remote(g, &remote));
    for (size_t i = 0; i < ggml_backend_reg_dev_count(remote); i++)
        WNW_TRY(make_device(made, ggml_backend_reg_dev_get(remote, i), name, g, reg));
    return WNW_OK;
}

static int make_named(struct made *made, const char *name, ggml_backend_reg_t reg)
{
    char there[512];
    ggml_backend_dev_t x = device_of(name);
    if (!*name)
        return wnw__fail(WNW_E_ARG, "the name of a device is empty: there is one comma between two names");
    if (x)
        return make_device(made, x, name, NULL, reg);
    if (strncasecmp(name, "rpc:", 4) == 0)
        return make_remote(made, name, reg);
    list_devices(there, sizeof there);
    return wnw__fail(WNW_E_ARG,
                     "there is no device '%s': this ggml has %s, and rpc:HOST:PORT is of another machine",
                     name, there);
}

int wnw__wrap_register(const char *names, ggml_backend_reg_t reg)
{
    struct made made = {.n = 0};
    char *list = strdup(names), *rest = list, *name;
    int rc = list ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for names of devices");
    while (rc == WNW_OK && (name = strsep(&rest, ",")))
        rc = make_named(&made, name, reg);
    free(list);
    for (int32_t i = 0; i < made.n; i++) {
        if (rc == WNW_OK) {
            ggml_backend_device_register(&made.w[i]->dev);
            continue;
        }
        pthread_mutex_destroy(&made.w[i]->lock);
        pthread_mutex_destroy(&made.w[i]->sent.lock);
        free(made.w[i]);
    }
    for (int32_t i = 0; i < made.n_guard && rc != WNW_OK; i++)
        wnw__guard_stop(made.guards[i]);
    return rc;
}
