/* SPDX-License-Identifier: MIT */
/* Which devices of ggml are ours around others, and what X is asked for by name. */
#include "base/err.h"
#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_guard.h"
#include "winnow_bridge.h"

const char *wnw__wrap_name(ggml_backend_dev_t dev)
{
    return ((struct wnw__wrap *)dev->context)->name;
}

struct wnw__wrap *wnw__wrap_of(ggml_backend_dev_t dev)
{
    return dev && dev->iface.get_name == wnw__wrap_name ? dev->context : NULL;
}

const char *wnw__wrap_x_name(const struct wnw__wrap *w)
{
    return w->guard ? wnw__guard_name(w->guard) : ggml_backend_dev_name(w->x);
}

unsigned wnw__wrap_frees(void)
{
    unsigned n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        struct wnw__wrap *w = wnw__wrap_of(ggml_backend_dev_get(i));
        n += w ? atomic_load_explicit(&w->freed, memory_order_relaxed) : 0;
    }
    return n;
}

/* Whether a list with commas between names the device; NULL names all. */
static bool names_device(const char *devices, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = devices; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == len && strncmp(at, name, len) == 0)
            return true;
    return !devices;
}

/* check: of each worker's relay. The first failure counts, and all are asked. */
static int check_all(const char *devices, int (*check)(struct wnw__guard *g))
{
    int rc = WNW_OK;
    for (size_t i = ggml_backend_dev_count(); i-- > 0;) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        const struct wnw__wrap *w = wnw__wrap_of(dev);
        const int of_this =
            w && w->guard && names_device(devices, ggml_backend_dev_name(dev)) ? check(w->guard) : WNW_OK;
        rc = of_this != WNW_OK ? of_this : rc;
    }
    return rc;
}

int wnw_bridge_check_workers(const char *devices)
{
    return check_all(devices, wnw__guard_check);
}

int wnw_bridge_lost_workers(const char *devices)
{
    return check_all(devices, wnw__guard_say);
}

bool wnw__wrap_function(const struct wnw__wrap *w, const char *name, void (**fn)(void))
{
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(w->x), name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

/* Rows are moved by one thread: more would wait for each other. */
ggml_backend_t wnw__wrap_mover(struct wnw__wrap *w)
{
    void (*fn)(void);
    ggml_backend_t x = ggml_backend_dev_init(w->x, NULL);
    if (x && wnw__wrap_function(w, "ggml_backend_set_n_threads", &fn))
        ((ggml_backend_set_n_threads_t)fn)(x, 1);
    return x;
}
