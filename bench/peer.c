/* SPDX-License-Identifier: MIT */
#include "bench/peer.h"

#include "app/console.h"
#include "app/cpu.h"
#include "app/json.h"
#include "app/models.h"
#include "base/err.h"
#include "bench/bridge.h"
#include "bench/llama/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The threads of the side that has worked wait busily for a few milliseconds before they sleep. */
enum { ASLEEP_MS = 20 };
enum { MAX_ANSWER = 4096 };

struct bench_peer {
    char *program; /* NULL = the libllama of this build */
    bool native;   /* built by make peers for this CPU */
    bool bridge;   /* over our backend */
    int32_t silence_s;
    pid_t pid;           /* 0 = not running */
    int fd;              /* requests and answers; -1 = none */
    char in[MAX_ANSWER]; /* [n_in] received, not yet a whole line */
    size_t n_in;
    char answer[MAX_ANSWER]; /* what followed "ok" */
    char about[2 * MAX_ANSWER], version[64], flags[MAX_ANSWER];
};

/* ---- The process ---- */

/* In the new process: becomes the peer. Where that fails, errno goes through `failed`, which a program that runs has closed. */
static void become_peer(const struct bench_peer *p, int fd, int failed)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* it ends with the benchmark, even if that is killed */
    if (!p->program && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
        close(failed);
        _exit(bench_llama_serve(dup(fd), fd, p->bridge ? bench_bridge_device() : NULL));
    }
    if (dup2(fd, STDIN_FILENO) >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
        execl(p->program, p->program, (char *)NULL);
    const int err = errno;
    _exit(write(failed, &err, sizeof err) == (ssize_t)sizeof err ? 127 : 126);
}

static int cannot_run(const char *program, int err, bool native)
{
    return app_fail(APP_BAD_INPUT, "--peer: cannot run '%s': %s%s", program, strerror(err),
                    native ? "; remove that file and run `make peers` again" : "");
}

static int cannot_connect(int err)
{
    return app_fail(APP_FAILED, "cannot make a connection to llama.cpp: %s", strerror(err));
}

/* Starts the process. *err: why it has become no peer, 0 if it has. */
static int start_process(struct bench_peer *p, int fd, int *err)
{
    int failed[2];
    *err = 0;
    if (pipe2(failed, O_CLOEXEC) != 0)
        return cannot_connect(errno);
    const pid_t pid = fork();
    if (pid == 0) {
        close(failed[0]);
        close(p->fd);
        become_peer(p, fd, failed[1]);
    }
    const int fork_err = errno;
    close(failed[1]);
    while (pid > 0 && read(failed[0], err, sizeof *err) < 0 && errno == EINTR) {
    }
    close(failed[0]);
    if (pid < 0)
        return app_fail(APP_FAILED, "cannot start a process for llama.cpp: %s", strerror(fork_err));
    p->pid = pid;
    return APP_OK;
}

static int start(struct bench_peer *p)
{
    int fds[2], err;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return cannot_connect(errno);
    p->fd = fds[0];
    const int rc = start_process(p, fds[1], &err);
    close(fds[1]);
    if (rc != APP_OK)
        return rc;
    if (err)
        return cannot_run(p->program, err, p->native);
    const struct timeval silence = {.tv_sec = p->silence_s};
    return setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence) == 0 ? APP_OK
                                                                                     : cannot_connect(errno);
}

static const char *name_of(const struct bench_peer *p)
{
    if (p->program)
        return p->program;
    return p->bridge ? "of this build, over our backend" : "of this build";
}

/* Waits for the process, which has closed its end, and says how it ended. */
static int ended(struct bench_peer *p, const char *request)
{
    int status = 0;
    const pid_t pid = waitpid(p->pid, &status, 0);
    p->pid = 0;
    if (pid > 0 && WIFSIGNALED(status))
        return app_fail(APP_FAILED, "the llama.cpp next to us (%s) was ended by signal %d (%s) at '%s'%s",
                        name_of(p), WTERMSIG(status), strsignal(WTERMSIG(status)), request,
                        p->native ? "; remove that file and run `make peers` again" : "");
    return app_fail(APP_FAILED, "the llama.cpp next to us (%s) ended with exit code %d at '%s'", name_of(p),
                    pid > 0 ? WEXITSTATUS(status) : -1, request);
}

static void end(struct bench_peer *p)
{
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    p->pid = 0;
}

static int hangs(struct bench_peer *p, const char *request)
{
    end(p);
    return app_fail(
        APP_FAILED,
        "the llama.cpp next to us (%s) gave no sign of work for %d s at '%s'; --peer-timeout gives it "
        "more time",
        name_of(p), (int)p->silence_s, request);
}

/* ---- Requests and answers ---- */

static int send_all(struct bench_peer *p, const char *text, size_t n, const char *request)
{
    while (n > 0) {
        const ssize_t sent = send(p->fd, text, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return hangs(p, request);
        if (sent <= 0)
            return ended(p, request);
        text += sent;
        n -= (size_t)sent;
    }
    return APP_OK;
}

/* Waits for more bytes of an answer. */
static int receive(struct bench_peer *p, const char *request)
{
    struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
    int ready;
    if (p->n_in == sizeof p->in)
        return app_fail(APP_FAILED, "'%s' is no llama.cpp that winnow can talk to: its lines are too long",
                        name_of(p));
    while ((ready = poll(&poll_fd, 1, p->silence_s * 1000)) < 0 && errno == EINTR) {
    }
    if (ready == 0)
        return hangs(p, request);
    const ssize_t n = recv(p->fd, p->in + p->n_in, sizeof p->in - p->n_in, 0);
    if (n <= 0 && !(n < 0 && errno == EINTR))
        return ended(p, request);
    p->n_in += n > 0 ? (size_t)n : 0;
    return APP_OK;
}

/* Sets line[MAX_ANSWER] to the next line. */
static int next_line(struct bench_peer *p, char *line, const char *request)
{
    const char *newline;
    while (!(newline = memchr(p->in, '\n', p->n_in))) {
        WNW_TRY(receive(p, request));
    }
    const size_t n = (size_t)(newline - p->in);
    memcpy(line, p->in, n);
    line[n] = '\0';
    p->n_in -= n + 1;
    memmove(p->in, newline + 1, p->n_in);
    return APP_OK;
}

/* Waits for the answer to a request. `request` is only its name. */
static int wait_answer(struct bench_peer *p, const char *request)
{
    char line[MAX_ANSWER];
    int rc;
    do
        rc = next_line(p, line, request);
    while (rc == APP_OK && strncmp(line, "at ", 3) == 0);
    if (rc != APP_OK)
        return rc;
    if (strncmp(line, "failed ", 7) == 0)
        return app_fail(APP_FAILED, "the llama.cpp next to us (%s): '%s': %s", name_of(p), request, line + 7);
    if (strcmp(line, "ok") != 0 && strncmp(line, "ok ", 3) != 0)
        return app_fail(APP_FAILED, "'%s' is no llama.cpp that winnow can talk to: it answers '%.60s'",
                        name_of(p), line);
    snprintf(p->answer, sizeof p->answer, "%s", line[2] ? line + 3 : "");
    return APP_OK;
}

/* Sends "words token token ...\n" and waits for the answer. */
static int ask(struct bench_peer *p, const char *request, const char *words, const int32_t *tokens, int32_t n)
{
    enum { PER_TOKEN = 12 };
    const size_t n_words = strlen(words);
    if (!p->pid)
        return app_fail(APP_FAILED, "the llama.cpp next to us (%s) is not running", name_of(p));
    char *text = malloc(n_words + 2 + (size_t)n * PER_TOKEN);
    if (!text)
        return app_fail(APP_FAILED, "out of memory");
    size_t len = (size_t)sprintf(text, "%s", words);
    for (int32_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, PER_TOKEN + 1, " %d", (int)tokens[i]);
    text[len++] = '\n';
    int rc = send_all(p, text, len, request);
    free(text);
    if (rc == APP_OK)
        rc = wait_answer(p, request);
    return rc;
}

void bench_wait_until_asleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = ASLEEP_MS * 1000000L}, NULL);
}

/* A request that is answered with its time. */
static int ask_timed(struct bench_peer *p, const char *request, const char *words, const int32_t *tokens,
                     int32_t n, double *ms)
{
    char *end_of_number;
    WNW_TRY(ask(p, request, words, tokens, n));
    const double took = strtod(p->answer, &end_of_number);
    if (end_of_number == p->answer || !(took >= 0))
        return app_fail(APP_FAILED, "'%s' is no llama.cpp that winnow can talk to: it answers no time",
                        name_of(p));
    *ms += took;
    return APP_OK;
}

/* ---- Opening ---- */

/* Whether the file says what /proc/cpuinfo says of this CPU (scripts/peers.sh wrote it). */
static bool is_for_this_cpu(const char *path)
{
    static const char *const keys[] = {"model name", "flags", "Features"};
    char said[2 * MAX_ANSWER], here[2 * MAX_ANSWER] = "", value[MAX_ANSWER];
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(said, 1, sizeof said - 1, f) : 0;
    if (f)
        fclose(f);
    said[n] = '\0';
    for (size_t i = 0, len = 0; i < sizeof keys / sizeof *keys && len < sizeof here; i++)
        if (app_cpu_value(value, sizeof value, keys[i]))
            len += (size_t)snprintf(here + len, sizeof here - len, "%s\n", value);
    return n > 0 && strcmp(said, here) == 0;
}

/* Sets p->program to what make peers has built, if that suits this CPU; leaves it NULL otherwise. */
static int find_native(struct bench_peer *p)
{
    char *cpu = NULL, *program = NULL;
    int rc = app_cache_path(&cpu, "peers/llama/cpu");
    if (rc == APP_OK)
        rc = app_cache_path(&program, "peers/llama/winnow-peer");
    if (rc == APP_OK && access(program, X_OK) == 0) {
        p->native = is_for_this_cpu(cpu);
        if (!p->native)
            app_note("'%s' was built for another CPU and is not used; `make peers` builds it again", program);
    }
    if (p->native)
        p->program = program;
    else
        free(program);
    free(cpu);
    return rc;
}

static int choose_program(struct bench_peer *p, const char *program)
{
    if (!program)
        return find_native(p);
    if (strcmp(program, "own") == 0)
        return APP_OK;
    if (access(program, X_OK) != 0)
        return cannot_run(program, errno, false);
    p->program = strdup(program);
    return p->program ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int ask_about(struct bench_peer *p)
{
    WNW_TRY(ask(p, "about", "about", NULL, 0));
    const size_t n = strcspn(p->answer, " ");
    snprintf(p->version, sizeof p->version, "%.*s", (int)n, p->answer);
    snprintf(p->flags, sizeof p->flags, "%s", p->answer[n] ? p->answer + n + 1 : "");
    const char *build = p->program ? p->program : "the build that winnow uses";
    snprintf(p->about, sizeof p->about, "llama.cpp: ggml %s, %s (%s)%s", p->version,
             p->native ? "built for this CPU" : build, p->flags,
             p->native || p->program ? "" : "; `make peers` builds one for this CPU");
    return APP_OK;
}

static int new_peer(struct bench_peer **out, int32_t silence_s)
{
    struct bench_peer *p = *out = calloc(1, sizeof *p);
    if (!p)
        return app_fail(APP_FAILED, "out of memory");
    p->fd = -1;
    p->silence_s = silence_s;
    return APP_OK;
}

static int start_peer(struct bench_peer *p)
{
    WNW_TRY(start(p));
    return ask_about(p);
}

int bench_peer_start(struct bench_peer **out, const char *program, int32_t silence_s)
{
    WNW_TRY(new_peer(out, silence_s));
    WNW_TRY(choose_program(*out, program));
    return start_peer(*out);
}

int bench_peer_start_bridge(struct bench_peer **out, int32_t silence_s)
{
    WNW_TRY(new_peer(out, silence_s));
    (*out)->bridge = true;
    return start_peer(*out);
}

int bench_peer_use_cpu_time(struct bench_peer *p)
{
    return ask(p, "clock", "clock cpu", NULL, 0);
}

int bench_peer_load(struct bench_peer *p, const char *model, const struct bench_llama_params *params)
{
    char *words = NULL;
    if (strchr(model, '\n'))
        return app_fail(APP_BAD_INPUT, "the model's path has a line break; rename it");
    if (asprintf(&words, "open %d %d %d %d %s", (int)params->n_ctx,
                 params->n_seq > 0 ? (int)params->n_seq : 1, (int)params->n_ubatch, (int)params->n_threads,
                 model) < 0)
        return app_fail(APP_FAILED, "out of memory");
    const int rc = ask(p, "open", words, NULL, 0);
    free(words);
    return rc;
}

void bench_peer_close(struct bench_peer *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    end(p);
    free(p->program);
    free(p);
}

/* ---- What the benchmarks ask ---- */

const char *bench_peer_about(const struct bench_peer *p)
{
    return p->about;
}

json_t *bench_peer_json(struct bench_peer *p)
{
    const bool known = ask(p, "memory", "memory", NULL, 0) == APP_OK;
    return json_pack("{s:s, s:o, s:s, s:o, s:b, s:o}", "name", "llama.cpp", "program",
                     app_json_text(p->program ? p->program : "own"), "ggml", p->version, "flags",
                     app_json_text(p->flags), "native", p->native, "peak_rss_bytes",
                     known ? json_integer(strtoll(p->answer, NULL, 10)) : json_null());
}

int bench_peer_reset(struct bench_peer *p)
{
    return ask(p, "reset", "reset", NULL, 0);
}

int bench_peer_feed(struct bench_peer *p, int32_t seq, const int32_t *tokens, int32_t n, double *ms)
{
    char words[64];
    snprintf(words, sizeof words, "feed %d", (int)seq);
    return ask_timed(p, "feed", words, tokens, n, ms);
}

int bench_peer_copy(struct bench_peer *p, int32_t from, int32_t to)
{
    char words[64];
    snprintf(words, sizeof words, "copy %d %d", (int)from, (int)to);
    return ask(p, "copy", words, NULL, 0);
}

int32_t bench_n_turns(int32_t n_decode)
{
    return (n_decode + BENCH_TURN_STEPS - 1) / BENCH_TURN_STEPS;
}

int32_t bench_turn_steps(int32_t n_decode, int32_t turn)
{
    const int32_t left = n_decode - turn * BENCH_TURN_STEPS;
    return left < BENCH_TURN_STEPS ? left : BENCH_TURN_STEPS;
}

int bench_peer_turn(struct bench_peer *p, const int32_t *tokens, int32_t n_seq, int32_t n_steps, double *ms)
{
    char words[64];
    double untimed = 0;
    snprintf(words, sizeof words, "steps %d", (int)n_seq);
    bench_wait_until_asleep();
    WNW_TRY(ask_timed(p, "steps", words, tokens, n_seq, &untimed));
    return ask_timed(p, "steps", words, tokens + n_seq, n_seq * n_steps, ms);
}

int bench_peer_policy(struct bench_peer *p, const char *recipe, int64_t budget)
{
    char *words = NULL;
    if (asprintf(&words, "policy %lld %s", (long long)budget, recipe) < 0)
        return app_fail(APP_FAILED, "out of memory");
    const int rc = ask(p, "policy", words, NULL, 0);
    free(words);
    return rc;
}

int bench_peer_compress(struct bench_peer *p, double *ms)
{
    return ask_timed(p, "compress", "compress", NULL, 0, ms);
}
