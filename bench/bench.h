/* SPDX-License-Identifier: MIT */
/* What the benchmarks share (common.c), and what `winnow bench` measured; filled by speed.c, printed by
 * speed_report.c. */
#ifndef WNW_BENCH_H
#define WNW_BENCH_H

#include "app/console.h"
#include "app/output.h"
#include "bench/args.h"
#include "bench/llama.h"
#include "winnow.h"

#include <jansson.h>

enum { BENCH_N_UBATCH = 512, BENCH_MAX_LENGTHS = 16 };
/* Median and ends of repeated measurements; NaN where there are none. */
struct bench_spread {
    double median, min, max;
};
/* Of v[n]; NaNs are left out. v is sorted. */
struct bench_spread bench_spread_of(double *v, int32_t n);
/* null where there is none. */
json_t *bench_spread_json(struct bench_spread s);
/* --lengths: at most BENCH_MAX_LENGTHS numbers. Returns an exit code. */
int bench_parse_lengths(int32_t *lengths, int32_t *n_lengths, const char *list);
/* Notes what the benchmark reads, and whether --csv can be written. */
int bench_check_csv(struct app_inputs *inputs, const struct bench_args *args, const char *model_path);
/* The same n ids in every run: what they are does not matter for speed, that all get the same does. Owned:
 * free. */
int32_t *bench_make_tokens(int32_t n, int32_t n_vocab);
/* CPU, threads and kernels in one line. */
void bench_describe_machine(char *out, size_t size, int32_t n_threads);

/* Resident memory of this process over a piece of work, in bytes; NaN where the system does not say. */
struct bench_memory {
    double before, peak;
};
/* Gives back to the system what was freed, and lets the high-water mark start at what is left. */
void bench_memory_start(struct bench_memory *m);
void bench_memory_stop(struct bench_memory *m);

/* What bench observe and bench methods both measure with; zeroed before it is checked, closed in any case. */
struct bench_base {
    const struct bench_args *args;
    int32_t lengths[BENCH_MAX_LENGTHS], n_lengths, n_reps, n_threads;
    char *model_path;
    struct app_inputs inputs;
    wnw_model *model;
    wnw_model_info info;
    int32_t *tokens; /* as many as the longest length */
    char machine[256];
};
/* What can be refused without the model. Returns an exit code, like the next. */
int bench_base_check(struct bench_base *b, const struct bench_args *args);
int bench_base_open(struct bench_base *b);
void bench_base_close(struct bench_base *b);
wnw_session_params bench_session_params(const struct bench_base *b);

enum bench_engine { LLAMA, FULL, COMPRESSED, N_ENGINES };

/* Tokens per second of one round. */
struct bench_round {
    double prefill[N_ENGINES]; /* COMPRESSED: observing and compressing included */
    double decode[N_ENGINES];
    double compress_ms;
};

struct bench_length {
    int32_t n;                  /* context length in tokens */
    int64_t budget;             /* entries kept per layer and KV head */
    struct bench_round *rounds; /* [n_rounds], owned */
    int32_t n_rounds;
    wnw_cache_stats stats[N_ENGINES]; /* right after prefill and compression; LLAMA unused */
    double kept_mean;
};

struct bench {
    const struct bench_args *args;
    int32_t lengths[BENCH_MAX_LENGTHS];
    int32_t n_lengths, n_threads, n_decode, n_reps;
    char *model_path;
    struct app_inputs inputs;
    wnw_policy *policy;
    wnw_model *model;
    wnw_model_info info;
    struct bench_llama *llama;
    wnw_session *full, *compressed;
    int32_t *tokens; /* [longest + n_decode] */
    struct bench_length results[BENCH_MAX_LENGTHS];
    int32_t n_results;
    int32_t n_steps_done;
    struct app_progress progress;
    char machine[256];
};

/* The three forms of the result. Each returns an exit code. */
int bench_print_table(const struct bench *b);
int bench_print_json(const struct bench *b);
int bench_write_csv(const struct bench *b);

#endif
