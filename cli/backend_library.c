/* SPDX-License-Identifier: MIT */
#include "cli/backend_library.h"

#include "app/share.h"
#include "winnow_bridge.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef WNW_LIBDIR
#define WNW_LIBDIR "lib" /* where `make install` puts libraries, next to bin */
#endif

const char *cli_backend_find(char *path, size_t size)
{
    static const char *const places[] = {"libggml-winnow.so", "../" WNW_LIBDIR "/libggml-winnow.so"};
    char folder[3072], found[4096];
    if (!wnw_bridge_built_for())
        return CLI_NO_BACKEND;
    if (!app_program_folder(folder, sizeof folder))
        return "the place of this program is not known, and so not the library's";
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(found, sizeof found, "%s/%s", folder, places[i]);
        char *real = access(found, R_OK) == 0 ? realpath(found, NULL) : NULL;
        const bool fits = real && (size_t)snprintf(path, size, "%s", real) < size;
        free(real);
        if (fits)
            return NULL;
    }
    return "there is no libggml-winnow.so next to this program; `make` builds it";
}
