/* SPDX-License-Identifier: MIT */
#include "model/model_impl.h"

#include <math.h>
#include <string.h>

/* Sizes above these are taken for damage. No model comes near them, and their products fit 64 bits. */
enum { MAX_HEADS = 1024, MAX_HEAD_SIZE = 1024, MAX_EMBD = 1 << 17, MAX_FF = 1 << 20 };

static int check_range(const char *what, int32_t v, int32_t max)
{
    if (v < 1 || v > max)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says %s = %d, which cannot be right", what, (int)v);
    return WNW_OK;
}

/* ---- Keys that are refused ---- */

/* A key with which winnow computes as if it held `neutral`. `other` means the same; so do values from `from` on, where
 * that is not 0. `size` puts a size of the model there. libllama computes with any value of `theirs` for the families that winnow has
 * graphs for. */
struct neutral {
    const char *key;
    double neutral, other, from;
    enum { NO_SIZE, HEAD, TURNED, CONTEXT } size; /* CONTEXT: a window that no sequence leaves is none */
    bool theirs;
};

/* Whether the family's setup reads the key. */
static bool is_read(const struct wnw__arch *arch, const char *key)
{
    for (int i = 0; arch->keys && arch->keys[i]; i++)
        if (strcmp(arch->keys[i], key) == 0)
            return true;
    return false;
}

/* The row with the model's size in it. */
static struct neutral of_model(const struct neutral *row, const struct wnw__hparams *hp)
{
    struct neutral of = *row;
    if (of.size == HEAD)
        of.neutral = of.other = hp->n_embd_head;
    if (of.size == TURNED)
        of.neutral = of.other = hp->n_rot;
    if (of.size == CONTEXT)
        of.from = hp->n_ctx_train;
    return of;
}

static int check_neutral(const struct wnw_model *m, const struct neutral *row)
{
    char full[WNW_KEY_MAX];
    double v;
    const int64_t id = wnw__key_find(m->gguf, row->key, full);
    for (size_t i = 0; id >= 0 && i < wnw__key_count(m->gguf, id); i++) {
        if (!wnw__key_number(m->gguf, id, i, &v))
            return wnw__fail(WNW_E_FORMAT, "GGUF key %s is not a number", full);
        if (v != row->neutral && v != row->other && !(row->from > 0 && v >= row->from))
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "the GGUF says %s = %g, which winnow does not compute (it computes as with %g); run this "
                "model with llama.cpp",
                full, v, row->neutral);
    }
    return WNW_OK;
}

/* What libllama reads for every family or for a family near these, and what winnow has no code for. Where libllama does
 * not read such a key for the current family, the file still says that the model computes differently than both do. */
static const struct neutral neutrals[] = {
    {.key = ".attention.causal", .neutral = 1, .other = 1},
    {.key = ".attention.clamp_kqv"},
    {.key = ".attention.max_alibi_bias"},
    {.key = ".attention.scale"},
    {.key = ".attention.output_scale", .other = 1},
    {.key = ".attention.value_scale", .other = 1},
    {.key = ".attention.temperature_length"},
    {.key = ".attention.temperature_scale"},
    {.key = ".attention.shared_kv_layers"},
    {.key = ".attention.q_lora_rank"},
    {.key = ".attention.kv_lora_rank"},
    {.key = ".attention.rope_pattern", .neutral = 1, .other = 1},
    {.key = ".attention.sliding_window", .size = CONTEXT},
    {.key = ".attention.key_length_swa", .size = HEAD},
    {.key = ".attention.value_length_swa", .size = HEAD},
    {.key = ".rope.dimension_count_swa", .size = TURNED},
    {.key = ".rope.dimension_sections"},
    {.key = ".rope.scaling.attn_factor", .neutral = 1, .other = 1, .theirs = true},
    {.key = ".rope.scaling.alpha", .other = 1},
    {.key = ".attn_logit_softcapping"},
    {.key = ".final_logit_softcapping"},
    {.key = ".logit_scale", .neutral = 1, .other = 0},
    {.key = ".residual_scale", .neutral = 1, .other = 0},
    {.key = ".embedding_scale", .neutral = 1, .other = 0},
    {.key = ".swiglu_clamp_exp"},
    {.key = ".swiglu_clamp_shexp"},
    {.key = ".use_parallel_residual"},
    {.key = ".swin_norm"},
    {.key = ".rescale_every_n_layers"},
    {.key = ".nextn_predict_layers"},
    {.key = ".num_loops", .neutral = 1, .other = 0},
    {.key = ".expert_count"},
    {.key = ".expert_used_count"},
    {.key = ".expert_shared_count"},
    {.key = ".expert_group_count"},
    {.key = ".expert_group_used_count"},
};

static int check_keys(const struct wnw_model *m, bool by_libllama)
{
    for (size_t i = 0; i < sizeof neutrals / sizeof *neutrals; i++) {
        const struct neutral row = of_model(&neutrals[i], &m->hp);
        if (!is_read(m->arch, row.key) && !(by_libllama && row.theirs))
            WNW_TRY(check_neutral(m, &row));
    }
    return WNW_OK;
}

/* ---- Keys that are read ---- */

static int read_rope(const struct wnw_model *m, struct wnw__hparams *hp)
{
    const struct gguf_context *g = m->gguf;
    const char *type = wnw__key_str(g, ".rope.scaling.type");
    float factor, linear;
    WNW_TRY(wnw__key_i32(g, ".rope.dimension_count", hp->n_embd_head, &hp->n_rot));
    WNW_TRY(wnw__key_f32(g, ".rope.freq_base", 10000.0f, &hp->rope_freq_base));
    WNW_TRY(wnw__key_f32(g, ".rope.scale_linear", 0.0f, &linear));
    WNW_TRY(wnw__key_f32(g, ".rope.scaling.factor", linear, &factor));
    if (type && strcmp(type, "none") != 0 && strcmp(type, "linear") != 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "rope scaling type '%.32s' is not supported (none, linear and Llama 3.1's factors are)", type);
    if (factor < 0.0f)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says rope.scaling.factor = %g", (double)factor);
    hp->rope_freq_scale = factor > 0.0f && !(type && strcmp(type, "none") == 0) ? 1.0f / factor : 1.0f;
    if (hp->n_rot < 2 || hp->n_rot > hp->n_embd_head || hp->n_rot % 2 != 0)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says rope.dimension_count = %d for heads of %d",
                         (int)hp->n_rot, (int)hp->n_embd_head);
    if (hp->n_rot != hp->n_embd_head && !m->arch->partial_rope)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the GGUF says rope.dimension_count = %d for heads of %d; %s models turn whole heads",
            (int)hp->n_rot, (int)hp->n_embd_head, m->arch->name);
    if (!(hp->rope_freq_base > 0.0f))
        return wnw__fail(WNW_E_FORMAT, "the GGUF says rope.freq_base = %g", (double)hp->rope_freq_base);
    return WNW_OK;
}

static int read_sizes(const struct gguf_context *g, struct wnw__hparams *hp)
{
    int32_t d_v;
    WNW_TRY(wnw__key_i32(g, ".block_count", 0, &hp->n_layer));
    WNW_TRY(wnw__key_i32(g, ".embedding_length", 0, &hp->n_embd));
    WNW_TRY(wnw__key_i32(g, ".feed_forward_length", 0, &hp->n_ff));
    WNW_TRY(wnw__key_i32(g, ".context_length", 0, &hp->n_ctx_train));
    WNW_TRY(wnw__key_i32(g, ".attention.head_count", 0, &hp->n_head));
    WNW_TRY(wnw__key_i32(g, ".attention.head_count_kv", hp->n_head, &hp->n_head_kv));
    WNW_TRY(check_range("block_count", hp->n_layer, WNW_MAX_LAYERS));
    WNW_TRY(check_range("embedding_length", hp->n_embd, MAX_EMBD));
    WNW_TRY(check_range("feed_forward_length", hp->n_ff, MAX_FF));
    WNW_TRY(check_range("context_length", hp->n_ctx_train, 1 << 28));
    WNW_TRY(check_range("head_count", hp->n_head, MAX_HEADS));
    WNW_TRY(check_range("head_count_kv", hp->n_head_kv, hp->n_head));
    WNW_TRY(wnw__key_i32(g, ".attention.key_length", hp->n_embd / hp->n_head, &hp->n_embd_head));
    WNW_TRY(wnw__key_i32(g, ".attention.value_length", hp->n_embd / hp->n_head, &d_v));
    WNW_TRY(check_range("head size", hp->n_embd_head, MAX_HEAD_SIZE));
    if (hp->n_head % hp->n_head_kv != 0)
        return wnw__fail(WNW_E_FORMAT, "the GGUF says %d query heads for %d KV heads: not a whole group size",
                         (int)hp->n_head, (int)hp->n_head_kv);
    if (d_v != hp->n_embd_head || hp->n_embd_head % 8 != 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "head sizes %d (keys) and %d (values): must be equal and a multiple of 8",
                         (int)hp->n_embd_head, (int)d_v);
    return WNW_OK;
}

/* No value is right for every model that lacks the key. */
static int read_epsilon(const struct gguf_context *g, struct wnw__hparams *hp)
{
    char full[WNW_KEY_MAX];
    if (wnw__key_find(g, ".attention.layer_norm_rms_epsilon", full) < 0)
        return wnw__fail(WNW_E_FORMAT, "the GGUF lacks key %s", full);
    WNW_TRY(wnw__key_f32(g, ".attention.layer_norm_rms_epsilon", 0.0f, &hp->rms_eps));
    if (!(hp->rms_eps > 0.0f && hp->rms_eps < 1.0f))
        return wnw__fail(WNW_E_FORMAT, "the GGUF says layer_norm_rms_epsilon = %g", (double)hp->rms_eps);
    return WNW_OK;
}

int wnw__hparams_read(struct wnw_model *m)
{
    struct wnw__hparams *hp = &m->hp;
    WNW_TRY(read_sizes(m->gguf, hp));
    WNW_TRY(read_epsilon(m->gguf, hp));
    WNW_TRY(read_rope(m, hp));
    WNW_TRY(check_keys(m, false));
    hp->embd_scale = 1.0f;
    hp->q_scale = 1.0f;
    hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd_head);
    return m->arch->setup ? m->arch->setup(m->gguf, hp) : WNW_OK;
}

/* ---- Keys that only libllama's graphs compute with ---- */

/* Families of arch/ have no experts; Mixtral is a llama. */
static bool has_experts(const struct wnw_model *m)
{
    int32_t n;
    return wnw__key_i32(m->gguf, ".expert_count", 0, &n) == WNW_OK && n > 0;
}

/* The key of RoPE that turns by YaRN's angles, or scales what it turns; NULL = it does neither. */
static const char *yarn_key(const struct wnw_model *m)
{
    const char *type = wnw__key_str(m->gguf, ".rope.scaling.type");
    float factor;
    if (type && strcmp(type, "yarn") == 0)
        return "rope.scaling.type";
    if (wnw__key_f32(m->gguf, ".rope.scaling.attn_factor", 1.0f, &factor) == WNW_OK && factor != 1.0f)
        return "rope.scaling.attn_factor";
    return NULL;
}

/* Keys that are read above, and those that change no logit of a family that winnow has graphs for. */
static const char *const known[] = {
    ".block_count",
    ".embedding_length",
    ".feed_forward_length",
    ".context_length",
    ".vocab_size",
    ".tensor_data_layout",
    ".embedding_length_out",
    ".pooling_type",
    ".classifier.output_labels",
    ".attention.head_count",
    ".attention.head_count_kv",
    ".attention.key_length",
    ".attention.value_length",
    ".attention.layer_norm_rms_epsilon",
    ".attention.layer_norm_epsilon",
    ".attention.group_norm_epsilon",
    ".attention.group_norm_groups",
    ".attention.sliding_window_pattern",
    ".rope.dimension_count",
    ".rope.freq_base",
    ".rope.freq_base_swa",
    ".rope.scale_linear",
    ".rope.scaling.type",
    ".rope.scaling.factor",
    ".rope.scaling.finetuned",
    ".rope.scaling.original_context_length",
    ".rope.scaling.yarn_attn_factor",
    ".rope.scaling.yarn_beta_fast",
    ".rope.scaling.yarn_beta_slow",
    ".rope.scaling.yarn_ext_factor",
    ".rope.scaling.yarn_log_multiplier",
};

static bool is_known(const struct wnw__arch *arch, const char *key)
{
    bool found = is_read(arch, key);
    for (size_t i = 0; !found && i < sizeof known / sizeof *known; i++)
        found = strcmp(known[i], key) == 0;
    for (size_t i = 0; !found && i < sizeof neutrals / sizeof *neutrals; i++)
        found = strcmp(neutrals[i].key, key) == 0;
    return found;
}

/* A key of the family that winnow does not know, whose meaning depends on libllama's version; NULL = there is none. */
static const char *unknown_key(const struct wnw_model *m)
{
    const size_t n = strlen(m->arch->name);
    for (int64_t i = 0; i < gguf_get_n_kv(m->gguf); i++) {
        const char *key = gguf_get_key(m->gguf, i);
        if (strncmp(key, m->arch->name, n) == 0 && key[n] == '.' && !is_known(m->arch, key + n))
            return key + n + 1;
    }
    return NULL;
}

/* Layers that slide by a list, which libllama passes over in some versions; NULL = the family's layers do not slide by one. */
static const char *listed_layers(const struct wnw_model *m)
{
    char full[WNW_KEY_MAX];
    const int64_t id = wnw__key_find(m->gguf, ".attention.sliding_window_pattern", full);
    return id >= 0 && is_read(m->arch, ".attention.sliding_window_pattern") &&
                   gguf_get_kv_type(m->gguf, id) == GGUF_TYPE_ARRAY
               ? "attention.sliding_window_pattern"
               : NULL;
}

int wnw__hparams_by_libllama(const struct wnw_model *m, const char **key)
{
    *key = has_experts(m) ? "expert_count" : NULL;
    if (*key)
        return WNW_OK;
    *key = yarn_key(m);
    if (!*key)
        *key = listed_layers(m);
    if (!*key)
        *key = unknown_key(m);
    if (!*key)
        return WNW_OK;
    struct wnw_model sized = *m;
    WNW_TRY(read_sizes(m->gguf, &sized.hp));
    WNW_TRY(wnw__key_i32(m->gguf, ".rope.dimension_count", sized.hp.n_embd_head, &sized.hp.n_rot));
    return check_keys(&sized, true);
}
