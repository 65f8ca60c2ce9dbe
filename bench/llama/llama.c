/* SPDX-License-Identifier: MIT */
#include "bench/llama/llama.h"

#include <ggml-backend.h>
#include <llama.h>
#include <stdlib.h>

struct bench_llama {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
    bool has_batch, stepped; /* stepped: the last call was a step */
    int32_t n_ubatch, n_seq;
    int32_t *n_past; /* [n_seq] */
};

static void drop_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

void bench_llama_quiet(void)
{
    llama_log_set(drop_log, NULL);
}

/* llama.cpp's cache rounds a sequence's room up to blocks of this many tokens. It is rounded here already, so
 * that n_ctx is divided evenly among the sequences. */
enum { CTX_BLOCK = 256, ALL_LAYERS = 1000 };

struct bench_llama *bench_llama_open(const char *path, const struct bench_llama_params *params)
{
    struct bench_llama *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->n_ubatch = params->n_ubatch;
    b->n_seq = params->n_seq > 0 ? params->n_seq : 1;
    b->n_past = calloc((size_t)b->n_seq, sizeof *b->n_past);
    if (!b->n_past)
        goto fail;
    bench_llama_quiet();
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    ggml_backend_dev_t devices[] = {params->device ? ggml_backend_dev_by_name(params->device) : NULL, NULL};
    if (params->device && !devices[0])
        goto fail;
    mp.devices = params->device ? devices : NULL;
    mp.n_gpu_layers = params->device ? ALL_LAYERS : 0;
    b->model = llama_model_load_from_file(path, mp);
    if (!b->model)
        goto fail;
    struct llama_context_params cp = llama_context_default_params();
    const int32_t per_seq =
        b->n_seq == 1 ? params->n_ctx : (params->n_ctx + CTX_BLOCK - 1) / CTX_BLOCK * CTX_BLOCK;
    cp.n_ctx = (uint32_t)per_seq * (uint32_t)b->n_seq;
    cp.n_seq_max = (uint32_t)b->n_seq;
    cp.kv_unified = false; /* a cache for each sequence: the faster setting if they share no prefix */
    cp.n_batch = cp.n_ubatch = (uint32_t)b->n_ubatch;
    cp.n_threads = cp.n_threads_batch = params->n_threads;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.type_k = cp.type_v = GGML_TYPE_F16;
    cp.offload_kqv = params->device != NULL;
    cp.op_offload = false;
    cp.swa_full = false; /* sliding-window layers keep only their window: the faster setting */
    b->ctx = llama_init_from_model(b->model, cp);
    if (!b->ctx)
        goto fail;
    b->batch = llama_batch_init(b->n_ubatch, 0, 1);
    b->has_batch = b->batch.token != NULL;
    if (!b->has_batch)
        goto fail;
    return b;
fail:
    bench_llama_close(b);
    return NULL;
}

void bench_llama_close(struct bench_llama *b)
{
    if (!b)
        return;
    if (b->has_batch)
        llama_batch_free(b->batch);
    if (b->ctx)
        llama_free(b->ctx);
    if (b->model)
        llama_model_free(b->model);
    free(b->n_past);
    free(b);
}

void bench_llama_reset(struct bench_llama *b)
{
    llama_memory_clear(llama_get_memory(b->ctx), true);
    for (int32_t i = 0; i < b->n_seq; i++)
        b->n_past[i] = 0;
}

static void put(struct bench_llama *b, int32_t row, int32_t seq, int32_t token, bool logits)
{
    b->batch.token[row] = token;
    b->batch.pos[row] = b->n_past[seq]++;
    b->batch.n_seq_id[row] = 1;
    b->batch.seq_id[row][0] = seq;
    b->batch.logits[row] = logits;
}

bool bench_llama_feed(struct bench_llama *b, int32_t seq, const int32_t *tokens, int32_t n, bool logits)
{
    b->stepped = false;
    for (int32_t from = 0; from < n; from += b->n_ubatch) {
        const int32_t len = n - from < b->n_ubatch ? n - from : b->n_ubatch;
        b->batch.n_tokens = len;
        for (int32_t i = 0; i < len; i++)
            put(b, i, seq, tokens[from + i], logits && from + i == n - 1);
        if (llama_decode(b->ctx, b->batch) != 0)
            return false;
    }
    llama_synchronize(b->ctx);
    return !logits || llama_get_logits_ith(b->ctx, -1) != NULL;
}

void bench_llama_copy(struct bench_llama *b, int32_t from, int32_t to)
{
    llama_memory_t memory = llama_get_memory(b->ctx);
    if (from == to)
        return;
    llama_memory_seq_rm(memory, to, -1, -1);
    llama_memory_seq_cp(memory, from, to, -1, -1);
    b->n_past[to] = b->n_past[from];
}

bool bench_llama_step(struct bench_llama *b, const int32_t *tokens, int32_t n)
{
    b->stepped = true;
    b->batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++)
        put(b, i, i, tokens[i], true);
    if (llama_decode(b->ctx, b->batch) != 0)
        return false;
    llama_synchronize(b->ctx);
    return llama_get_logits_ith(b->ctx, n - 1) != NULL;
}

struct llama_context *bench_llama_context(const struct bench_llama *b)
{
    return b->ctx;
}

void bench_llama_synchronize(struct llama_context *ctx)
{
    llama_synchronize(ctx);
}

const float *bench_llama_logits(const struct bench_llama *b, int32_t i)
{
    return llama_get_logits_ith(b->ctx, b->stepped ? i : -1);
}

int32_t bench_llama_pick(const struct bench_llama *b)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(b->model);
    const float *logits = bench_llama_logits(b, 0);
    int32_t best = 0;
    for (int32_t i = 1; i < llama_vocab_n_tokens(vocab); i++)
        best = logits[i] > logits[best] ? i : best;
    return llama_vocab_is_eog(vocab, best) ? -1 : best;
}
