/* SPDX-License-Identifier: MIT */
/*
 * A program of libllama, with and without the device WINNOW: reads the same tokens on both, decodes some more, and prints how
 * long each took. With a recipe and a budget, ours compresses the prompt before it decodes.
 *
 *     backend MODEL.gguf [TOKENS [THREADS [RECIPE BUDGET]]]
 *
 * With one thread the times are the process's CPU time, which other programs on the machine disturb least.
 */
#include "winnow_bridge.h"

#include <ggml-backend.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 512, N_DECODE = 32, ROUNDS = 3 };

struct setup {
    const char *path, *recipe;
    int32_t n_tokens, n_threads;
    wnw_size size;
};

/* The best of the rounds, in seconds; decode for one token. */
struct times {
    double read, decode;
};

static void drop_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

static double now(const struct setup *s)
{
    struct timespec t;
    clock_gettime(s->n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Decodes n made-up tokens at the end of the sequence, in batches of at most `batch`. */
static void decode(struct llama_context *ctx, int32_t n, int32_t batch)
{
    for (int32_t i = 0; i < n; i += batch) {
        int32_t tokens[BATCH];
        const int32_t k = n - i < batch ? n - i : batch;
        for (int32_t j = 0; j < k; j++)
            tokens[j] = 100 + (i + j) * 7919 % 20000;
        if (llama_decode(ctx, llama_batch_get_one(tokens, k)) != 0) {
            fprintf(stderr, "llama_decode failed\n");
            exit(1);
        }
    }
}

static void check(int status)
{
    if (status == WNW_OK)
        return;
    fprintf(stderr, "%s\n", wnw_last_error());
    exit(1);
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void measure(const struct setup *s, struct llama_context *ctx, wnw_bridge *cache, struct times *best)
{
    *best = (struct times){1e9, 1e9};
    for (int round = 0; round < ROUNDS; round++) {
        llama_memory_clear(llama_get_memory(ctx), true);
        double start = now(s);
        decode(ctx, s->n_tokens, BATCH);
        best->read = smaller(best->read, now(s) - start);
        if (cache && s->recipe)
            check(wnw_bridge_compress(cache));
        start = now(s);
        decode(ctx, N_DECODE, 1);
        best->decode = smaller(best->decode, (now(s) - start) / N_DECODE);
    }
}

static void print_cache(const wnw_bridge *cache)
{
    int64_t n_entries = 0;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer layer = wnw_bridge_layer_default();
        check(wnw_bridge_get_layer(cache, i, &layer));
        n_entries += layer.n_entries;
        bytes += layer.bytes;
    }
    printf("WINNOW holds %lld entries in %.1f MiB\n", (long long)n_entries, (double)bytes / 1048576.0);
}

static void run(const struct setup *s, bool ours, struct times *best)
{
    ggml_backend_dev_t winnow[] = {ggml_backend_dev_by_name("WINNOW"), NULL}, none[] = {NULL};
    struct llama_model_params m = llama_model_default_params();
    struct llama_context_params c = llama_context_default_params();
    wnw_bridge *cache = NULL;
    m.devices = ours ? winnow : none;
    m.n_gpu_layers = ours ? 1000 : 0; /* all layers */
    c.n_ctx = (uint32_t)(s->n_tokens + N_DECODE);
    c.n_batch = c.n_ubatch = BATCH;
    c.n_threads = c.n_threads_batch = s->n_threads;
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    struct llama_model *model = llama_model_load_from_file(s->path, m);
    struct llama_context *ctx = model ? llama_init_from_model(model, c) : NULL;
    if (!ctx) {
        fprintf(stderr, "libllama cannot open %s\n", s->path);
        exit(1);
    }
    if (ours)
        check(wnw_bridge_find(&cache, llama_synchronize, ctx));
    if (ours && s->recipe)
        check(wnw_bridge_set_policy(cache, s->recipe, &s->size, false));
    measure(s, ctx, cache, best);
    if (ours)
        print_cache(cache);
    llama_free(ctx);
    llama_model_free(model);
}

int main(int argc, char **argv)
{
    struct times plain, ours;
    if (argc < 2 || argc == 5 || argc > 6) {
        fprintf(stderr, "usage: %s MODEL.gguf [TOKENS [THREADS [RECIPE BUDGET]]]\n", argv[0]);
        return 2;
    }
    const struct setup s = {.path = argv[1],
                            .n_tokens = argc > 2 ? atoi(argv[2]) : BATCH,
                            .n_threads = argc > 3 ? atoi(argv[3]) : 1,
                            .recipe = argc > 4 ? argv[4] : NULL,
                            .size = {.kind = WNW_SIZE_BUDGET, .budget = argc > 5 ? atoll(argv[5]) : 0}};
    if (s.n_tokens < 1 || s.n_threads < 1) {
        fprintf(stderr, "TOKENS and THREADS are 1 or more\n");
        return 2;
    }
    llama_log_set(drop_log, NULL);
    check(wnw_bridge_register());
    run(&s, false, &plain);
    run(&s, true, &ours);
    printf("%d tokens, %d threads        libllama    WINNOW\n", (int)s.n_tokens, (int)s.n_threads);
    printf("reading, s             %10.2f %10.2f  %.2fx\n", plain.read, ours.read, plain.read / ours.read);
    printf("decoding, ms per token %10.2f %10.2f  %.2fx\n", 1e3 * plain.decode, 1e3 * ours.decode,
           plain.decode / ours.decode);
    return 0;
}
