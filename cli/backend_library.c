/* SPDX-License-Identifier: MIT */
#include "cli/backend_library.h"

#include "app/share.h"
#include "winnow_bridge.h"

const char *cli_backend_find(char *path, size_t size)
{
    if (!wnw_bridge_built_for())
        return CLI_NO_BACKEND;
    if (!app_program_part(path, size, "libggml-winnow.so", false))
        return "there is no libggml-winnow.so next to this program, nor in lib/winnow; `make` builds it";
    return NULL;
}
