/* SPDX-License-Identifier: MIT */
/* What sessions need to know of a model that libllama computes: from its first graph, and from the file. */
#include "llama/foreign.h"

#include "bridge/device/device.h"
#include "bridge/drive/drive.h"
#include "llama/admit.h"
#include "model/files.h"
#include "text/llama_calls.h"
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layer's weight of this name, or NULL. */
static struct ggml_tensor *weight(const struct wnw_model *m, int32_t il, const char *name)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s.weight", (int)il, name);
    return wnw__files_tensor(m, full);
}

/* The first layer that policies act on, or the last layer. */
static const struct wnw__drive_layer *first_full(const struct wnw__drive_layer *layers, int32_t n)
{
    const struct wnw__drive_layer *first = layers;
    while (first < layers + n - 1 && first->sliding)
        first++;
    return first;
}

/* Refuses layers with other heads or factors than the first layer that policies act on. Sliding layers may have factors and
 * sizes of their own, and a multiple of its KV heads. */
static int check_layers(const struct wnw__drive_layer *layers, int32_t n)
{
    const struct wnw__drive_layer *first = first_full(layers, n);
    for (const struct wnw__drive_layer *l = layers; l < layers + n; l++)
        if (l->n_head != first->n_head || l->n_head_kv % first->n_head_kv != 0 ||
            (l->sliding == first->sliding && l->n_head_kv != first->n_head_kv) ||
            (l->sliding == first->sliding && (l->d_k != first->d_k || l->d_v != first->d_v ||
                                              l->scale != first->scale || l->q_scale != first->q_scale)))
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "layers %d and %d of this model have other heads or factors: sessions take layers that are "
                "alike; programs of llama.cpp can run it on winnow's backend (docs/use/llama-cpp.md)",
                (int)first->il, (int)l->il);
    return WNW_OK;
}

/* Elements of a head, keys or values, of the layer that has the most: shorter ones are stored with zeros after them, and
 * where a layer has a multiple of the KV heads, some together. */
static int32_t head_size(const struct wnw__drive_layer *layers, int32_t n)
{
    const int32_t n_head_kv = first_full(layers, n)->n_head_kv;
    int32_t most = 0;
    for (int32_t il = 0; il < n; il++) {
        const int32_t n_packed = layers[il].n_head_kv / n_head_kv,
                      d = layers[il].d_k > layers[il].d_v ? layers[il].d_k : layers[il].d_v;
        most = n_packed * d > most ? n_packed * d : most;
    }
    return (most + 7) / 8 * 8;
}

static int set_form(struct wnw_model *m, const struct wnw__drive_layer *l, struct wnw__score_form *form)
{
    *form = (struct wnw__score_form){.cap = l->cap, .max_bias = l->max_bias};
    if (!*l->sinks)
        return WNW_OK;
    const struct ggml_tensor *sinks = wnw__files_tensor(m, l->sinks);
    if (!sinks || sinks->type != GGML_TYPE_F32 || sinks->ne[0] != l->n_head)
        return wnw__fail(WNW_E_UNSUPPORTED, "layer %d has attention sinks that are not in its file as '%s'",
                         (int)l->il, l->sinks);
    form->sinks = sinks->data;
    return WNW_OK;
}

static int set_layers(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    struct wnw__hparams *hp = &m->hp;
    const struct wnw__drive_layer *first = first_full(layers, n);
    bool any = false;
    WNW_TRY(check_layers(layers, n));
    hp->n_layer = n;
    m->layers = n <= WNW_MAX_LAYERS ? calloc((size_t)n, sizeof *m->layers) : NULL;
    m->forms = m->layers ? calloc((size_t)n, sizeof *m->forms) : NULL;
    m->n_reader = m->forms ? calloc((size_t)n, sizeof *m->n_reader) : NULL;
    if (!m->n_reader)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)n);
    hp->n_head = first->n_head;
    hp->n_head_kv = first->n_head_kv;
    hp->n_embd_head = head_size(layers, n);
    hp->attn_scale = first->scale;
    hp->q_scale = first->q_scale;
    for (int32_t il = 0; il < n; il++) {
        const struct wnw__drive_layer *l = &layers[il];
        struct ggml_tensor *wo = weight(m, l->il, "attn_output");
        hp->swa[il] = l->sliding;
        m->n_reader[il] = l->n_reader;
        WNW_TRY(set_form(m, l, &m->forms[il]));
        m->layers[il].wk = weight(m, l->il, "attn_k");
        m->layers[il].wv = weight(m, l->il, "attn_v");
        m->layers[il].wo = wo && wo->ne[0] == (int64_t)l->n_head * hp->n_embd_head ? wo : NULL;
        any = any || m->forms[il].cap > 0.0f || m->forms[il].max_bias > 0.0f || m->forms[il].sinks;
    }
    if (!any) {
        free(m->forms);
        m->forms = NULL;
    }
    return WNW_OK;
}

/* Whether a layer turns with plain RoPE, and as another one does. */
static bool turns_alike(const struct wnw__drive_layer *l, const struct wnw__drive_layer *other)
{
    return l->plain && l->n_rot == other->n_rot && l->mode == other->mode &&
           strcmp(l->factors, other->factors) == 0 && l->base == other->base &&
           l->freq_scale == other->freq_scale;
}

/* Sets RoPE where all layers that policies act on turn alike with plain RoPE; else hp.rope_unknown. */
static void set_rope(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    struct wnw__hparams *hp = &m->hp;
    const struct wnw__drive_layer *of[2] = {NULL, NULL}; /* the first full and sliding layer */
    for (int32_t il = 0; il < n; il++) {
        const struct wnw__drive_layer **first = &of[layers[il].sliding];
        *first = *first ? *first : &layers[il];
    }
    const struct wnw__drive_layer *main = of[0] ? of[0] : of[1];
    for (int32_t il = 0; il < n; il++) {
        const struct wnw__drive_layer *l = &layers[il];
        hp->rope_unknown = hp->rope_unknown || (l->sliding == main->sliding && !turns_alike(l, main));
    }
    if (hp->rope_unknown)
        return;
    m->foreign.rope_type = main->mode;
    hp->n_rot = main->n_rot;
    hp->rope_freq_base = main->base;
    hp->rope_freq_scale = main->freq_scale;
    hp->rope_freq_base_swa = of[1] ? of[1]->base : 0.0f;
    hp->rope_freq_scale_swa = of[1] ? of[1]->freq_scale : 0.0f;
    m->w.rope_freqs = *main->factors ? wnw__files_tensor(m, main->factors) : NULL;
    hp->rope_unknown = *main->factors && !m->w.rope_freqs;
}

/* Takes a number of the file as a bound on the context, unless it is 0. */
static int limit_to(struct wnw_model *m, const char *key)
{
    int32_t n;
    WNW_TRY(wnw__key_i32(m->gguf, key, 0, &n));
    m->hp.n_ctx_train = n > 0 && n < m->hp.n_ctx_train ? n : m->hp.n_ctx_train;
    return WNW_OK;
}

/* The longest prompt whose graphs are looked at, so that the layers of a window can be told. */
enum { MOST_LOOKED = 1 << 15 };

/* Sets what is known of windows, and bounds the context where longer ones would be computed otherwise: where a window is
 * too long to be told from a chunk, and where libllama takes other factors for RoPE if a context is longer than the original
 * one; it takes ours for short. */
static int set_windows(struct wnw_model *m, const struct wnw__drive_layer *layers, int32_t n)
{
    struct wnw__hparams *hp = &m->hp;
    int32_t n_sliding = 0, n_chunked = 0;
    for (int32_t il = 0; il < n; il++) {
        n_sliding += layers[il].sliding;
        n_chunked += layers[il].chunked;
    }
    if (n_chunked > 0 && n_chunked < n_sliding)
        return wnw__fail(WNW_E_UNSUPPORTED, "layers of this model have windows of two kinds");
    hp->swa_chunked = n_chunked > 0;
    if (hp->n_swa > MOST_LOOKED && hp->n_swa < hp->n_ctx_train)
        hp->n_ctx_train = hp->n_swa;
    hp->n_swa = n_sliding > 0 ? hp->n_swa : 0;
    if (strncmp(layers[0].factors, "rope_factors_", strlen("rope_factors_")) != 0)
        return WNW_OK;
    return limit_to(m, ".rope.scaling.original_context_length");
}

static int take_layers(struct wnw_model *m, struct wnw__foreign_context *f)
{
    const struct wnw__drive_layer *layers;
    int32_t n;
    WNW_TRY(wnw__foreign_context_layers(f, &layers, &n));
    WNW_TRY(set_layers(m, layers, n));
    WNW_TRY(set_windows(m, layers, n));
    set_rope(m, layers, n);
    return WNW_OK;
}

/* The graphs of a prompt that is longer than the window are looked at: masks tell which layers have it. */
static int look_at(struct wnw_model *m)
{
    enum { ROWS = 256 };
    struct wnw__foreign_context *f = NULL;
    const int32_t n_swa = m->hp.n_swa, n_look = n_swa > 0 && n_swa <= MOST_LOOKED ? n_swa + 2 : 2;
    int rc = wnw__foreign_context_new(&f, m->vocab, ROWS, n_look, 1);
    if (rc == WNW_OK)
        rc = take_layers(m, f);
    wnw__foreign_context_free(f);
    return rc;
}

static int check_kind(const struct llama_model *model, const char *arch)
{
    if (llama_model_is_recurrent(model))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s has recurrent layers alone: there is no cache from which entries could be evicted", arch);
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
    WNW_TRY(wnw__bridge_check(&reg));
    WNW_TRY(wnw__admit(m));
    m->arch = &m->foreign;
    WNW_TRY(wnw__llama_load(&m->vocab, path, &wnw__bridge_device, repack));
    WNW_TRY(check_kind(m->vocab, m->arch->name));
    hp->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m->vocab));
    hp->n_embd = llama_model_n_embd(m->vocab);
    hp->n_ctx_train = llama_model_n_ctx_train(m->vocab);
    hp->n_swa = llama_model_n_swa(m->vocab);
    m->executor = &wnw__foreign_executor;
    WNW_TRY(look_at(m));
    return open_vocabulary(m, path);
}
