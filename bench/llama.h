/* SPDX-License-Identifier: MIT */
/* llama.cpp's own engine, for comparison. */
#ifndef WNW_BENCH_LLAMA_H
#define WNW_BENCH_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

struct bench_llama;

/* Opens the model with a context of n_ctx tokens: f16 cache, flash attention, batches of n_ubatch, CPU only.
 * NULL if that fails. */
struct bench_llama *bench_llama_open(const char *path, int32_t n_ctx, int32_t n_ubatch, int32_t n_threads);
void bench_llama_close(struct bench_llama *b);

/* Forgets all tokens. */
void bench_llama_reset(struct bench_llama *b);
/* Appends n tokens; logits for the last one only. */
bool bench_llama_feed(struct bench_llama *b, const int32_t *tokens, int32_t n);

#endif
