/* SPDX-License-Identifier: MIT */
/* What the benchmarks share (common.c), and what `winnow bench` measured; filled by speed.c, printed by
 * speed_report.c. */
#ifndef WNW_BENCH_H
#define WNW_BENCH_H

#include "app/console.h"
#include "app/devices.h"
#include "app/kv.h"
#include "app/output.h"
#include "app/sequence.h"
#include "base/err.h"
#include "bench/args.h"
#include "bench/peer.h"
#include "winnow.h"

#include <jansson.h>

enum { BENCH_N_UBATCH = 512, BENCH_MAX_LENGTHS = 16 };
/* Median, least and greatest of repeated measurements; NaN if there are none. */
struct bench_spread {
    double median, min, max;
};
/* The spread of v[n] without its NaNs. The function sorts v. */
struct bench_spread bench_spread_of(double *v, int32_t n);
/* The spread as JSON; null if it is NaN. */
json_t *bench_spread_json(struct bench_spread s);
/* Parses the list of --lengths, at most BENCH_MAX_LENGTHS numbers. Returns an exit code. */
int bench_parse_lengths(int32_t *lengths, int32_t *n_lengths, const char *list);
/* Writes CPU, number of threads and kernels in one line. */
void bench_describe_machine(char *out, size_t size, int n_threads);
/* Adds the files that the benchmark reads to inputs and checks that --csv can be written. Returns an exit
 * code. */
int bench_check_csv(struct app_inputs *inputs, const struct bench_args *args, const char *model_path);
/* Parses a recipe. `auto` is chosen for prompts whose question comes later and the size of --ratio, with the profiles that are
 * found for the model; model_path NULL = with none. Returns an exit code. */
int bench_policy(wnw_policy **out, const struct bench_args *args, const char *recipe, const char *model_path);
/* Makes n token ids, the same in every run. Speed does not depend on which ids they are, but every engine
 * must get the same ones. The caller frees them. */
int32_t *bench_make_tokens(int32_t n, int32_t n_vocab);

/* Resident memory of this process during a piece of work, in bytes; NaN if the system does not report it. */
struct bench_memory {
    double before, peak;
};
/* Returns freed memory to the system and sets the high-water mark back to what is still resident. */
void bench_memory_start(struct bench_memory *m);
void bench_memory_stop(struct bench_memory *m);

/* Starts llama.cpp next to us as the options say. Returns an exit code; the caller closes *peer in any case. */
int bench_start_peer(struct bench_peer **peer, const struct bench_args *args, int32_t n_threads);
/* The same with the libllama of this build over our backend. */
int bench_start_bridge(struct bench_peer **peer, const struct bench_args *args);
/* Milliseconds of the clock that the options choose. */
double bench_now_ms(const struct bench_args *args);
/* The name of that clock, "wall" or "cpu". */
const char *bench_clock_name(const struct bench_args *args);

/* What the benchmarks of parts of the library share. The caller zeroes it before bench_base_check and closes
 * it in any case. */
struct bench_base {
    const struct bench_args *args;
    int32_t lengths[BENCH_MAX_LENGTHS], n_lengths, n_reps, n_threads;
    char *model_path;
    struct app_inputs inputs;
    wnw_model *model;
    wnw_model_info info;
    int32_t *tokens; /* as many as the greatest length */
    char machine[256];
};
/* Checks everything that can be refused without the model. Returns an exit code, like the next function. */
int bench_base_check(struct bench_base *b, const struct bench_args *args);
int bench_base_open(struct bench_base *b);
void bench_base_close(struct bench_base *b);
wnw_session_params bench_session_params(const struct bench_base *b);
/* Has the session observe what the policy needs and nothing else; NULL = nothing. Returns a status of the library. */
int bench_observe(wnw_session *s, const wnw_policy *policy);

/* Those from BRIDGE on, libllama over our backend, are measured with --bridge. */
enum bench_engine { LLAMA, FULL, COMPRESSED, BRIDGE, BRIDGE_COMPRESSED, N_ENGINES };

/* Tokens per second of one round. */
struct bench_round {
    double prefill[N_ENGINES]; /* of those that compress: includes observing and compressing */
    double decode[N_ENGINES];
    double compress_ms;
};

struct bench_length {
    int32_t n;                  /* context length in tokens */
    int64_t budget;             /* entries kept per layer and KV head */
    struct bench_round *rounds; /* [n_rounds], owned */
    int32_t n_rounds;
    wnw_cache_stats stats
        [N_ENGINES]; /* right after prefill and compression, with --devices after decoding; of winnow's caches alone */
    double kept_mean;
};

struct bench {
    const struct bench_args *args;
    int32_t lengths[BENCH_MAX_LENGTHS];
    int32_t n_lengths, n_threads, n_decode, n_reps;
    char *model_path;
    struct app_inputs inputs;
    wnw_policy *policy;
    struct app_kv kv; /* of our caches */
    wnw_model *model;
    wnw_model_info info;
    struct bench_peer *peer[N_ENGINES]; /* NULL for our sessions, and where there is none */
    int n_engines;                      /* BRIDGE, or N_ENGINES */
    wnw_session *full, *compressed;
    struct app_devices devices;
    struct app_sequence
        *sequence[N_ENGINES]; /* FULL and COMPRESSED with --devices, in place of the sessions */
    int32_t *tokens;          /* [the longest context and what is decoded after it] */
    struct bench_length results[BENCH_MAX_LENGTHS];
    int32_t n_results;
    int32_t n_steps_done;
    struct app_progress progress;
    char machine[256];
};

/* The three forms of the result. Each returns an exit code. */
int bench_print_table(const struct bench *b);
int bench_print_json(struct bench *b);
int bench_write_csv(const struct bench *b);

#endif
