/* SPDX-License-Identifier: MIT */
#include "mutants.h"

#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t pick(uint64_t *state, size_t n)
{
    return (size_t)(test_random(state) % n);
}

static void say(char said[TEST_MUTANT_TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(char said[TEST_MUTANT_TEXT], const char *format, ...)
{
    const size_t len = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + len, TEST_MUTANT_TEXT - len, format, args);
    va_end(args);
}

/* ---- Keys ---- */

/* Endings of the keys that libllama reads for some family, so that files get keys which their family does not need. */
static const char *const endings[] = {".activation.situ_beta",
                                      ".activation.situ_linear_beta",
                                      ".attention.causal",
                                      ".attention.clamp_kqv",
                                      ".attention.compress_ratios",
                                      ".attention.compress_rope_freq_base",
                                      ".attention.decay_lora_rank",
                                      ".attention.gate_lora_rank",
                                      ".attention.group_norm_epsilon",
                                      ".attention.group_norm_groups",
                                      ".attention.head_count",
                                      ".attention.head_count_kv",
                                      ".attention.iclr_lora_rank",
                                      ".attention.indexer.block_size",
                                      ".attention.indexer.head_count",
                                      ".attention.indexer.key_length",
                                      ".attention.indexer.kpool",
                                      ".attention.indexer.local_blocks",
                                      ".attention.indexer.top_k",
                                      ".attention.indexer.types",
                                      ".attention.key_length",
                                      ".attention.key_length_mla",
                                      ".attention.key_length_swa",
                                      ".attention.kv_lora_rank",
                                      ".attention.layer_norm_epsilon",
                                      ".attention.layer_norm_rms_epsilon",
                                      ".attention.max_alibi_bias",
                                      ".attention.output_scale",
                                      ".attention.q_lora_rank",
                                      ".attention.recurrent_layers",
                                      ".attention.relative_buckets_count",
                                      ".attention.rope_pattern",
                                      ".attention.scale",
                                      ".attention.shared_kv_layers",
                                      ".attention.sliding_window",
                                      ".attention.sliding_window_pattern",
                                      ".attention.temperature_length",
                                      ".attention.temperature_scale",
                                      ".attention.value_length",
                                      ".attention.value_length_mla",
                                      ".attention.value_length_swa",
                                      ".attn_logit_softcapping",
                                      ".attn_res.block_size",
                                      ".block_count",
                                      ".block_size",
                                      ".classifier.output_labels",
                                      ".context_length",
                                      ".conv_group_size",
                                      ".conv_kernel_size",
                                      ".decoder_block_count",
                                      ".decoder_start_token_id",
                                      ".deepstack_mapping",
                                      ".embedding_length",
                                      ".embedding_length_out",
                                      ".embedding_length_per_layer_input",
                                      ".embedding_scale",
                                      ".expert_chunk_feed_forward_length",
                                      ".expert_count",
                                      ".expert_feed_forward_length",
                                      ".expert_gating_func",
                                      ".expert_group_count",
                                      ".expert_group_scale",
                                      ".expert_group_used_count",
                                      ".expert_latent_length",
                                      ".expert_shared_count",
                                      ".expert_shared_feed_forward_length",
                                      ".expert_used_count",
                                      ".expert_weights_norm",
                                      ".expert_weights_scale",
                                      ".experts_per_group",
                                      ".feed_forward_length",
                                      ".final_logit_softcapping",
                                      ".full_attention_interval",
                                      ".hash_layer_count",
                                      ".hidden_activation",
                                      ".hyper_connection.count",
                                      ".hyper_connection.low_rank",
                                      ".hyper_connection.sinkhorn_iterations",
                                      ".interleave_moe_layer_step",
                                      ".kda.head_dim",
                                      ".leading_dense_block_count",
                                      ".logit_scale",
                                      ".moe_every_n_layers",
                                      ".moe_latent_size",
                                      ".n_deepstack_layers",
                                      ".nextn_predict_layers",
                                      ".num_loops",
                                      ".ple.conv_kernel",
                                      ".ple.heads_per_ngram",
                                      ".ple.layers",
                                      ".ple.ngram_size",
                                      ".pooling_type",
                                      ".rescale_every_n_layers",
                                      ".residual_scale",
                                      ".rope.dimension_count",
                                      ".rope.dimension_count_swa",
                                      ".rope.dimension_sections",
                                      ".rope.freq_base",
                                      ".rope.freq_base_swa",
                                      ".rope.scale_linear",
                                      ".rope.scaling.alpha",
                                      ".rope.scaling.attn_factor",
                                      ".rope.scaling.factor",
                                      ".rope.scaling.original_context_length",
                                      ".rope.scaling.type",
                                      ".rope.scaling.yarn_attn_factor",
                                      ".rope.scaling.yarn_beta_fast",
                                      ".rope.scaling.yarn_beta_slow",
                                      ".rope.scaling.yarn_ext_factor",
                                      ".rope.scaling.yarn_log_multiplier",
                                      ".router_logit_softcapping",
                                      ".selector_rank",
                                      ".selector_top_k",
                                      ".shortconv.l_cache",
                                      ".ssm.conv_kernel",
                                      ".ssm.dt_b_c_rms",
                                      ".ssm.group_count",
                                      ".ssm.inner_size",
                                      ".ssm.state_size",
                                      ".ssm.time_step_rank",
                                      ".swiglu_clamp_exp",
                                      ".swiglu_clamp_shexp",
                                      ".swin_norm",
                                      ".time_decay_extra_dim",
                                      ".time_mix_extra_dim",
                                      ".token_shift_count",
                                      ".use_parallel_residual",
                                      ".vocab_size",
                                      ".wkv.head_size"};
/* The same of keys that all families share. */
static const char *const shared[] = {"general.file_type",
                                     "general.quantization_version",
                                     "tokenizer.ggml.model",
                                     "tokenizer.ggml.pre",
                                     "tokenizer.ggml.token_type_count",
                                     "tokenizer.ggml.bos_token_id",
                                     "tokenizer.ggml.eos_token_id",
                                     "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id",
                                     "tokenizer.ggml.unknown_token_id",
                                     "tokenizer.ggml.seperator_token_id",
                                     "tokenizer.ggml.padding_token_id",
                                     "tokenizer.ggml.mask_token_id",
                                     "tokenizer.ggml.add_bos_token",
                                     "tokenizer.ggml.add_eos_token",
                                     "tokenizer.ggml.add_sep_token",
                                     "tokenizer.ggml.add_space_prefix",
                                     "tokenizer.ggml.remove_extra_whitespaces",
                                     "tokenizer.ggml.precompiled_charsmap",
                                     "tokenizer.ggml.fim_pre_token_id",
                                     "tokenizer.ggml.suppress_tokens",
                                     "tokenizer.ggml.scores",
                                     "tokenizer.ggml.token_type",
                                     "tokenizer.ggml.merges",
                                     "tokenizer.ggml.tokens",
                                     "tokenizer.chat_template",
                                     "adapter.type",
                                     "split.no",
                                     "split.count",
                                     "split.tensors.count"};
static const char *const strings[] = {"",
                                      "x",
                                      "llama",
                                      "gpt2",
                                      "bert",
                                      "t5",
                                      "rwkv",
                                      "plamo2",
                                      "hybriddna",
                                      "no_vocab",
                                      "none",
                                      "linear",
                                      "yarn",
                                      "longrope",
                                      "su",
                                      "gelu",
                                      "silu",
                                      "default",
                                      "llama-bpe",
                                      "qwen2",
                                      "tekken",
                                      "llama4",
                                      "gemma4",
                                      "mamba",
                                      "qwen3next",
                                      "deepseek2",
                                      "gpt-oss",
                                      "rwkv7",
                                      "lfm2",
                                      "t5encoder",
                                      "wavtokenizer-dec",
                                      "clip",
                                      "jamba",
                                      "\xff\xfe",
                                      "{{ messages }}"};
static const double numbers[] = {0,
                                 1,
                                 2,
                                 3,
                                 5,
                                 7,
                                 8,
                                 16,
                                 33,
                                 64,
                                 255,
                                 256,
                                 511,
                                 512,
                                 513,
                                 1023,
                                 1024,
                                 1025,
                                 65535,
                                 65536,
                                 1 << 20,
                                 2147483647.0,
                                 2147483648.0,
                                 4294967295.0,
                                 -1,
                                 -3,
                                 -2147483648.0};
static const double floats[] = {0, -0.0, 1, -1, 0.5, 1e-45, 1e-30, 1e30, 1e38, -1e30, 16, 10000};

static float any_float(uint64_t *state)
{
    const size_t n = sizeof floats / sizeof *floats, i = pick(state, n + 3);
    return i < n ? (float)floats[i] : i == n ? NAN : i == n + 1 ? INFINITY : -INFINITY;
}

/* A number near `was`, or any. */
static double any_number(uint64_t *state, double was)
{
    const double near[] = {was + 1, was - 1, was * 2, floor(was / 2), was + 8, was - 8, was * 3, 1};
    return pick(state, 2) ? near[pick(state, 8)] : numbers[pick(state, sizeof numbers / sizeof *numbers)];
}

static bool number_of(const struct gguf_context *g, int64_t id, double *out)
{
    switch (gguf_get_kv_type(g, id)) {
    case GGUF_TYPE_UINT32:
        *out = gguf_get_val_u32(g, id);
        return true;
    case GGUF_TYPE_INT32:
        *out = gguf_get_val_i32(g, id);
        return true;
    case GGUF_TYPE_UINT64:
        *out = (double)gguf_get_val_u64(g, id);
        return true;
    case GGUF_TYPE_UINT16:
        *out = gguf_get_val_u16(g, id);
        return true;
    case GGUF_TYPE_FLOAT32:
        *out = (double)gguf_get_val_f32(g, id);
        return true;
    default:
        return false;
    }
}

/* Sets a number as the type that libllama reads there: without sign and of 32 bits, as converters write. */
static void set_number(struct gguf_context *g, const char *key, enum gguf_type type, double v,
                       char said[TEST_MUTANT_TEXT])
{
    const int64_t i = isfinite(v) && fabs(v) < 9e18 ? (int64_t)v : INT64_MIN;
    say(said, "%s = %s %.9g", key, gguf_type_name(type), v);
    switch (type) {
    case GGUF_TYPE_INT8:
        gguf_set_val_i8(g, key, (int8_t)i);
        break;
    case GGUF_TYPE_UINT8:
        gguf_set_val_u8(g, key, (uint8_t)i);
        break;
    case GGUF_TYPE_UINT16:
        gguf_set_val_u16(g, key, (uint16_t)i);
        break;
    case GGUF_TYPE_INT32:
        gguf_set_val_i32(g, key, (int32_t)i);
        break;
    case GGUF_TYPE_INT64:
        gguf_set_val_i64(g, key, i);
        break;
    case GGUF_TYPE_UINT64:
        gguf_set_val_u64(g, key, (uint64_t)i);
        break;
    case GGUF_TYPE_FLOAT32:
        gguf_set_val_f32(g, key, (float)v);
        break;
    case GGUF_TYPE_FLOAT64:
        gguf_set_val_f64(g, key, v);
        break;
    case GGUF_TYPE_BOOL:
        gguf_set_val_bool(g, key, i != 0);
        break;
    default:
        gguf_set_val_u32(g, key, (uint32_t)i);
    }
}

/* Copies of a number; one of them may be another. */
static void set_array(struct gguf_context *g, const char *key, uint64_t *state, double v, uint32_t n_layer,
                      char said[TEST_MUTANT_TEXT])
{
    const size_t sizes[] = {0,       1,       2,           3,           4,   5,   n_layer,
                            n_layer, n_layer, n_layer + 1, n_layer - 1, 512, 513, 700};
    const size_t n = sizes[pick(state, sizeof sizes / sizeof *sizes)], cap = n > 0 ? n : 1;
    static const enum gguf_type types[] = {GGUF_TYPE_UINT32, GGUF_TYPE_INT32, GGUF_TYPE_FLOAT32,
                                           GGUF_TYPE_BOOL};
    const enum gguf_type type = types[pick(state, 4)];
    const double one = any_number(state, v);
    const size_t at = pick(state, cap);
    uint32_t *x = calloc(cap, sizeof *x);
    int8_t *b = calloc(cap, 1);
    assert_true(x && b);
    for (size_t i = 0; i < n; i++) {
        const double value = i == at ? one : v;
        const float f = (float)value;
        if (type == GGUF_TYPE_FLOAT32)
            memcpy(&x[i], &f, sizeof f);
        else
            x[i] = (uint32_t)(int64_t)(isfinite(value) ? value : 0);
        b[i] = x[i] != 0;
    }
    say(said, "%s = %zu %s of %g, [%zu] = %g", key, n, gguf_type_name(type), v, at, one);
    gguf_set_arr_data(g, key, type, type == GGUF_TYPE_BOOL ? (const void *)b : x, n);
    free(x);
    free(b);
}

static void set_string(struct gguf_context *g, const char *key, uint64_t *state, char said[TEST_MUTANT_TEXT])
{
    const char *s = strings[pick(state, sizeof strings / sizeof *strings)];
    say(said, "%s = '%s'", key, s);
    gguf_set_val_str(g, key, s);
}

/* Another value in the place of a number. */
static void change_number(struct gguf_context *g, const char *key, enum gguf_type type, double v,
                          uint64_t *state, uint32_t n_layer, char said[TEST_MUTANT_TEXT])
{
    static const enum gguf_type types[] = {GGUF_TYPE_INT8,    GGUF_TYPE_UINT8,   GGUF_TYPE_UINT16,
                                           GGUF_TYPE_INT32,   GGUF_TYPE_INT64,   GGUF_TYPE_UINT64,
                                           GGUF_TYPE_FLOAT32, GGUF_TYPE_FLOAT64, GGUF_TYPE_BOOL};
    const size_t how = pick(state, 20);
    if (how < 13)
        set_number(g, key, type, type == GGUF_TYPE_FLOAT32 ? (double)any_float(state) : any_number(state, v),
                   said);
    else if (how < 15)
        set_number(g, key, types[pick(state, sizeof types / sizeof *types)], v, said);
    else if (how < 19)
        set_array(g, key, state, v, n_layer, said);
    else
        set_string(g, key, state, said);
}

/* Another length of an array, another element, or a number in its place. */
static void change_array(struct gguf_context *g, const char *key, int64_t id, uint64_t *state,
                         uint32_t n_layer, char said[TEST_MUTANT_TEXT])
{
    const enum gguf_type type = gguf_get_arr_type(g, id);
    const size_t n = gguf_get_arr_n(g, id), how = pick(state, 4);
    if (how == 0) {
        change_number(g, key, GGUF_TYPE_UINT32, 1, state, n_layer, said);
        return;
    }
    const size_t less = n > 0 ? pick(state, n) : 0;
    if (type == GGUF_TYPE_STRING) {
        const char **s = calloc(n + 1, sizeof *s);
        assert_non_null(s);
        for (size_t i = 0; i < n; i++)
            s[i] = strdup(gguf_get_arr_str(g, id, i));
        if (how == 1 && n > 0)
            s[less] = strings[pick(state, sizeof strings / sizeof *strings)];
        say(said, how == 1 ? "%s[%zu] changed" : "%s cut to %zu", key, less);
        gguf_set_arr_str(g, key, s, how == 1 ? n : less);
        free((void *)s);
        return;
    }
    const size_t size = type == GGUF_TYPE_BOOL || type == GGUF_TYPE_INT8 || type == GGUF_TYPE_UINT8 ? 1
                        : type == GGUF_TYPE_INT64 || type == GGUF_TYPE_UINT64 || type == GGUF_TYPE_FLOAT64
                            ? 8
                            : 4;
    uint8_t *x = calloc(n + 1, size);
    assert_non_null(x);
    memcpy(x, gguf_get_arr_data(g, id), n * size);
    if (how == 1 && n > 0 && size == 4) {
        const uint32_t v = (uint32_t)(int64_t)any_number(state, 1);
        memcpy(x + less * 4, &v, 4);
        say(said, "%s[%zu] = bits of %u", key, less, v);
    } else {
        say(said, "%s cut to %zu", key, less);
    }
    gguf_set_arr_data(g, key, type, x, how == 1 ? n : less);
    free(x);
}

static uint32_t layers_of(const struct test_gguf *f)
{
    for (int64_t i = 0; i < gguf_get_n_kv(f->g); i++) {
        double v;
        if (strstr(gguf_get_key(f->g, i), ".block_count") && number_of(f->g, i, &v))
            return v >= 1 && v < 1000 ? (uint32_t)v : 2;
    }
    return 2;
}

static void change_key(struct test_gguf *f, const char *key, uint64_t *state, char said[TEST_MUTANT_TEXT])
{
    struct gguf_context *g = f->g;
    const int64_t id = gguf_find_key(g, key);
    double v;
    const uint32_t n_layer = layers_of(f);
    if (id < 0) { /* a key that was not there */
        if (pick(state, 4) == 0)
            set_string(g, key, state, said);
        else
            change_number(g, key, pick(state, 3) ? GGUF_TYPE_UINT32 : GGUF_TYPE_FLOAT32, 4, state, n_layer,
                          said);
    } else if (pick(state, 8) == 0) {
        say(said, "%s left out", key);
        gguf_remove_key(g, key);
    } else if (gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY) {
        change_array(g, key, id, state, n_layer, said);
    } else if (number_of(g, id, &v)) {
        change_number(g, key, gguf_get_kv_type(g, id), v, state, n_layer, said);
    } else if (gguf_get_kv_type(g, id) == GGUF_TYPE_STRING && pick(state, 3) > 0) {
        set_string(g, key, state, said);
    } else {
        change_number(g, key, GGUF_TYPE_UINT32, 1, state, n_layer, said);
    }
}

/* A key of the file that says numbers of its family more often than another, or one that it does not have. */
static void mutate_key(struct test_gguf *f, uint64_t *state, char said[TEST_MUTANT_TEXT])
{
    char key[256];
    const char *arch = "";
    const int64_t id = gguf_find_key(f->g, "general.architecture"), n = gguf_get_n_kv(f->g);
    if (id >= 0 && gguf_get_kv_type(f->g, id) == GGUF_TYPE_STRING)
        arch = gguf_get_val_str(f->g, id);
    const size_t how = pick(state, 10);
    if (how < 6) {
        const char *found = "";
        for (int tries = 0; tries < 8; tries++) {
            found = gguf_get_key(f->g, (int64_t)pick(state, (size_t)n));
            if (strncmp(found, arch, strlen(arch)) == 0)
                break;
        }
        snprintf(key, sizeof key, "%s", found);
    } else if (how < 9) {
        snprintf(key, sizeof key, "%s%s", arch, endings[pick(state, sizeof endings / sizeof *endings)]);
    } else {
        snprintf(key, sizeof key, "%s", shared[pick(state, sizeof shared / sizeof *shared)]);
    }
    if (strcmp(key, "general.alignment") != 0) /* gguf_set_* itself asserts on it */
        change_key(f, key, state, said);
}

/* ---- Tensors ---- */

enum { N_SHAPE = 10 };

/* Another shape of a tensor, of no more elements than it has. false: its type has no such rows, or it is the same. */
static bool set_shape(struct ggml_tensor *t, size_t how, char said[TEST_MUTANT_TEXT])
{
    const int64_t *ne = t->ne;
    const int64_t shapes[N_SHAPE][GGML_MAX_DIMS] = {{ne[1], ne[0], ne[2], ne[3]},
                                                    {ne[0] * ne[1] * ne[2], 1, 1, 1},
                                                    {ne[0], ne[1] > 1 ? ne[1] - 1 : 1, ne[2], ne[3]},
                                                    {ne[0], 1, 1, 1},
                                                    {1, 1, 1, 1},
                                                    {ne[0] > 1 ? ne[0] / 2 : 1, ne[1], ne[2], ne[3]},
                                                    {ne[0], ne[2], ne[1], ne[3]},
                                                    {ne[0], 1, ne[1], ne[2]},
                                                    {1, ne[0], ne[1], ne[2]},
                                                    {ne[0] > 1 ? ne[0] - 1 : 1, ne[1], ne[2], ne[3]}};
    const int64_t *to = shapes[how];
    if (to[0] % ggml_blck_size(t->type) != 0 || memcmp(to, t->ne, sizeof t->ne) == 0)
        return false;
    say(said, "%s is %d x %d x %d", t->name, (int)to[0], (int)to[1], (int)to[2]);
    memcpy(t->ne, to, sizeof t->ne);
    t->nb[0] = ggml_type_size(t->type);
    t->nb[1] = ggml_row_size(t->type, t->ne[0]);
    for (int i = 2; i < GGML_MAX_DIMS; i++)
        t->nb[i] = t->nb[i - 1] * (size_t)t->ne[i - 1];
    return true;
}

static void mutate_tensor(struct test_gguf *f, uint64_t *state, char said[TEST_MUTANT_TEXT])
{
    if (f->n_tensor < 2)
        return;
    const int32_t i = (int32_t)pick(state, (size_t)f->n_tensor),
                  k = (int32_t)pick(state, (size_t)f->n_tensor);
    struct ggml_tensor *t = f->tensor[i];
    char name[GGML_MAX_NAME];
    switch (pick(state, 6)) {
    case 0:
        say(said, "%s left out", t->name);
        test_gguf_remove(f, i);
        return;
    case 1:
        say(said, "%s and %s have each other's names", t->name, f->tensor[k]->name);
        snprintf(name, sizeof name, "%s", t->name);
        ggml_set_name(t, f->tensor[k]->name);
        ggml_set_name(f->tensor[k], name);
        return;
    case 2:
        snprintf(name, sizeof name, "%s", t->name);
        name[pick(state, strlen(name))] ^= 1;
        if (test_gguf_find(f, name) >= 0)
            return;
        say(said, "%s renamed", t->name);
        ggml_set_name(t, name);
        return;
    case 3:
        set_shape(t, pick(state, N_SHAPE), said);
        return;
    default: {
        const enum ggml_type type = (enum ggml_type)pick(state, GGML_TYPE_COUNT);
        if (ggml_blck_size(type) < 1 || ggml_type_size(type) == 0 || t->ne[0] % ggml_blck_size(type) != 0)
            return;
        say(said, "%s is of %s", t->name, ggml_type_name(type));
        test_gguf_replace(f, i, type);
    }
    }
}

void test_mutate(struct test_gguf *f, uint64_t *state, char said[TEST_MUTANT_TEXT])
{
    said[0] = '\0';
    for (size_t i = 0, n = pick(state, 5) == 0 ? 2 : 1; i < n;) {
        const size_t len = strlen(said);
        if (len > 0)
            say(said, "; ");
        if (pick(state, 10) < 7)
            mutate_key(f, state, said);
        else
            mutate_tensor(f, state, said);
        i += strlen(said) > len + 2;
    }
}

/* Change `how` of one key's number; false where there are fewer. */
static bool change_once(struct test_gguf *f, const char *key, int64_t id, int32_t how,
                        char said[TEST_MUTANT_TEXT])
{
    double v = 0;
    const enum gguf_type type = gguf_get_kv_type(f->g, id);
    number_of(f->g, id, &v);
    const double whole[] = {0, 1, 3, v * 2, floor(v / 2), v + 1, 4294967295.0},
                 real[] = {0, -1, NAN, INFINITY};
    const size_t n = type == GGUF_TYPE_FLOAT32 ? sizeof real / sizeof *real : sizeof whole / sizeof *whole;
    if (how > (int32_t)n)
        return false;
    if (how == 0) {
        say(said, "%s left out", key);
        gguf_remove_key(f->g, key);
    } else {
        set_number(f->g, key, type, type == GGUF_TYPE_FLOAT32 ? real[how - 1] : whole[how - 1], said);
    }
    return true;
}

bool test_mutate_once(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT])
{
    static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_I32, GGML_TYPE_Q8_0};
    enum { PER_KEY = 8, PER_TENSOR = 4 };
    said[0] = '\0';
    for (int64_t i = 0; i < gguf_get_n_kv(f->g); i++) {
        char key[256];
        double v;
        snprintf(key, sizeof key, "%s", gguf_get_key(f->g, i));
        if (strncmp(key, "general.", 8) == 0 || !number_of(f->g, i, &v) || v == 0)
            continue; /* zeros are written for what a family does not have */
        if (at < PER_KEY) {
            if (!change_once(f, key, i, at, said))
                say(said, "nothing");
            return true;
        }
        at -= PER_KEY;
    }
    if (at >= f->n_tensor * PER_TENSOR)
        return false;
    const int32_t i = at / PER_TENSOR, how = at % PER_TENSOR;
    if (how == 0) {
        say(said, "%s left out", f->tensor[i]->name);
        test_gguf_remove(f, i);
    } else if (f->tensor[i]->ne[0] % ggml_blck_size(types[how - 1]) == 0) {
        say(said, "%s is of %s", f->tensor[i]->name, ggml_type_name(types[how - 1]));
        test_gguf_replace(f, i, types[how - 1]);
    } else {
        say(said, "nothing");
    }
    return true;
}

bool test_mutate_left_out(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT])
{
    if (at >= f->n_tensor)
        return false;
    snprintf(said, TEST_MUTANT_TEXT, "%s left out", f->tensor[at]->name);
    test_gguf_remove(f, at);
    return true;
}

bool test_mutate_shape(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT])
{
    if (at >= f->n_tensor * N_SHAPE)
        return false;
    said[0] = '\0';
    if (!set_shape(f->tensor[at / N_SHAPE], (size_t)(at % N_SHAPE), said))
        say(said, "nothing");
    return true;
}

void test_mutant_write(const struct test_gguf *f, const char *path, uint64_t *state,
                       char said[TEST_MUTANT_TEXT])
{
    test_gguf_write(f, path);
    if (pick(state, 25) > 0)
        return;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    if (pick(state, 3) == 0) {
        const long at = (long)pick(state, (size_t)size);
        say(said, "; cut at %ld", at);
        assert_int_equal(ftruncate(fileno(file), at), 0);
    } else {
        const long most = size < 20000 ? size : 20000, at = (long)pick(state, (size_t)most);
        say(said, "; other bytes at %ld", at);
        fseek(file, at, SEEK_SET);
        for (size_t i = 0, n = 1 + pick(state, 4); i < n; i++)
            fputc((int)pick(state, 256), file);
    }
    fclose(file);
}
