/* SPDX-License-Identifier: MIT */
/*
 * A context of libllama is given one batch at a time and forgets it: its cells hold the rows of that batch alone, at their
 * positions, so that all it keeps of a sequence is in the caches of our sessions.
 */
#include "llama/foreign.h"

#include "bridge/bridge_drive.h"
#include "forward/engine_impl.h"
#include "model/parts.h"
#include "text/llama_calls.h"
#include "text/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 64 };

struct foreign {
    wnw_engine *e;
    struct llama_context *ctx;
    wnw_bridge *bridge;
    struct wnw__drive *drive;
    int32_t n_seq;
    struct llama_batch batch;
};

static void close_context(void *x)
{
    struct foreign *f = x;
    if (!f)
        return;
    if (f->batch.token)
        llama_batch_free(f->batch);
    if (f->ctx)
        llama_free(f->ctx);
    wnw__drive_free(f->drive);
    free(f);
}

/* Decodes rows that are in the batch. */
static int decode(struct foreign *f)
{
    int32_t result;
    llama_memory_clear(llama_get_memory(f->ctx), false);
    WNW_TRY(wnw__llama_decode(&result, f->ctx, &f->batch));
    if (wnw__drive_status(f->drive) != WNW_OK)
        return wnw__drive_status(f->drive); /* with its message */
    return result == 0 ? WNW_OK
                       : wnw__fail(WNW_E_BACKEND, "libllama could not read a batch of %d tokens (%d)",
                                   (int)f->batch.n_tokens, (int)result);
}

static void add_row(struct foreign *f, int32_t token, int32_t pos, int32_t seq, bool out)
{
    const int32_t i = f->batch.n_tokens++;
    f->batch.token[i] = token;
    f->batch.pos[i] = pos;
    f->batch.n_seq_id[i] = 1;
    f->batch.seq_id[i][0] = seq;
    f->batch.logits[i] = out;
}

/* Makes the context; its first graph is looked at. */
static int open_context(struct foreign **out, struct llama_model *model, int32_t n_row, int32_t n_threads)
{
    struct foreign *f = *out = calloc(1, sizeof *f);
    if (!f)
        return wnw__fail(WNW_E_NOMEM, "no memory for an engine");
    f->n_seq = n_row < MOST_SEQUENCES ? n_row : MOST_SEQUENCES;
    WNW_TRY(wnw__llama_context(&f->ctx, model, n_row, f->n_seq, n_threads));
    WNW_TRY(wnw_bridge_find(&f->bridge, llama_synchronize, f->ctx));
    WNW_TRY(wnw__drive_new(&f->drive, f->bridge));
    f->batch = llama_batch_init(n_row, 0, 1);
    if (!f->batch.token)
        return wnw__fail(WNW_E_NOMEM, "no memory for a batch of %d tokens", (int)n_row);
    add_row(f, 0, 0, 0, true);
    const int rc = decode(f);
    const struct wnw__drive_layer *layers;
    int32_t n;
    return wnw__drive_status(f->drive) == WNW_OK && wnw__drive_layers(f->drive, &layers, &n) == WNW_OK
               ? WNW_OK
               : rc;
}

/* ---- The executor ---- */

static int open_engine(void **x, wnw_engine *e)
{
    struct foreign *f = NULL;
    const int rc = open_context(&f, e->m->vocab, e->params.n_ubatch, e->params.n_threads);
    *x = f;
    if (rc != WNW_OK)
        return rc;
    const struct wnw__drive_layer *layers;
    int32_t n;
    f->e = e;
    WNW_TRY(wnw__drive_layers(f->drive, &layers, &n));
    for (int32_t il = 0; il < e->m->hp.n_layer; il++)
        e->ops[il].scale = layers[il].scale;
    return wnw__drive_set_engine(f->drive, e);
}

static int run(void *x)
{
    struct foreign *f = x;
    const struct wnw__batch *b = f->e->batch;
    if (b->n_slice > f->n_seq)
        return wnw__fail(WNW_E_RANGE, "a batch of %d sessions: libllama's graphs take %d here",
                         (int)b->n_slice, (int)f->n_seq);
    f->batch.n_tokens = 0;
    for (int32_t i = 0, row = 0, k = 0; i < b->n_slice; i++)
        for (int32_t t = 0; t < b->slice[i].n_row; t++, row++) {
            const bool out = b->n_out == b->n_row || (k < b->n_out && b->out_row[k] == row);
            k += out;
            add_row(f, b->token[row], b->slice[i].n_past + t, i, out);
        }
    return decode(f);
}

static const float *logits(const void *x, int32_t i)
{
    const struct foreign *f = x;
    return llama_get_logits(f->ctx) + (size_t)i * (size_t)f->e->m->hp.n_vocab;
}

static const struct wnw__executor executor = {
    .open = open_engine, .free = close_context, .run = run, .logits = logits};

/* ---- The model ---- */

/* The layer's weight of this name, or NULL. */
static struct ggml_tensor *weight(const struct wnw_model *m, int32_t il, const char *name)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s.weight", (int)il, name);
    return wnw__parts_tensor(m, full);
}

static int set_layers(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    struct wnw__hparams *hp = &m->hp;
    hp->n_layer = n;
    m->layers = n <= WNW_MAX_LAYERS ? calloc((size_t)n, sizeof *m->layers) : NULL;
    if (!m->layers)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)n);
    for (int32_t il = 0; il < n; il++) {
        const struct wnw__drive_layer *l = &layers[il];
        struct ggml_tensor *wo = weight(m, l->il, "attn_output");
        if (l->n_head != layers[0].n_head || l->n_head_kv != layers[0].n_head_kv || l->d != layers[0].d ||
            l->scale != layers[0].scale || l->q_scale != layers[0].q_scale)
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "layers %d and %d of this model have other heads or factors: sessions take layers that are "
                "alike; programs of llama.cpp can run it on winnow's backend (docs/backend.md)",
                (int)layers[0].il, (int)l->il);
        hp->swa[il] = l->sliding;
        m->layers[il].wk = weight(m, l->il, "attn_k");
        m->layers[il].wv = weight(m, l->il, "attn_v");
        m->layers[il].wo = wo && wo->ne[0] == (int64_t)l->n_head * l->d ? wo : NULL;
    }
    hp->n_head = layers[0].n_head;
    hp->n_head_kv = layers[0].n_head_kv;
    hp->n_embd_head = layers[0].d;
    hp->attn_scale = layers[0].scale;
    hp->q_scale = layers[0].q_scale;
    return WNW_OK;
}

/* Sets RoPE where all layers of a kind turn alike with plain RoPE; else hp.rope_unknown. */
static void set_rope(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    struct wnw__hparams *hp = &m->hp;
    const struct wnw__drive_layer *of[2] = {NULL, NULL};
    for (int32_t il = 0; il < n; il++) {
        const struct wnw__drive_layer *l = &layers[il], **first = &of[l->sliding];
        *first = *first ? *first : l;
        hp->rope_unknown = hp->rope_unknown || !l->plain || l->n_rot != layers[0].n_rot ||
                           l->mode != layers[0].mode || strcmp(l->factors, layers[0].factors) != 0 ||
                           l->base != (*first)->base || l->freq_scale != (*first)->freq_scale;
    }
    if (hp->rope_unknown)
        return;
    m->foreign.rope_type = layers[0].mode;
    hp->n_rot = layers[0].n_rot;
    const struct wnw__drive_layer *full = of[0] ? of[0] : of[1];
    hp->rope_freq_base = full->base;
    hp->rope_freq_scale = full->freq_scale;
    hp->rope_freq_base_swa = of[1] ? of[1]->base : 0.0f;
    hp->rope_freq_scale_swa = of[1] ? of[1]->freq_scale : 0.0f;
    m->w.rope_freqs = *layers[0].factors ? wnw__parts_tensor(m, layers[0].factors) : NULL;
    hp->rope_unknown = *layers[0].factors && !m->w.rope_freqs;
}

/* Takes a number of the file as a bound on the context, unless it is 0. */
static int limit_to(struct wnw_model *m, const char *key)
{
    int32_t n;
    WNW_TRY(wnw__key_i32(m->gguf, key, 0, &n));
    m->hp.n_ctx_train = n > 0 && n < m->hp.n_ctx_train ? n : m->hp.n_ctx_train;
    return WNW_OK;
}

/* Bounds the context where longer ones would be computed otherwise: where attention is in chunks, or a window is of layers
 * that cannot be told; and libllama takes other factors for RoPE where a context is longer than the original one, and takes
 * ours for short. */
static int limit_context(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    bool slides = false;
    for (int32_t il = 0; il < n; il++)
        slides = slides || layers[il].sliding;
    if (!slides && m->hp.n_swa > 0) {
        m->hp.n_ctx_train = m->hp.n_swa < m->hp.n_ctx_train ? m->hp.n_swa : m->hp.n_ctx_train;
        m->hp.n_swa = 0;
    }
    WNW_TRY(limit_to(m, ".attention.chunk_size"));
    if (strncmp(layers[0].factors, "rope_factors_", strlen("rope_factors_")) != 0)
        return WNW_OK;
    return limit_to(m, ".rope.scaling.original_context_length");
}

static int look_at(struct wnw_model *m)
{
    enum { ROWS = 32 };
    struct foreign *f = NULL;
    const struct wnw__drive_layer *layers;
    int32_t n;
    int rc = open_context(&f, m->vocab, ROWS, 1);
    if (rc == WNW_OK)
        rc = wnw__drive_layers(f->drive, &layers, &n);
    if (rc == WNW_OK)
        rc = set_layers(m, layers, n);
    if (rc == WNW_OK)
        rc = limit_context(m, layers, n);
    if (rc == WNW_OK)
        set_rope(m, layers, n);
    close_context(f);
    return rc;
}

static int check_kind(const struct llama_model *model, const char *arch)
{
    if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s has recurrent layers, whose state sessions do not keep yet; programs of llama.cpp can run it "
            "on winnow's backend (docs/backend.md)",
            arch);
    if (llama_model_has_encoder(model) || !llama_model_has_decoder(model))
        return wnw__fail(WNW_E_UNSUPPORTED, "%s has an encoder: sessions continue a text", arch);
    return WNW_OK;
}

/* A model whose tokenizer we do not know reads token ids, as one without a tokenizer does. */
static int open_vocabulary(struct wnw_model *m, const char *path)
{
    const int rc = wnw__vocab_open(m, path);
    if (rc != WNW_E_UNSUPPORTED)
        return rc;
    wnw__log(WNW_LOG_WARN, "texts cannot be read: %s", wnw_last_error());
    return WNW_OK;
}

int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack)
{
    ggml_backend_reg_t reg;
    struct wnw__hparams *hp = &m->hp;
    m->foreign.name = wnw__key_str(m->gguf, "general.architecture");
    m->arch = &m->foreign;
    WNW_TRY(wnw__bridge_check(&reg));
    WNW_TRY(wnw__llama_load(&m->vocab, path, &wnw__bridge_device, repack));
    WNW_TRY(check_kind(m->vocab, m->arch->name));
    hp->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m->vocab));
    hp->n_embd = llama_model_n_embd(m->vocab);
    hp->n_ctx_train = llama_model_n_ctx_train(m->vocab);
    hp->n_swa = llama_model_n_swa(m->vocab);
    m->executor = &executor;
    WNW_TRY(look_at(m));
    return open_vocabulary(m, path);
}
