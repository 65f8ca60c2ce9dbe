/* SPDX-License-Identifier: MIT */
/* Our devices become known to ggml: WINNOW, and those around other devices. */
#include "bridge/device/device.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"
#include "winnow_bridge.h"

#include <stdlib.h>

int wnw_bridge_register(void)
{
    ggml_backend_reg_t reg;
    WNW_TRY(wnw__bridge_check(&reg));
    if (!wnw__bridge_cpu())
        return wnw__fail(WNW_E_BACKEND, "this ggml has no CPU backend, on which ours runs");
    struct wnw__bridge_watch watch = {0}; /* contexts would only warn */
    const int rc = wnw__bridge_watch_set_from_environment(&watch);
    wnw__bridge_watch_free(&watch);
    WNW_TRY(rc);
    if (!ggml_backend_reg_by_name("WINNOW")) {
        ggml_backend_register(reg);
        return wnw__bridge_wrap_named(reg);
    }
    return WNW_OK;
}

int wnw__bridge_wrap_named(ggml_backend_reg_t reg)
{
    const char *names = getenv("WINNOW_DEVICES");
    return names && *names ? wnw__wrap_register(names, reg) : WNW_OK;
}

int wnw_bridge_wrap(const char *names)
{
    WNW_REQUIRE(names);
    ggml_backend_reg_t reg;
    WNW_TRY(wnw_bridge_register());
    WNW_TRY(wnw__bridge_check(&reg));
    return wnw__wrap_register(names, reg);
}

int wnw_bridge_worker(const char *address, const char *device, int32_t n_threads)
{
    WNW_REQUIRE(address);
    if (n_threads < 1)
        return wnw__fail(WNW_E_ARG, "a worker has 1 thread or more, not %d", (int)n_threads);
    WNW_TRY(wnw_bridge_register());
    return wnw__wrap_serve(address, device, n_threads);
}
