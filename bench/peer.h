/* SPDX-License-Identifier: MIT */
/*
 * llama.cpp in a process of its own (decision 036). `make peers` builds it for this CPU, also if winnow is built
 * for another one. Without `make peers` the process runs the libllama of this build. The two sides take turns and
 * never compute at the same time.
 */
#ifndef WNW_BENCH_PEER_H
#define WNW_BENCH_PEER_H

#include "bench/llama/llama.h"

#include <jansson.h>
#include <stdint.h>

struct bench_peer;

/* Starts the process. program: "own" = the libllama of this build; NULL = that of make peers, else "own".
 * silence_s: seconds without a sign of work after which it counts as hanging. To be called before this
 * process has started threads. The caller closes *out, after a failure too. These functions print what went
 * wrong and return exit codes; a process that has ended or hangs is an error of any of them. */
int bench_peer_start(struct bench_peer **out, const char *program, int32_t silence_s);
/* The same with the libllama of this build over our backend (bench/bridge.h). */
int bench_peer_start_bridge(struct bench_peer **out, int32_t silence_s);
/* Has it measure CPU time, not the time of the clock. */
int bench_peer_use_cpu_time(struct bench_peer *p);
/* Opens the model in it. */
int bench_peer_load(struct bench_peer *p, const char *model, const struct bench_llama_params *params);
/* Ends the process. */
void bench_peer_close(struct bench_peer *p);

/* One line that names the program, its version and its flags. Borrowed. */
const char *bench_peer_about(const struct bench_peer *p);
/* The same as JSON, with the most memory that the process has used. NULL if memory runs out. */
json_t *bench_peer_json(struct bench_peer *p);

/* Engines take turns on one machine. A turn begins when the threads of the engine before are asleep. Its first step wakes the own
 * threads and brings the weights back into the CPU's caches, so it is not timed: an engine that shares weights with the one
 * before would be faster. */
void bench_wait_until_asleep(void);
/* Steps of a turn that are timed. */
enum { BENCH_TURN_STEPS = 8 };
/* Turns in which n_decode steps are timed, and how many of them in one of these. */
int32_t bench_n_turns(int32_t n_decode);
int32_t bench_turn_steps(int32_t n_decode, int32_t turn);

/* As the functions of bench/llama/llama.h. Times are measured in the process; ms is increased by them. */
int bench_peer_reset(struct bench_peer *p);
int bench_peer_feed(struct bench_peer *p, int32_t seq, const int32_t *tokens, int32_t n, double *ms);
int bench_peer_copy(struct bench_peer *p, int32_t from, int32_t to);
/* A turn of decoding: bench_llama_step with n_seq tokens, which is not timed, and n_steps times more:
 * tokens[1 + n_steps][n_seq]. */
int bench_peer_turn(struct bench_peer *p, const int32_t *tokens, int32_t n_seq, int32_t n_steps, double *ms);
/* Of one over our backend: what its cache keeps of what is read from now on, and that it compresses. */
int bench_peer_policy(struct bench_peer *p, const char *recipe, int64_t budget);
int bench_peer_compress(struct bench_peer *p, double *ms);

#endif
