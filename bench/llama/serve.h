/* SPDX-License-Identifier: MIT */
/*
 * The process that runs llama.cpp. It answers requests, one a line. Words are separated by one blank.
 * The reply to a request is any number of lines `at N`, which say that work goes on, then one last line:
 * `ok` with results, or `failed` and a sentence. The requests are
 *
 *   about                                           ok VERSION FLAG...  of ggml, and what it was built with;
 *   open N_CTX N_SEQ N_UBATCH N_THREADS PATH        ok                  as bench_llama_open;
 *   reset                                           ok;
 *   feed SEQ TOKEN...                               ok MS               as bench_llama_feed;
 *   copy FROM TO                                    ok                  as bench_llama_copy;
 *   steps N_SEQ TOKEN...                            ok MS               bench_llama_step, until all are read;
 *   answer SEQ N TOKEN...                           ok MS ID...         reads TOKEN..., then generates up to N tokens, the
 *                                                                       likeliest each time; MS is the time after the first;
 *   policy BUDGET RECIPE                            ok                  what a cache that compresses keeps;
 *   compress                                        ok MS               has it compress what was read last;
 *   clock wall|cpu                                  ok                  what MS is from now on; wall at first;
 *   memory                                          ok BYTES            the most that was ever resident;
 *
 * Times are measured here, so that they do not include the pipes. This folder uses libllama only and none of
 * winnow's libraries, because it is also compiled against another build of llama.cpp (scripts/peers.sh).
 */
#ifndef WNW_BENCH_LLAMA_SERVE_H
#define WNW_BENCH_LLAMA_SERVE_H

#include <stdint.h>

struct llama_context;

/* A device with a cache that compresses. Functions return NULL, or a sentence about what is wrong. */
struct bench_llama_device {
    const char *name;
    /* Makes ggml know the device. Called before the first model is opened. */
    const char *(*start)(void);
    const char *(*set_policy)(struct llama_context *ctx, const char *recipe, int64_t budget);
    const char *(*compress)(struct llama_context *ctx);
};

/* Answers the requests that come from the descriptor `in` on `out` until `in` ends. Models are given to the device; NULL = the
 * CPU. Returns the exit code of the process. */
int bench_llama_serve(int in, int out, const struct bench_llama_device *device);

#endif
