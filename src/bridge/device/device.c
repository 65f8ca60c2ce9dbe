/* SPDX-License-Identifier: MIT */
/*
 * Registry, device and version gate. Structures of ggml's interface for backends, and the numbers of its operations,
 * differ between versions that say the same API version. So this library fits the ggml that it was compiled for, and
 * refuses another.
 */
#include "bridge/device/device.h"
#include "bridge/watch/watch.h"
#include "winnow_bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WNW_GGML_BUILT_VERSION
#error "the build says for which ggml this is: WNW_GGML_BUILT_VERSION, WNW_GGML_BUILT_COMMIT"
#endif

const char *wnw_bridge_built_for(void)
{
    return WNW_GGML_BUILT_VERSION " " WNW_GGML_BUILT_COMMIT;
}

static struct ggml_backend_reg registry;

/* ---- The gate ---- */

int wnw__bridge_check(ggml_backend_reg_t *reg)
{
    char has[128];
    snprintf(has, sizeof has, "%s %s", ggml_version(), ggml_commit());
    if (strcmp(has, wnw_bridge_built_for()) != 0)
        return wnw__fail(
            WNW_E_BACKEND,
            "the backend is built for ggml %s, and this program has ggml %s: build it for that (make bridge)",
            wnw_bridge_built_for(), has);
    WNW_TRY(wnw__bridge_contacts_check());
    *reg = &registry;
    return WNW_OK;
}

/* ---- The device ---- */

static const char *dev_name(ggml_backend_dev_t dev)
{
    (void)dev;
    return "WINNOW";
}

static const char *dev_description(ggml_backend_dev_t dev)
{
    (void)dev;
    return "winnow: this CPU with a ragged KV cache";
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *total)
{
    (void)dev;
    ggml_backend_dev_memory(wnw__bridge_cpu(), n_free, total);
}

/* Not a GPU: libllama would share out layers between it and a real one. */
static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_IGPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
    *props = (struct ggml_backend_dev_props){.name = dev_name(dev),
                                             .description = dev_description(dev),
                                             .type = dev_type(dev),
                                             .caps = {.buffer_from_host_ptr = true, .mmap_support = true}};
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params)
{
    (void)params;
    return wnw__bridge_backend_new(dev);
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return wnw__bridge_buffer_type();
}

static ggml_backend_buffer_t dev_buffer_over(ggml_backend_dev_t dev, void *memory, size_t size,
                                             size_t max_tensor_size)
{
    (void)dev;
    (void)max_tensor_size;
    return wnw__bridge_buffer_over(memory, size);
}

/* libllama asks where a weight could live with a buffer of 0 bytes. Those whose products are always ours live with us, as
 * the mapped file has them: ggml would copy some to a layout of its own. All others stay where they are without us. */
static bool is_weight(const struct ggml_tensor *t)
{
    return t && t->buffer && t->buffer->buft == wnw__bridge_buffer_type() && t->buffer->size == 0 &&
           strncmp(t->name, "cache_", 6) != 0;
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    (void)dev;
    if (is_weight(op->src[0]) && op->op == GGML_OP_MUL_MAT)
        return !wnw__bridge_products_off() && wnw__bridge_keeps_weight(op->src[0]);
    return !is_weight(op->src[0]) && !is_weight(op->src[1]) &&
           ggml_backend_dev_supports_op(wnw__bridge_cpu(), op);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft)
{
    (void)dev;
    return buft == wnw__bridge_buffer_type() || ggml_backend_dev_supports_buft(wnw__bridge_cpu(), buft);
}

/* ---- The registry ---- */

static const char *reg_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "WINNOW";
}

static size_t reg_device_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index)
{
    (void)reg;
    return index == 0 ? &wnw__bridge_device : NULL;
}

static void *reg_function(ggml_backend_reg_t reg, const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } known[] = {{"ggml_backend_set_n_threads", (void (*)(void))wnw__bridge_set_n_threads},
                 {"ggml_backend_set_abort_callback", (void (*)(void))wnw__bridge_set_abort_callback}};
    void *p = NULL;
    (void)reg;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            memcpy(&p, &known[i].function, sizeof p); /* ISO C has no cast for it */
    return p;
}

static struct ggml_backend_reg registry = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = reg_name,
              .get_device_count = reg_device_count,
              .get_device = reg_device,
              .get_proc_address = reg_function},
};

struct ggml_backend_device wnw__bridge_device = {
    .iface = {.get_name = dev_name,
              .get_description = dev_description,
              .get_memory = dev_memory,
              .get_type = dev_type,
              .get_props = dev_props,
              .init_backend = dev_init,
              .get_buffer_type = dev_buffer_type,
              .buffer_from_host_ptr = dev_buffer_over,
              .supports_op = dev_supports_op,
              .supports_buft = dev_supports_buft},
    .reg = &registry,
};
