/* SPDX-License-Identifier: MIT */
/*
 * A relay between ggml's RPC client and a server. A request is a command, the size of what follows, and that. The server answers some
 * commands, with a size and as many bytes. The client waits for an answer before it sends more. The relay looks at requests only as
 * far as it must to know which answer is due, and at graphs.
 *
 * A server keeps the last graph of each device, until a buffer is freed. ggml's client asks it to compute that again only for graphs that
 * libllama's scheduler has numbered. Ours have no number. So where a graph comes with the same bytes again, or one in place of it
 * (wrap/wrap_again.c), the relay asks for it.
 *
 * ggml's client reads logits, or what a policy wants, and waits for each reading. A token waits for one round trip if
 * all readings go to the server with the graph. So the relay notes what was read after a graph. When the server has it compute the same
 * graph, the relay asks for the same readings at once (wrap/wrap_ahead.h). Memory that is read cannot have gone: a graph is forgotten where a
 * buffer is freed. What was read ahead is used only if nothing but readings came in between.
 *
 * Until something is on the server, ggml's client connects for each of its questions, dozens of times while a model is opened. So the connection
 * to the server is kept for a moment (IDLE_MS), and the next one of ggml's goes on with it, unless memory on the server belongs to it.
 */
#include "bridge/wrap/wrap_guard.h"

#include "base/err.h"
#include "bridge/wrap/wrap_ahead.h"
#include "bridge/wrap/wrap_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ggml-rpc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_S = 120, /* a server may compute for long */
    CHUNK = 1 << 16,
    HEAD = 9,       /* of a request: the command, and a size */
    SIZE = 8,       /* of an answer, before it */
    TAIL = 96,      /* the first bytes of a request, with its tensor's shape, and the last, with a size */
    OUT = 1 << 14,  /* bytes of requests that wait for the next ones */
    OUT_MS = 1,     /* and how long */
    IDLE_MS = 2000, /* less than a client of ggml's waits for a worker that another one has */
};

/* Commands of ggml's RPC, in its order. */
enum command {
    ALLOC_BUFFER,
    GET_ALIGNMENT,
    GET_MAX_SIZE,
    BUFFER_GET_BASE,
    FREE_BUFFER,
    SET_TENSOR_HASH = 7,
    GET_TENSOR,
    COPY_TENSOR,
    GRAPH_COMPUTE,
    GET_DEVICE_MEMORY,
    GET_ALLOC_SIZE = 13,
    HELLO,
    DEVICE_COUNT,
    GRAPH_RECOMPUTE,
};

struct wnw__guard {
    char name[272];
    char address[32];
    struct sockaddr_in at;
    int64_t patience; /* milliseconds without a byte while an answer is due */
    int listener;
    int idle; /* a connection to the server that nobody uses; -1: there is none */
    pthread_t thread;
    pthread_mutex_t lock;
    bool lost, stopped; /* under `lock`, with what follows */
    bool unsaid;        /* it was lost, and the program does not know */
    unsigned n_connection;
    char why[160]; /* what came first since the last connection */
};

/* A request to compute a graph, as it came. */
struct graph {
    uint8_t *bytes; /* [room] */
    size_t n, room;
    bool there; /* the server has it */
};

/* One connection of ggml's, and the one to the server. */
struct relay {
    struct wnw__guard *g;
    int down, up; /* up: -1 = the server is lost */
    /* The request that comes. */
    uint8_t head[HEAD], first[TAIL], last[SIZE];
    uint64_t n_seen;            /* bytes of it that came, with its head */
    uint64_t n_buffer;          /* that were asked for and not freed */
    struct graph coming,        /* or another request that is not handed on before it is whole */
        kept[WNW_WRAP_DEVICES]; /* the last one of each device; n 0: nothing that is known */
    uint8_t out[OUT];           /* [n_out] requests that the server does not have yet */
    size_t n_out;
    struct wnw__readings after[WNW_WRAP_DEVICES]; /* what was read after each */
    struct wnw__readings now;                     /* and is, after the last one */
    int32_t computed; /* the device of the last graph; -1: other requests came since */
    struct wnw__ahead ahead;
    const uint8_t *ready; /* the answer that is due, if it was read ahead */
    /* The answer that is due; size 0: none. */
    enum command command;
    uint64_t answer, n_answered; /* bytes, with its size */
    uint8_t *chunk;              /* [CHUNK] */
};

static uint64_t number(const uint8_t *x, int n)
{
    uint64_t value = 0;
    while (n-- > 0)
        value = value << 8 | x[n];
    return value;
}

static void set_number(uint8_t *x, int n, uint64_t value)
{
    for (int i = 0; i < n; i++, value >>= 8)
        x[i] = (uint8_t)value;
}

/* ---- Loss ---- */

static void lose(struct relay *r, const char *why)
{
    struct wnw__guard *g = r->g;
    if (r->up >= 0)
        close(r->up);
    r->up = -1;
    r->n_out = 0;
    wnw__ahead_drop(&r->ahead);
    pthread_mutex_lock(&g->lock);
    if (!g->lost) /* until a connection is made again, that this fails is no cause */
        snprintf(g->why, sizeof g->why, "%s", why);
    g->lost = g->unsaid = true;
    pthread_mutex_unlock(&g->lock);
    wnw__log(WNW_LOG_WARN, "winnow: the worker at %s is lost: %s", g->name, why);
}

static void lose_hung(struct relay *r)
{
    char why[64];
    snprintf(why, sizeof why, "it said nothing for %lld seconds", (long long)r->g->patience / 1000);
    lose(r, why);
}

/* The lock is held. */
static int say_lost(const struct wnw__guard *g)
{
    return wnw__fail(
        WNW_E_BACKEND,
        "the worker at %s is lost: %s; free what is on it, start it again, and load the model again", g->name,
        g->why);
}

int wnw__guard_check(struct wnw__guard *g)
{
    pthread_mutex_lock(&g->lock);
    const int rc = g->lost ? say_lost(g) : WNW_OK;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int wnw__guard_say(struct wnw__guard *g)
{
    pthread_mutex_lock(&g->lock);
    const int rc = g->lost || g->unsaid ? say_lost(g) : WNW_OK;
    g->unsaid = false;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- Requests ---- */

static uint64_t request_size(const struct relay *r)
{
    return HEAD + number(r->head + 1, 8);
}

/* Bytes that the server answers, without their size; false: it does not answer. */
static bool answer_size(const struct relay *r, uint64_t *size)
{
    switch ((enum command)r->head[0]) {
    case ALLOC_BUFFER:
    case GET_DEVICE_MEMORY:
        *size = 16;
        return true;
    case GET_ALIGNMENT:
    case GET_MAX_SIZE:
    case BUFFER_GET_BASE:
    case GET_ALLOC_SIZE:
        *size = 8;
        return true;
    case SET_TENSOR_HASH:
    case COPY_TENSOR:
        *size = 1;
        return true;
    case GET_TENSOR:
        *size = number(r->last, SIZE);
        return true; /* its last field */
    case HELLO:
        *size = 28;
        return true;
    case DEVICE_COUNT:
        *size = 4;
        return true;
    case FREE_BUFFER:
    case GRAPH_COMPUTE:
    case GRAPH_RECOMPUTE:
        break;
    }
    return false;
}

/* Takes note of bytes of a request, and returns how many belong to it. *ended: it is whole. */
static size_t follow(struct relay *r, const uint8_t *x, size_t n, bool *ended)
{
    size_t i = 0;
    while (i < n && r->n_seen < HEAD)
        r->head[r->n_seen++] = x[i++];
    *ended = false;
    if (r->n_seen < HEAD)
        return i;
    const uint64_t at = r->n_seen - HEAD, left = request_size(r) - r->n_seen;
    const size_t some = left < n - i ? (size_t)left : n - i;
    for (size_t j = 0; j < some && at + j < TAIL; j++)
        r->first[at + j] = x[i + j];
    const size_t kept = some < SIZE ? some : SIZE;
    memmove(r->last, r->last + kept, SIZE - kept);
    memcpy(r->last + SIZE - kept, x + i + some - kept, kept);
    r->n_seen += some;
    *ended = r->n_seen == request_size(r);
    return i + some;
}

/* After a whole request: an answer may be due. */
static void begin_answer(struct relay *r)
{
    uint64_t size;
    r->n_seen = 0;
    if (!answer_size(r, &size))
        return;
    r->command = (enum command)r->head[0];
    r->answer = SIZE + size;
    r->n_answered = 0;
}

/* ---- Answers in place of the server ---- */

/* No less than the bytes of the tensor that a request begins with, after the device: extents and strides of its four dimensions. */
static uint64_t tensor_size(const uint8_t *request)
{
    enum { AT = 4 + 20, N = 4 };
    uint64_t size = 0;
    for (int i = 0; i < N; i++)
        size += number(request + AT + 4 * i, 4) * number(request + AT + 4 * (N + i), 4);
    return size;
}

/* Byte i of the answer that is due, with its size. Nothing is in memory that is not there; numbers are NaN. */
static uint8_t substitute(const struct relay *r, uint64_t i)
{
    uint8_t x[SIZE + 28] = {0};
    set_number(x, SIZE, r->answer - SIZE);
    uint8_t *const body = x + SIZE;
    switch (r->command) {
    case GET_TENSOR:
        return i < SIZE ? x[i] : 0xff;
    case GET_ALIGNMENT:
        set_number(body, 8, 128);
        break;
    case GET_MAX_SIZE:
        set_number(body, 8, UINT64_MAX);
        break;
    case BUFFER_GET_BASE:
        set_number(body, 8, 4096);
        break; /* ggml asks that it is not 0 */
    case SET_TENSOR_HASH:
    case COPY_TENSOR:
        body[0] = 1;
        break; /* nothing more is to be sent */
    case GET_ALLOC_SIZE:
        set_number(body, 8, tensor_size(r->first));
        break;
    case HELLO:
        body[0] = RPC_PROTO_MAJOR_VERSION;
        body[1] = RPC_PROTO_MINOR_VERSION;
        body[2] = RPC_PROTO_PATCH_VERSION;
        break;
    case ALLOC_BUFFER:
    case GET_DEVICE_MEMORY:
    case DEVICE_COUNT:
    case FREE_BUFFER:
    case GRAPH_COMPUTE:
    case GRAPH_RECOMPUTE:
        break; /* nothing, or no answer */
    }
    return i < sizeof x ? x[i] : 0;
}

/* The rest of the answer that is due. false: ggml has closed. */
static bool answer_instead(struct relay *r)
{
    while (r->n_answered < r->answer) {
        const uint64_t left = r->answer - r->n_answered;
        const size_t n = left < CHUNK ? (size_t)left : CHUNK;
        for (size_t i = 0; i < n; i++)
            r->chunk[i] = substitute(r, r->n_answered + i);
        if (wnw__connect_send(r->down, r->chunk, n, r->g->patience) != 1)
            return false;
        r->n_answered += n;
    }
    r->answer = 0;
    return true;
}

/* ---- Both ways ---- */

static void send_now(struct relay *r, const uint8_t *x, size_t n)
{
    if (r->up < 0)
        return;
    const int sent = wnw__connect_send(r->up, x, n, r->g->patience);
    if (sent == 0)
        lose(r, "it closed the connection");
    else if (sent < 0)
        lose_hung(r);
}

static void flush(struct relay *r)
{
    const size_t n = r->n_out;
    r->n_out = 0;
    if (n > 0)
        send_now(r, r->out, n);
}

/* ggml's client sends a request in three parts, and half a dozen of them before each graph. Nothing waits for them until the graph is there, so
 * they go together. */
static void send_up(struct relay *r, const uint8_t *x, size_t n)
{
    if (n > OUT - r->n_out)
        flush(r);
    if (n > OUT) {
        send_now(r, x, n);
    } else {
        memcpy(r->out + r->n_out, x, n);
        r->n_out += n;
    }
}

/* ---- Reading ahead ---- */

/* Takes some of what is due. */
static void receive_ahead(struct relay *r)
{
    uint8_t *to;
    const size_t n = wnw__ahead_next(&r->ahead, &to);
    const ssize_t got = recv(r->up, to, n, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0)
        lose(r, "it closed the connection");
    else if (!wnw__ahead_came(&r->ahead, (size_t)got))
        lose(r, "it said what was not asked");
}

static bool is_due_ahead(struct relay *r)
{
    uint8_t *to;
    return wnw__ahead_next(&r->ahead, &to) > 0;
}

/* Takes all that is due. A server that writes does not read, so nothing is sent to it before. */
static void await_ahead(struct relay *r)
{
    while (r->up >= 0 && is_due_ahead(r)) {
        struct pollfd p = {.fd = r->up, .events = POLLIN};
        const int n = poll(&p, 1, (int)r->g->patience);
        if (n == 0)
            lose_hung(r);
        else if (n > 0)
            receive_ahead(r);
    }
}

/* A request that is no reading: what was read ahead may be out of date after it. */
static void end_readings(struct relay *r)
{
    await_ahead(r);
    wnw__ahead_drop(&r->ahead);
    if (r->computed >= 0)
        r->after[r->computed] = r->now;
    r->computed = -1;
}

/* A reading that is whole: the server is asked unless it was. */
static void read_memory(struct relay *r)
{
    struct graph *const came = &r->coming;
    if (r->computed >= 0)
        wnw__readings_add(&r->now, came->bytes, came->n);
    const int32_t i = wnw__ahead_find(&r->ahead, came->bytes, came->n);
    await_ahead(r);
    if (i >= 0 && r->up >= 0)
        r->ready = r->ahead.answer[i];
    else
        send_up(r, came->bytes, came->n);
    came->n = 0;
}

/* ---- Graphs ---- */

static bool append(struct graph *g, const uint8_t *x, size_t n)
{
    if (n > g->room - g->n) {
        const size_t room = 2 * (g->n + n);
        uint8_t *bytes = realloc(g->bytes, room);
        if (!bytes)
            return false;
        g->bytes = bytes;
        g->room = room;
    }
    memcpy(g->bytes + g->n, x, n);
    g->n += n;
    return true;
}

static void forget_graphs(struct relay *r)
{
    for (int i = 0; i < WNW_WRAP_DEVICES; i++) {
        r->kept[i].there = false;
        r->after[i].n = 0;
    }
}

/* Has the server compute the graph that it has of a device, and read what was read after it. */
static void ask_again(struct relay *r, uint64_t device)
{
    uint8_t request[HEAD + 4 + WNW_READINGS * WNW_READING] = {GRAPH_RECOMPUTE};
    size_t n = HEAD + 4;
    set_number(request + 1, SIZE, 4);
    set_number(request + HEAD, 4, device);
    if (device < WNW_WRAP_DEVICES && r->up >= 0 && wnw__ahead_begin(&r->ahead, &r->after[device])) {
        memcpy(request + n, r->after[device].request, (size_t)r->after[device].n * WNW_READING);
        n += (size_t)r->after[device].n * WNW_READING;
    }
    send_up(r, request, n);
}

/* Whether a graph came in place of the last one (wrap/wrap_again.c). */
static bool is_in_place(const struct graph *came)
{
    enum { MOST = 1024 }; /* bytes of a graph of one node */
    return came->n <= MOST && memmem(came->bytes, came->n, WNW_GUARD_AGAIN, sizeof WNW_GUARD_AGAIN);
}

/* The last graph of a device that the request is of. NULL: there is none. */
static struct graph *kept_of(struct relay *r, const struct graph *came, uint64_t *device)
{
    *device = came->n >= HEAD + 4 ? number(came->bytes + HEAD, 4) : WNW_WRAP_DEVICES;
    return *device < WNW_WRAP_DEVICES ? &r->kept[*device] : NULL;
}

/* Sends the graph that came, or asks for the one that the server has. What means the last graph is never handed on where the server has none:
 * what is read after it would be an older token's. */
static void send_graph(struct relay *r)
{
    struct graph *const came = &r->coming;
    uint64_t device;
    struct graph *const kept = kept_of(r, came, &device);
    const bool known = kept && kept->n > 0;
    const bool last = r->head[0] == GRAPH_RECOMPUTE || is_in_place(came);
    const bool same =
        known && (last || (kept->n == came->n && memcmp(kept->bytes, came->bytes, came->n) == 0));
    if (same && kept->there) {
        ask_again(r, device);
    } else if (same) { /* the server has forgotten it */
        send_up(r, kept->bytes, kept->n);
        kept->there = true;
    } else if (last || !kept) {
        lose(r, "it was to compute a graph again that nobody has");
    } else {
        send_up(r, came->bytes, came->n);
        const struct graph before = *kept;
        *kept = *came;
        kept->there = true;
        *came = before;
    }
    flush(r);
    came->n = 0;
    r->computed = kept ? (int32_t)device : -1;
    r->now.n = 0;
}

/* Whether a request is handed on when it is whole. */
static bool is_held(uint8_t command)
{
    return command == GRAPH_COMPUTE || command == GRAPH_RECOMPUTE || command == GET_TENSOR;
}

/* Bytes of a request, the last of it if `ended`. */
static void hand_on(struct relay *r, const uint8_t *x, size_t n, bool ended)
{
    const uint8_t command = r->head[0];
    if (command != GET_TENSOR)
        end_readings(r);
    if (!is_held(command))
        send_up(r, x, n);
    else if (!append(&r->coming, x, n))
        lose(r, "there is no memory for its next request");
    if (!ended)
        return;
    if (command == GET_TENSOR)
        read_memory(r);
    else if (is_held(command))
        send_graph(r);
    else if (command == FREE_BUFFER)
        forget_graphs(r);
    if (command == ALLOC_BUFFER)
        r->n_buffer++;
    else if (command == FREE_BUFFER)
        r->n_buffer--;
}

/* From ggml to the server. false: ggml has closed. */
static bool take_request(struct relay *r)
{
    const ssize_t got = recv(r->down, r->chunk, CHUNK, 0);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    size_t i = 0;
    while (i < (size_t)got && r->answer == 0) {
        bool ended;
        const size_t n = follow(r, r->chunk + i, (size_t)got - i, &ended);
        hand_on(r, r->chunk + i, n, ended);
        if (ended)
            begin_answer(r);
        i += n;
    }
    if (r->answer > 0)
        flush(r);
    return i == (size_t)got; /* more before an answer is not ggml's client */
}

/* From the server to ggml. false: ggml has closed. */
static bool take_answer(struct relay *r)
{
    const ssize_t got = recv(r->up, r->chunk, CHUNK, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0 || r->n_answered + (uint64_t)got > r->answer) {
        lose(r, got > 0 ? "it said what was not asked" : "it closed the connection");
        return true;
    }
    if (wnw__connect_send(r->down, r->chunk, (size_t)got, r->g->patience) != 1)
        return false;
    r->n_answered += (uint64_t)got;
    if (r->n_answered == r->answer)
        r->answer = 0;
    return true;
}

/* The answer that is due, which was read ahead. false: ggml has closed. */
static bool answer_ready(struct relay *r)
{
    const bool sent = wnw__connect_send(r->down, r->ready, (size_t)r->answer, r->g->patience) == 1;
    r->ready = NULL;
    r->answer = 0;
    return sent;
}

static void relay_run(struct relay *r)
{
    bool open = true;
    while (open) {
        if (r->answer > 0 && (r->ready || r->up < 0)) {
            open = r->ready ? answer_ready(r) : answer_instead(r);
            continue;
        }
        struct pollfd p[] = {{.fd = r->down, .events = r->answer > 0 ? 0 : POLLIN},
                             {.fd = r->up, .events = POLLIN}}; /* -1 is passed over */
        int wait = r->answer > 0 || is_due_ahead(r) ? (int)r->g->patience : -1;
        wait = r->n_out > 0 ? OUT_MS : wait;
        const int n = poll(p, 2, wait);
        if (n == 0 && r->n_out > 0)
            flush(r);
        else if (n == 0)
            lose_hung(r);
        if (n <= 0)
            continue;
        if (p[1].revents && is_due_ahead(r))
            receive_ahead(r);
        else if (p[1].revents)
            open = take_answer(r);
        else
            open = p[0].revents & POLLIN ? take_request(r) : false;
    }
    flush(r);
}

/* Whether the other side of a connection is this process: a relay is for no other. */
static bool is_own(int fd)
{
    struct sockaddr_in far, near;
    socklen_t size = sizeof far;
    if (getpeername(fd, (struct sockaddr *)&far, &size) != 0)
        return false;
    const long most = sysconf(_SC_OPEN_MAX);
    for (int other = 0; other < (most > 0 && most < 65536 ? (int)most : 65536); other++) {
        size = sizeof near;
        if (getsockname(other, (struct sockaddr *)&near, &size) == 0 && near.sin_family == AF_INET &&
            near.sin_port == far.sin_port && near.sin_addr.s_addr == far.sin_addr.s_addr)
            return true;
    }
    return false;
}

static void drop_idle(struct wnw__guard *g)
{
    if (g->idle >= 0)
        close(g->idle);
    g->idle = -1;
}

/* A connection to the server that was greeted: the last one, or a new one, on which nothing is. */
static int connect_up(struct wnw__guard *g, int *up)
{
    struct pollfd p = {.fd = g->idle, .events = POLLIN};
    if (g->idle >= 0 && poll(&p, 1, 0) == 0) {
        *up = g->idle;
        g->idle = -1;
        return WNW_OK;
    }
    drop_idle(g); /* the server has closed it */
    WNW_TRY(wnw__connect_dial(up, &g->at, g->name));
    pthread_mutex_lock(&g->lock);
    g->lost = false;
    g->n_connection++;
    pthread_mutex_unlock(&g->lock);
    return WNW_OK;
}

/* Whether another connection of ggml's may go on with the one to the server: nothing is due, and no memory there belongs to it. */
static bool is_as_new(struct relay *r)
{
    return r->up >= 0 && r->n_buffer == 0 && r->n_seen == 0 && r->answer == 0 && !is_due_ahead(r);
}

/* Answers ggml's greeting in place of the server, which was greeted already. false: it was none. */
static bool welcome(struct relay *r)
{
    uint8_t hello[HEAD + 24];
    size_t n = 0;
    bool ended;
    while (n < sizeof hello) {
        const ssize_t got = recv(r->down, hello + n, sizeof hello - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    follow(r, hello, n, &ended);
    if (ended)
        begin_answer(r);
    return r->answer > 0 && r->command == HELLO && answer_instead(r);
}

static void relay_free(struct relay *r)
{
    if (r->up >= 0)
        close(r->up);
    wnw__ahead_free(&r->ahead);
    free(r->coming.bytes);
    for (int i = 0; i < WNW_WRAP_DEVICES; i++)
        free(r->kept[i].bytes);
    free(r->chunk);
    free(r);
}

static struct relay *relay_new(struct wnw__guard *g, int down)
{
    struct relay *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->g = g;
    r->down = down;
    r->up = r->computed = -1;
    r->chunk = malloc(CHUNK);
    if (r->chunk)
        return r;
    relay_free(r);
    return NULL;
}

/* A connection of ggml's, which is new, so that nothing of an earlier one is on the server. */
static void serve(struct wnw__guard *g, int down)
{
    int up = -1;
    struct relay *r = is_own(down) ? relay_new(g, down) : NULL;
    if (!r)
        return;
    wnw__connect_quick(down);
    if (connect_up(g, &up) != WNW_OK)
        lose(r, wnw_last_error());
    if (up < 0 || welcome(r)) {
        r->up = up;
        relay_run(r);
        if (is_as_new(r)) {
            g->idle = r->up;
            r->up = -1;
        }
    } else {
        close(up);
    }
    relay_free(r);
}

static void *run(void *context)
{
    struct wnw__guard *g = context;
    for (;;) {
        struct pollfd p = {.fd = g->listener, .events = POLLIN};
        if (g->idle >= 0 && poll(&p, 1, IDLE_MS) == 0)
            drop_idle(g);
        const int down = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&g->lock);
        const bool stopped = g->stopped;
        pthread_mutex_unlock(&g->lock);
        if (down >= 0) {
            if (!stopped)
                serve(g, down);
            close(down);
        }
        if (stopped || (down < 0 && errno != EINTR && errno != ECONNABORTED && errno != EMFILE)) {
            drop_idle(g);
            return NULL;
        }
    }
}

/* ---- Starting ---- */

static int listen_here(struct wnw__guard *g)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    g->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (g->listener < 0 || bind(g->listener, (const struct sockaddr *)&at, size) != 0 ||
        listen(g->listener, 4) != 0 || getsockname(g->listener, (struct sockaddr *)&at, &size) != 0)
        return wnw__fail(WNW_E_BACKEND, "no socket on the loopback interface for %s: %s", g->name,
                         strerror(errno));
    snprintf(g->address, sizeof g->address, "127.0.0.1:%d", (int)ntohs(at.sin_port));
    return WNW_OK;
}

/* Signals are for the program's own threads. */
static int start_thread(struct wnw__guard *g)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int failed = pthread_create(&g->thread, NULL, run, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? wnw__fail(WNW_E_NOMEM, "no thread for %s", g->name) : WNW_OK;
}

/* Seconds of WINNOW_WORKER_SECONDS, as milliseconds. */
static int64_t patience_ms(void)
{
    const char *text = getenv("WINNOW_WORKER_SECONDS");
    char *end = NULL;
    const long s = text ? strtol(text, &end, 10) : PATIENCE_S;
    if (!text || (*text && !*end && s >= 1 && s <= 86400))
        return (int64_t)s * 1000;
    wnw__log(WNW_LOG_WARN, "winnow: WINNOW_WORKER_SECONDS is 1 to 86400, not '%s'; it is taken for %d", text,
             PATIENCE_S);
    return (int64_t)PATIENCE_S * 1000;
}

int wnw__guard_start(struct wnw__guard **out, const struct sockaddr_in *at, const char *name)
{
    int fd;
    *out = NULL;
    WNW_TRY(wnw__connect_dial(&fd, at, name));
    close(fd);
    struct wnw__guard *g = calloc(1, sizeof *g);
    if (!g)
        return wnw__fail(WNW_E_NOMEM, "no memory for %s", name);
    snprintf(g->name, sizeof g->name, "%s", name);
    g->at = *at;
    g->patience = patience_ms();
    g->listener = g->idle = -1;
    if (pthread_mutex_init(&g->lock, NULL) != 0) {
        free(g);
        return wnw__fail(WNW_E_NOMEM, "no lock for %s", name);
    }
    int rc = listen_here(g);
    if (rc == WNW_OK)
        rc = start_thread(g);
    if (rc != WNW_OK) {
        if (g->listener >= 0)
            close(g->listener);
        pthread_mutex_destroy(&g->lock);
        free(g);
        return rc;
    }
    *out = g;
    return WNW_OK;
}

void wnw__guard_stop(struct wnw__guard *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stopped = true;
    pthread_mutex_unlock(&g->lock);
    shutdown(g->listener, SHUT_RDWR);
    pthread_join(g->thread, NULL);
    close(g->listener);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

const char *wnw__guard_address(const struct wnw__guard *g)
{
    return g->address;
}

const char *wnw__guard_name(const struct wnw__guard *g)
{
    return g->name;
}

unsigned wnw__guard_connection(struct wnw__guard *g)
{
    pthread_mutex_lock(&g->lock);
    const unsigned n = g->n_connection;
    pthread_mutex_unlock(&g->lock);
    return n;
}

bool wnw__guard_is_at(const struct wnw__guard *g, const struct sockaddr_in *at)
{
    return g->at.sin_port == at->sin_port && g->at.sin_addr.s_addr == at->sin_addr.s_addr;
}
