/* SPDX-License-Identifier: MIT */
/* What `winnow bench batch` measured; filled by batch.c, printed by batch_report.c. */
#ifndef WNW_BENCH_BATCH_H
#define WNW_BENCH_BATCH_H

#include "bench/bench.h"
#include "winnow_batch.h"

enum { BATCH_MAX_COUNTS = 16, BATCH_MAX_SEQUENCES = 64 };

/* The result for n sequences that decode together. */
struct batch_result {
    int32_t n;
    double *speed[N_ENGINES];     /* [n_reps] tokens per second of all sequences together */
    double fewest, most, mean;    /* entries per layer and KV head of the compressed sequences */
    uint64_t kv_bytes[N_ENGINES]; /* of all caches together; LLAMA: 0 */
};

struct batch_length {
    int32_t length; /* tokens of every sequence */
    struct batch_result results[BATCH_MAX_COUNTS];
};

struct bench_batch {
    struct bench_base base;
    int32_t counts[BATCH_MAX_COUNTS], n_counts, most; /* numbers of sequences, and the largest */
    int32_t n_decode;
    wnw_policy *policy;
    struct bench_peer *peer;
    wnw_engine *engine;
    wnw_session *read; /* every sequence starts as a copy of this one, which holds the prompt */
    wnw_session **sequences[N_ENGINES]; /* [most], of the present measurement; LLAMA: unused */
    int32_t *steps;                     /* [1 + BENCH_TURN_STEPS][most] tokens */
    struct batch_length lengths[BENCH_MAX_LENGTHS];
    int32_t n_lengths; /* lengths measured so far */
    struct app_progress progress;
};

/* The two forms of the result. Each returns an exit code. */
int batch_print_table(const struct bench_batch *b);
int batch_print_json(struct bench_batch *b);

#endif
