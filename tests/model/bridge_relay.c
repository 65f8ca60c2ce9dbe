/* SPDX-License-Identifier: MIT */
/*
 * The relay before a server of ggml's RPC, between a client and a server that are both of this test: what the server gets for each graph, also
 * where it has forgotten its last one. No number that a client reads may be of a graph before the last.
 */
#include "asserts.h"
#include "peek_wrap.h"

#include <arpa/inet.h>
#include <ggml-rpc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    FREE_BUFFER = 4,
    GET_TENSOR = 8,
    GRAPH_COMPUTE = 10,
    HELLO = 14,
    GRAPH_RECOMPUTE = 16,
    HEAD = 9,
    MOST = 4096, /* bytes of a request here */
    N_REQUEST = 256,
    READ = 4, /* bytes of a reading */
    LAST_DEVICE = WNW_WRAP_DEVICES - 1,
};

static bool get(int fd, void *to, size_t n)
{
    return recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static bool put(int fd, const void *from, size_t n)
{
    return send(fd, from, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* ---- The server ---- */

struct request {
    uint8_t command, body[MOST];
    uint64_t n;
};

static struct server {
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct request requests[N_REQUEST]; /* [n] under `lock` */
    int n;
    int seen;              /* by the test */
    atomic_int n_computed; /* graphs */
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static bool answer(struct server *s, int fd, const struct request *r)
{
    static const uint8_t version[8 + 28] = {28, [8] = RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION,
                                            RPC_PROTO_PATCH_VERSION};
    uint8_t numbers[8 + READ] = {READ};
    memset(numbers + 8, atomic_load(&s->n_computed), READ);
    if (r->command == HELLO)
        return put(fd, version, sizeof version);
    return r->command != GET_TENSOR || put(fd, numbers, sizeof numbers);
}

static bool take(struct server *s, int fd)
{
    static struct request r; /* of one thread */
    if (!get(fd, &r.command, 1) || !get(fd, &r.n, sizeof r.n) || r.n > MOST || !get(fd, r.body, r.n))
        return false;
    atomic_fetch_add(&s->n_computed, r.command == GRAPH_COMPUTE || r.command == GRAPH_RECOMPUTE);
    if (r.command != HELLO) {
        pthread_mutex_lock(&s->lock);
        if (s->n < N_REQUEST)
            s->requests[s->n++] = r;
        pthread_cond_signal(&s->came);
        pthread_mutex_unlock(&s->lock);
    }
    return answer(s, fd, &r);
}

static void *serve(void *context)
{
    struct server *s = context;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0; close(fd))
        while (take(s, fd))
            ;
    return NULL;
}

/* The next request that the server got is this one. */
static void server_got(uint8_t command, const void *body, size_t n)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 30;
    pthread_mutex_lock(&server.lock);
    while (server.seen == server.n && pthread_cond_timedwait(&server.came, &server.lock, &limit) == 0)
        ;
    const struct request *r = server.seen < server.n ? &server.requests[server.seen++] : NULL;
    pthread_mutex_unlock(&server.lock);
    assert_non_null(r);
    assert_int_equal(r->command, command);
    assert_int_equal(r->n, n);
    assert_memory_equal(r->body, body, n);
}

static void server_got_nothing(void)
{
    pthread_mutex_lock(&server.lock);
    const int n = server.n - server.seen;
    pthread_mutex_unlock(&server.lock);
    assert_int_equal(n, 0);
}

/* ---- The client ---- */

static struct wnw__guard *guard;

static int connect_client(void)
{
    uint8_t greeting[HEAD + 24] = {HELLO, 24}, welcome[8 + 28];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)atoi(strrchr(wnw__guard_address(guard), ':') + 1));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_true(put(fd, greeting, sizeof greeting) && get(fd, welcome, sizeof welcome));
    return fd;
}

static void ask(int fd, uint8_t command, const void *body, uint64_t n)
{
    assert_true(put(fd, &command, 1) && put(fd, &n, sizeof n) && put(fd, body, n));
}

struct graph {
    uint8_t bytes[MOST];
    size_t n;
};

/* A graph of a device. in_place: the one that means the last. */
static struct graph make_graph(uint32_t device, uint8_t fill, bool in_place)
{
    struct graph g = {.n = in_place ? 600 : 3000};
    memset(g.bytes, fill, g.n);
    memcpy(g.bytes, &device, sizeof device);
    if (in_place)
        memcpy(g.bytes + 300, WNW_GUARD_AGAIN, sizeof WNW_GUARD_AGAIN);
    return g;
}

static void compute(int fd, const struct graph *g)
{
    ask(fd, GRAPH_COMPUTE, g->bytes, g->n);
}

static void compute_last(int fd, uint32_t device)
{
    const struct graph g = make_graph(device, 7, true);
    compute(fd, &g);
}

static void server_got_graph(const struct graph *g)
{
    server_got(GRAPH_COMPUTE, g->bytes, g->n);
}

static void server_got_again(uint32_t device)
{
    server_got(GRAPH_RECOMPUTE, &device, sizeof device);
}

static void free_something(int fd)
{
    const uint64_t buffer = 5;
    ask(fd, FREE_BUFFER, &buffer, sizeof buffer);
    server_got(FREE_BUFFER, &buffer, sizeof buffer);
}

/* What is read says how many graphs were computed before. */
static uint8_t read_number(int fd)
{
    enum { BODY = WNW_READING - HEAD };
    uint8_t body[BODY] = {0}, came[8 + READ];
    const uint64_t n = READ;
    memcpy(body + BODY - sizeof n, &n, sizeof n);
    ask(fd, GET_TENSOR, body, sizeof body);
    assert_true(get(fd, came, sizeof came));
    assert_int_equal(came[0], READ);
    return came[8];
}

/* It is that of the last graph, which the server was asked for. */
static void reads_last(int fd)
{
    uint8_t body[WNW_READING - HEAD] = {0};
    const uint64_t n = READ;
    memcpy(body + sizeof body - sizeof n, &n, sizeof n);
    const uint8_t got = read_number(fd);
    server_got(GET_TENSOR, body, sizeof body);
    assert_int_equal(got, atomic_load(&server.n_computed));
}

/* ---- Tests ---- */

static void test_known(void **state)
{
    (void)state;
    const int fd = connect_client();
    const struct graph one = make_graph(0, 1, false), two = make_graph(0, 2, false);
    compute(fd, &one);
    server_got_graph(&one);
    reads_last(fd);
    for (int i = 0; i < 2; i++) { /* the same bytes, and what means them */
        compute(fd, &one);
        server_got_again(0);
        reads_last(fd);
        compute_last(fd, 0);
        server_got_again(0);
        reads_last(fd);
    }
    compute(fd, &two);
    server_got_graph(&two);
    reads_last(fd);
    compute_last(fd, 0);
    server_got_again(0);
    reads_last(fd);
    close(fd);
}

/* A server forgets its graphs where a buffer is freed, of any device. */
static void test_forgotten(void **state)
{
    (void)state;
    static const uint32_t devices[] = {0, 1, LAST_DEVICE};
    enum { N = sizeof devices / sizeof *devices };
    struct graph graphs[N];
    const int fd = connect_client();
    for (int i = 0; i < N; i++) {
        graphs[i] = make_graph(devices[i], (uint8_t)(10 + i), false);
        compute(fd, &graphs[i]);
        server_got_graph(&graphs[i]);
        reads_last(fd);
    }
    for (int how = 0; how < 3; how++) {
        free_something(fd);
        for (int i = 0; i < N; i++) {
            if (how == 0)
                compute_last(fd, devices[i]);
            else if (how == 1) /* the client's own request for it */
                ask(fd, GRAPH_RECOMPUTE, &devices[i], sizeof devices[i]);
            else
                compute(fd, &graphs[i]);
            server_got_graph(&graphs[i]);
            reads_last(fd);
        }
        for (int i = 0; i < N; i++) {
            compute_last(fd, devices[i]);
            server_got_again(devices[i]);
            reads_last(fd);
        }
    }
    close(fd);
}

/* What means the last graph where there is none: the server is lost, and what is read is no number. A new connection has it again, and knows
 * nothing of graphs that came over another one. */
static void test_unknown(void **state)
{
    (void)state;
    const struct graph one = make_graph(0, 1, false);
    int fd = connect_client();
    compute(fd, &one);
    server_got_graph(&one);
    close(fd);
    for (int how = 0; how < 3; how++) {
        const uint32_t device = how == 2 ? LAST_DEVICE + 1 : 0;
        fd = connect_client();
        assert_ok(wnw__guard_check(guard));
        if (how == 1)
            ask(fd, GRAPH_RECOMPUTE, &device, sizeof device);
        else
            compute_last(fd, device);
        assert_int_equal(read_number(fd), 0xff);
        assert_error(wnw__guard_check(guard), WNW_E_BACKEND);
        assert_says(wnw__guard_name(guard));
        assert_says("a graph again that nobody has");
        close(fd);
        server_got_nothing();
    }
    fd = connect_client();
    compute(fd, &one);
    server_got_graph(&one);
    reads_last(fd);
    assert_ok(wnw__guard_check(guard));
    close(fd);
}

static int start(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (server.listener < 0 || bind(server.listener, (const struct sockaddr *)&at, size) != 0 ||
        listen(server.listener, 4) != 0 || getsockname(server.listener, (struct sockaddr *)&at, &size) != 0 ||
        pthread_create(&server.thread, NULL, serve, &server) != 0)
        return -1;
    return wnw__guard_start(&guard, &at, "127.0.0.1:here") == WNW_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    wnw__guard_stop(guard);
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_forgotten),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, start, stop);
}
