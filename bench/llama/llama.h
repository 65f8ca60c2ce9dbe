/* SPDX-License-Identifier: MIT */
/* llama.cpp's own engine, for comparison. This folder alone of the command knows libllama. */
#ifndef WNW_BENCH_LLAMA_LLAMA_H
#define WNW_BENCH_LLAMA_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

struct bench_llama;

struct bench_llama_params {
    int32_t n_ctx; /* most tokens of each sequence */
    int32_t n_seq; /* sequences; 0 = 1 */
    int32_t n_ubatch, n_threads;
    const char *device; /* a device of ggml that all layers are given to; NULL = the CPU */
};

/* Drops what libllama and ggml log in this process. */
void bench_llama_quiet(void);
/* Opens the model on the device with an f16 cache per sequence and flash attention. NULL if that fails. */
struct bench_llama *bench_llama_open(const char *path, const struct bench_llama_params *params);
void bench_llama_close(struct bench_llama *b);

/* Forgets all tokens of all sequences. */
void bench_llama_reset(struct bench_llama *b);
/* Appends n tokens to a sequence and computes logits for the last one, or for none. */
bool bench_llama_feed(struct bench_llama *b, int32_t seq, const int32_t *tokens, int32_t n, bool logits);
/* Replaces the contents of sequence `to` by a copy of sequence `from`. */
void bench_llama_copy(struct bench_llama *b, int32_t from, int32_t to);
/* Appends tokens[i] to sequence i, for the first n sequences (at most n_ubatch), in one llama_decode, and
 * computes logits for all of them. */
bool bench_llama_step(struct bench_llama *b, const int32_t *tokens, int32_t n);
struct llama_context;
/* The context, for further functions of its device, and libllama's function that such devices may ask for. */
struct llama_context *bench_llama_context(const struct bench_llama *b);
void bench_llama_synchronize(struct llama_context *ctx);

/* Logits [n_vocab] of sequence i after a step, or of i = 0 after feeding. They are valid until the next
 * call. */
const float *bench_llama_logits(const struct bench_llama *b, int32_t i);
/* The likeliest token after what was fed last, the lowest of equal ones; -1 if it ends generation. */
int32_t bench_llama_pick(const struct bench_llama *b);

#endif
