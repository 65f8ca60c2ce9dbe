/* SPDX-License-Identifier: MIT */
/* Arguments of the benchmarks. */
#ifndef WNW_BENCH_ARGS_H
#define WNW_BENCH_ARGS_H

#include "app/args.h"

struct bench_args {
    struct app_args app;
    char *csv, *lengths, *policies, *sequences, *peer;
    int64_t reps, decode_tokens, peer_timeout;
    bool markdown, cpu_time, bridge;
};

/* bench_group_peer is of the benchmarks that run next to llama.cpp; bench_group_part has the options that the
 * benchmarks of parts of the library share. */
extern const struct app_group bench_group_speed, bench_group_batch, bench_group_peer, bench_group_part,
    bench_group_methods, bench_group_roofline;

#endif
