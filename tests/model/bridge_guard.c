/* SPDX-License-Identifier: MIT */
/*
 * Servers of other machines that are gone, hang, are busy, or are something else. Each is a sentence with the address, and this process
 * goes on: with other devices, and with the server once it is there again. And what goes to a server that has a graph already.
 */
#include "helpers.h"
#include "llamas.h"
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

static void open_on(struct test_llama *t, const char *device)
{
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-qwen3-f32.gguf");
    test_llama_open(t, path,
                    &(struct test_llama_params){
                        .ours = true, .device = device, .flash = true, .n_ctx = 256, .n_threads = 1});
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

/* Loses the server of a device by a signal. The token that is computed meanwhile has no numbers, and the next fails. */
static void lose(const char *device, int port, pid_t worker, int signal_number, const char *why)
{
    struct test_llama t;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    open_on(&t, device);
    float *logits = logits_new(&t);
    assert_int_equal(decode(&t, 0, N_PROMPT, logits), 0);
    assert_true(isfinite(logits[0]));
    assert_int_equal(kill(worker, signal_number), 0);
    if (signal_number == SIGKILL)
        waitpid(worker, NULL, 0);
    int32_t pos = N_PROMPT;
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
    lose("WINNOW0", port, worker, SIGKILL, "closed the connection");
    same_logits("WINNOW1", want, size); /* the process goes on */
    worker = test_worker(port);
    assert_cmp(worker, >, 0);
    same_logits("WINNOW0", want, size); /* and with the server, once it is there again */

    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1); /* its graphs are ours */
    lose("WINNOW0", port, worker, SIGSTOP, "said nothing for 2 seconds");
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
    atomic_llong sent;    /* bytes to the worker */
};

static bool move(int from, int to, atomic_llong *count)
{
    uint8_t bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0 || send(to, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        return false;
    if (count)
        atomic_fetch_add(count, n);
    return true;
}

static void *hand_on(void *context)
{
    struct between *b = context;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)b->worker),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int down; (down = accept(b->listener, NULL, NULL)) >= 0; close(down)) {
        const int up = socket(AF_INET, SOCK_STREAM, 0);
        struct pollfd p[] = {{.fd = down, .events = POLLIN}, {.fd = up, .events = POLLIN}};
        bool open = connect(up, (const struct sockaddr *)&at, sizeof at) == 0;
        while (open && poll(p, 2, -1) > 0)
            open = (!p[0].revents || move(down, up, &b->sent)) && (!p[1].revents || move(up, down, NULL));
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

static void test_graph_again(void **state)
{
    (void)state;
    struct server at = {0};
    struct between b = {.worker = test_free_port()};
    long long bytes[N_DECODED], none[N_DECODED], most = 0, least = LLONG_MAX;
    pthread_t thread;
    char name[64];
    size_t size;
    const pid_t worker = test_worker(b.worker);
    assert_cmp(worker, >, 0);
    listen_at(&at);
    b.listener = at.listener;
    assert_int_equal(pthread_create(&thread, NULL, hand_on, &b), 0);
    snprintf(name, sizeof name, "rpc:127.0.0.1:%d", at.port);
    assert_ok(wnw_bridge_wrap(name)); /* WINNOW2, after those of the test before */
    setenv("WINNOW_RAGGED_AT_ONCE", "1", 1);
    float *far = decoded_on("WINNOW2", &b, bytes, &size), *here = decoded_on("WINNOW1", &b, none, &size);
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
    shutdown(b.listener, SHUT_RDWR);
    test_end_worker(worker);
    pthread_join(thread, NULL);
    close(b.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_servers), cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_graph_again)};
    setenv("WINNOW_WORKER_SECONDS", "2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
