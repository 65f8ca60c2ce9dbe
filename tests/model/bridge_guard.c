/* SPDX-License-Identifier: MIT */
/*
 * Servers of other machines that are gone, hang, are busy, or are something else. Each is a sentence with the address, and this process
 * goes on: with other devices, and with the server once it is there again. And what goes to a server that has a graph already, and how
 * often its answers are waited for.
 */
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "peek_wrap.h"
#include "profiles.h"
#include "winnow_bridge.h"
#include "workers.h"

#include <arpa/inet.h>
#include <ggml-rpc.h>
#include <limits.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PROMPT = 40, LOST = -3 };

/* ---- Servers that are none ---- */

struct server {
    int listener, port;
    const uint8_t *answer; /* what it says to clients */
    size_t n;
};

static void *answer_once(void *context)
{
    const struct server *s = context;
    uint8_t greeting[33];
    const int fd = accept(s->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    if (recv(fd, greeting, sizeof greeting, MSG_WAITALL) == (ssize_t)sizeof greeting && s->n > 0)
        (void)!send(fd, s->answer, s->n, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void listen_at(struct server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_cmp(s->listener, >=, 0);
    assert_int_equal(bind(s->listener, (const struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &size), 0);
    s->port = ntohs(at.sin_port);
}

/* The sentence names the address and says this. */
static void refuses(int port, const char *sentence)
{
    char name[64];
    snprintf(name, sizeof name, "rpc:127.0.0.1:%d", port);
    assert_int_equal(wnw_bridge_wrap(name), WNW_E_BACKEND);
    assert_non_null(strstr(wnw_last_error(), name + 4));
    assert_non_null(strstr(wnw_last_error(), sentence));
}

static void test_other_servers(void **state)
{
    (void)state;
    static const uint8_t newer[36] = {28, [8] = RPC_PROTO_MAJOR_VERSION + 1, 2};
    static const uint8_t web[36] = "HTTP/1.1 400 Bad Request";
    static const struct {
        const uint8_t *answer;
        size_t n;
        const char *sentence;
    } kinds[] = {{newer, sizeof newer, "speaks version"},
                 {web, sizeof web, "no RPC server of ggml"},
                 {web, 3, "no RPC server of ggml"},
                 {web, 0, "no RPC server of ggml"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct server s = {.answer = kinds[i].answer, .n = kinds[i].n};
        pthread_t thread;
        listen_at(&s);
        assert_int_equal(pthread_create(&thread, NULL, answer_once, &s), 0);
        refuses(s.port, kinds[i].sentence);
        pthread_join(thread, NULL);
        close(s.listener);
    }
    refuses(test_free_port(), "cannot be reached");
    /* The system accepts, and nobody answers. */
    struct server busy = {0};
    listen_at(&busy);
    refuses(busy.port, "does not answer");
    close(busy.listener);
}

/* ---- Servers that are lost ---- */

static struct test_llama_params context_on(const char *device)
{
    return (struct test_llama_params){
        .ours = true, .device = device, .flash = true, .n_ctx = 256, .n_threads = 1};
}

static void open_on(struct test_llama *t, const char *device)
{
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-qwen3-f32.gguf");
    const struct test_llama_params params = context_on(device);
    test_llama_open(t, path, &params);
}

static int decode(struct test_llama *t, int32_t pos, int32_t n, float *logits)
{
    int32_t tokens[N_PROMPT];
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 1 + (pos + i) * 7919 % 250;
    return test_llama_try(t, 0, pos, tokens, n, logits);
}

static float *logits_new(const struct test_llama *t)
{
    float *x = malloc(N_PROMPT * (size_t)t->n_vocab * sizeof *x);
    assert_non_null(x);
    return x;
}

enum { N_SAME = 3 }; /* tokens whose graphs are the same, so that the relay reads ahead */

/* Loses the server of a device by a signal. The token that is computed meanwhile has no numbers, and the next fails. again: it is started
 * again before that token. *worker: the process that is there then. */
static void lose(const char *device, int port, pid_t *worker, int signal_number, bool again, const char *why)
{
    struct test_llama t;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    open_on(&t, device);
    float *logits = logits_new(&t);
    assert_int_equal(decode(&t, 0, N_PROMPT, logits), 0);
    for (int32_t i = 0; i < N_SAME; i++)
        assert_int_equal(decode(&t, N_PROMPT + i, 1, logits), 0);
    assert_true(isfinite(logits[0]));
    assert_int_equal(kill(*worker, signal_number), 0);
    if (signal_number == SIGKILL)
        waitpid(*worker, NULL, 0);
    if (again)
        *worker = test_worker(port);
    assert_cmp(*worker, >, 0);
    int32_t pos = N_PROMPT + N_SAME;
    int code = decode(&t, pos, 1, logits);
    if (code == 0) {
        for (int32_t i = 0; i < t.n_vocab; i++)
            assert_true(isnan(logits[i]));
        code = decode(&t, ++pos, 1, logits);
    }
    assert_int_equal(code, LOST);
    assert_non_null(strstr(wnw_last_error(), address));
    assert_non_null(strstr(wnw_last_error(), why));
    assert_int_equal(decode(&t, pos, 1, logits), LOST); /* and stays so */
    free(logits);
    test_llama_close(&t);
}

/* Logits of a prompt, and of a token after it. */
static float *logits_on(const char *device, size_t *size)
{
    struct test_llama t;
    open_on(&t, device);
    float *logits = logits_new(&t);
    *size = N_PROMPT * (size_t)t.n_vocab * sizeof *logits;
    assert_int_equal(decode(&t, 0, N_PROMPT - 1, logits), 0);
    assert_int_equal(decode(&t, N_PROMPT - 1, 1, logits + (int64_t)(N_PROMPT - 1) * t.n_vocab), 0);
    test_llama_close(&t);
    return logits;
}

static void same_logits(const char *device, const float *want, size_t size)
{
    size_t n;
    float *got = logits_on(device, &n);
    assert_int_equal(n, size);
    assert_memory_equal(got, want, size);
    free(got);
}

static void test_lost(void **state)
{
    (void)state;
    size_t size;
    const int port = test_free_port();
    pid_t worker = test_worker(port);
    char twice[64];
    assert_int_equal(test_wrap_worker(worker, port), 0);
    assert_ok(wnw_bridge_wrap("CPU"));
    float *want = logits_on("WINNOW1", &size);
    snprintf(twice, sizeof twice, "rpc:localhost:%d", port);
    assert_int_equal(wnw_bridge_wrap(twice), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "is named twice"));

    same_logits("WINNOW0", want, size);
    lose("WINNOW0", port, &worker, SIGKILL, false, "closed the connection");
    same_logits("WINNOW1", want, size); /* the process goes on */
    worker = test_worker(port);
    assert_cmp(worker, >, 0);
    same_logits("WINNOW0", want, size); /* and with the server, once it is there again */
    /* A server that has nothing of what was computed. */
    lose("WINNOW0", port, &worker, SIGKILL, true, "closed the connection");
    same_logits("WINNOW0", want, size);

    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1); /* its graphs are ours */
    lose("WINNOW0", port, &worker, SIGKILL, true, "closed the connection");
    lose("WINNOW0", port, &worker, SIGSTOP, false, "said nothing for 2 seconds");
    unsetenv("WINNOW_RAGGED_AT_ONCE");
    same_logits("WINNOW1", want, size);
    assert_int_equal(kill(worker, SIGCONT), 0);
    same_logits("WINNOW0", want, size);
    test_end_worker(worker);
    free(want);
}

/* ---- Graphs that a server has already ---- */

/* Hands on what a client sends to a worker and what that answers, one client after the other. */
struct between {
    int listener, worker; /* a port */
    atomic_llong sent, answered,
        trips;          /* bytes to the worker, bytes from it, and how often it answered what came before */
    bool asked;         /* something came since its last answer */
    atomic_int clients; /* how many came */
};

static bool move(struct between *b, int from, int to, bool is_answer)
{
    uint8_t bytes[1 << 16];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    if (is_answer && b->asked)
        atomic_fetch_add(&b->trips, 1);
    b->asked = !is_answer;
    atomic_fetch_add(is_answer ? &b->answered : &b->sent, n);
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *hand_on(void *context)
{
    struct between *b = context;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)b->worker),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int down; (down = accept(b->listener, NULL, NULL)) >= 0; close(down)) {
        atomic_fetch_add(&b->clients, 1);
        const int up = socket(AF_INET, SOCK_STREAM, 0);
        struct pollfd p[] = {{.fd = down, .events = POLLIN}, {.fd = up, .events = POLLIN}};
        bool open = connect(up, (const struct sockaddr *)&at, sizeof at) == 0;
        while (open && poll(p, 2, -1) > 0)
            open = (!p[0].revents || move(b, down, up, false)) && (!p[1].revents || move(b, up, down, true));
        close(up);
    }
    return NULL;
}

enum { N_DECODED = 150 };

/* Logits of tokens one by one over ragged layers, and how many bytes went to the worker for each. */
static float *decoded_on(const char *device, struct between *b, long long bytes[N_DECODED], size_t *size)
{
    struct test_llama t;
    open_on(&t, device);
    float *logits = malloc(N_DECODED * (size_t)t.n_vocab * sizeof *logits), *prompt = logits_new(&t);
    assert_non_null(logits);
    assert_int_equal(decode(&t, 0, N_PROMPT, prompt), 0);
    for (int32_t i = 0; i < N_DECODED; i++) {
        const long long before = atomic_load(&b->sent);
        assert_int_equal(decode(&t, N_PROMPT + i, 1, logits + (int64_t)i * t.n_vocab), 0);
        bytes[i] = atomic_load(&b->sent) - before;
    }
    *size = N_DECODED * (size_t)t.n_vocab * sizeof *logits;
    free(prompt);
    test_llama_close(&t);
    return logits;
}

/* A worker with such a relay before it, and our device around it. */
struct far {
    struct between b;
    pthread_t thread;
    pid_t worker;
};

static void far_start(struct far *far)
{
    struct server at = {0};
    char name[64];
    *far = (struct far){.b.worker = test_free_port()};
    far->worker = test_worker(far->b.worker);
    assert_cmp(far->worker, >, 0);
    listen_at(&at);
    far->b.listener = at.listener;
    assert_int_equal(pthread_create(&far->thread, NULL, hand_on, &far->b), 0);
    snprintf(name, sizeof name, "rpc:127.0.0.1:%d", at.port);
    assert_ok(wnw_bridge_wrap(name));
}

static void far_stop(struct far *far)
{
    shutdown(far->b.listener, SHUT_RDWR);
    test_end_worker(far->worker);
    pthread_join(far->thread, NULL);
    close(far->b.listener);
}

/* ggml's client connects for each question about a model that is being opened: here more than fifty times. Some pauses of a busy machine are
 * longer than a connection is kept for. */
static void check_connections(struct between *b)
{
    const int n = atomic_load(&b->clients);
    print_message("connections: %d\n", n);
    assert_in_range(n, 2, 12); /* one to see that a worker is there */
}

static void test_graph_again(void **state)
{
    (void)state;
    long long bytes[N_DECODED], none[N_DECODED], most = 0, least = LLONG_MAX;
    struct far at;
    size_t size;
    far_start(&at); /* WINNOW2, after those of the test before */
    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    float *far = decoded_on("WINNOW2", &at.b, bytes, &size);
    check_connections(&at.b);
    float *here = decoded_on("WINNOW1", &at.b, none, &size);
    unsetenv("WINNOW_RAGGED_AT_ONCE");
    int n_graph = 0;
    for (int i = 0; i < N_DECODED; i++) {
        most = bytes[i] > most ? bytes[i] : most;
        least = bytes[i] < least ? bytes[i] : least;
    }
    for (int i = 0; i < N_DECODED; i++)
        n_graph += bytes[i] > most / 2;
    print_message("bytes of a token: %lld to %lld, %d with a graph\n", least, most, n_graph);
    assert_cmp(most, >, 4 * least);
    assert_in_range(n_graph, 2, N_DECODED / 10); /* the first, and those after rows have moved */
    assert_memory_equal(far, here, size);
    free(far);
    free(here);
    far_stop(&at);
}

/* ---- Graphs that a server has forgotten ---- */

enum { N_OTHERS = 24, EVERY_OTHER = 4 };

/* Logits of tokens one by one, and the bytes that went to the worker for each. Before every fourth another context on the same device has ended,
 * and memory of the server was freed. */
static float *beside_others(const char *device, struct between *b, long long bytes[N_OTHERS], size_t *size)
{
    struct test_llama t, other;
    open_on(&t, device);
    float *prompt = logits_new(&t), *logits = malloc(N_OTHERS * (size_t)t.n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(decode(&t, 0, N_PROMPT, prompt), 0);
    for (int32_t i = 0; i < N_OTHERS; i++) {
        if (i % EVERY_OTHER == 0) {
            const struct test_llama_params params = context_on(device);
            test_llama_share(&other, &t, &params);
            test_llama_close_ctx(&other);
        }
        const long long before = atomic_load(&b->sent);
        assert_int_equal(decode(&t, N_PROMPT + i, 1, logits + (int64_t)i * t.n_vocab), 0);
        bytes[i] = atomic_load(&b->sent) - before;
    }
    *size = N_OTHERS * (size_t)t.n_vocab * sizeof *logits;
    free(prompt);
    test_llama_close(&t);
    return logits;
}

/* The same as this process says, with a graph where the server has forgotten it, and without one where it has not. */
static void check_beside(const char *device, struct between *b)
{
    long long far[N_OTHERS], none[N_OTHERS];
    size_t size;
    float *got = beside_others(device, b, far, &size), *want = beside_others("WINNOW1", b, none, &size);
    assert_memory_equal(got, want, size);
    for (int i = EVERY_OTHER; i < N_OTHERS; i++) {
        print_message("%lld%s", far[i], i + 1 < N_OTHERS ? " " : " bytes of tokens\n");
        if (i % EVERY_OTHER > 1)
            assert_cmp(4 * far[i], <, far[i - i % EVERY_OTHER]);
    }
    free(got);
    free(want);
}

static void test_forgotten(void **state)
{
    (void)state;
    struct far at;
    far_start(&at); /* WINNOW3 */
    check_beside("WINNOW3", &at.b);
    setenv("WINNOW_POLICY", "snapkv", 1);
    setenv("WINNOW_BUDGET", "100000", 1);
    check_beside("WINNOW3", &at.b);
    unsetenv("WINNOW_POLICY");
    unsetenv("WINNOW_BUDGET");
    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    check_beside("WINNOW3", &at.b);
    unsetenv("WINNOW_RAGGED_AT_ONCE");
    far_stop(&at);
}

/* ---- Round trips ---- */

enum { N_TOKENS = 60, EVERY = 7 };

/* What tokens gave: logits, and now and then the state of their sequence. */
struct said {
    float *logits; /* [N_TOKENS][n_vocab] */
    size_t size;
    uint8_t *states[N_TOKENS]; /* NULL: it was not asked for */
    size_t n_states[N_TOKENS];
};

static void save(struct test_llama *t, struct said *said, int i)
{
    said->states[i] = test_llama_state(t, &said->n_states[i]);
}

/* Tokens one by one, with how often the worker was waited for in each. `saves`: states are read now and then, which is nothing that can be
 * foreseen. */
static void say_on(struct said *said, const char *device, struct between *b, long long trips[N_TOKENS],
                   bool saves)
{
    struct test_llama t;
    open_on(&t, device);
    float *prompt = logits_new(&t);
    *said = (struct said){.size = N_TOKENS * (size_t)t.n_vocab * sizeof(float)};
    said->logits = malloc(said->size);
    assert_non_null(said->logits);
    assert_int_equal(decode(&t, 0, N_PROMPT, prompt), 0);
    for (int32_t i = 0; i < N_TOKENS; i++) {
        const long long before = atomic_load(&b->trips);
        assert_int_equal(decode(&t, N_PROMPT + i, 1, said->logits + (int64_t)i * t.n_vocab), 0);
        trips[i] = atomic_load(&b->trips) - before;
        if (saves && i % EVERY == 0)
            save(&t, said, i);
    }
    free(prompt);
    test_llama_close(&t);
}

static void said_free(struct said *said)
{
    free(said->logits);
    for (int i = 0; i < N_TOKENS; i++)
        free(said->states[i]);
}

/* Whether a worker says what this process says. Returns for how many tokens it was waited for once. */
static int trips_on(const char *device, struct between *b, bool saves)
{
    long long trips[N_TOKENS], none[N_TOKENS], sum = 0;
    struct said far, here;
    int n_once = 0;
    say_on(&far, device, b, trips, saves);
    say_on(&here, "WINNOW1", b, none, saves);
    assert_int_equal(far.size, here.size);
    assert_memory_equal(far.logits, here.logits, here.size);
    for (int i = 0; i < N_TOKENS; i++) {
        assert_int_equal(none[i], 0);
        assert_int_equal(far.n_states[i], here.n_states[i]);
        if (here.states[i])
            assert_memory_equal(far.states[i], here.states[i], here.n_states[i]);
        assert_cmp(trips[i], >=, 1);
        n_once += trips[i] == 1;
        sum += trips[i];
    }
    print_message("round trips of %d tokens: %lld; tokens with one: %d\n", N_TOKENS, sum, n_once);
    said_free(&far);
    said_free(&here);
    return n_once;
}

/* A token waits for its worker once, also where a policy observes: what that reads comes with the logits. */
static void test_round_trips(void **state)
{
    (void)state;
    const int most = N_TOKENS - N_TOKENS / 10; /* but for those with a new graph */
    struct far at;
    far_start(&at); /* WINNOW4 */
    assert_cmp(trips_on("WINNOW4", &at.b, false), >=, most);
    setenv("WINNOW_POLICY", "snapkv", 1);
    setenv("WINNOW_BUDGET", "100000", 1);
    assert_cmp(trips_on("WINNOW4", &at.b, false), >=, most);
    trips_on("WINNOW4", &at.b, true);
    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    assert_cmp(trips_on("WINNOW4", &at.b, false), >=, most);
    trips_on("WINNOW4", &at.b, true);
    unsetenv("WINNOW_RAGGED_AT_ONCE");
    unsetenv("WINNOW_POLICY");
    unsetenv("WINNOW_BUDGET");
    far_stop(&at);
}

/* ---- Gates on hidden states ---- */

/* Scores of all entries of a prompt [layers][cells][heads], and the bytes that came from the worker for the second batch: masks are read once.
 * `gated`: else nobody asks for them. */
static float *scores_on(const char *device, struct between *b, wnw_profile *profile, bool gated,
                        long long *bytes, int64_t *n)
{
    const wnw_size size = size_budget(100000);
    struct test_llama t;
    wnw_bridge *found;
    open_on(&t, device);
    assert_ok(wnw_bridge_find(&found, llama_synchronize, t.ctx));
    struct wnw__bridge_backend *backend = (void *)found;
    backend->watch.profile = profile; /* as if from a file */
    if (gated)
        assert_ok(wnw_bridge_set_policy(found, "kvzap", &size, false));
    float *logits = logits_new(&t), *scores = NULL;
    assert_int_equal(decode(&t, 0, N_PROMPT, logits), 0);
    const long long before = atomic_load(&b->answered);
    assert_int_equal(decode(&t, N_PROMPT, N_PROMPT, logits), 0);
    *bytes = atomic_load(&b->answered) - before;
    *n = 0;
    for (int32_t i = 0; gated && i < backend->caches[0]->n_layer; i++) {
        const struct wnw__bridge_layer *l = backend->caches[0]->layers[i];
        const int64_t of_layer = 2 * (int64_t)N_PROMPT * l->n_head;
        scores = realloc(scores, (size_t)(*n + of_layer) * sizeof *scores);
        assert_non_null(scores);
        assert_non_null(l->wrap->gate);
        memcpy(scores + *n, l->wrap->gate, (size_t)of_layer * sizeof *scores);
        *n += of_layer;
    }
    backend->watch.profile = NULL;
    free(logits);
    test_llama_close(&t);
    return scores;
}

/* A worker computes them, and sends a number for each KV head: fewer bytes than hidden states of one layer. */
static void test_gates(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-qwen3-f32.gguf");
    wnw_profile *profile = test_profile_of_all_kinds(m);
    wnw_model_info info = wnw_model_info_default();
    long long with, without, none;
    int64_t n, n_here;
    struct far at;
    wnw_model_get_info(m, &info);
    far_start(&at); /* WINNOW5 */
    assert_null(scores_on("WINNOW5", &at.b, profile, false, &without, &n));
    float *far = scores_on("WINNOW5", &at.b, profile, true, &with, &n);
    float *here = scores_on("WINNOW1", &at.b, profile, true, &none, &n_here);
    print_message("bytes from the worker: %lld, without gates %lld\n", with, without);
    assert_int_equal(n, n_here);
    assert_all_finite(here, n);
    assert_floats_near(far, here, n, 1e-4);
    assert_cmp(with - without, >, 0);
    assert_cmp(with - without, <, (long long)N_PROMPT * info.n_embd * (long long)sizeof(float));
    free(far);
    free(here);
    far_stop(&at);
    wnw_profile_free(profile);
    wnw_model_free(m);
}

/* ---- What is read ahead ---- */

enum { BUFFER_AT = 9 + 12, NAME_AT = 9 + 228, DATA_AT = 9 + 220, OFFSET_AT = 9 + 296, SIZE_AT = 9 + 304 };

/* A reading of `size` bytes; what it says else is made up. */
static void make_reading(uint8_t request[WNW_READING], uint8_t data, uint64_t size)
{
    memset(request, 7, WNW_READING);
    memset(request + DATA_AT, data, sizeof size);
    memcpy(request + SIZE_AT, &size, sizeof size); /* machines that this runs on have the lowest byte first */
}

/* Gives n bytes of answers. */
static bool give(struct wnw__ahead *a, const uint8_t *bytes, size_t n)
{
    bool right = true;
    while (right && n > 0) {
        uint8_t *to;
        const size_t most = wnw__ahead_next(a, &to), some = most < n ? most : n;
        assert_cmp(most, >, 0);
        memcpy(to, bytes, some);
        right = wnw__ahead_came(a, some);
        bytes += some;
        n -= some;
    }
    return right;
}

static void test_ahead(void **state)
{
    (void)state;
    static struct wnw__readings r;
    static struct wnw__ahead a;
    uint8_t request[WNW_READING], *to;
    const uint8_t answers[] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 1, 0, 0, 0, 0, 0, 0, 0, 'd'},
                  wrong[] = {4, 0, 0, 0, 0, 0, 0, 0};
    make_reading(request, 1, WNW_READING_MOST + 1);
    wnw__readings_add(&r, request, sizeof request); /* too large */
    make_reading(request, 1, 3);
    wnw__readings_add(&r, request, sizeof request - 1); /* of another version */
    assert_int_equal(r.n, 0);
    wnw__readings_add(&r, request, sizeof request);
    make_reading(request, 2, 1);
    wnw__readings_add(&r, request, sizeof request);
    assert_int_equal(r.n, 2);

    assert_true(wnw__ahead_begin(&a, &r));
    for (size_t i = 0; i < sizeof answers; i++) /* they may come in any parts */
        assert_true(give(&a, answers + i, 1));
    assert_int_equal(wnw__ahead_next(&a, &to), 0);
    assert_memory_equal(a.answer[0], answers, 11);
    assert_memory_equal(a.answer[1], answers + 11, 9);

    assert_int_equal(wnw__ahead_find(&a, request, sizeof request), 1);
    request[NAME_AT]++; /* a tensor with another name, at the same place */
    assert_int_equal(wnw__ahead_find(&a, request, sizeof request), 1);
    assert_int_equal(wnw__ahead_find(&a, request, sizeof request - 1), -1);
    static const int fields[] = {BUFFER_AT, DATA_AT, OFFSET_AT, SIZE_AT};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        request[fields[i]]++;
        assert_int_equal(wnw__ahead_find(&a, request, sizeof request), -1);
        request[fields[i]]--;
    }
    wnw__ahead_drop(&a);
    assert_int_equal(wnw__ahead_find(&a, request, sizeof request), -1);

    assert_true(wnw__ahead_begin(&a, &r));
    assert_false(give(&a, wrong, sizeof wrong));
    for (int i = 0; i < 2 * WNW_READINGS; i++)
        wnw__readings_add(&r, request, sizeof request);
    assert_int_equal(r.n, WNW_READINGS);
    wnw__ahead_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_servers), cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_graph_again),   cmocka_unit_test(test_forgotten),
                                       cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_gates),
                                       cmocka_unit_test(test_ahead)};
    setenv("WINNOW_WORKER_SECONDS", "2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
