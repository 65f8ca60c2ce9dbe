/* SPDX-License-Identifier: MIT */
/* Our devices become known to ggml: WINNOW, and those around other devices. */
#include "base/said.h"
#include "bridge/device/device.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"
#include "winnow_bridge.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- Modules of ggml ---- */

/* ggml would register devices of a file once more that is open already. */
static bool is_open(const char *file)
{
    void *there = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (there)
        dlclose(there);
    return there != NULL;
}

/* Loads a file. What ggml says meanwhile goes to our log, unless the program has a callback of its own for it. */
static bool load(const char *file, struct wnw__said *said)
{
    ggml_log_callback now, first;
    void *user, *none;
    ggml_log_get(&now, &user);
    ggml_log_set(NULL, NULL); /* the callback that a process begins with; it prints */
    ggml_log_get(&first, &none);
    ggml_log_set(now == first ? wnw__hear : now, now == first ? NULL : user);
    wnw__said_begin(said);
    const bool loaded = ggml_backend_load(file) != NULL;
    wnw__said_end(said);
    ggml_log_set(now, user);
    return loaded;
}

/* Whether ggml has the backend of a file libggml-NAME.so already: llama-server loads one from its own folder. A copy of that would be other
 * devices with the same names. */
static bool is_registered(const char *file)
{
    static const char prefix[] = "libggml-";
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    if (strncmp(base, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *name = base + sizeof prefix - 1;
    const size_t n = strcspn(name, ".");
    for (size_t i = 0; i < ggml_backend_reg_count(); i++) {
        const char *there = ggml_backend_reg_name(ggml_backend_reg_get(i));
        if (strlen(there) == n && strncasecmp(there, name, n) == 0)
            return true;
    }
    return false;
}

static int load_module(const char *file)
{
    struct wnw__said said;
    if (access(file, R_OK) != 0)
        return wnw__fail(WNW_E_IO, "cannot read '%s', which WINNOW_GGML_MODULES names: %s", file,
                         strerror(errno));
    if (!is_open(file) && !is_registered(file) && !load(file, &said))
        return wnw__fail(WNW_E_BACKEND,
                         "ggml cannot load '%s', which WINNOW_GGML_MODULES names%s; it must be a module of "
                         "this ggml, with its driver",
                         file, said.reason);
    return WNW_OK;
}

int wnw_bridge_load_modules(void)
{
    const char *files = getenv("WINNOW_GGML_MODULES");
    if (!files || !*files)
        return WNW_OK;
    char *list = strdup(files), *rest = list, *file;
    int rc = list ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for names of modules");
    while (rc == WNW_OK && (file = strsep(&rest, ":")))
        rc = *file ? load_module(file) : WNW_OK;
    free(list);
    return rc;
}

/* ---- Devices ---- */

int wnw_bridge_register(void)
{
    ggml_backend_reg_t reg;
    WNW_TRY(wnw__bridge_check(&reg));
    WNW_TRY(wnw_bridge_load_modules());
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
