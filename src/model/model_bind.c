/* SPDX-License-Identifier: MIT */
#include "model/model_impl.h"

#include "model/files.h"

#include <stdio.h>
#include <stdlib.h>

#include <ggml-cpu.h>

enum tensor_kind {
    MATRIX,
    VECTOR
}; /* vectors (norms, biases, scales) must be f32, because ggml's element-wise operations need it */

/* One tensor that a model may have, [ne0, ne1]; ne1 = 1 for vectors. */
struct row {
    const char *name; /* of a layer's tensors: what follows "blk.N." */
    enum tensor_kind kind;
    int64_t ne0, ne1;
    bool used, required;
    struct ggml_tensor **out; /* NULL: the tensor does nothing */
};

/* What has been found so far. */
struct found {
    struct wnw_model *m;
    const struct ggml_tensor **tensor; /* [as many as the file has] */
    int64_t n;
};

/* Types that are for intermediate results alone have no function for that. */
bool wnw__has_products(enum ggml_type type)
{
    const struct ggml_type_traits_cpu *cpu = ggml_get_type_traits_cpu(type);
    if (type == GGML_TYPE_F32)
        return true;
    return (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || ggml_is_quantized(type)) && cpu->vec_dot &&
           ggml_get_type_traits(type)->to_float &&
           (cpu->vec_dot_type == GGML_TYPE_F32 || ggml_get_type_traits_cpu(cpu->vec_dot_type)->from_float);
}

int wnw__check_tensor_type(const struct ggml_tensor *t, bool is_float)
{
    if (is_float && t->type != GGML_TYPE_F32)
        return wnw__fail(WNW_E_UNSUPPORTED, "tensor %s has type %s, expected f32", t->name,
                         ggml_type_name(t->type));
    if (!wnw__has_products(t->type))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "tensor %s has type %s, which ggml's CPU backend has no matrix product for; convert the "
            "model to another type",
            t->name, ggml_type_name(t->type));
    return WNW_OK;
}

static int check_tensor(const struct ggml_tensor *t, const struct row *r)
{
    if (t->ne[0] != r->ne0 || t->ne[1] != r->ne1 || t->ne[2] != 1 || t->ne[3] != 1)
        return wnw__fail(WNW_E_FORMAT, "tensor %s is %lld x %lld, expected %lld x %lld", t->name,
                         (long long)t->ne[0], (long long)t->ne[1], (long long)r->ne0, (long long)r->ne1);
    return wnw__check_tensor_type(t, r->kind == VECTOR);
}

/* Finds the tensor of this name and checks its kind and shape. */
static int bind(struct found *f, const char *name, const struct row *r)
{
    struct ggml_tensor *t = r->used ? wnw__files_tensor(f->m, name) : NULL;
    if (r->out)
        *r->out = t;
    if (!t)
        return r->used && r->required ? wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor %s", name) : WNW_OK;
    f->tensor[f->n++] = t;
    return check_tensor(t, r);
}

static int bind_layer(struct found *f, int32_t il)
{
    const struct wnw__hparams *hp = &f->m->hp;
    const struct wnw__arch *a = f->m->arch;
    struct wnw__layer_weights *l = &f->m->layers[il];
    const int64_t n_embd = hp->n_embd, d = hp->n_embd_head, n_ff = hp->n_ff;
    const int64_t n_q = d * hp->n_head, n_kv = d * hp->n_head_kv;
    const struct row rows[] = {
        {"attn_norm.weight", VECTOR, n_embd, 1, true, true, &l->attn_norm},
        {"attn_q.weight", MATRIX, n_embd, n_q, true, true, &l->wq},
        {"attn_k.weight", MATRIX, n_embd, n_kv, true, true, &l->wk},
        {"attn_v.weight", MATRIX, n_embd, n_kv, true, true, &l->wv},
        {"attn_output.weight", MATRIX, n_q, n_embd, true, true, &l->wo},
        /* Some models of every family have these biases. */
        {"attn_q.bias", VECTOR, n_q, 1, true, a->qkv_bias, &l->bq},
        {"attn_k.bias", VECTOR, n_kv, 1, true, a->qkv_bias, &l->bk},
        {"attn_v.bias", VECTOR, n_kv, 1, true, a->qkv_bias, &l->bv},
        {"attn_output.bias", VECTOR, n_embd, 1, a->other_biases, false, &l->bo},
        {"attn_q_norm.weight", VECTOR, d, 1, a->qk_norm, true, &l->q_norm},
        {"attn_k_norm.weight", VECTOR, d, 1, a->qk_norm, true, &l->k_norm},
        {"post_attention_norm.weight", VECTOR, n_embd, 1, a->post_norm, true, &l->attn_post_norm},
        {"post_ffw_norm.weight", VECTOR, n_embd, 1, a->post_norm, true, &l->ffn_post_norm},
        {"ffn_norm.weight", VECTOR, n_embd, 1, true, true, &l->ffn_norm},
        {"ffn_gate.weight", MATRIX, n_embd, n_ff, true, true, &l->ffn_gate},
        {"ffn_up.weight", MATRIX, n_embd, n_ff, true, true, &l->ffn_up},
        {"ffn_down.weight", MATRIX, n_ff, n_embd, true, true, &l->ffn_down},
        {"ffn_gate.bias", VECTOR, n_ff, 1, a->other_biases, false, &l->gate_bias},
        {"ffn_up.bias", VECTOR, n_ff, 1, a->other_biases, false, &l->up_bias},
        {"ffn_down.bias", VECTOR, n_embd, 1, a->other_biases, false, &l->down_bias},
        /* Factors of whole matrices, which NVFP4 files have. */
        {"attn_q.scale", VECTOR, 1, 1, true, false, &l->q_factor},
        {"attn_k.scale", VECTOR, 1, 1, true, false, &l->k_factor},
        {"attn_v.scale", VECTOR, 1, 1, true, false, &l->v_factor},
        {"attn_output.scale", VECTOR, 1, 1, true, false, &l->o_factor},
        {"ffn_gate.scale", VECTOR, 1, 1, a->ffn_factors, false, &l->gate_factor},
        {"ffn_up.scale", VECTOR, 1, 1, a->ffn_factors, false, &l->up_factor},
        {"ffn_down.scale", VECTOR, 1, 1, a->ffn_factors, false, &l->down_factor},
        /* What activations are divided by where they are rounded to 4 bits. Here they never are. */
        {"attn_q.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"attn_k.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"attn_v.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"attn_output.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"ffn_gate.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"ffn_up.input_scale", VECTOR, 1, 1, true, false, NULL},
        {"ffn_down.input_scale", VECTOR, 1, 1, true, false, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", (int)il, rows[i].name);
        WNW_TRY(bind(f, name, &rows[i]));
    }
    return WNW_OK;
}

static int bind_ends(struct found *f)
{
    struct wnw_model *m = f->m;
    const struct wnw__arch *a = m->arch;
    const int64_t n_embd = m->hp.n_embd, n_vocab = m->hp.n_vocab;
    const struct ggml_tensor *output = wnw__files_tensor(m, "output.weight");
    const bool nvfp4 =
        output && output->type == GGML_TYPE_NVFP4; /* libllama takes no factor of other types */
    const struct row rows[] = {
        {"token_embd.weight", MATRIX, n_embd, n_vocab, true, true, &m->w.tok_embd},
        {"output_norm.weight", VECTOR, n_embd, 1, true, true, &m->w.output_norm},
        {"output.weight", MATRIX, n_embd, n_vocab, true, false, &m->w.output},
        {"output.bias", VECTOR, n_vocab, 1, a->output_bias, false, &m->w.output_bias},
        {"output.scale", VECTOR, 1, 1, nvfp4, false, &m->w.output_factor},
        {"output.input_scale", VECTOR, 1, 1, nvfp4, false, NULL},
        {"rope_freqs.weight", VECTOR, m->hp.n_rot / 2, 1, a->rope_factors, false, &m->w.rope_freqs},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        WNW_TRY(bind(f, rows[i].name, &rows[i]));
    if (!m->w.output)
        m->w.output = m->w.tok_embd;
    return WNW_OK;
}

static bool is_found(const struct found *f, const struct ggml_tensor *t)
{
    for (int64_t i = 0; i < f->n; i++)
        if (f->tensor[i] == t)
            return true;
    return false;
}

/* The first tensor that is not found ends the search, so no file makes it long. */
static int check_all_found(const struct found *f)
{
    const struct wnw_model *m = f->m;
    for (int32_t i = 0; i < m->n_file; i++) {
        struct ggml_tensor *t = ggml_get_first_tensor(m->files[i].meta);
        for (; t; t = ggml_get_next_tensor(m->files[i].meta, t))
            if (!is_found(f, t))
                return wnw__fail(
                    WNW_E_UNSUPPORTED,
                    "the GGUF holds tensor %s, which winnow does not compute with in a %s model of %d "
                    "layers; run this model with llama.cpp, or convert it without that tensor",
                    t->name, m->arch->name, (int)m->hp.n_layer);
    }
    return WNW_OK;
}

static int bind_all(struct found *f)
{
    struct wnw_model *m = f->m;
    const struct ggml_tensor *embd = wnw__files_tensor(m, "token_embd.weight");
    if (wnw__files_n_tensor(m) == 0)
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF holds a vocabulary alone, no weights; give the model itself");
    if (!embd || embd->ne[1] < 1 || embd->ne[1] > INT32_MAX)
        return wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor token_embd.weight");
    m->hp.n_vocab = (int32_t)embd->ne[1];
    WNW_TRY(bind_ends(f));
    for (int32_t il = 0; il < m->hp.n_layer; il++)
        WNW_TRY(bind_layer(f, il));
    return check_all_found(f);
}

int wnw__bind(struct wnw_model *m)
{
    struct found f = {.m = m, .tensor = calloc((size_t)wnw__files_n_tensor(m) + 1, sizeof *f.tensor)};
    m->layers = calloc((size_t)m->hp.n_layer, sizeof *m->layers);
    const int rc = f.tensor && m->layers
                       ? bind_all(&f)
                       : wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)m->hp.n_layer);
    free(f.tensor);
    return rc;
}
