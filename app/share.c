/* SPDX-License-Identifier: MIT */
#include "app/share.h"

#include "app/console.h"

#ifdef WNW_IN_LIBRARY
#include <dlfcn.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WNW_IN_LIBRARY
/* The program may be Python, so the place is that of the library that has this function. */
static bool find_file(char *path, size_t size)
{
    static const char here;
    Dl_info info;
    char *real = dladdr(&here, &info) ? realpath(info.dli_fname, NULL) : NULL;
    const bool fits = real && (size_t)snprintf(path, size, "%s", real) < size;
    free(real);
    return fits;
}
#else
static bool find_file(char *path, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}
#endif

bool app_program_folder(char *path, size_t size)
{
    if (!find_file(path, size))
        return false;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

#ifndef WNW_LIBDIR
#define WNW_LIBDIR "lib" /* where `make install` puts libraries, next to bin */
#endif

bool app_program_part(char *path, size_t size, const char *name, bool runs)
{
    static const char *const places[] = {"", "../" WNW_LIBDIR "/winnow/"};
    char folder[3072], found[4096];
    if (!app_program_folder(folder, sizeof folder))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(found, sizeof found, "%s/%s%s", folder, places[i], name);
        const bool there = access(found, runs ? R_OK | X_OK : R_OK) == 0;
        char *real = there ? realpath(found, NULL) : NULL;
        const bool fits = real && (size_t)snprintf(path, size, "%s", real) < size;
        free(real);
        if (fits)
            return true;
    }
    return false;
}

int app_share_places(char *places[2], const char *tail)
{
    static const char *const folders[2] = {"share", "../share/winnow"};
    char folder[4096];
    places[0] = places[1] = NULL;
    if (!app_program_folder(folder, sizeof folder))
        return APP_OK;
    for (int i = 0; i < 2; i++) {
        if (asprintf(&places[i], "%s/%s/%s", folder, folders[i], tail) < 0) {
            places[i] = NULL;
            free(places[0]);
            places[0] = NULL;
            return app_fail(APP_FAILED, "out of memory");
        }
    }
    return APP_OK;
}

int app_share_find(char **path, const char *tail, const char *option)
{
    char *places[2];
    *path = NULL;
    int rc = app_share_places(places, tail);
    for (int i = 0; rc == APP_OK && i < 2 && !*path; i++) {
        if (places[i] && access(places[i], R_OK) == 0) {
            *path = places[i];
            places[i] = NULL;
        }
    }
    if (rc == APP_OK && !*path)
        rc = app_fail(APP_BAD_INPUT, "%s, which comes with winnow, is neither at %s nor at %s; %s%s", tail,
                      places[0] ? places[0] : "its place", places[1] ? places[1] : "any other",
                      option ? "name a file with " : "install winnow again", option ? option : "");
    free(places[0]);
    free(places[1]);
    return rc;
}
