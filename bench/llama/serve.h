/* SPDX-License-Identifier: MIT */
/*
 * llama.cpp as a process of its own, seen from inside: it answers requests that come line by line. Words are
 * separated by one blank. A request is answered by any number of lines `at N`, which say that work goes on,
 * and then by one line: `ok` with results, or `failed` and a sentence. The requests are
 *
 *   about                                           ok VERSION FLAG...  of ggml, and what it was built with
 *   open N_CTX N_SEQ N_UBATCH N_THREADS PATH        ok                  as bench_llama_open
 *   reset                                           ok
 *   feed SEQ TOKEN...                               ok MS               as bench_llama_feed
 *   copy FROM TO                                    ok                  as bench_llama_copy
 *   steps N_SEQ TOKEN...                            ok MS               bench_llama_step, until all are read
 *   clock wall|cpu                                  ok                  what MS is from now on; wall at first
 *   memory                                          ok BYTES            the most that was ever resident
 *
 * Times are measured here, so that pipes are not in them. This folder knows libllama and no library of
 * ours: it is also compiled against another build of llama.cpp (scripts/peers.sh).
 */
#ifndef WNW_BENCH_LLAMA_SERVE_H
#define WNW_BENCH_LLAMA_SERVE_H

/* Answers the requests that come from the descriptor `in` on `out` until `in` ends. Returns the exit code of
 * the process. */
int bench_llama_serve(int in, int out);

#endif
