/* SPDX-License-Identifier: MIT */
#include "llamas.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char logged[1 << 16];
static int n_ragged, n_plain;

const char *test_llama_log(void)
{
    return logged;
}

void test_llama_log_reset(void)
{
    logged[0] = '\0';
}

int test_llama_ragged(void)
{
    return n_ragged;
}

int test_llama_plain(void)
{
    return n_plain;
}

void test_llama_kinds_reset(void)
{
    n_ragged = n_plain = 0;
}

static void keep_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    const size_t len = strlen(logged);
    snprintf(logged + len, sizeof logged - len, "%s", text);
    if (level == GGML_LOG_LEVEL_ERROR)
        print_error("%s", text);
}

static void count_kinds(wnw_log_level level, const char *line, void *user)
{
    int ragged, plain;
    (void)level;
    (void)user;
    if (sscanf(line, "winnow: layers with a ragged cache: %d, left as they are: %d", &ragged, &plain) != 2)
        return;
    n_ragged += ragged;
    n_plain += plain;
}

static struct llama_context *new_context(struct llama_model *model, const struct test_llama_params *p)
{
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = (uint32_t)(p->n_ctx > 0 ? p->n_ctx : 512);
    c.swa_full = !p->windows;
    c.n_batch = c.n_ubatch = (uint32_t)(p->n_batch > 0 ? p->n_batch : 512);
    if (p->n_ubatch > 0)
        c.n_ubatch = (uint32_t)p->n_ubatch;
    c.n_seq_max = (uint32_t)(p->n_seq > 0 ? p->n_seq : 1);
    c.kv_unified = !p->streams;
    c.n_threads = c.n_threads_batch = p->n_threads > 0 ? p->n_threads : 2;
    c.flash_attn_type = p->flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    c.type_k = p->f32 ? GGML_TYPE_F32 : p->type_k ? p->type_k : GGML_TYPE_F16;
    c.type_v = p->f32 ? GGML_TYPE_F32 : p->type_v ? p->type_v : GGML_TYPE_F16;
    c.offload_kqv = !p->elsewhere;
    c.cb_eval = p->eval;
    c.cb_eval_user_data = p->user;
    return llama_init_from_model(model, c);
}

void test_llama_open(struct test_llama *t, const char *path, const struct test_llama_params *params)
{
    assert_ok(wnw_bridge_register());
    llama_log_set(keep_log, NULL);
    wnw_set_log(count_kinds, NULL);
    char first[32];
    const char *names = params->device ? params->device : "WINNOW", *comma = strchr(names, ',');
    snprintf(first, sizeof first, "%.*s", comma ? (int)(comma - names) : (int)strlen(names), names);
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name(first),
                                    comma ? ggml_backend_dev_by_name(comma + 1) : NULL, NULL},
                       none[] = {NULL};
    assert_non_null(devices[0]);
    assert_true(!comma || devices[1]);
    struct llama_model_params m = llama_model_default_params();
    m.devices = params->ours ? devices : none;
    m.n_gpu_layers = !params->ours ? 0 : params->n_layers > 0 ? params->n_layers : 1000;
    m.use_extra_bufts = !params->as_in_file;
    *t = (struct test_llama){.model = llama_model_load_from_file(path, m)};
    assert_non_null(t->model);
    t->ctx = new_context(t->model, params);
    assert_non_null(t->ctx);
    t->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(t->model));
}

void test_llama_share(struct test_llama *t, const struct test_llama *of,
                      const struct test_llama_params *params)
{
    *t = (struct test_llama){
        .model = of->model, .n_vocab = of->n_vocab, .ctx = new_context(of->model, params)};
    assert_non_null(t->ctx);
}

void test_llama_close_ctx(struct test_llama *t)
{
    llama_free(t->ctx);
    t->ctx = NULL;
}

void test_llama_close(struct test_llama *t)
{
    test_llama_close_ctx(t);
    llama_model_free(t->model);
}

int test_llama_batch(struct test_llama *t, const struct test_row *row, int32_t n, float *logits)
{
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = row[i].token;
        batch.pos[i] = row[i].pos;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = row[i].seq;
        batch.logits[i] = logits != NULL || i == n - 1;
    }
    const int rc = llama_decode(t->ctx, batch);
    llama_batch_free(batch);
    for (int32_t i = 0; rc == 0 && logits && i < n; i++)
        memcpy(logits + (int64_t)i * t->n_vocab, llama_get_logits_ith(t->ctx, i),
               (size_t)t->n_vocab * sizeof *logits);
    return rc;
}

int test_llama_try(struct test_llama *t, int32_t seq, int32_t pos, const int32_t *tokens, int32_t n,
                   float *logits)
{
    struct test_row *row = malloc((size_t)n * sizeof *row);
    assert_non_null(row);
    for (int32_t i = 0; i < n; i++)
        row[i] = (struct test_row){.token = tokens[i], .pos = pos + i, .seq = seq};
    const int rc = test_llama_batch(t, row, n, logits);
    free(row);
    return rc;
}

void test_llama_decode(struct test_llama *t, int32_t seq, int32_t pos, const int32_t *tokens, int32_t n,
                       float *logits)
{
    assert_int_equal(test_llama_try(t, seq, pos, tokens, n, logits), 0);
}

float *test_llama_logits(struct test_llama *t, const int32_t *tokens, int32_t n_prompt, int32_t n)
{
    float *logits = malloc((size_t)n * (size_t)t->n_vocab * sizeof *logits);
    assert_non_null(logits);
    test_llama_decode(t, 0, 0, tokens, n_prompt, logits);
    for (int32_t i = n_prompt; i < n; i++)
        test_llama_decode(t, 0, i, tokens + i, 1, logits + (int64_t)i * t->n_vocab);
    return logits;
}

int64_t test_llama_entries(struct test_llama *t)
{
    wnw_bridge *cache;
    int64_t n = 0;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        n += l.n_entries;
    }
    return n;
}

double test_nmse(const float *a, const float *b, int64_t n)
{
    double err = 0.0, ref = 0.0;
    for (int64_t i = 0; i < n; i++) {
        err += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        ref += (double)b[i] * (double)b[i];
    }
    return err == 0.0 ? 0.0 : isfinite(err) && ref > 0.0 ? err / ref : INFINITY;
}

/* Devices around others live as long as the process. At its end ggml's list of them is gone before leaks are looked for. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:wnw__wrap_register\n";
}

uint8_t *test_llama_state(const struct test_llama *t, size_t *n)
{
    *n = llama_state_seq_get_size(t->ctx, 0);
    uint8_t *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(llama_state_seq_get_data(t->ctx, bytes, *n, 0), *n);
    return bytes;
}
