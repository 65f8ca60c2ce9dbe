/* SPDX-License-Identifier: MIT */
#include "bench/llama/serve.h"

#include "app/process.h"
#include "bench/llama/llama.h"

#include <ctype.h>
#include <errno.h>
#include <ggml.h>
#include <limits.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    FILE *out;
    struct bench_llama *llama;
    const struct bench_llama_device *device; /* NULL = the CPU */
    int32_t n_seq, n_ubatch;
    int32_t *tokens; /* [cap_tokens] of the present request */
    int32_t n_tokens, cap_tokens;
    bool cpu_time;  /* MS is CPU time */
    double said_ms; /* when it last said that work goes on */
    bool failed;    /* the request has been answered by a failure */
};

static void fail(struct server *s, const char *sentence)
{
    fprintf(s->out, "failed %s\n", sentence);
    s->failed = true;
}

static double now_ms(const struct server *s)
{
    return s->cpu_time ? app_cpu_ms() : app_now_ms();
}

/* ---- Reading requests ---- */

/* Takes a whole number of at least `least` from the text. */
static int32_t take_number(struct server *s, const char **text, int32_t least)
{
    char *end;
    errno = 0;
    const long n = strtol(*text, &end, 10);
    if (!s->failed && (end == *text || errno || n < least || n > INT32_MAX))
        fail(s, "a number of the request is missing or out of range");
    *text = end;
    return s->failed ? least : (int32_t)n;
}

static bool put_token(struct server *s, int32_t token)
{
    if (s->n_tokens == s->cap_tokens) {
        const int32_t cap = s->cap_tokens < INT32_MAX / 4 ? 2 * s->cap_tokens + 1024 : 0;
        int32_t *grown = cap ? realloc(s->tokens, (size_t)cap * sizeof *grown) : NULL;
        if (!grown)
            return false;
        s->tokens = grown;
        s->cap_tokens = cap;
    }
    s->tokens[s->n_tokens++] = token;
    return true;
}

/* Takes all that is left of the request as tokens. */
static void take_tokens(struct server *s, const char *text)
{
    s->n_tokens = 0;
    while (!s->failed && *text) {
        const int32_t token = take_number(s, &text, 0);
        if (!s->failed && !put_token(s, token))
            fail(s, "no memory for the tokens");
    }
    if (!s->failed && s->n_tokens == 0)
        fail(s, "the request has no tokens");
}

static int32_t take_sequence(struct server *s, const char **text)
{
    const int32_t i = take_number(s, text, 0);
    if (!s->failed && i >= s->n_seq)
        fail(s, "there is no such sequence");
    return i;
}

/* ---- Requests ---- */

/* What ggml was built with, as words: "AVX2 = 1" of the system's description becomes "AVX2". */
static void about(struct server *s, const char *text)
{
    (void)text;
    fprintf(s->out, "ok %s", ggml_version());
    for (const char *found = llama_print_system_info(); (found = strstr(found, " = 1")) != NULL; found += 4) {
        const char *from = found;
        while (from > llama_print_system_info() && (isalnum((unsigned char)from[-1]) || from[-1] == '_'))
            from--;
        fprintf(s->out, " %.*s", (int)(found - from), from);
    }
    fputc('\n', s->out);
}

static void open_model(struct server *s, const char *text)
{
    struct bench_llama_params p = {0};
    p.n_ctx = take_number(s, &text, 1);
    p.n_seq = take_number(s, &text, 1);
    p.n_ubatch = take_number(s, &text, 1);
    p.n_threads = take_number(s, &text, 1);
    p.device = s->device ? s->device->name : NULL;
    if (s->failed)
        return;
    bench_llama_close(s->llama);
    s->llama = bench_llama_open(*text ? text + 1 : text, &p);
    s->n_seq = p.n_seq;
    s->n_ubatch = p.n_ubatch;
    if (s->llama)
        fputs("ok\n", s->out);
    else
        fail(s, "llama.cpp could not open the model with a context of this length");
}

static void reset(struct server *s, const char *text)
{
    (void)text;
    bench_llama_reset(s->llama);
    fputs("ok\n", s->out);
}

/* Says that work goes on, a few times a second: the benchmark that reads it takes a CPU from the next step. */
static void still_working(struct server *s, int32_t done)
{
    enum { EVERY_MS = 250 };
    const double now = app_now_ms();
    if (now - s->said_ms < EVERY_MS)
        return;
    s->said_ms = now;
    fprintf(s->out, "at %d\n", (int)done);
    fflush(s->out);
}

static void feed(struct server *s, const char *text)
{
    const int32_t seq = take_sequence(s, &text);
    double ms = 0;
    take_tokens(s, text);
    for (int32_t done = 0; !s->failed && done < s->n_tokens; done += s->n_ubatch) {
        const int32_t n = s->n_tokens - done < s->n_ubatch ? s->n_tokens - done : s->n_ubatch;
        const double start = now_ms(s);
        if (!bench_llama_feed(s->llama, seq, s->tokens + done, n, done + n == s->n_tokens))
            fail(s, "llama_decode failed");
        ms += now_ms(s) - start;
        if (!s->failed)
            still_working(s, done + n);
    }
    if (!s->failed)
        fprintf(s->out, "ok %.6f\n", ms);
}

static void copy(struct server *s, const char *text)
{
    const int32_t from = take_sequence(s, &text), to = take_sequence(s, &text);
    if (s->failed)
        return;
    bench_llama_copy(s->llama, from, to);
    fputs("ok\n", s->out);
}

static void steps(struct server *s, const char *text)
{
    const int32_t n = take_number(s, &text, 1);
    double ms = 0;
    take_tokens(s, text);
    if (!s->failed && (n > s->n_seq || s->n_tokens % n))
        fail(s, "the tokens do not fit the number of sequences");
    for (int32_t done = 0; !s->failed && done < s->n_tokens; done += n) {
        const double start = now_ms(s);
        if (!bench_llama_step(s->llama, s->tokens + done, n))
            fail(s, "llama_decode failed");
        ms += now_ms(s) - start;
        if (!s->failed)
            still_working(s, done / n + 1);
    }
    if (!s->failed)
        fprintf(s->out, "ok %.6f\n", ms);
}

/* Generates the likeliest tokens after what was read, until N or the end of generation, and prints them. */
static void generate(struct server *s, int32_t seq, int32_t n)
{
    double ms = 0;
    int32_t n_ids = 0;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids)
        fail(s, "no memory for the answer");
    while (!s->failed && n_ids < n && (ids[n_ids] = bench_llama_pick(s->llama)) >= 0) {
        const int32_t id = ids[n_ids++];
        const double start = now_ms(s);
        if (n_ids < n && !bench_llama_feed(s->llama, seq, &id, 1, true))
            fail(s, "llama_decode failed");
        ms += now_ms(s) - start;
        if (!s->failed)
            still_working(s, n_ids);
    }
    if (!s->failed) {
        fprintf(s->out, "ok %.6f", ms);
        for (int32_t i = 0; i < n_ids; i++)
            fprintf(s->out, " %d", (int)ids[i]);
        fputc('\n', s->out);
    }
    free(ids);
}

static void answer_question(struct server *s, const char *text)
{
    const int32_t seq = take_sequence(s, &text), n = take_number(s, &text, 1);
    take_tokens(s, text);
    if (!s->failed && !bench_llama_feed(s->llama, seq, s->tokens, s->n_tokens, true))
        fail(s, "llama_decode failed");
    if (!s->failed)
        generate(s, seq, n);
}

/* Answers with what a function of the device has returned. */
static bool answer_device(struct server *s, const char *wrong)
{
    if (wrong)
        fail(s, wrong);
    return !wrong;
}

static void set_policy(struct server *s, const char *text)
{
    const int32_t budget = take_number(s, &text, 1);
    if (s->failed)
        return;
    const char *recipe = *text ? text + 1 : text;
    if (answer_device(s, s->device ? s->device->set_policy(bench_llama_context(s->llama), recipe, budget)
                                   : "this cache does not compress"))
        fputs("ok\n", s->out);
}

static void compress(struct server *s, const char *text)
{
    (void)text;
    const double start = now_ms(s);
    const char *wrong =
        s->device ? s->device->compress(bench_llama_context(s->llama)) : "this cache does not compress";
    const double ms = now_ms(s) - start;
    if (answer_device(s, wrong))
        fprintf(s->out, "ok %.6f\n", ms);
}

static void use_clock(struct server *s, const char *text)
{
    const bool cpu = strcmp(text, " cpu") == 0;
    if (!cpu && strcmp(text, " wall") != 0) {
        fail(s, "there is no such clock");
        return;
    }
    s->cpu_time = cpu;
    fputs("ok\n", s->out);
}

static void memory(struct server *s, const char *text)
{
    (void)text;
    fprintf(s->out, "ok %llu\n", (unsigned long long)app_peak_rss());
}

static const struct request {
    const char *name;
    bool needs_model;
    void (*answer)(struct server *s, const char *text);
} requests[] = {
    {"about", false, about},
    {"open", false, open_model},
    {"reset", true, reset},
    {"feed", true, feed},
    {"copy", true, copy},
    {"steps", true, steps},
    {"memory", false, memory},
    {"clock", false, use_clock},
    {"policy", true, set_policy},
    {"compress", true, compress},
    {"answer", true, answer_question},
};

static void answer(struct server *s, const char *line)
{
    const size_t word = strcspn(line, " ");
    s->failed = false;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const struct request *r = &requests[i];
        if (strlen(r->name) != word || strncmp(r->name, line, word) != 0)
            continue;
        if (r->needs_model && !s->llama)
            fail(s, "no model is open");
        else
            r->answer(s, line + word);
        return;
    }
    fail(s, "there is no such request");
}

int bench_llama_serve(int in, int out, const struct bench_llama_device *device)
{
    struct server s = {.out = fdopen(out, "w"), .device = device};
    FILE *requests_in = fdopen(in, "r");
    char *line = NULL;
    size_t size = 0;
    int rc = s.out && requests_in ? 0 : 1;
    bench_llama_quiet();
    const char *wrong = device ? device->start() : NULL;
    if (wrong && rc == 0 && fprintf(s.out, "failed %s\n", wrong) >= 0)
        rc = fflush(s.out) == 0 ? 2 : 1;
    while (rc == 0 && getline(&line, &size, requests_in) > 0) {
        line[strcspn(line, "\n")] = '\0';
        answer(&s, line);
        rc = fflush(s.out) == 0 ? 0 : 1;
    }
    bench_llama_close(s.llama);
    free(s.tokens);
    free(line);
    if (requests_in)
        fclose(requests_in);
    if (s.out)
        fclose(s.out);
    return rc;
}
