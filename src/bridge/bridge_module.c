/* SPDX-License-Identifier: MIT */
/* What ggml calls in a library that it loads; only libggml-winnow.so has it. */
#include "bridge/bridge.h"

#include <stdio.h>

WNW_API ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    ggml_backend_reg_t reg;
    if (wnw__bridge_check(&reg) == WNW_OK)
        return reg;
    fprintf(stderr, "winnow: %s\n", wnw_last_error()); /* ggml's own line says only that it failed */
    return NULL;
}
