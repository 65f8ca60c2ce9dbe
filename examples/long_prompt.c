/* SPDX-License-Identifier: MIT */
/*
 * Reads a long prompt in chunks, or whole, and prints a line of CSV after every 1,024 tokens: tokens read, seconds, and
 * seconds of CPU time.
 *
 *     long_prompt MODEL.gguf TEXT.txt TOKENS [RATIO [CHUNK [THREADS]]]
 *
 * RATIO is the share of entries that is removed; without it, or with 0, everything stays. CHUNK is the number of tokens between
 * two compressions; without it, or with 0, the prompt is read whole and compressed at its end. A text that is too short is read
 * again from its beginning. The last lines say how much memory the cache had at most, what is left, and how long each step took.
 */
#include <winnow.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_EVERY = 1024 };

/* Returns from the function where a call fails. The caller frees everything. */
#define TRY(call)                   \
    do {                            \
        const int status_ = (call); \
        if (status_ != WNW_OK)      \
            return status_;         \
    } while (0)

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct start {
    double wall, cpu;
};

/* Is called after every computation of the model. Chunks are several of them. */
static bool print_progress(int32_t done, int32_t total, void *user)
{
    const struct start *start = user;
    if (done % LINE_EVERY == 0 || done == total) {
        printf("%d,%.2f,%.2f\n", done, seconds_of(CLOCK_MONOTONIC) - start->wall,
               seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start->cpu);
        fflush(stdout);
    }
    return true; /* false would cancel */
}

/* n tokens of the file's text. Free them with free. */
static int32_t *tokens_of(const wnw_model *m, const char *path, int32_t n)
{
    enum { MOST = 1 << 24 };
    char *text = malloc(MOST);
    int32_t *piece = NULL, n_piece = 0, *tokens = malloc(sizeof *tokens * (size_t)n);
    FILE *f = fopen(path, "rb");
    const size_t len = text && f ? fread(text, 1, MOST, f) : 0;
    bool ok = tokens && len > 0 && wnw_tokenize(m, text, len, true, false, &piece, &n_piece) == WNW_OK &&
              n_piece > 0;
    for (int32_t i = 0; ok && i < n; i++)
        tokens[i] = piece[i % n_piece];
    if (!ok) {
        fprintf(stderr, "long_prompt: no tokens come of %s\n", path);
        free(tokens);
        tokens = NULL;
    }
    if (f)
        fclose(f);
    wnw_free(piece);
    free(text);
    return tokens;
}

static int read_and_print(wnw_session *s, const int32_t *tokens, int32_t n, const wnw_run *run,
                          struct start *start)
{
    wnw_report report = {WNW_INIT(wnw_report)};
    if (run->policy)
        TRY(wnw_session_begin(s, run));
    *start = (struct start){seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
    puts("tokens,seconds,cpu_seconds");
    TRY(wnw_session_read(s, tokens, n, &report));
    printf("# cache: %.1f MiB at most, %.1f MiB now\n", (double)report.kv_bytes_before / 1048576,
           (double)report.kv_bytes_after / 1048576);
    printf("# milliseconds: reading %.0f, observing %.0f, scores %.0f, selection %.0f, compaction %.0f\n",
           report.read_ms, report.observe_ms, report.score_ms, report.select_ms, report.compact_ms);
    return WNW_OK;
}

static int read_prompt(const wnw_model *m, const int32_t *tokens, int32_t n, const wnw_run *run,
                       int32_t n_threads)
{
    struct start start = {0, 0};
    wnw_session *s = NULL;
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = n + 1, .n_threads = n_threads,
                                       .progress = print_progress, .progress_user = &start};
    int rc = wnw_session_new(&s, m, &params);
    if (rc == WNW_OK)
        rc = read_and_print(s, tokens, n, run, &start);
    wnw_session_free(s);
    return rc;
}

int main(int argc, char **argv)
{
    const int32_t n = argc >= 4 ? (int32_t)strtol(argv[3], NULL, 10) : 0;
    const double ratio = argc >= 5 ? strtod(argv[4], NULL) : 0;
    const int32_t chunk = argc >= 6 ? (int32_t)strtol(argv[5], NULL, 10) : 0;
    const int32_t n_threads = argc >= 7 ? (int32_t)strtol(argv[6], NULL, 10) : 0;
    wnw_model *model = NULL;
    wnw_policy *policy = NULL;
    int32_t *tokens = NULL;
    if (argc < 4 || argc > 7 || n < 1) {
        fprintf(stderr, "usage: long_prompt MODEL.gguf TEXT.txt TOKENS [RATIO [CHUNK [THREADS]]]\n");
        return 2;
    }
    int rc = wnw_model_open(&model, argv[1], NULL);
    if (rc == WNW_OK && ratio > 0)
        rc = wnw_policy_parse(&policy, "keydiff", NULL);
    const wnw_run run = {WNW_INIT(wnw_run), .phase = chunk > 0 ? WNW_PHASE_CHUNK : WNW_PHASE_END,
                         .policy = policy, .size = {.kind = WNW_SIZE_RATIO, .ratio = ratio}, .chunk = chunk};
    if (rc == WNW_OK && (tokens = tokens_of(model, argv[2], n)) != NULL)
        rc = read_prompt(model, tokens, n, &run, n_threads);
    if (rc != WNW_OK)
        fprintf(stderr, "long_prompt: %s\n", wnw_last_error());
    const bool ok = rc == WNW_OK && tokens;
    free(tokens);
    wnw_policy_free(policy);
    wnw_model_free(model);
    return ok ? 0 : 1;
}
