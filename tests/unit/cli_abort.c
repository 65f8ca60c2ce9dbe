/* SPDX-License-Identifier: MIT */
/* ggml ends the process, or a mapped file is cut off: the command says so in one line, ends with 1 and leaves no unfinished file. */
#include "helpers.h"

#include "app/console.h"
#include "app/output.h"
#include "cli/abort.h"

#include <fcntl.h>
#include <ggml.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the process in its own way; path is free for use. */
static void fail_in_ggml(const char *path)
{
    (void)path;
    ggml_abort("/build/of/ggml.c", 7, "GGML_ASSERT(%s) failed", "a == b");
}

/* Reads a mapped file that somebody cuts off, on any of its pages. */
static void read_cut_file(const char *path)
{
    enum { BYTES = 100000 };
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || unlink(path) != 0 || ftruncate(fd, BYTES) != 0)
        _exit(8);
    const volatile char *bytes = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED || bytes[BYTES - 1] != 0 || ftruncate(fd, 0) != 0)
        _exit(7);
    _exit(bytes[BYTES - 1] == 0 ? 6 : 5);
}

/* What threads that compute together do: each waits for the others, then fails as they do. */
struct meeting {
    pthread_barrier_t all;
    void (*end)(const char *path);
    const char *path;
};

static void *meet(void *arg)
{
    struct meeting *m = arg;
    pthread_barrier_wait(&m->all);
    m->end(m->path);
    return NULL;
}

static void meet_in_threads(const char *path, void (*end)(const char *path))
{
    enum { N_THREADS = 8 };
    pthread_t threads[N_THREADS];
    struct meeting m = {.end = end, .path = path};
    pthread_barrier_init(&m.all, NULL, N_THREADS);
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, meet, &m) != 0)
            _exit(8);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(6);
}

static void fail_in_threads(const char *path)
{
    meet_in_threads(path, fail_in_ggml);
}

static const volatile char *cut_page;

static void read_cut_page(const char *path)
{
    (void)path;
    (void)cut_page[0];
}

static void read_cut_file_in_threads(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || unlink(path) != 0 || ftruncate(fd, 1) != 0)
        _exit(8);
    const void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED || ftruncate(fd, 0) != 0)
        _exit(7);
    cut_page = page;
    meet_in_threads(path, read_cut_page);
}

/* A signal that somebody sends is none of a file. */
static void get_signal(const char *path)
{
    (void)path;
    app_out_discard(); /* nobody does it for it */
    raise(SIGBUS);
    _exit(6);
}

/* Runs it in a process that has an unfinished output, which must not stay. Returns the status of the process, and what it said. */
static int said_of(char text[1024], void (*end)(const char *path))
{
    char folder[] = "/tmp/winnow-abort-XXXXXX", path[64], other[64];
    int ends[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.json", folder);
    snprintf(other, sizeof other, "%s/model.gguf", folder);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_cmp(pid, >=, 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        struct app_out out;
        const struct app_inputs inputs = {0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        signal(SIGBUS, SIG_DFL);
        cli_catch_aborts();
        if (app_out_open(&out, path, &inputs) != APP_OK)
            _exit(9);
        end(other);
        _exit(4);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], text, 1023);
    assert_cmp(got, >=, 0);
    text[got] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(rmdir(folder), 0); /* empty */
    return status;
}

static void one_line(void **state)
{
    (void)state;
    char text[1024];
    static const struct {
        void (*end)(const char *path);
        const char *line;
    } cases[] = {{fail_in_ggml, "ggml gave up: GGML_ASSERT(a == b) failed"},
                 {read_cut_file, "cut off while it was in use"},
                 {fail_in_threads, "ggml gave up: GGML_ASSERT(a == b) failed"},
                 {read_cut_file_in_threads, "cut off while it was in use"}};
    enum { N_ROUNDS = 20 }; /* threads meet in another order each time */
    for (size_t i = 0; i < sizeof cases / sizeof *cases * N_ROUNDS; i++) {
        const size_t at = i / N_ROUNDS;
        const int status = said_of(text, cases[at].end);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), APP_FAILED);
        assert_contains(text, cases[at].line);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

static void other_signals_end_it(void **state)
{
    (void)state;
    char text[1024];
    const int status = said_of(text, get_signal);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_line), cmocka_unit_test(other_signals_end_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
