/* SPDX-License-Identifier: MIT */
/* Types of tensors: those that the operations take which read them. Widths of attention: those that the keys say. */
#include "model/admit.h"
#include "model/files.h"
#include "model/model_impl.h"

#include <stdio.h>
#include <string.h>

/* Tensors that are added, multiplied element by element, or read by an operation of float32 alone. All norms, biases and scales are,
 * too, and do not need to be in the list. */
static const char float_ones[] = "rope_freqs rope_factors_long rope_factors_short hrm.z_l_init attn_sinks "
                                 "ffn.act ssm_conv1d ssm_conv1d_q ssm_conv1d_k "
                                 "ssm_conv1d_v ssm_a ssm_d attn_res_score ffn_res_score output_res_score "
                                 "exp_probs_b exp_probs_b_vl layer_output_scale "
                                 "altup_correct_scale shortconv.conv ple_conv1d "
                                 "hc_attn_base hc_attn_scale hc_ffn_base "
                                 "hc_ffn_scale output_hc_base output_hc_scale time_mix_lerp_x "
                                 "time_mix_lerp_w time_mix_lerp_k time_mix_lerp_v "
                                 "time_mix_lerp_r time_mix_lerp_g time_mix_lerp_fused time_mix_decay "
                                 "time_mix_w0 time_mix_a0 time_mix_v0 time_mix_first "
                                 "time_mix_k_k time_mix_k_a time_mix_r_k time_mix_ln channel_mix_lerp_k "
                                 "channel_mix_lerp_r nextn.enorm nextn.hnorm "
                                 "attn_conv_base ffn_conv_base gamma attn_norm_2";
/* Tensors of whole numbers. */
static const char whole_ones[] = "ffn_gate_tid2eid masked_embd_ordering d2t";

bool wnw__admit_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; n > 0 && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* A name without the number of its layer, and what comes after its last dot. */
static void cut_name(const char *full, char name[GGML_MAX_NAME], const char **ending)
{
    const char *at = full;
    for (const char *next; (next = strchr(at, '.')) && next[1] >= '0' && next[1] <= '9';)
        at = next + 1 + strspn(next + 1, "0123456789") + 1;
    if (strncmp(full, "enc.blk.", 8) == 0 || strncmp(full, "dec.blk.", 8) == 0) {
        at = full + 8;
        at += strspn(at, "0123456789");
        at += *at == '.';
    }
    snprintf(name, GGML_MAX_NAME, "%s", at);
    char *dot = strrchr(name, '.');
    *ending = "";
    if (dot) {
        *dot = '\0';
        *ending = dot + 1;
    }
}

static int check_type(const struct ggml_tensor *t, const char *arch)
{
    char name[GGML_MAX_NAME];
    const char *ending;
    cut_name(t->name, name, &ending);
    const bool is_float = strcmp(ending, "bias") == 0 || strcmp(ending, "scale") == 0 ||
                          strcmp(ending, "input_scale") == 0 || strstr(name, "norm") ||
                          wnw__admit_listed(float_ones, name) || wnw__admit_listed(float_ones, t->name) ||
                          (strcmp(arch, "glm5-next") == 0 && strcmp(name, "indexer_compressor_ape") == 0);
    if (wnw__admit_listed(whole_ones, name))
        return t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64
                   ? WNW_OK
                   : wnw__fail(WNW_E_FORMAT, "tensor %s has type %s, expected whole numbers", t->name,
                               ggml_type_name(t->type));
    return wnw__check_tensor_type(t, is_float);
}

/* ---- Widths of attention ---- */

/* A number of layer il. */
static int64_t number(const struct wnw_model *m, const char *key, int32_t il, int64_t def)
{
    char full[WNW_KEY_MAX];
    double x;
    const int64_t id = wnw__key_find(m->gguf, key, full);
    const size_t n = id < 0 ? 0 : wnw__key_count(m->gguf, id), at = (size_t)il < n ? (size_t)il : n - 1;
    return n > 0 && wnw__key_number(m->gguf, id, at, &x) ? (int64_t)x : def;
}

struct widths {
    int64_t n_head, n_head_kv, d_k, d_v, d_k_swa, d_v_swa; /* of a layer */
};

static struct widths widths_of(const struct wnw_model *m, int32_t il)
{
    struct widths w = {.n_head = number(m, ".attention.head_count", il, 0)};
    const int64_t first = number(m, ".attention.head_count", 0, 0),
                  d = first > 0 ? number(m, ".embedding_length", 0, 0) / first : 0;
    w.n_head_kv = number(m, ".attention.head_count_kv", il, w.n_head);
    w.d_k = number(m, ".attention.key_length", 0, d);
    w.d_v = number(m, ".attention.value_length", 0, d);
    /* Sizes for layers with windows count only where the file has windows. */
    const bool windows = number(m, ".attention.sliding_window", 0, 0) > 0;
    w.d_k_swa = windows ? number(m, ".attention.key_length_swa", 0, w.d_k) : w.d_k;
    w.d_v_swa = windows ? number(m, ".attention.value_length_swa", 0, w.d_v) : w.d_v;
    return w;
}

/* The width of a layer's tensor along a dimension must be one of two, or `times` of them. */
static int check_width(const struct wnw_model *m, int32_t il, const char *name, int dim,
                       const int64_t width[2], int64_t times)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s.weight", (int)il, name);
    const struct ggml_tensor *t = wnw__files_tensor(m, full);
    for (int64_t k = 1; t && k <= times; k++)
        if (t->ne[dim] == k * width[0] || t->ne[dim] == k * width[1])
            return WNW_OK;
    return t ? wnw__fail(WNW_E_FORMAT, "tensor %s is %lld x %lld, and the keys of its heads need %lld", full,
                         (long long)t->ne[0], (long long)t->ne[1], (long long)width[0])
             : WNW_OK;
}

/* The same of queries, or twice as many as gates need, with keys and values in one tensor. Linear attention has one of this name, too,
 * and a convolution after it. */
static int check_fused(const struct wnw_model *m, int32_t il, const struct widths *w)
{
    static const char gated[] = "qwen3next qwen35 qwen35moe qwen4exp";
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.ssm_conv1d.weight", (int)il);
    if (wnw__files_tensor(m, full))
        return WNW_OK;
    const int64_t times = wnw__admit_listed(gated, m->foreign.name) ? 2 : 1;
    const int64_t kv = w->n_head_kv * (w->d_k + w->d_v), kv_swa = w->n_head_kv * (w->d_k_swa + w->d_v_swa);
    snprintf(full, sizeof full, "blk.%d.attn_qkv.weight", (int)il);
    const struct ggml_tensor *t = wnw__files_tensor(m, full);
    for (int64_t k = 1; t && k <= times; k++)
        if (t->ne[1] == k * w->n_head * w->d_k + kv || t->ne[1] == k * w->n_head * w->d_k_swa + kv_swa)
            return WNW_OK;
    return t ? wnw__fail(WNW_E_FORMAT, "tensor %s is %lld x %lld, and the keys of its heads need %lld", full,
                         (long long)t->ne[0], (long long)t->ne[1], (long long)(w->n_head * w->d_k + kv))
             : WNW_OK;
}

/* Layers whose tensors of these names are no attention, or have heads of other sizes. */
static const char other_heads[] =
    "kimi-linear kimi-k3 bailingmoe3 glm5-next dots3note deepseek2 deepseek2-ocr mistral4 deepseek32 glm-dsa "
    "hy_v4 deepseek4 "
    "rwkv6 rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec t5 t5encoder mamba mamba2 clip minimax-01 minicpm3 plm";

/* Layers with keys and values have queries. Some families take the number of the first layer's for all of them. */
static int check_heads(const struct wnw_model *m, int32_t il, const struct widths *w)
{
    static const char of_first[] = "lfm2 lfm2moe";
    const int64_t first = number(m, ".attention.head_count", 0, 0),
                  n = wnw__admit_listed(of_first, m->foreign.name) ? first : w->n_head;
    return w->n_head_kv < 1 || (n >= 1 && n == w->n_head)
               ? WNW_OK
               : wnw__fail(
                     WNW_E_FORMAT,
                     "the GGUF says that layer %d has %lld KV heads and %lld query heads, and the first "
                     "layer %lld: they do not fit together",
                     (int)il, (long long)w->n_head_kv, (long long)w->n_head, (long long)first);
}

static int check_widths(const struct wnw_model *m)
{
    const int64_t n_layer = number(m, ".block_count", 0, 0);
    if (wnw__admit_listed(other_heads, m->foreign.name))
        return WNW_OK;
    for (int32_t il = 0; il < n_layer; il++) {
        const struct widths w = widths_of(m, il);
        WNW_TRY(check_heads(m, il, &w));
        if (w.n_head < 1 || w.n_head_kv < 1)
            continue;
        WNW_TRY(check_width(m, il, "attn_q", 1, (int64_t[]){w.n_head * w.d_k, w.n_head * w.d_k_swa}, 2));
        WNW_TRY(
            check_width(m, il, "attn_k", 1, (int64_t[]){w.n_head_kv * w.d_k, w.n_head_kv * w.d_k_swa}, 1));
        WNW_TRY(
            check_width(m, il, "attn_v", 1, (int64_t[]){w.n_head_kv * w.d_v, w.n_head_kv * w.d_v_swa}, 1));
        WNW_TRY(check_fused(m, il, &w));
        WNW_TRY(check_width(m, il, "attn_output", 0, (int64_t[]){w.n_head * w.d_v, w.n_head * w.d_v_swa}, 1));
    }
    return WNW_OK;
}

/* ggml asserts that a buffer begins at a multiple of this, and libllama has one begin at any of a file's tensors. */
static int check_aligned(const struct wnw__model_file *f)
{
    enum { ALIGNED = 32 };
    const size_t data = gguf_get_data_offset(f->gguf);
    for (int64_t i = 0; i < gguf_get_n_tensors(f->gguf); i++)
        if ((data + gguf_get_tensor_offset(f->gguf, i)) % ALIGNED != 0)
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "%.200s: tensor %.64s does not begin at a multiple of %d bytes; write the file with "
                "general.alignment = %d",
                f->path, gguf_get_tensor_name(f->gguf, i), ALIGNED, ALIGNED);
    return WNW_OK;
}

int wnw__admit_tensors(const struct wnw_model *m)
{
    for (int32_t i = 0; i < m->n_file; i++) {
        const struct wnw__model_file *f = &m->files[i];
        WNW_TRY(check_aligned(f));
        for (struct ggml_tensor *t = ggml_get_first_tensor(f->meta); t; t = ggml_get_next_tensor(f->meta, t))
            WNW_TRY(check_type(t, m->foreign.name));
    }
    return check_widths(m);
}
