/* SPDX-License-Identifier: MIT */
/* Devices of other machines, over ggml's RPC, through a relay (wrap/wrap_guard.c), and being such a machine. */
#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_connect.h"
#include "bridge/wrap/wrap_guard.h"
#include "winnow_bridge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* A function of ggml's RPC, which this process may not have. */
static int rpc_function(const char *name, void (**fn)(void))
{
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    void *p = rpc ? ggml_backend_reg_get_proc_address(rpc, name) : NULL;
    if (!p)
        return wnw__fail(WNW_E_BACKEND, "this ggml has no RPC: it was built without GGML_RPC");
    memcpy(fn, &p, sizeof p); /* ISO C has no cast for it */
    return WNW_OK;
}

int wnw__wrap_remote(struct wnw__guard *g, ggml_backend_reg_t *out)
{
    void (*fn)(void) = NULL;
    *out = NULL;
    WNW_TRY(rpc_function("ggml_backend_rpc_add_server", &fn));
    *out = ((ggml_backend_reg_t(*)(const char *))fn)(wnw__guard_address(g));
    WNW_TRY(wnw__guard_check(g));
    return *out && ggml_backend_reg_dev_count(*out) > 0
               ? WNW_OK
               : wnw__fail(WNW_E_BACKEND, "%s has no device", wnw__guard_name(g));
}

/* ---- Being a server ---- */

static int no_device(const char *name)
{
    char there[512];
    size_t len = 0;
    there[0] = '\0';
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const int n = snprintf(there + len, sizeof there - len, "%s%s", len > 0 ? ", " : "",
                               ggml_backend_dev_name(ggml_backend_dev_get(i)));
        if (n < 0 || (size_t)n >= sizeof there - len)
            break;
        len += (size_t)n;
    }
    return wnw__fail(WNW_E_ARG, "there is no device '%s': this ggml has %s", name, there);
}

/* A GPU where there is one; else the CPU, with winnow's kernels. */
static ggml_backend_dev_t best_device(void)
{
    ggml_backend_dev_t gpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    return gpu ? gpu : &wnw__bridge_device;
}

/* ggml's server says why it cannot listen to nobody but the terminal; so the address is tried first. numeric: the same address without a name,
 * since that server knows no names of hosts. */
static int check_listen(char *numeric, size_t size, const char *address)
{
    struct wnw__address a;
    const int yes = 1;
    if (!wnw__connect_address(&a, address))
        return wnw__connect_no_address(address);
    struct addrinfo *at = wnw__connect_look_up(&a);
    if (!at)
        return wnw__fail(WNW_E_ARG, "the host of %s is unknown", address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = WNW_OK;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, at->ai_addr, at->ai_addrlen) != 0)
        rc = wnw__fail(WNW_E_BACKEND, "cannot listen at %s: %s", address, strerror(errno));
    struct sockaddr_in in;
    char host[INET_ADDRSTRLEN];
    memcpy(&in, at->ai_addr, sizeof in);
    if (rc == WNW_OK && inet_ntop(AF_INET, &in.sin_addr, host, sizeof host))
        snprintf(numeric, size, "%s:%s", host, a.port);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(at);
    return rc;
}

bool wnw_bridge_is_address(const char *text)
{
    struct wnw__address a;
    return text && wnw__connect_address(&a, text);
}

bool wnw_bridge_is_loopback(const char *address)
{
    struct wnw__address a;
    struct addrinfo *at = address && wnw__connect_address(&a, address) ? wnw__connect_look_up(&a) : NULL;
    bool loopback = at != NULL;
    for (const struct addrinfo *x = at; x; x = x->ai_next) {
        struct sockaddr_in in;
        memcpy(&in, x->ai_addr, sizeof in);
        loopback = loopback && ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    if (at)
        freeaddrinfo(at);
    return loopback;
}

int wnw__wrap_serve(const char *address, const char *device, int32_t n_threads)
{
    void (*fn)(void) = NULL;
    char numeric[INET_ADDRSTRLEN + 8] = "";
    WNW_TRY(rpc_function("ggml_backend_rpc_start_server", &fn));
    WNW_TRY(check_listen(numeric, sizeof numeric, address));
    ggml_backend_dev_t dev = device ? ggml_backend_dev_by_name(device) : best_device();
    if (!dev)
        return no_device(device);
    struct wnw__wrap_served served;
    wnw__wrap_served_init(&served, dev);
    dev = &served.dev;
    /* A client that is gone must not end the server. */
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ((void (*)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *))fn)(
        numeric, NULL, (size_t)n_threads, 1, &dev);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return wnw__fail(WNW_E_BACKEND, "the server at %s ended", address);
}
