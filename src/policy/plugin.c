/* SPDX-License-Identifier: MIT */
/* Plugins: shared libraries that fill a registry. A library stays loaded once its parts were added, because policies hold pointers into
 * it. */
#include "base/err.h"
#include "policy/policy.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int plugin_fill(wnw_registry *r);
typedef const char *plugin_version(void);

/* Whether the file has all bytes that its program headers name. The loader maps them and ends the process (SIGBUS) where a file was cut
 * off. Other damage gives the loader's own sentence. */
static bool is_whole(int fd, off_t size)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.e_phentsize != sizeof part)
        return false;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        const uint64_t at = head.e_phoff + (uint64_t)i * sizeof part;
        if (at > (uint64_t)size || pread(fd, &part, sizeof part, (off_t)at) != (ssize_t)sizeof part)
            return false;
        if (part.p_type == PT_LOAD &&
            (part.p_offset > (uint64_t)size || part.p_filesz > (uint64_t)size - part.p_offset))
            return false;
    }
    return true;
}

/* Loading anything but an ELF file gives sentences that do not help, and opening a FIFO waits. */
static int check_file(const char *path)
{
    char magic[4] = "";
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return wnw__fail(WNW_E_IO, "cannot open the plugin '%s': %s", path, strerror(errno));
    const bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    const bool elf =
        regular && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && memcmp(magic, "\177ELF", 4) == 0;
    const bool whole = elf && is_whole(fd, st.st_size);
    close(fd);
    if (whole)
        return WNW_OK;
    if (elf)
        return wnw__fail(
            WNW_E_FORMAT,
            "the plugin '%s' is cut off, or a shared library of another machine; compile it again here",
            path);
    return wnw__fail(WNW_E_FORMAT,
                     "the plugin '%s' is %s; compile it with cc -shared -fPIC, as examples/plugin.c says",
                     path, regular ? "no shared library" : "no regular file");
}

/* A name without a slash would be looked for in the system's folders. */
static void *open_library(const char *path)
{
    char *local = NULL;
    if (strchr(path, '/'))
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (asprintf(&local, "./%s", path) < 0)
        return NULL;
    void *library = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    free(local);
    return library;
}

/* ISO C has no conversion from an object's address to a function's; POSIX says that the bytes are the same. */
static void find(void *function, size_t size, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size);
}

static int fill(wnw_registry *r, void *library, const char *path)
{
    plugin_fill *add;
    plugin_version *version;
    const int32_t n_before = r->n;
    find(&add, sizeof add, library, "wnw_plugin_fill");
    find(&version, sizeof version, library, "wnw_plugin_version");
    if (!add || !version)
        return wnw__fail(WNW_E_ARG,
                         "the library '%s' is no plugin of winnow: it has no WNW_PLUGIN (winnow_method.h)",
                         path);
    if (strcmp(version(), WNW_VERSION_STRING) != 0)
        return wnw__fail(WNW_E_MISMATCH,
                         "the plugin '%s' was compiled for winnow %.20s, and this is %s; compile it again "
                         "with the headers of %s",
                         path, version(), WNW_VERSION_STRING, WNW_VERSION_STRING);
    const int status = add(r);
    if (status != WNW_OK) {
        char reason[256];
        r->n = n_before;
        snprintf(reason, sizeof reason, "%s", *wnw_last_error() ? wnw_last_error() : wnw_strerror(status));
        return wnw__fail(status < 0 ? status : WNW_E_ARG, "the plugin '%s': %s", path, reason);
    }
    if (r->n == n_before)
        return wnw__fail(WNW_E_ARG, "the plugin '%s' adds no part; call wnw_registry_add in its WNW_PLUGIN",
                         path);
    return WNW_OK;
}

int wnw_registry_load(wnw_registry *r, const char *path)
{
    WNW_REQUIRE(r);
    WNW_REQUIRE(path);
    WNW_TRY(check_file(path));
    void *library = open_library(path);
    if (!library) {
        const char *why = dlerror();
        return wnw__fail(WNW_E_FORMAT, "cannot load the plugin '%s': %.300s", path,
                         why ? why : "out of memory");
    }
    const int status = fill(r, library, path);
    if (status != WNW_OK)
        dlclose(library);
    return status;
}
