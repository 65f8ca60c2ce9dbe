/* SPDX-License-Identifier: MIT */
/* What `winnow bench roofline` measured; filled by roofline.c, printed by roofline_report.c. */
#ifndef WNW_BENCH_ROOFLINE_H
#define WNW_BENCH_ROOFLINE_H

#include "bench/bench.h"
#include "bench/peak.h"
#include "winnow_study.h"

enum roof_phase { ROOF_PREFILL, ROOF_FULL, ROOF_KEPT, ROOF_CHUNK, N_ROOF_PHASES };
enum roof_part {
    ROOF_WEIGHTS,
    ROOF_ATTENTION,
    ROOF_OBSERVATION,
    ROOF_LOGITS,
    ROOF_OTHER,       /* with all that lies between passes */
    ROOF_COMPRESSION, /* scores, selection, compaction */
    N_ROOF_PARTS
};

/* One round of a phase: the whole prompt, all decoded tokens, or a chunk that is read over what was kept. The parts add up to ms. */
struct roof_round {
    wnw_work part[N_ROOF_PARTS];
    double ms;
    double untimed_ms; /* the same number of tokens while the engine does not measure; NaN = not measured */
};

struct roof_length {
    int32_t n, n_chunk; /* tokens of the prompt, and of the chunk */
    double kept_mean;
    struct roof_round *rounds[N_ROOF_PHASES]; /* [n_rounds] */
    int32_t n_rounds;
};

struct bench_roofline {
    struct bench_base base;
    int32_t n_decode;
    wnw_policy *policy;
    wnw_engine *engine;
    struct bench_peak peaks[N_PEAKS];
    struct roof_length results[BENCH_MAX_LENGTHS];
    int32_t n_results;
    struct app_progress progress;
};

/* The two forms of the result. Each returns an exit code. */
int roofline_print_table(struct bench_roofline *b);
int roofline_print_json(struct bench_roofline *b);

#endif
