/* SPDX-License-Identifier: MIT */
/* ggml's CPU device, which computes what is not ours, and its settings. */
#include "bridge/bridge.h"

ggml_backend_dev_t wnw__bridge_cpu(void)
{
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

/* A function of the CPU's registry by its name. */
static bool cpu_function(const char *name, void (**fn)(void))
{
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(wnw__bridge_cpu()), name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

void wnw__bridge_set_n_threads(ggml_backend_t backend, int n_threads)
{
    struct wnw__bridge_backend *b = backend->context;
    void (*fn)(void);
    struct wnw__cells_shared *cells;
    if (b->far) {
        b->far->set_n_threads(b, n_threads);
        return;
    }
    if (n_threads == b->n_threads || n_threads < 1 || !cpu_function("ggml_backend_set_n_threads", &fn) ||
        wnw__cells_shared_new(&cells, n_threads) != WNW_OK)
        return;
    wnw__cells_shared_free(b->cells);
    b->cells = cells;
    b->n_threads = n_threads;
    ((ggml_backend_set_n_threads_t)fn)(b->cpu, n_threads);
}

void wnw__bridge_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data)
{
    struct wnw__bridge_backend *b = backend->context;
    void (*fn)(void);
    if (b->far)
        b->far->set_abort_callback(b, callback, data);
    else if (cpu_function("ggml_backend_set_abort_callback", &fn))
        ((ggml_backend_set_abort_callback_t)fn)(b->cpu, callback, data);
}
