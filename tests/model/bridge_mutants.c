/* SPDX-License-Identifier: MIT */
/*
 * Changed files of families that libllama computes (mutants.h): each is run or refused with a sentence, and none ends the process
 * by a signal, by ggml's abort, or computes for ever. Half of them are opened as sessions open models, half as llama.cpp's server opens
 * them after wnw_bridge_check_model. Files without a change are not refused.
 *
 *     model_bridge_mutants [random|single|left-out|shapes|plain [N [SEED [FAMILY [NUMBER]]]]]
 *
 * random: N files in all, of all families. single: every N-th of the changes of one key or tensor; left-out: of those that leave out a
 * tensor; shapes: of those that give one another shape. plain: no change. FAMILY: a part of
 * the name of the files; NUMBER: one file, as a failure names it. WNW_FAMILIES is a folder of models, in place of those that this
 * program has llama.cpp's generator write (docs/reference/families.md says how to write all). Each file is tried in a process of its own.
 */
#include "child.h"
#include "generated.h"
#include "models.h"
#include "mutants.h"
#include "random.h"

#include <dirent.h>
#include <fcntl.h>
#include <llama.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ggml-backend.h>

#include "winnow_bridge.h"

/* Seconds of the processor, so that a busy machine changes nothing; and of the clock, for a process that only waits. */
enum { MOST_SECONDS = 30, MOST_WAITED = 600 };
enum { N_TOKENS = 12, N_CTX = 64, N_WORKER = 2 };

/* How a process ends that tried a file. */
enum { RAN, REFUSED, STOPPED, FAULT, NO_MORE, N_RESULT };

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
    int rc =
        wnw_tokenize(m, "The harbor is\nred <x>", strlen("The harbor is\nred <x>"), true, true, &tokens, &n);
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

enum mode { RANDOM, PLAIN, SINGLE, LEFT_OUT, SHAPES, N_MODE };
static const char *const mode_names[N_MODE] = {"random", "plain", "single", "left-out", "shapes"};

/* What llama.cpp's generator writes for `make test`: every kind of layer. */
static const char *const generated[] = {"llama4-moe",        "deepseek2-moe",   "gpt-oss-moe",
                                        "gemma2-dense",      "qwen3next-moe",   "qwen35-dense",
                                        "jamba-dense",       "falcon-h1-dense", "granitehybrid-dense",
                                        "nemotron_h-dense",  "lfm2-dense",      "kimi-linear-moe",
                                        "minimax-01-moe",    "mamba2-dense",    "plamo2-dense",
                                        "bloom-dense",       "phi3-dense",      "glm4moe-moe",
                                        "minicpm3-dense",    "grovemoe-moe",    "afmoe-moe",
                                        "chatglm-dense",     "qwen2vl-dense",   "smallthinker-moe",
                                        "cohere2-dense",     "bailingmoe3-moe", "minimax-m3-moe",
                                        "granite_swa-dense", "hy_v3-moe"};
enum { N_GENERATED = sizeof generated / sizeof *generated, PATH_SIZE = 512 };

struct files {
    struct test_generated made;
    char (*path)[PATH_SIZE];
    size_t n;
};

/* A process that tries a file. */
struct worker {
    pid_t pid; /* 0 = none */
    int32_t number;
    char log[40];
};

struct run {
    enum mode mode;
    int32_t n, one; /* one: the only number that is tried, -1 = all */
    uint64_t seed;
    bool tells;       /* how far it is */
    const char *only; /* a part of the files' names */
    struct files files;

    const char *path; /* of the present file */
    struct test_gguf base;
    bool done; /* there are no more changes of it */
    struct worker workers[N_WORKER];
    int32_t count[N_RESULT];
};

static void add_folder(struct files *f, const char *folder)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *ending = strrchr(entries[i]->d_name, '.');
        if (ending && strcmp(ending, ".gguf") == 0) {
            f->path = realloc(f->path, (f->n + 1) * sizeof *f->path);
            assert_non_null(f->path);
            snprintf(f->path[f->n++], PATH_SIZE, "%s/%s", folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(n >= 0 ? entries : NULL);
}

static void find_files(struct files *f)
{
    const char *folder = getenv("WNW_FAMILIES");
    char foreign[PATH_SIZE];
    if (!folder)
        test_generate(&f->made, generated, N_GENERATED);
    add_folder(f, folder ? folder : f->made.folder);
    test_model_path(foreign, sizeof foreign, "tiny/foreign/olmo2.gguf");
    *strrchr(foreign, '/') = '\0';
    add_folder(f, foreign);
}

/* Changes the copy of the file that the process has; its first line says how. false: there is no such change. */
static bool change(const struct run *r, struct test_gguf *f, int32_t number, const char *path, bool *server)
{
    char said[TEST_MUTANT_TEXT] = "nothing is changed";
    uint64_t state = r->seed * 1000003 + (uint64_t)number;
    bool good = true;
    test_random(&state);
    *server = number % 2;
    if (r->mode == RANDOM) {
        test_mutate(f, &state, said);
        test_mutant_write(f, path, &state, said);
    } else {
        good = r->mode == PLAIN      ? number < 2
               : r->mode == LEFT_OUT ? test_mutate_left_out(f, number / 2, said)
               : r->mode == SHAPES   ? test_mutate_shape(f, number / 2, said)
                                     : test_mutate_once(f, number / 2, said);
        test_gguf_write(f, path);
    }
    printf("%s%s\n", said, *server ? " (server)" : "");
    return good;
}

static void child(const struct run *r, const struct worker *w)
{
    const struct rlimit most = {MOST_SECONDS, MOST_SECONDS};
    struct test_gguf f = r->base;
    char path[40];
    bool server;
    const int log = open(w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600), file = memfd_create("mutant", 0);
    setrlimit(RLIMIT_CPU, &most);
    setenv("GGML_NO_BACKTRACE", "1", 1);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (!change(r, &f, w->number, path, &server))
        _exit(NO_MORE);
    fflush(stdout);
    const int result = server ? try_server(path) : try_session(path);
    fflush(stdout);
    _exit(result);
}

/* The first line, which says what was changed, and the last ones. */
static void show_log(const char *path)
{
    enum { N_LAST = 3 };
    char first[1024], line[N_LAST][1024] = {{0}};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    if (fgets(first, sizeof first, f))
        print_message("    %s", first);
    int n = 0;
    while (fgets(line[n % N_LAST], sizeof line[0], f))
        n++;
    for (int i = n > N_LAST ? n - N_LAST : 0; i < n; i++)
        print_message("    %s", line[i % N_LAST]);
    fclose(f);
}

static void show(const struct run *r, const struct worker *w, int status)
{
    const int sign = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    print_message("%s, file %d of seed %llu: %s\n", strrchr(r->path, '/') + 1, (int)w->number,
                  (unsigned long long)r->seed,
                  sign == SIGALRM || sign == SIGXCPU || sign == SIGKILL ? "it took for ever"
                  : sign                                                ? strsignal(sign)
                  : r->mode == PLAIN                                    ? "refused"
                                                                        : "a refusal that is none");
    show_log(w->log);
}

/* Files without a change are refused by sessions where they are of a kind that sessions do not have, and one of them everywhere. */
static bool is_expected(const struct run *r, const struct worker *w, int result)
{
    const int good = strcmp(strrchr(r->path, '/'), "/lfm2-attends.gguf") == 0 ? REFUSED : RAN;
    return result != FAULT && (r->mode != PLAIN || w->number % 2 == 0 || result == good || result == NO_MORE);
}

static void finish_one(struct run *r)
{
    int status = 0, i = 0;
    const pid_t pid = wait(&status);
    while (i < N_WORKER && r->workers[i].pid != pid)
        i++;
    assert_in_range(i, 0, N_WORKER - 1);
    struct worker *w = &r->workers[i];
    int result = WIFEXITED(status) && WEXITSTATUS(status) < N_RESULT ? WEXITSTATUS(status) : FAULT;
    if (!is_expected(r, w, result)) {
        result = FAULT;
        show(r, w, status);
    }
    r->count[result]++;
    r->done = r->done || result == NO_MORE;
    unlink(w->log);
    w->pid = 0;
}

static void start(struct run *r, int32_t number)
{
    int i = 0;
    while (i < N_WORKER && r->workers[i].pid > 0)
        i++;
    if (i == N_WORKER) {
        finish_one(r);
        start(r, number);
        return;
    }
    struct worker *w = &r->workers[i];
    w->number = number;
    snprintf(w->log, sizeof w->log, "/tmp/winnow-mutant-%d-%d", (int)getpid(), i);
    w->pid = test_child(MOST_WAITED);
    if (w->pid == 0)
        child(r, w);
}

static void run_file(struct run *r, size_t at)
{
    const int64_t n = r->n, n_file = (int64_t)r->files.n;
    int32_t from = (int32_t)(n * (int64_t)at / n_file), to = (int32_t)(n * (int64_t)(at + 1) / n_file),
            step = 1;
    if (r->mode != RANDOM) {
        from = 0;
        to = INT32_MAX - r->n;
        step = r->mode == PLAIN ? 1 : r->n;
    }
    r->path = r->files.path[at];
    r->done = false;
    if (from == to || !strstr(r->path, r->only))
        return;
    test_gguf_read(&r->base, r->path);
    for (int32_t k = from; k < to && !r->done; k += step)
        if (r->one < 0 || k == r->one)
            start(r, k);
    for (int i = 0; i < N_WORKER; i++)
        while (r->workers[i].pid > 0)
            finish_one(r);
    test_gguf_free(&r->base);
    if (r->tells)
        print_message("%s: %d tried so far, %d faults\n", strrchr(r->path, '/') + 1,
                      (int)(r->count[RAN] + r->count[REFUSED] + r->count[STOPPED] + r->count[FAULT]),
                      (int)r->count[FAULT]);
}

static void run_all(struct run *r)
{
    for (size_t i = 0; i < r->files.n; i++)
        run_file(r, i);
    print_message("%d ran, %d were refused, %d stopped, %d faults\n", (int)r->count[RAN],
                  (int)r->count[REFUSED], (int)r->count[STOPPED], (int)r->count[FAULT]);
}

/* Each tensor of the families whose layers lack some in good files: libllama does not ask for all that it computes with. */
static void leave_out(struct run *r)
{
    static const char *const optional[] = {"falcon-h1", "nemotron_h", "granitehybrid", "hy_v3", "qwen3next"};
    r->mode = LEFT_OUT;
    r->n = 1;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        r->only = optional[i];
        run_all(r);
    }
    r->only = "";
}

/* What `make test` runs: all files without a change, and always the same changes. */
static void test_families(void **state)
{
    (void)state;
    struct run r = {.mode = PLAIN, .one = -1, .only = ""};
    find_files(&r.files);
    run_all(&r);
    assert_int_equal(r.count[RAN] + r.count[REFUSED], 2 * r.files.n);
    leave_out(&r);
    r.mode = RANDOM;
    r.n = 600;
    r.seed = 1;
    run_all(&r);
    assert_int_equal(r.count[FAULT], 0);
    assert_cmp(r.count[RAN], >, 0);
    free(r.files.path);
    if (!getenv("WNW_FAMILIES"))
        test_generated_remove(&r.files.made);
}

static enum mode mode_of(const char *name)
{
    int i = 0;
    while (i < N_MODE && strcmp(name, mode_names[i]) != 0)
        i++;
    if (i == N_MODE)
        fail_msg("there is no mode %s", name);
    return (enum mode)i;
}

static int run_arguments(int argc, char **argv)
{
    struct run r = {.tells = true,
                    .mode = mode_of(argv[1]),
                    .n = argc > 2 ? atoi(argv[2]) : 1,
                    .seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1,
                    .only = argc > 4 ? argv[4] : "",
                    .one = argc > 5 ? atoi(argv[5]) : -1};
    find_files(&r.files);
    run_all(&r);
    free(r.files.path);
    if (!getenv("WNW_FAMILIES"))
        test_generated_remove(&r.files.made);
    return r.count[FAULT] > 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    return argc > 1 ? run_arguments(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
