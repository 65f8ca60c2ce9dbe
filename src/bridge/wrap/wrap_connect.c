/* SPDX-License-Identifier: MIT */
/* Connections to RPC servers of ggml, each step with a time limit. */
#include "bridge/wrap/wrap_connect.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <ggml-rpc.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool wnw__connect_address(struct wnw__address *a, const char *text)
{
    const char *colon = strrchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : 0,
                 n_digit = colon ? strspn(colon + 1, "0123456789") : 0;
    if (n == 0 || n >= sizeof a->host || n_digit == 0 || n_digit > 5 || colon[1 + n_digit])
        return false;
    const long port = strtol(colon + 1, NULL, 10);
    if (port < 1 || port > 65535)
        return false;
    if (strcspn(text, ":[]/ ") != n) /* an address of IPv6, or of a page */
        return false;
    snprintf(a->host, sizeof a->host, "%.*s", (int)n, text);
    snprintf(a->port, sizeof a->port, "%ld", port);
    return true;
}

int wnw__connect_no_address(const char *text)
{
    return wnw__fail(WNW_E_ARG, "'%s' is no address: it is HOST:PORT, as 127.0.0.1:50052, over IPv4 alone",
                     text);
}

struct addrinfo *wnw__connect_look_up(const struct wnw__address *a)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    return getaddrinfo(a->host, a->port, &hints, &found) == 0 ? found : NULL;
}

/* ---- Asking a server ---- */

int64_t wnw__connect_now(void)
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
        const int64_t left = limit - wnw__connect_now();
        const int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

int wnw__connect_send(int fd, const uint8_t *x, size_t n, int64_t patience)
{
    while (n > 0) {
        const ssize_t sent = send(fd, x, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            x += sent;
            n -= (size_t)sent;
        } else if (sent == 0 || (errno != EAGAIN && errno != EINTR)) {
            return 0;
        } else if (!await(fd, POLLOUT, wnw__connect_now() + patience)) { /* there is room most often */
            return -1;
        }
    }
    return 1;
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
    const int came = wnw__connect_send(fd, request, sizeof request, WNW_CONNECT_MS) == 1
                         ? receive_all(fd, answer, sizeof answer, limit)
                         : 0;
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

static int connect_to(int fd, const struct sockaddr_in *to, const char *name, int64_t limit)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0) {
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

void wnw__connect_quick(int fd)
{
    const int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* it is only slower without */
}

/* A machine that is gone is noticed within half a minute, also where nothing is sent. */
static void stay_awake(int fd)
{
    const int yes = 1, idle = 10, every = 5, times = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

int wnw__connect_where(struct sockaddr_in *at, const char *name)
{
    struct wnw__address a;
    if (!wnw__connect_address(&a, name))
        return wnw__connect_no_address(name);
    struct addrinfo *to = wnw__connect_look_up(&a);
    if (!to)
        return wnw__fail(WNW_E_BACKEND, "the host of %s is unknown", name);
    memcpy(at, to->ai_addr, sizeof *at);
    freeaddrinfo(to);
    return WNW_OK;
}

int wnw__connect_dial(int *out, const struct sockaddr_in *at, const char *name)
{
    const int64_t limit = wnw__connect_now() + WNW_CONNECT_MS;
    *out = -1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return wnw__fail(WNW_E_BACKEND, "no socket for %s", name);
    int rc = connect_to(fd, at, name, limit);
    if (rc == WNW_OK)
        rc = greet(fd, name, limit);
    if (rc != WNW_OK) {
        close(fd);
        return rc;
    }
    wnw__connect_quick(fd);
    stay_awake(fd);
    *out = fd;
    return WNW_OK;
}
