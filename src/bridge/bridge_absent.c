/* SPDX-License-Identifier: MIT */
/* Replaces the backend in builds without the header of ggml's interface for backends. */
#include "base/err.h"
#include "winnow_bridge.h"

static int absent(void)
{
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "this build of winnow has no backend for ggml: scripts/setup.sh source brings what it needs");
}

int wnw_bridge_register(void)
{
    return absent();
}

int wnw_bridge_load_modules(void)
{
    return absent();
}

int wnw_bridge_find(wnw_bridge **out, void (*synchronize)(struct llama_context *), struct llama_context *ctx)
{
    (void)synchronize;
    (void)ctx;
    if (out)
        *out = NULL;
    return absent();
}

int32_t wnw_bridge_n_layers(const wnw_bridge *cache)
{
    (void)cache;
    return 0;
}

int wnw_bridge_get_layer(const wnw_bridge *cache, int32_t i, wnw_bridge_layer *out)
{
    (void)cache;
    (void)i;
    (void)out;
    return absent();
}

int wnw_bridge_cells(const wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, int32_t *cells,
                     int32_t n, int32_t *n_cells)
{
    (void)cache;
    (void)i;
    (void)stream;
    (void)head;
    (void)cells;
    (void)n;
    (void)n_cells;
    return absent();
}

int wnw_bridge_drop(wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, const int32_t *cells,
                    int32_t n)
{
    (void)cells;
    return wnw_bridge_cells(cache, i, stream, head, NULL, n, NULL);
}

int wnw_bridge_set_policy(wnw_bridge *cache, const char *recipe, const wnw_size *size, bool by_itself)
{
    (void)cache;
    (void)recipe;
    (void)size;
    (void)by_itself;
    return absent();
}

int wnw_bridge_set_tight(wnw_bridge *cache, bool tight)
{
    (void)cache;
    (void)tight;
    return absent();
}

int wnw_bridge_set_profiles(wnw_bridge *cache, const char *list)
{
    (void)cache;
    (void)list;
    return absent();
}

int wnw_bridge_set(wnw_bridge *cache, const wnw_bridge_setting *setting)
{
    (void)cache;
    (void)setting;
    return absent();
}

int wnw_bridge_compress(wnw_bridge *cache)
{
    (void)cache;
    return absent();
}

int wnw_bridge_tell_rows(wnw_bridge *cache, wnw_bridge_rows told, void *user)
{
    (void)cache;
    (void)told;
    (void)user;
    return absent();
}

int wnw_bridge_seen(const wnw_bridge *cache, int32_t row, int32_t *cells, int32_t n, int32_t *n_cells)
{
    return wnw_bridge_cells(cache, 0, 0, row, cells, n, n_cells);
}

int wnw_bridge_skip_query(wnw_bridge *cache, int32_t row)
{
    (void)row;
    return wnw_bridge_compress(cache);
}

int wnw_bridge_check_policy_on(const char *device, const wnw_policy *policy, const wnw_profile *profile)
{
    (void)device;
    return wnw_bridge_check_policy(policy, profile);
}

int wnw_bridge_check_workers(const char *devices)
{
    (void)devices;
    return WNW_OK;
}

int wnw_bridge_lost_workers(const char *devices)
{
    return wnw_bridge_check_workers(devices);
}

int wnw_bridge_check_policy(const wnw_policy *policy, const wnw_profile *profile)
{
    (void)policy;
    (void)profile;
    return absent();
}

int wnw_bridge_observe(wnw_bridge *cache, const char *recipe)
{
    (void)cache;
    (void)recipe;
    return absent();
}

int wnw_bridge_sample_new(wnw_bridge_sample **out, wnw_bridge *cache, const wnw_bridge_sample_of *of)
{
    (void)cache;
    (void)of;
    if (out)
        *out = NULL;
    return absent();
}

void wnw_bridge_sample_free(wnw_bridge_sample *sample)
{
    (void)sample;
}

int wnw_bridge_compress_cells(wnw_bridge *cache, const wnw_bridge_cells_of *of)
{
    (void)cache;
    (void)of;
    return absent();
}

int wnw_bridge_forget(wnw_bridge *cache, const int32_t *cells, int32_t n)
{
    (void)cells;
    (void)n;
    return wnw_bridge_compress_cells(cache, NULL);
}

int wnw_bridge_unobserve(wnw_bridge *cache)
{
    (void)cache;
    return absent();
}

int wnw_bridge_forget_queries(wnw_bridge *cache, const int32_t *cells, int32_t n)
{
    return wnw_bridge_forget(cache, cells, n);
}

int wnw_bridge_wrap(const char *names)
{
    (void)names;
    return absent();
}

int wnw_bridge_worker(const char *address, const char *device, int32_t n_threads)
{
    (void)address;
    (void)device;
    (void)n_threads;
    return absent();
}

bool wnw_bridge_is_address(const char *text)
{
    (void)text;
    return false;
}

bool wnw_bridge_is_loopback(const char *address)
{
    (void)address;
    return false;
}

const char *wnw_bridge_built_for(void)
{
    return NULL;
}
