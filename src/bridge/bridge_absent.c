/* SPDX-License-Identifier: MIT */
/* Stands in for the backend in builds without the header of ggml's interface for backends. */
#include "base/err.h"
#include "winnow_bridge.h"

int wnw_bridge_register(void)
{
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "this build of winnow has no backend for ggml: scripts/setup.sh source brings what it needs");
}

const char *wnw_bridge_built_for(void)
{
    return NULL;
}
