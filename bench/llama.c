/* SPDX-License-Identifier: MIT */
/* The only file of the command that knows libllama: the benchmark runs llama_decode beside our engine. */
#include "bench/llama.h"

#include <llama.h>
#include <stdlib.h>

struct bench_llama {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
    bool has_batch;
    int32_t n_ubatch, n_past;
};

static void drop_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

struct bench_llama *bench_llama_open(const char *path, int32_t n_ctx, int32_t n_ubatch, int32_t n_threads)
{
    struct bench_llama *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    llama_log_set(drop_log, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    b->model = llama_model_load_from_file(path, mp);
    if (!b->model)
        goto fail;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)n_ctx;
    cp.n_batch = cp.n_ubatch = (uint32_t)n_ubatch;
    cp.n_threads = cp.n_threads_batch = n_threads;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.type_k = cp.type_v = GGML_TYPE_F16;
    cp.offload_kqv = false;
    cp.op_offload = false;
    cp.swa_full = false; /* sliding-window layers keep their window only, the faster setting */
    b->ctx = llama_init_from_model(b->model, cp);
    if (!b->ctx)
        goto fail;
    b->batch = llama_batch_init(n_ubatch, 0, 1);
    b->has_batch = b->batch.token != NULL;
    b->n_ubatch = n_ubatch;
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
    free(b);
}

void bench_llama_reset(struct bench_llama *b)
{
    llama_memory_clear(llama_get_memory(b->ctx), true);
    b->n_past = 0;
}

bool bench_llama_feed(struct bench_llama *b, const int32_t *tokens, int32_t n)
{
    for (int32_t from = 0; from < n; from += b->n_ubatch) {
        const int32_t len = n - from < b->n_ubatch ? n - from : b->n_ubatch;
        b->batch.n_tokens = len;
        for (int32_t i = 0; i < len; i++) {
            b->batch.token[i] = tokens[from + i];
            b->batch.pos[i] = b->n_past + i;
            b->batch.n_seq_id[i] = 1;
            b->batch.seq_id[i][0] = 0;
            b->batch.logits[i] = from + i == n - 1;
        }
        if (llama_decode(b->ctx, b->batch) != 0)
            return false;
        b->n_past += len;
    }
    llama_synchronize(b->ctx);
    return llama_get_logits_ith(b->ctx, -1) != NULL;
}
