/* SPDX-License-Identifier: MIT */
/* libllama with and without our device, as programs use it. */
#ifndef WNW_TESTS_LLAMAS_H
#define WNW_TESTS_LLAMAS_H

#include "asserts.h"

#include <ggml-backend.h>
#include <llama.h>

struct test_llama {
    struct llama_model *model;
    struct llama_context *ctx;
    int32_t n_vocab;
};

/* What a context is made with; the defaults are 0. */
struct test_llama_params {
    bool ours;          /* on one of our devices, all layers of it */
    const char *device; /* which, or two with a comma between; NULL = WINNOW */
    bool flash;
    bool streams; /* a part of the cache for each sequence */
    bool
        windows; /* layers that slide have cells for their window and a computation, as llama-server has it */
    int32_t n_ctx, n_batch, n_seq, n_threads;
    int32_t n_ubatch;                      /* tokens that are computed at once; 0 = n_batch */
    enum ggml_type type_k, type_v;         /* 0 = f32 is taken for f16 */
    bool f32;                              /* keys and values */
    bool elsewhere;                        /* keys and values are in libllama's own memory */
    bool as_in_file;                       /* ggml copies no weights to layouts of its own */
    int32_t n_layers;                      /* on the device, 0 = all */
    ggml_backend_sched_eval_callback eval; /* NULL = none */
    void *user;                            /* of eval */
};

/* Opens a model file; the test fails if it cannot. Once per process our device is registered before. */
void test_llama_open(struct test_llama *t, const char *path, const struct test_llama_params *params);
void test_llama_close(struct test_llama *t);
/* Another context on the model of t; to be closed before it, with test_llama_close_ctx. */
void test_llama_share(struct test_llama *t, const struct test_llama *of,
                      const struct test_llama_params *params);
void test_llama_close_ctx(struct test_llama *t);

struct test_row {
    int32_t token, pos, seq;
};
/* Decodes rows of any sequences in one batch; as below. */
int test_llama_batch(struct test_llama *t, const struct test_row *row, int32_t n, float *logits);
/* Decodes n tokens of a sequence at positions pos, pos+1, ... in one batch. Returns llama_decode's result. logits
 * [n][n_vocab] or NULL. */
int test_llama_try(struct test_llama *t, int32_t seq, int32_t pos, const int32_t *tokens, int32_t n,
                   float *logits);
/* The same; fails the test where it fails. */
void test_llama_decode(struct test_llama *t, int32_t seq, int32_t pos, const int32_t *tokens, int32_t n,
                       float *logits);

/* Logits [n][n_vocab] of a prompt in one batch and of the tokens after it one by one, all of sequence 0. Released with free. */
float *test_llama_logits(struct test_llama *t, const int32_t *tokens, int32_t n_prompt, int32_t n);

/* Layers that our device said it has taken over, and has left as they are, since the last reset. Every context looks at
 * each of its layers once. */
int test_llama_ragged(void);
int test_llama_plain(void);
void test_llama_kinds_reset(void);
/* What libllama logged since the last reset. */
const char *test_llama_log(void);
void test_llama_log_reset(void);

/* Entries that all heads and layers of a context's cache hold together. */
int64_t test_llama_entries(struct test_llama *t);

/* sum (a - b)^2 / sum b^2; 0 / 0 = 0; infinite where something is not a number. */
double test_nmse(const float *a, const float *b, int64_t n);
/* What libllama saves of sequence 0: *n bytes, which the caller frees. */
uint8_t *test_llama_state(const struct test_llama *t, size_t *n);

#endif
