/* SPDX-License-Identifier: MIT */
#include "bench/bridge.h"

#include "bench/llama/llama.h"
#include "winnow_bridge.h"

/* NULL, or what went wrong. */
static const char *sentence(int status)
{
    return status == WNW_OK ? NULL : wnw_last_error();
}

static const char *start(void)
{
    return sentence(wnw_bridge_register());
}

static const char *set_policy(struct llama_context *ctx, const char *recipe, int64_t budget)
{
    wnw_bridge *cache;
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = budget};
    int status = wnw_bridge_find(&cache, bench_llama_synchronize, ctx);
    if (status == WNW_OK)
        status = wnw_bridge_set_policy(cache, recipe, &size, false);
    return sentence(status);
}

static const char *compress(struct llama_context *ctx)
{
    wnw_bridge *cache;
    int status = wnw_bridge_find(&cache, bench_llama_synchronize, ctx);
    if (status == WNW_OK)
        status = wnw_bridge_compress(cache);
    return sentence(status);
}

const struct bench_llama_device *bench_bridge_device(void)
{
    static const struct bench_llama_device device = {
        .name = "WINNOW", .start = start, .set_policy = set_policy, .compress = compress};
    return &device;
}
