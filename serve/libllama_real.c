/* SPDX-License-Identifier: MIT */
#include "serve/libllama_real.h"

#include "serve/config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

serve_any_function *serve_real_function(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    serve_any_function *f;
    char line[256];
    memcpy(&f, &p, sizeof f); /* ISO C has no cast for it */
    if (!f) {
        snprintf(line, sizeof line, "the libraries of this program have no %s", name);
        serve_refuse(line);
    }
    return f;
}
