/* SPDX-License-Identifier: MIT */
#include "cli/backend_library.h"

#include "app/share.h"
#include "winnow_bridge.h"

#include <stdlib.h>

const char *cli_backend_find(char *path, size_t size)
{
    if (!wnw_bridge_built_for())
        return CLI_NO_BACKEND;
    if (!app_program_part(path, size, "libggml-winnow.so", false))
        return "there is no libggml-winnow.so next to this program, nor in lib/winnow; `make` builds it";
    return NULL;
}

void cli_backend_name_modules(void)
{
    char path[4096];
    if (app_program_part(path, sizeof path, "libggml-vulkan.so", false))
        (void)setenv("WINNOW_GGML_MODULES", path, 0);
}
