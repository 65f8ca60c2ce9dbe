/* SPDX-License-Identifier: MIT */
#include "model/model.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/sized.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ggml-cpu.h>

/* Sizes above these are taken for damage. No model comes near them, and their products fit 64 bits. */
enum { MAX_LAYERS = 1024, MAX_HEADS = 1024, MAX_HEAD_SIZE = 1024, MAX_EMBD = 1 << 17, MAX_FF = 1 << 20 };

static int map_file(struct wnw_model *m, const char *path)
{
    int fd;
    int64_t size;
    WNW_TRY(wnw__open_file(&fd, &size, "model", path));
    int rc = WNW_OK;
    char magic[4] = {0};
    if (size < 24 || pread(fd, magic, 4, 0) != 4 || memcmp(magic, "GGUF", 4) != 0) {
        rc = wnw__fail(WNW_E_FORMAT, "%s is not a GGUF file", path);
    } else {
        m->map_size = (size_t)size;
        m->map = mmap(NULL, m->map_size, PROT_READ, MAP_SHARED, fd, 0);
        if (m->map == MAP_FAILED) {
            m->map = NULL;
            rc = wnw__fail(errno == ENOMEM ? WNW_E_NOMEM : WNW_E_IO, "cannot map model %s: %s", path,
                           strerror(errno));
        }
    }
    close(fd);
    return rc;
}

static int check_range(const char *what, int32_t v, int32_t max)
{
    if (v < 1 || v > max)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says %s = %d, which cannot be right", what, (int)v);
    return WNW_OK;
}

static int read_rope(const struct gguf_context *g, struct wnw__hparams *hp)
{
    const char *type = wnw__key_str(g, ".rope.scaling.type");
    float factor, linear;
    WNW_TRY(wnw__key_i32(g, ".rope.dimension_count", hp->n_embd_head, &hp->n_rot));
    WNW_TRY(wnw__key_f32(g, ".rope.freq_base", 10000.0f, &hp->rope_freq_base));
    WNW_TRY(wnw__key_f32(g, ".rope.scale_linear", 1.0f, &linear));
    WNW_TRY(wnw__key_f32(g, ".rope.scaling.factor", linear, &factor));
    if (type && strcmp(type, "none") != 0 && strcmp(type, "linear") != 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "rope scaling type '%.32s' is not supported (none, linear and Llama 3.1's factors are)", type);
    hp->rope_freq_scale = factor > 0.0f && !(type && strcmp(type, "none") == 0) ? 1.0f / factor : 1.0f;
    if (hp->n_rot < 2 || hp->n_rot > hp->n_embd_head || hp->n_rot % 2 != 0)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says rope.dimension_count = %d for heads of %d",
                         (int)hp->n_rot, (int)hp->n_embd_head);
    if (!(hp->rope_freq_base > 0.0f))
        return wnw__fail(WNW_E_FORMAT, "the GGUF says rope.freq_base = %g", (double)hp->rope_freq_base);
    return WNW_OK;
}

static int read_hparams(struct wnw_model *m)
{
    const struct gguf_context *g = m->gguf;
    struct wnw__hparams *hp = &m->hp;
    int32_t d_v;
    WNW_TRY(wnw__key_i32(g, ".block_count", 0, &hp->n_layer));
    WNW_TRY(wnw__key_i32(g, ".embedding_length", 0, &hp->n_embd));
    WNW_TRY(wnw__key_i32(g, ".feed_forward_length", 0, &hp->n_ff));
    WNW_TRY(wnw__key_i32(g, ".context_length", 0, &hp->n_ctx_train));
    WNW_TRY(wnw__key_i32(g, ".attention.head_count", 0, &hp->n_head));
    WNW_TRY(wnw__key_i32(g, ".attention.head_count_kv", hp->n_head, &hp->n_head_kv));
    WNW_TRY(wnw__key_f32(g, ".attention.layer_norm_rms_epsilon", 1e-5f, &hp->rms_eps));
    WNW_TRY(check_range("block_count", hp->n_layer, MAX_LAYERS));
    WNW_TRY(check_range("embedding_length", hp->n_embd, MAX_EMBD));
    WNW_TRY(check_range("feed_forward_length", hp->n_ff, MAX_FF));
    WNW_TRY(check_range("context_length", hp->n_ctx_train, 1 << 28));
    WNW_TRY(check_range("head_count", hp->n_head, MAX_HEADS));
    WNW_TRY(check_range("head_count_kv", hp->n_head_kv, hp->n_head));
    WNW_TRY(wnw__key_i32(g, ".attention.key_length", hp->n_embd / hp->n_head, &hp->n_embd_head));
    WNW_TRY(wnw__key_i32(g, ".attention.value_length", hp->n_embd_head, &d_v));
    WNW_TRY(check_range("head size", hp->n_embd_head, MAX_HEAD_SIZE));
    if (hp->n_head % hp->n_head_kv != 0)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says %d query heads for %d KV heads: not a whole group size",
                         (int)hp->n_head, (int)hp->n_head_kv);
    if (d_v != hp->n_embd_head || hp->n_embd_head % 8 != 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "head sizes %d (keys) and %d (values): must be equal and a multiple of 8",
                         (int)hp->n_embd_head, (int)d_v);
    if (!(hp->rms_eps > 0.0f && hp->rms_eps < 1.0f))
        return wnw__fail(WNW_E_FORMAT, "the GGUF says layer_norm_rms_epsilon = %g", (double)hp->rms_eps);
    WNW_TRY(read_rope(g, hp));
    hp->embd_scale = 1.0f;
    hp->q_scale = 1.0f;
    hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd_head);
    return m->arch->setup ? m->arch->setup(g, hp) : WNW_OK;
}

/* Gives every tensor of the file its place in the mapping, after checking that the place exists. */
static int place_tensors(struct wnw_model *m, const char *path)
{
    const size_t data = gguf_get_data_offset(m->gguf);
    size_t largest = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(m->gguf); i++) {
        const struct ggml_tensor *t = ggml_get_tensor(m->meta, gguf_get_tensor_name(m->gguf, i));
        const size_t off = gguf_get_tensor_offset(m->gguf, i);
        const size_t size = t ? ggml_nbytes(t) : 0;
        if (!t || size == 0 || off > m->map_size || data > m->map_size - off ||
            size > m->map_size - off - data)
            return wnw__fail(WNW_E_FORMAT, "%s is truncated: tensor %.64s lies beyond the end of the file",
                             path, gguf_get_tensor_name(m->gguf, i));
        if ((data + off) % 16 != 0)
            return wnw__fail(WNW_E_FORMAT, "%s: tensor %.64s is not aligned", path,
                             gguf_get_tensor_name(m->gguf, i));
        largest = size > largest ? size : largest;
        m->weight_bytes += size;
    }
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu)
        return wnw__fail(WNW_E_BACKEND, "ggml has no CPU device");
    m->mapped_buffer = ggml_backend_dev_buffer_from_host_ptr(cpu, m->map, m->map_size, largest);
    if (!m->mapped_buffer)
        return wnw__fail(WNW_E_BACKEND, "ggml cannot use the mapped weights of %s", path);
    for (int64_t i = 0; i < gguf_get_n_tensors(m->gguf); i++) {
        struct ggml_tensor *t = ggml_get_tensor(m->meta, gguf_get_tensor_name(m->gguf, i));
        char *at = (char *)m->map + data + gguf_get_tensor_offset(m->gguf, i);
        if (ggml_backend_tensor_alloc(m->mapped_buffer, t, at) != GGML_STATUS_SUCCESS)
            return wnw__fail(WNW_E_BACKEND, "ggml cannot place tensor %.64s", t->name);
    }
    return WNW_OK;
}

enum tensor_kind {
    MATRIX,
    VECTOR
}; /* vectors (norms, biases) must be f32, because ggml's element-wise operations need it */

/* Whether ggml's CPU backend can multiply with weights of the type and read single rows of them. Types that
 * are for intermediate results alone have no function for that. */
static bool has_products(enum ggml_type type)
{
    const struct ggml_type_traits_cpu *cpu = ggml_get_type_traits_cpu(type);
    if (type == GGML_TYPE_F32)
        return true;
    return (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || ggml_is_quantized(type)) && cpu->vec_dot &&
           ggml_get_type_traits(type)->to_float &&
           (cpu->vec_dot_type == GGML_TYPE_F32 || ggml_get_type_traits_cpu(cpu->vec_dot_type)->from_float);
}

/* Finds a tensor and checks its kind and shape; ne1 = 1 for vectors. */
static int bind(struct wnw_model *m, const char *name, enum tensor_kind kind, int64_t ne0, int64_t ne1,
                bool required, struct ggml_tensor **out)
{
    struct ggml_tensor *t = ggml_get_tensor(m->meta, name);
    *out = t;
    if (!t)
        return required ? wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor %s", name) : WNW_OK;
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
        return wnw__fail(WNW_E_FORMAT, "tensor %s is %lld x %lld, expected %lld x %lld", name,
                         (long long)t->ne[0], (long long)t->ne[1], (long long)ne0, (long long)ne1);
    if (kind == VECTOR && t->type != GGML_TYPE_F32)
        return wnw__fail(WNW_E_UNSUPPORTED, "tensor %s has type %s, expected f32", name,
                         ggml_type_name(t->type));
    if (kind == MATRIX && !has_products(t->type))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "tensor %s has type %s, which ggml's CPU backend has no matrix product for; convert the "
            "model to another type",
            name, ggml_type_name(t->type));
    return WNW_OK;
}

static int bind_layer(struct wnw_model *m, int32_t il)
{
    const struct wnw__hparams *hp = &m->hp;
    const struct wnw__arch *a = m->arch;
    struct wnw__layer_weights *l = &m->layers[il];
    const int64_t n_embd = hp->n_embd, d = hp->n_embd_head, n_ff = hp->n_ff;
    const int64_t n_q = d * hp->n_head, n_kv = d * hp->n_head_kv;
    const struct {
        const char *suffix;
        enum tensor_kind kind;
        int64_t ne0, ne1;
        bool used, required;
        struct ggml_tensor **out;
    } rows[] = {
        {"attn_norm.weight", VECTOR, n_embd, 1, true, true, &l->attn_norm},
        {"attn_q.weight", MATRIX, n_embd, n_q, true, true, &l->wq},
        {"attn_k.weight", MATRIX, n_embd, n_kv, true, true, &l->wk},
        {"attn_v.weight", MATRIX, n_embd, n_kv, true, true, &l->wv},
        {"attn_output.weight", MATRIX, n_q, n_embd, true, true, &l->wo},
        /* Some llama models have these biases too. */
        {"attn_q.bias", VECTOR, n_q, 1, true, a->qkv_bias, &l->bq},
        {"attn_k.bias", VECTOR, n_kv, 1, true, a->qkv_bias, &l->bk},
        {"attn_v.bias", VECTOR, n_kv, 1, true, a->qkv_bias, &l->bv},
        {"attn_q_norm.weight", VECTOR, d, 1, a->qk_norm, true, &l->q_norm},
        {"attn_k_norm.weight", VECTOR, d, 1, a->qk_norm, true, &l->k_norm},
        {"post_attention_norm.weight", VECTOR, n_embd, 1, a->post_norm, true, &l->attn_post_norm},
        {"post_ffw_norm.weight", VECTOR, n_embd, 1, a->post_norm, true, &l->ffn_post_norm},
        {"ffn_norm.weight", VECTOR, n_embd, 1, true, true, &l->ffn_norm},
        {"ffn_gate.weight", MATRIX, n_embd, n_ff, true, true, &l->ffn_gate},
        {"ffn_up.weight", MATRIX, n_embd, n_ff, true, true, &l->ffn_up},
        {"ffn_down.weight", MATRIX, n_ff, n_embd, true, true, &l->ffn_down},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", (int)il, rows[i].suffix);
        if (rows[i].used)
            WNW_TRY(bind(m, name, rows[i].kind, rows[i].ne0, rows[i].ne1, rows[i].required, rows[i].out));
    }
    return WNW_OK;
}

static int bind_all(struct wnw_model *m)
{
    struct wnw__hparams *hp = &m->hp;
    m->layers = calloc((size_t)hp->n_layer, sizeof *m->layers);
    if (!m->layers)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)hp->n_layer);
    const struct ggml_tensor *embd = ggml_get_tensor(m->meta, "token_embd.weight");
    if (!embd || embd->ne[1] < 1 || embd->ne[1] > INT32_MAX)
        return wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor token_embd.weight");
    hp->n_vocab = (int32_t)embd->ne[1];
    WNW_TRY(bind(m, "token_embd.weight", MATRIX, hp->n_embd, hp->n_vocab, true, &m->w.tok_embd));
    WNW_TRY(bind(m, "output_norm.weight", VECTOR, hp->n_embd, 1, true, &m->w.output_norm));
    WNW_TRY(bind(m, "output.weight", MATRIX, hp->n_embd, hp->n_vocab, false, &m->w.output));
    WNW_TRY(bind(m, "rope_freqs.weight", VECTOR, hp->n_rot / 2, 1, false, &m->w.rope_freqs));
    if (!m->w.output)
        m->w.output = m->w.tok_embd;
    for (int32_t il = 0; il < hp->n_layer; il++)
        WNW_TRY(bind_layer(m, il));
    return WNW_OK;
}

static int unknown_arch(const char *arch)
{
    char list[128] = "";
    for (int32_t i = 0; wnw_arch_name(i); i++) {
        const size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", wnw_arch_name(i));
    }
    return wnw__fail(WNW_E_UNSUPPORTED, "model architecture '%.40s' is not supported; supported: %s", arch,
                     list);
}

static int set_name(struct wnw_model *m, const char *path)
{
    const char *name = wnw__key_str(m->gguf, "general.name");
    const char *base = strrchr(path, '/');
    m->name = strdup(name && *name ? name : base ? base + 1 : path);
    return m->name ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the model's name");
}

/* The most bytes that reading the metadata takes, before any of it is known: four times the metadata of the
 * largest models, or the size of the file. */
static size_t metadata_bytes(const struct wnw_model *m)
{
    const size_t most = (size_t)32 << 20;
    return 4 * (m->map_size < most ? m->map_size : most) + (1 << 20);
}

int wnw__model_read(struct wnw_model *m, const char *path)
{
    WNW_TRY(map_file(m, path));
    WNW_TRY(wnw__memory_look(metadata_bytes(m), "the metadata of the model"));
    m->gguf = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = &m->meta});
    if (!m->gguf || !m->meta)
        return wnw__fail(WNW_E_FORMAT, "%s is a damaged GGUF file: its header or metadata cannot be read",
                         path);
    const char *arch = wnw__key_str(m->gguf, "general.architecture");
    if (!arch)
        return wnw__fail(WNW_E_FORMAT, "%s does not name its architecture", path);
    m->arch = wnw__arch_find(arch);
    if (!m->arch)
        return unknown_arch(arch);
    WNW_TRY(set_name(m, path));
    WNW_TRY(read_hparams(m));
    WNW_TRY(place_tensors(m, path));
    return bind_all(m);
}

void wnw__model_clear(struct wnw_model *m)
{
    if (m->repacked_buffer)
        ggml_backend_buffer_free(m->repacked_buffer);
    if (m->mapped_buffer)
        ggml_backend_buffer_free(m->mapped_buffer);
    ggml_free(m->repacked);
    free(m->repacked_arena);
    ggml_free(m->meta);
    gguf_free(m->gguf);
    if (m->map)
        munmap(m->map, m->map_size);
    free(m->layers);
    free(m->name);
    *m = (struct wnw_model){0};
}

struct ggml_tensor *wnw__model_original(const struct wnw_model *m, const struct ggml_tensor *w)
{
    return ggml_get_tensor(m->meta, w->name);
}

bool wnw_model_layer_is_swa(const wnw_model *m, int32_t il)
{
    return m && il >= 0 && il < m->hp.n_layer && wnw__layer_is_swa(&m->hp, il);
}

int wnw_model_get_info(const wnw_model *m, wnw_model_info *out)
{
    wnw_model_info info = {.arch = "", .name = ""};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_model_info, out));
    wnw__sized_give(out, &info);
    WNW_REQUIRE(m);
    const struct wnw__hparams *hp = &m->hp;
    info = (wnw_model_info){
        .arch = m->arch->name,
        .name = m->name,
        .n_layer = hp->n_layer,
        .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv,
        .n_embd = hp->n_embd,
        .n_embd_head = hp->n_embd_head,
        .n_ctx_train = hp->n_ctx_train,
        .n_vocab = hp->n_vocab,
        .n_swa = hp->n_swa,
        .weight_bytes = m->weight_bytes,
        .repacked_bytes = m->repacked_bytes,
    };
    for (int32_t il = 0; il < hp->n_layer; il++)
        info.n_layer_swa += wnw__layer_is_swa(hp, il) ? 1 : 0;
    wnw__sized_give(out, &info);
    return WNW_OK;
}
