/* SPDX-License-Identifier: MIT */
/*
 * Changed files of families that libllama computes (mutants.h): each is run or refused with a sentence, and none ends the process
 * by a signal, by ggml's abort, or never. Half of them are opened as sessions open models, half as llama.cpp's server opens them
 * after wnw_bridge_check_model.
 *
 *     model_bridge_mutants [N [SEED [FAMILY]]]
 *
 * N files in all, of the families that llama.cpp's generator writes and those of scripts/tiny_foreign.py; by default so many as take
 * less than a minute, always the same ones. Each is tried in a process of its own. FAMILY: of the file with this name alone.
 */
#include "child.h"
#include "files.h"
#include "generated.h"
#include "helpers.h"
#include "mutants.h"
#include "random.h"

#include <dirent.h>
#include <fcntl.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ggml-backend.h>

#include "winnow_bridge.h"

enum { MOST_SECONDS = 20, N_TOKENS = 12, N_CTX = 64, MOST_WORKERS = 8 };

/* How a process ends that tried a file. */
enum { RAN, REFUSED, STOPPED, FAULT, NO_MORE };
enum mode { RANDOM, SINGLE, PLAIN };

/* ---- One file ---- */

/* A refusal must be one that a command answers with exit code 2, and have a sentence. */
static int refusal(int rc, int code)
{
    printf("%s: %s\n", wnw_strerror(rc), wnw_last_error());
    const bool good = rc == WNW_E_FORMAT || rc == WNW_E_UNSUPPORTED || rc == WNW_E_NOT_FINITE ||
                      rc == WNW_E_FULL || rc == WNW_E_RANGE;
    return good && *wnw_last_error() ? code : FAULT;
}

static int use_session(const wnw_model *m)
{
    wnw_session_params params = wnw_session_default_params();
    wnw_session *s = NULL;
    int32_t *tokens = NULL, n = 0;
    char *text = NULL;
    params.n_ctx = N_CTX;
    params.n_threads = 1;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int rc = wnw_tokenize(m, "The harbor is\nred <x>", strlen("The harbor is\nred <x>"), true, true, &tokens, &n);
    if (rc == WNW_OK)
        rc = wnw_detokenize(m, tokens, n, &text);
    wnw_free(text);
    if (rc != WNW_OK || n == 0) {
        wnw_free(tokens);
        tokens = test_random_tokens(N_TOKENS, info.n_vocab, 1);
        n = N_TOKENS;
    }
    n = n < N_TOKENS ? n : N_TOKENS;
    rc = wnw_session_new(&s, m, &params);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, tokens, n, NULL, NULL);
    for (int32_t i = 0; rc == WNW_OK && i < 2; i++)
        rc = wnw_session_decode(s, tokens[0]);
    wnw_session_free(s);
    return rc == WNW_OK ? RAN : refusal(rc, STOPPED);
}

static int try_session(const char *path)
{
    wnw_model *m = NULL;
    const int rc = wnw_model_open(&m, path, NULL);
    if (rc != WNW_OK)
        return refusal(rc, REFUSED);
    const int result = use_session(m);
    wnw_model_free(m);
    return result;
}

static bool decode(struct llama_context *ctx, int32_t n_vocab)
{
    int32_t *tokens = test_random_tokens(N_TOKENS, n_vocab, 1);
    const bool encodes = llama_model_has_encoder(llama_get_model(ctx));
    bool good = !encodes || llama_encode(ctx, llama_batch_get_one(tokens, N_TOKENS)) == 0;
    if (good && llama_model_has_decoder(llama_get_model(ctx)))
        good = llama_decode(ctx, llama_batch_get_one(tokens, encodes ? 1 : N_TOKENS)) == 0 &&
               llama_decode(ctx, llama_batch_get_one(tokens, 1)) == 0;
    free(tokens);
    return good;
}

/* libllama as llama.cpp's server uses it: it throws where it refuses, and that is caught there and in llama_model_load_from_file. */
static int try_server(const char *path)
{
    const int rc = wnw_bridge_check_model(path);
    if (rc != WNW_OK)
        return refusal(rc, REFUSED);
    assert_ok(wnw_bridge_register());
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("WINNOW"), NULL};
    struct llama_model_params params = llama_model_default_params();
    params.devices = devices;
    params.n_gpu_layers = 99;
    struct llama_model *m = llama_model_load_from_file(path, params);
    if (!m)
        return REFUSED;
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = c.n_batch = c.n_ubatch = N_CTX;
    c.n_threads = c.n_threads_batch = 1;
    c.kv_unified = true;
    struct llama_context *ctx = llama_init_from_model(m, c);
    const bool good = ctx && decode(ctx, llama_vocab_n_tokens(llama_model_get_vocab(m)));
    llama_free(ctx);
    llama_model_free(m);
    return good ? RAN : STOPPED;
}

/* ---- Many files ---- */

/* Files of all families; n_family of them. */
struct families {
    struct test_generated generated;
    char (*path)[512];
    size_t n;
};

struct worker {
    pid_t pid;
    int32_t number; /* of its file */
    size_t family;
    char log[32];
};

struct run {
    struct families families;
    uint64_t seed;
    enum mode mode;
    int32_t n, n_failed, count[NO_MORE + 1];
    struct worker workers[MOST_WORKERS];
    int n_worker;
    bool done;
};

static void add_folder(struct families *f, const char *folder)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(entries[i]->d_name);
        if (len > 5 && strcmp(entries[i]->d_name + len - 5, ".gguf") == 0) {
            f->path = realloc(f->path, (f->n + 1) * sizeof *f->path);
            assert_non_null(f->path);
            snprintf(f->path[f->n++], sizeof *f->path, "%s/%s", folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(n >= 0 ? entries : NULL);
}

/* One file: the first line of the log says what was changed. */
static void child(const struct run *r, const struct test_gguf *base, const struct worker *w)
{
    struct test_gguf f = *base;
    char said[TEST_MUTANT_TEXT], path[40];
    uint64_t state = r->seed * 1000003 + (uint64_t)w->number;
    test_random(&state);
    const int log = open(w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600), file = memfd_create("mutant", 0);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    bool server = test_random(&state) % 2;
    if (r->mode == SINGLE) {
        server = w->number % 2;
        if (!test_mutate_once(&f, w->number / 2, said))
            _exit(NO_MORE);
    } else if (r->mode == RANDOM)
        test_mutate(&f, &state, said);
    else {
        said[0] = 0;
        server = w->number % 2;
    }
    if (r->mode == RANDOM)
        test_mutant_write(&f, path, &state, said);
    else
        test_gguf_write(&f, path);
    setenv("GGML_NO_BACKTRACE", "1", 1);
    printf("%s%s\n", said, server ? " (server)" : "");
    fflush(stdout);
    const int result = server ? try_server(path) : try_session(path);
    fflush(stdout);
    _exit(result);
}

static void show_log(const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (n++ < 1 || strstr(line, "ASSERT") || strstr(line, "abort") || strstr(line, "what()") || strstr(line, ".cpp:") || strstr(line, ".c:") || strstr(line, "error") || strstr(line, "not a valid") || strstr(line, "not supported:"))
            print_message("    %s", line);
    }
    if (f)
        fclose(f);
}

static void finish(struct run *r)
{
    int status = 0;
    const pid_t pid = wait(&status);
    assert_cmp(pid, >, 0);
    int i = 0;
    while (i < r->n_worker && r->workers[i].pid != pid)
        i++;
    struct worker *w = &r->workers[i];
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : FAULT;
    const int at = code <= NO_MORE ? code : FAULT;
    r->count[at]++;
    if (r->mode == PLAIN && at != RAN) {
        print_message("%s %d: %d\n", r->families.path[w->family], w->number, at);
        show_log(w->log);
    }
    r->done = r->done || at == NO_MORE;
    if (at == FAULT) {
        print_message("%s, file %d of seed %llu: %s\n", strrchr(r->families.path[w->family], '/') + 1,
                      (int)w->number, (unsigned long long)r->seed,
                      WIFSIGNALED(status) ? (WTERMSIG(status) == SIGALRM ? "it took for ever"
                                                                         : strsignal(WTERMSIG(status)))
                                          : "ended otherwise");
        show_log(w->log);
        r->n_failed++;
    }
    w->pid = 0;
}

static void start(struct run *r, const struct test_gguf *base, size_t family, int32_t number)
{
    int i = 0;
    while (i < r->n_worker && r->workers[i].pid > 0)
        i++;
    if (i == r->n_worker) {
        finish(r);
        start(r, base, family, number);
        return;
    }
    struct worker *w = &r->workers[i];
    w->number = number;
    w->family = family;
    snprintf(w->log, sizeof w->log, "/tmp/winnow-mutant-%d-%d", (int)getpid() % 100000, i);
    w->pid = test_child(MOST_SECONDS);
    if (w->pid == 0)
        child(r, base, w);
}

int main(int argc, char **argv)
{
    struct run r = {.n = argc > 1 ? atoi(argv[1]) : 600, .seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 1, .n_worker = 2};
    if (argc > 1 && strcmp(argv[1], "single") == 0)
        r.mode = SINGLE;
    if (argc > 1 && strcmp(argv[1], "plain") == 0)
        r.mode = PLAIN;
    const char *only = argc > 3 ? argv[3] : NULL;
    const int32_t stride = getenv("STRIDE") ? atoi(getenv("STRIDE")) : 1;
    const int32_t one = argc > 4 ? atoi(argv[4]) : -1;
    char cache[512];
    add_folder(&r.families, getenv("WNW_FAMILIES") ? getenv("WNW_FAMILIES") : "/tmp/g/gen");
    snprintf(cache, sizeof cache, "%s/.cache/winnow/models/tiny/foreign", getenv("HOME"));
    add_folder(&r.families, cache);
    for (size_t i = 0; i < r.families.n; i++) {
        r.done = false;
        int32_t from = (int32_t)((int64_t)r.n * (int64_t)i / (int64_t)r.families.n);
        int32_t to = (int32_t)((int64_t)r.n * (int64_t)(i + 1) / (int64_t)r.families.n);
        if (r.mode != RANDOM) {
            from = 0;
            to = r.mode == PLAIN ? 2 : 1 << 20;
        }
        if (from == to || (only && !strstr(r.families.path[i], only)))
            continue;
        struct test_gguf base;
        test_gguf_read(&base, r.families.path[i]);
        for (int32_t k = from; k < to && !r.done; k += stride)
            if (one < 0 || k == one)
                start(&r, &base, i, k);
        test_gguf_free(&base);
    }
    for (int i = 0; i < r.n_worker; i++)
        while (r.workers[i].pid > 0)
            finish(&r);
    printf("ran %d, refused %d, stopped %d, faults %d\n", r.count[RAN], r.count[REFUSED], r.count[STOPPED], r.count[FAULT]);
    return r.n_failed > 0;
}
