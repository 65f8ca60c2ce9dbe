/* SPDX-License-Identifier: MIT */
/*
 * Devices of other machines, over ggml's RPC. ggml ends the process if an address does not answer as a server of its version
 * does. So the address is asked first, on a connection of its own and with a time limit.
 */
#include "bridge/wrap.h"
#include "winnow_bridge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ggml-rpc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MS = 5000 };

struct address {
    char host[256];
    char port[8];
};

/* "HOST:PORT"; false: it is none. */
static bool take_address(struct address *a, const char *text)
{
    const char *colon = strrchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : 0;
    char *end;
    if (!colon || n == 0 || n >= sizeof a->host || strlen(colon + 1) >= sizeof a->port)
        return false;
    const long port = strtol(colon + 1, &end, 10);
    if (*end || end == colon + 1 || port < 1 || port > 65535)
        return false;
    snprintf(a->host, sizeof a->host, "%.*s", (int)n, text);
    snprintf(a->port, sizeof a->port, "%ld", port);
    return true;
}

static int no_address(const char *text)
{
    return wnw__fail(WNW_E_ARG, "'%s' is no address: give HOST:PORT, for example 127.0.0.1:50052", text);
}

/* IPv4, as ggml's own sockets are. NULL: the host is unknown. */
static struct addrinfo *look_up(const struct address *a)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    return getaddrinfo(a->host, a->port, &hints, &found) == 0 ? found : NULL;
}

/* ---- Asking a server ---- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for events until the limit. */
static bool await(int fd, short events, int64_t limit)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const int64_t left = limit - now_ms();
        const int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

static bool send_all(int fd, const uint8_t *x, size_t n, int64_t limit)
{
    while (n > 0) {
        const ssize_t sent = await(fd, POLLOUT, limit) ? send(fd, x, n, MSG_NOSIGNAL) : -1;
        if (sent <= 0)
            return false;
        x += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* 1: all came; 0: the server closed; -1: nothing came in time. */
static int receive_all(int fd, uint8_t *x, size_t n, int64_t limit)
{
    while (n > 0) {
        if (!await(fd, POLLIN, limit))
            return -1;
        const ssize_t got = recv(fd, x, n, 0);
        if (got <= 0)
            return 0;
        x += got;
        n -= (size_t)got;
    }
    return 1;
}

/* A greeting and its answer: a command, the size of what follows, 24 bytes of what the client can do; then the size of the answer, and
 * its version in three bytes. */
static int greet(int fd, const char *name, int64_t limit)
{
    enum { HELLO = 14, CAPS = 24, ANSWER = 4 + CAPS };
    uint8_t request[1 + 8 + CAPS] = {HELLO, CAPS}, answer[8 + ANSWER];
    const int came =
        send_all(fd, request, sizeof request, limit) ? receive_all(fd, answer, sizeof answer, limit) : 0;
    if (came < 0)
        return wnw__fail(WNW_E_BACKEND,
                         "%s does not answer: it serves another program, or is no RPC server of ggml", name);
    uint64_t size = 0;
    for (int i = 7; came && i >= 0; i--)
        size = size << 8 | answer[i];
    if (!came || size != ANSWER)
        return wnw__fail(WNW_E_BACKEND, "%s is no RPC server of ggml, or of another version", name);
    if (answer[8] != RPC_PROTO_MAJOR_VERSION || answer[9] > RPC_PROTO_MINOR_VERSION)
        return wnw__fail(WNW_E_BACKEND, "%s speaks version %d.%d of ggml's RPC, and this program %d.%d", name,
                         answer[8], answer[9], RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION);
    return WNW_OK;
}

static int connect_to(int fd, const struct addrinfo *to, const char *name, int64_t limit)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            error = await(fd, POLLOUT, limit) ? 0 : ETIMEDOUT;
            if (error == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
                error = errno;
        }
    }
    return error == 0 ? WNW_OK
                      : wnw__fail(WNW_E_BACKEND, "%s cannot be reached: %s; start `winnow worker` there",
                                  name, strerror(error));
}

/* Whether a server of this ggml's version answers there. E_ARG, E_BACKEND. */
static int probe(const char *name)
{
    struct address a;
    const int64_t limit = now_ms() + LIMIT_MS;
    if (!take_address(&a, name))
        return no_address(name);
    struct addrinfo *to = look_up(&a);
    if (!to)
        return wnw__fail(WNW_E_BACKEND, "the host of %s is unknown", name);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd >= 0 ? connect_to(fd, to, name, limit) : wnw__fail(WNW_E_BACKEND, "no socket for %s", name);
    if (rc == WNW_OK)
        rc = greet(fd, name, limit);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    return rc;
}

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

int wnw__wrap_remote(const char *name, ggml_backend_reg_t *out)
{
    void (*fn)(void) = NULL;
    sigset_t pipe, before;
    *out = NULL;
    WNW_TRY(rpc_function("ggml_backend_rpc_add_server", &fn));
    WNW_TRY(probe(name));
    /* The thread that ggml makes must not end the process where a server hangs up. */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    *out = ((ggml_backend_reg_t(*)(const char *))fn)(name);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return *out ? WNW_OK : wnw__fail(WNW_E_BACKEND, "%s has no device", name);
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

/* ggml's server says why it cannot listen to nobody but the terminal; so the address is tried first. */
static int check_listen(const char *address)
{
    struct address a;
    const int yes = 1;
    if (!take_address(&a, address))
        return no_address(address);
    struct addrinfo *at = look_up(&a);
    if (!at)
        return wnw__fail(WNW_E_ARG, "the host of %s is unknown", address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = WNW_OK;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, at->ai_addr, at->ai_addrlen) != 0)
        rc = wnw__fail(WNW_E_BACKEND, "cannot listen at %s: %s", address, strerror(errno));
    if (fd >= 0)
        close(fd);
    freeaddrinfo(at);
    return rc;
}

bool wnw_bridge_is_loopback(const char *address)
{
    struct address a;
    struct addrinfo *at = address && take_address(&a, address) ? look_up(&a) : NULL;
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

int wnw_bridge_worker(const char *address, const char *device, int32_t n_threads)
{
    void (*fn)(void) = NULL;
    WNW_REQUIRE(address);
    if (n_threads < 1)
        return wnw__fail(WNW_E_ARG, "a worker has 1 thread or more, not %d", (int)n_threads);
    WNW_TRY(wnw_bridge_register());
    WNW_TRY(rpc_function("ggml_backend_rpc_start_server", &fn));
    WNW_TRY(check_listen(address));
    ggml_backend_dev_t dev = device ? ggml_backend_dev_by_name(device) : best_device();
    if (!dev)
        return no_device(device);
    ((void (*)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *))fn)(
        address, NULL, (size_t)n_threads, 1, &dev);
    return wnw__fail(WNW_E_BACKEND, "the server at %s ended", address);
}
