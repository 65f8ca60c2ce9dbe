/* SPDX-License-Identifier: MIT */
/*
 * What files must say before libllama may read them (model/admit.h). Layers: each family of the table, also those that llama.cpp's
 * generator writes no models of: a layer with all its tensors is admitted, and so is one that lacks a tensor which libllama asks for
 * before it uses it; one that lacks any other is refused with the tensor's name. Keys:
 * those of families that the generator writes no models of, and those that fail two at a time. The others: model_bridge_mutants.
 */
#include "files.h"
#include "gguf_edit.h"
#include "peek_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_EMBD = 64, N_LAYER = 2, LAST = N_LAYER - 1 };

/* The tensors of a layer, with blanks between the names. Those of `needed` cannot be missing, those of `free` can. */
static const struct layer {
    const char *arch, *needed, *free;
} layers[] = {
    {"falcon-h1", "ssm_conv1d.bias", "ssm_conv1d.weight ssm_norm.weight attn_output.bias"},
    {"granitehybrid", "ssm_conv1d.bias", "ssm_conv1d.weight"},
    {"granitehybrid", "", "attn_norm.weight attn_q.weight ffn_gate_exps.weight"},
    {"nemotron_h", "ssm_conv1d.bias", "ssm_conv1d.weight"},
    {"nemotron_h_moe", "ssm_conv1d.bias ffn_latent_up.weight ffn_latent_down.weight", "ssm_conv1d.weight"},
    {"nemotron_h_moe", "", "ffn_up_exps.weight ffn_gate_inp.weight"},
    /* Required as the others are: libllama itself sees that it is missing. */
    {"mamba2", "", "ssm_conv1d.weight ssm_conv1d.bias"},
    {"qwen35", "attn_qkv.weight attn_gate.weight", "ssm_conv1d.weight"},
    {"qwen35", "", "attn_q.weight attn_k.weight attn_v.weight"},
    {"qwen35moe", "attn_qkv.weight attn_gate.weight", "ssm_conv1d.weight"},
    {"qwen3next", "attn_qkv.weight attn_gate.weight", "ssm_conv1d.weight"},
    {"qwen3next", "ssm_in.weight", "ssm_conv1d.weight"},
    {"qwen3next", "", "attn_qkv.weight attn_output.weight"},
    {"grok", "ffn_down.weight", "ffn_gate.weight ffn_up.weight"},
    {"mimo2", "ffn_up.weight ffn_down.weight", "attn_norm.weight ffn_gate.weight attn_sinks.weight"},
    {"mimo2", "ffn_up_exps.weight ffn_down_exps.weight", "ffn_gate_inp.weight ffn_gate_exps.weight"},
    {"step35", "ffn_up.weight ffn_down.weight", "attn_norm.weight attn_gate.weight attn_q_norm.weight"},
    {"step35", "ffn_up_exps.weight ffn_down_exps.weight ffn_up_shexp.weight ffn_down_shexp.weight",
     "ffn_gate_inp.weight ffn_gate_exps.weight ffn_gate_shexp.weight"},
    {"hy_v3", "ffn_up.weight ffn_down.weight", "attn_norm.weight ffn_gate.weight"},
    {"hy_v3", "ffn_gate_up_exps.weight ffn_down_exps.weight", "ffn_gate_inp.weight exp_probs_b.bias"},
    {"kimi-linear", "ffn_up_shexp.weight ffn_down_shexp.weight", "ffn_gate_shexp.weight"},
    {"kimi-k3", "ffn_up_shexp.weight ffn_down_shexp.weight", "ffn_gate_shexp.weight attn_gate.weight"},
    {"phi3", "attn_qkv.weight", "attn_norm.weight"},
    {"phi3", "attn_q.weight attn_k.weight attn_v.weight", "attn_norm.weight"},
    {"pockettts", "attn_qkv.weight", "attn_norm.weight"},
    {"rwkv6",
     "time_mix_lerp_w.weight time_mix_lerp_k.weight time_mix_lerp_v.weight time_mix_lerp_r.weight "
     "time_mix_lerp_g.weight",
     "time_mix_lerp_x.weight"},
    {"rwkv6", "time_mix_lerp_fused.weight", "time_mix_lerp_x.weight"},
    {"rwkv6qwen2", "time_mix_ln.weight", "time_mix_first.weight"},
    {"glm-dsa", "indexer.proj.weight indexer.attn_k.weight indexer.attn_q_b.weight indexer.k_norm.weight",
     "attn_norm.weight indexer.k_norm.bias"},
};

static const char indexer[] =
    "attn_norm.weight indexer.proj.weight indexer.attn_k.weight indexer.attn_q_b.weight "
    "indexer.k_norm.weight";

/* A file of the family; what a test adds to it is the last layer's. */
static void begin(struct test_gguf *f, const char *arch)
{
    char key[64];
    *f = (struct test_gguf){.g = gguf_init_empty()};
    gguf_set_val_str(f->g, "general.architecture", arch);
    snprintf(key, sizeof key, "%s.block_count", arch);
    gguf_set_val_u32(f->g, key, N_LAYER);
    snprintf(key, sizeof key, "%s.embedding_length", arch);
    gguf_set_val_u32(f->g, key, N_EMBD);
}

static void add(struct test_gguf *f, int32_t il, const char *list, const char *without)
{
    char name[GGML_MAX_NAME];
    for (size_t n; *list; list += n + strspn(list + n, " ")) {
        n = strcspn(list, " ");
        snprintf(name, sizeof name, "blk.%d.%.*s", (int)il, (int)n, list);
        if (list != without)
            test_gguf_add(f, name, N_EMBD, 1, 0, 1);
    }
}

/* Writes the file and has it checked. */
static int check_by(struct test_gguf *f, int (*admit)(const struct wnw_model *m))
{
    char path[] = "/tmp/winnow-layers-XXXXXX";
    struct wnw_model m = {0};
    test_file_new(path);
    test_gguf_write(f, path);
    test_gguf_free(f);
    assert_ok(wnw__model_map(&m, path, NULL));
    m.foreign.name = wnw__key_str(m.gguf, "general.architecture");
    const int rc = admit(&m);
    wnw__model_clear(&m);
    unlink(path);
    return rc;
}

static int check(struct test_gguf *f)
{
    return check_by(f, wnw__admit_layers);
}

static int check_without(const struct layer *l, const char *without)
{
    struct test_gguf f;
    begin(&f, l->arch);
    for (int32_t il = 0; il < N_LAYER; il++) {
        add(&f, il, l->needed, il == LAST ? without : NULL);
        add(&f, il, l->free, il == LAST ? without : NULL);
    }
    if (test_gguf_find(&f, "blk.0.attn_norm.weight") < 0)
        add(&f, 0, "attn_norm.weight", NULL);
    return check(&f);
}

/* Tries the layer without each tensor of a list. */
static void check_each(const struct layer *l, const char *list, bool needed)
{
    char name[GGML_MAX_NAME];
    for (size_t n; *list; list += n + strspn(list + n, " ")) {
        n = strcspn(list, " ");
        const int rc = check_without(l, list);
        if (!needed && rc != WNW_OK)
            fail_msg("%s without %.*s: %s", l->arch, (int)n, list, wnw_last_error());
        if (needed && rc != WNW_E_FORMAT)
            fail_msg("%s without %.*s is admitted", l->arch, (int)n, list);
        snprintf(name, sizeof name, "%.*s", (int)n, list);
        if (needed)
            assert_says(name);
    }
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (check_without(&layers[i], NULL) != WNW_OK)
            fail_msg("%s: %s", layers[i].arch, wnw_last_error());
        check_each(&layers[i], layers[i].needed, true);
        check_each(&layers[i], layers[i].free, false);
    }
}

/* A layer of glm-dsa that takes the choice of an earlier one needs no indexer, and those of more predictions are not computed. */
static void test_indexer(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t types[N_LAYER];
        int code;
    } cases[] = {
        {"glm-dsa.attention.indexer.types", {1, 0}, WNW_OK},
        {"glm-dsa.attention.indexer.types", {1, 1}, WNW_E_FORMAT},
        {"glm-dsa.nextn_predict_layers", {1}, WNW_OK},
        {"glm-dsa.nextn_predict_layers", {0}, WNW_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, "glm-dsa");
        add(&f, 0, indexer, NULL);
        add(&f, LAST, "attn_norm.weight", NULL);
        if (i < 2)
            gguf_set_arr_data(f.g, cases[i].key, GGUF_TYPE_UINT32, cases[i].types, N_LAYER);
        else
            gguf_set_val_u32(f.g, cases[i].key, cases[i].types[0]);
        assert_error(check(&f), cases[i].code);
    }
}

/* Without it libllama takes the file for one of the layers alone that predict several tokens ahead. */
static void test_first(void **state)
{
    (void)state;
    static const char *const archs[] = {"deepseek2", "glm4moe", "qwen3next", "step35", "cohere2moe"};
    struct test_gguf f;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        for (int32_t il = 0; il < N_LAYER; il++) {
            begin(&f, archs[i]);
            add(&f, il, "attn_norm.weight ffn_up.weight ffn_down.weight", NULL);
            assert_error(check(&f), il == 0 ? WNW_OK : WNW_E_FORMAT);
        }
    for (int with = 0; with < 4; with++) {
        begin(&f, "t5");
        test_gguf_add(&f, "token_embd.weight", N_EMBD, 1, 0, 1);
        if (with % 2)
            test_gguf_add(&f, "enc.blk.0.attn_rel_b.weight", N_EMBD, 1, 0, 1);
        if (with / 2)
            test_gguf_add(&f, "dec.blk.0.attn_rel_b.weight", N_EMBD, 1, 0, 1);
        assert_error(check(&f), with == 3 ? WNW_OK : WNW_E_FORMAT);
    }
}

static void reshape(struct ggml_tensor *t, const int64_t ne[GGML_MAX_DIMS])
{
    memcpy(t->ne, ne, sizeof t->ne);
    for (int i = 1; i < GGML_MAX_DIMS; i++)
        t->nb[i] = t->nb[i - 1] * (size_t)t->ne[i - 1];
}

/* What a layer's other tensors say of the shape of one. */
static void test_shapes(void **state)
{
    (void)state;
    struct test_gguf f;
    for (int64_t n = 5; n <= 6; n++)
        for (int gate = 0; gate < 3; gate++) { /* none, half of it, all */
            begin(&f, "arwkv7");
            add(&f, 0,
                gate == 0   ? ""
                : gate == 1 ? "time_mix_g1.weight"
                            : "time_mix_g1.weight time_mix_g2.weight",
                NULL);
            test_gguf_add(&f, "blk.0.time_mix_lerp_fused.weight", N_EMBD, n, 0, 1);
            reshape(f.tensor[f.n_tensor - 1], (const int64_t[]){N_EMBD, 1, 1, n});
            assert_error(check(&f), (gate == 2) == (n == 6) ? WNW_OK : WNW_E_FORMAT);
        }
    for (int with = 0; with < 2; with++) {
        begin(&f, "nemotron_h_moe");
        add(&f, 0, "attn_norm.weight", NULL);
        test_gguf_add(&f, "blk.1.ffn_up_exps.weight", N_EMBD / 2, 1, 0, 1);
        add(&f, 1, with ? "ffn_latent_down.weight ffn_latent_up.weight" : "", NULL);
        assert_error(check(&f), with ? WNW_OK : WNW_E_FORMAT);
    }
    for (uint32_t n_group = 1; n_group <= 4; n_group *= 2) { /* rows of 64, 32, 16 */
        begin(&f, "deepseek4");
        add(&f, 0, "attn_norm.weight", NULL);
        gguf_set_val_u32(f.g, "deepseek4.attention.output_group_count", n_group);
        gguf_set_val_u32(f.g, "deepseek4.attention.head_count", 2);
        gguf_set_val_u32(f.g, "deepseek4.attention.key_length", 32);
        test_gguf_add(&f, "blk.1.attn_output_a.weight", N_EMBD, 1, 0, 1);
        test_gguf_replace(&f, f.n_tensor - 1, GGML_TYPE_Q8_0);
        assert_error(check(&f), n_group <= 2 ? WNW_OK : WNW_E_FORMAT);
    }
}

/* Widths that decide which of two kinds a tensor is of. */
static void test_widths(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *name;
        int64_t n;
        int code;
    } cases[] = {
        {"laguna", "blk.1.attn_gate.weight", 2, WNW_OK},
        {"laguna", "blk.1.attn_gate.weight", 64, WNW_OK},
        {"laguna", "blk.1.attn_gate.weight", 1, WNW_E_FORMAT},
        {"laguna", "blk.1.attn_gate.weight", 32, WNW_E_FORMAT},
        {"jina-bert-v2", "blk.1.ffn_up.weight", 48, WNW_OK},
        {"jina-bert-v2", "blk.1.ffn_up.weight", 96, WNW_OK},
        {"jina-bert-v2", "blk.1.ffn_up.weight", 47, WNW_E_FORMAT},
    };
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, cases[i].arch);
        snprintf(key, sizeof key, "%s.attention.head_count", cases[i].arch);
        gguf_set_val_u32(f.g, key, 2);
        snprintf(key, sizeof key, "%s.feed_forward_length", cases[i].arch);
        gguf_set_val_u32(f.g, key, 48);
        test_gguf_add(&f, cases[i].name, N_EMBD, cases[i].n, 0, 1);
        add(&f, 1, "attn_output.weight", NULL);
        assert_error(check(&f), cases[i].code);
    }
}

/* Sizes of heads for layers with windows count where the file has windows. */
static void test_window_widths(void **state)
{
    (void)state;
    static const struct {
        uint32_t length, length_swa, window;
        int code;
    } cases[] = {{32, 32, 0, WNW_OK},
                 {3, 32, 0, WNW_E_FORMAT},
                 {32, 3, 0, WNW_OK},
                 {16, 32, 8, WNW_OK},
                 {16, 8, 8, WNW_E_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, "jamba");
        gguf_set_val_u32(f.g, "jamba.attention.head_count", 2);
        gguf_set_val_u32(f.g, "jamba.attention.key_length", cases[i].length);
        gguf_set_val_u32(f.g, "jamba.attention.key_length_swa", cases[i].length_swa);
        gguf_set_val_u32(f.g, "jamba.attention.sliding_window", cases[i].window);
        test_gguf_add(&f, "blk.1.attn_k.weight", N_EMBD, N_EMBD, 0, 1);
        if (check_by(&f, wnw__admit_tensors) != cases[i].code)
            fail_msg("case %zu: %s", i, wnw_last_error());
    }
}

/* Up to two keys of a family in addition to those that all have. */
static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key[2];
        uint32_t value[2];
        int code;
    } cases[] = {
        {"gemma-embedding", {".dense_2_feat_in"}, {N_EMBD}, WNW_OK},
        {"gemma-embedding", {".dense_2_feat_in", ".dense_3_feat_out"}, {0, 0}, WNW_OK},
        {"gemma-embedding", {".dense_2_feat_in"}, {2 * N_EMBD}, WNW_E_FORMAT},
        {"gemma-embedding", {".dense_3_feat_out"}, {1}, WNW_E_FORMAT},
        {"bert", {".pooling_type"}, {4}, WNW_OK},
        {"bert", {".pooling_type"}, {UINT32_MAX}, WNW_OK},
        {"bert", {".pooling_type"}, {5}, WNW_E_FORMAT},
        {"llama", {".pooling_type"}, {1000}, WNW_E_FORMAT},
        {"glm4moe", {".expert_count", ".expert_used_count"}, {4, 2}, WNW_OK},
        {"glm4moe", {".expert_count", ".expert_used_count"}, {0, 0}, WNW_E_FORMAT},
        {"llada-moe", {0}, {0}, WNW_E_FORMAT},
        {"smallthinker", {0}, {0}, WNW_E_FORMAT},
        {"qwen3vl", {".n_deepstack_layers", ".rope.dimension_sections"}, {N_LAYER - 1, 4}, WNW_OK},
        {"qwen3vl", {".n_deepstack_layers", ".rope.dimension_sections"}, {N_LAYER, 4}, WNW_E_FORMAT},
        {"qwen3vl", {".nextn_predict_layers", ".rope.dimension_sections"}, {N_LAYER, 4}, WNW_E_FORMAT},
        {"hrm_text", {".hrm.h_cycles", ".hrm.layers_per_stack"}, {1, N_LAYER}, WNW_OK},
        {"qwen35", {".rope.dimension_sections"}, {32}, WNW_OK},
        {"qwen35", {".rope.dimension_sections"}, {33}, WNW_E_FORMAT},
        {"qwen3tts", {".n_deepstack_layers", ".rope.dimension_sections"}, {N_LAYER, 4}, WNW_E_FORMAT},
        {"plamo3", {".attention.value_length", ".attention.value_length_swa"}, {24, 24}, WNW_OK},
        {"plamo3", {".attention.value_length", ".attention.value_length_swa"}, {24, 32}, WNW_E_FORMAT},
        {"plamo3", {".attention.value_length"}, {24}, WNW_OK},
        {"step35", {".attention.key_length", ".attention.key_length_swa"}, {32, 64}, WNW_E_FORMAT},
        {"spark2_5", {".attention.value_length_swa", ".attention.key_length_swa"}, {64, 64}, WNW_OK},
        {"kimi-linear", {".expert_count", ".expert_used_count"}, {4, 2}, WNW_E_FORMAT},
        {"hunyuan_vl", {".expert_count"}, {1}, WNW_OK},
        {"hunyuan_vl", {".expert_group_count"}, {0}, WNW_OK},
        {"hunyuan_vl", {".expert_group_count"}, {3}, WNW_E_FORMAT},
        {"hunyuan-dense", {".expert_count", ".expert_group_count"}, {1, 1}, WNW_E_FORMAT},
        {"hunyuan-moe", {".expert_group_count"}, {1}, WNW_E_FORMAT},
        {"minicpm3", {".attention.head_count_kv"}, {2}, WNW_OK},
        {"minicpm3", {".attention.head_count_kv"}, {1}, WNW_E_FORMAT},
        {"wavtokenizer-dec", {".posnet.block_count"}, {2}, WNW_OK},
        {"wavtokenizer-dec", {".posnet.block_count"}, {N_LAYER + 1}, WNW_E_FORMAT},
        {"wavtokenizer-dec", {".convnext.block_count"}, {N_LAYER + 1}, WNW_E_FORMAT},
        {"wavtokenizer-dec", {".posnet.embedding_length", ".convnext.embedding_length"}, {8, 8}, WNW_OK},
        {"wavtokenizer-dec",
         {".posnet.embedding_length", ".convnext.embedding_length"},
         {8, 9},
         WNW_E_FORMAT},
    };
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, cases[i].arch);
        test_gguf_add(&f, "token_embd.weight", N_EMBD, 1, 0, 1);
        snprintf(key, sizeof key, "%s.attention.head_count", cases[i].arch);
        gguf_set_val_u32(f.g, key, 2);
        for (int k = 0; k < 2 && cases[i].key[k]; k++) {
            snprintf(key, sizeof key, "%s%s", cases[i].arch, cases[i].key[k]);
            gguf_set_val_u32(f.g, key, cases[i].value[k]);
        }
        if (check_by(&f, wnw__admit_keys) != cases[i].code)
            fail_msg("%s, case %zu: %s", cases[i].arch, i, wnw_last_error());
    }
}

/* Experts that are chosen, by layers. */
static void test_experts_of_layers(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        uint32_t n_used[N_LAYER];
        bool dense_first;
        int code;
    } cases[] = {{"qwen3next", {2, 2}, false, WNW_OK},           {"qwen3next", {1, 2}, false, WNW_E_FORMAT},
                 {"olmoe", {2, 1}, false, WNW_E_FORMAT},         {"olmoe", {2, 0}, false, WNW_E_FORMAT},
                 {"deepseek2", {0, 2}, true, WNW_E_FORMAT},      {"deepseek2", {2, 2}, true, WNW_OK},
                 {"nemotron_h_moe", {1, 2}, false, WNW_OK},      {"nemotron_h_moe", {0, 2}, true, WNW_OK},
                 {"nemotron_h_moe", {2, 0}, false, WNW_E_FORMAT}};
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, cases[i].arch);
        snprintf(key, sizeof key, "%s.expert_count", cases[i].arch);
        gguf_set_val_u32(f.g, key, 4);
        snprintf(key, sizeof key, "%s.expert_used_count", cases[i].arch);
        gguf_set_arr_data(f.g, key, GGUF_TYPE_UINT32, cases[i].n_used, N_LAYER);
        add(&f, 0, "attn_norm.weight", NULL);
        for (int32_t il = cases[i].dense_first; il < N_LAYER; il++)
            add(&f, il, "ffn_gate_inp.weight", NULL);
        if (check(&f) != cases[i].code)
            fail_msg("%s, case %zu: %s", cases[i].arch, i, wnw_last_error());
    }
}

/* Heads of queries and of keys of single layers, as lists say them. */
static void test_heads_of_layers(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        uint32_t n_head[N_LAYER], n_head_kv[N_LAYER];
        int code;
    } cases[] = {{"lfm2", {2, 2}, {0, 1}, WNW_OK},          {"lfm2", {2, 0}, {1, 0}, WNW_OK},
                 {"lfm2", {0, 2}, {0, 1}, WNW_E_FORMAT},    {"lfm2", {0, 0}, {1, 0}, WNW_E_FORMAT},
                 {"lfm2moe", {4, 2}, {0, 1}, WNW_E_FORMAT}, {"jamba", {0, 2}, {0, 1}, WNW_OK},
                 {"jamba", {2, 0}, {1, 1}, WNW_E_FORMAT},   {"granitehybrid", {0, 2}, {2, 2}, WNW_E_FORMAT},
                 {"nemotron_h", {0, 2}, {0, 2}, WNW_OK},    {"mamba2", {0, 0}, {1, 1}, WNW_OK}};
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, cases[i].arch);
        test_gguf_add(&f, "token_embd.weight", N_EMBD, 1, 0, 1);
        snprintf(key, sizeof key, "%s.attention.head_count", cases[i].arch);
        gguf_set_arr_data(f.g, key, GGUF_TYPE_UINT32, cases[i].n_head, N_LAYER);
        snprintf(key, sizeof key, "%s.attention.head_count_kv", cases[i].arch);
        gguf_set_arr_data(f.g, key, GGUF_TYPE_UINT32, cases[i].n_head_kv, N_LAYER);
        if (check_by(&f, wnw__admit_tensors) != cases[i].code)
            fail_msg("%s, case %zu: %s", cases[i].arch, i, wnw_last_error());
    }
}

/* A list of numbers, one for each layer. */
static void set_of_layers(struct test_gguf *f, const char *arch, const char *name, const uint32_t *values)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", arch, name);
    gguf_set_arr_data(f->g, key, GGUF_TYPE_UINT32, values, N_LAYER);
}

/* Families with recurrent layers need one: by heads, by the size of what follows them, by a list, and by an interval. */
static void test_recurrent(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        uint32_t of_layers[N_LAYER];
        int code;
    } cases[] = {{"lfm2", ".attention.head_count_kv", {0, 2}, WNW_OK},
                 {"lfm2", ".attention.head_count_kv", {0, 0}, WNW_OK},
                 {"lfm2", ".attention.head_count_kv", {1, 2}, WNW_E_UNSUPPORTED},
                 {"granitehybrid", ".attention.head_count_kv", {2, 2}, WNW_E_UNSUPPORTED},
                 {"jamba", ".attention.head_count_kv", {2, 1}, WNW_E_UNSUPPORTED},
                 {"plamo2", ".attention.head_count_kv", {2, 2}, WNW_E_UNSUPPORTED},
                 {"kimi-linear", ".attention.head_count_kv", {1, 1}, WNW_E_UNSUPPORTED},
                 {"kimi-linear", ".attention.head_count_kv", {0, 1}, WNW_OK},
                 {"nemotron_h", ".feed_forward_length", {0, 8}, WNW_OK},
                 {"nemotron_h", ".feed_forward_length", {8, 8}, WNW_E_UNSUPPORTED},
                 {"minimax-01", ".full_attention_interval", {2, 2}, WNW_OK},
                 {"minimax-01", ".full_attention_interval", {1, 1}, WNW_E_UNSUPPORTED},
                 {"minimax-01", ".attention.recurrent_layers", {0, 0}, WNW_E_UNSUPPORTED},
                 {"minimax-01", ".attention.recurrent_layers", {0, 1}, WNW_OK},
                 {"qwen3next", ".full_attention_interval", {1, 1}, WNW_E_UNSUPPORTED},
                 {"gemma2", ".attention.head_count_kv", {2, 2}, WNW_OK}};
    static const struct {
        const char *name;
        uint32_t value;
    } states[] = {{"inner_size", 2 * N_EMBD},
                  {"conv_kernel", 4},
                  {"state_size", N_EMBD},
                  {"time_step_rank", 2},
                  {"group_count", 1}};
    static const uint32_t two[N_LAYER] = {2, 2}, none[N_LAYER] = {0, 0};
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *arch = cases[i].arch;
        struct test_gguf f;
        begin(&f, arch);
        test_gguf_add(&f, "token_embd.weight", N_EMBD, 1, 0, 1);
        set_of_layers(&f, arch, ".attention.head_count", two);
        snprintf(key, sizeof key, "%s.rope.dimension_count", arch);
        gguf_set_val_u32(f.g, key, 16);
        if (strcmp(arch, "nemotron_h") == 0)
            set_of_layers(&f, arch, ".attention.head_count_kv", none);
        for (size_t k = 0; k < sizeof states / sizeof *states; k++) { /* of their state spaces */
            snprintf(key, sizeof key, "%s.ssm.%s", arch, states[k].name);
            if (strcmp(arch, "plamo2") != 0 || states[k].value != 1)
                gguf_set_val_u32(f.g, key, states[k].value);
        }
        set_of_layers(&f, arch, cases[i].key, cases[i].of_layers);
        if (check_by(&f, wnw__admit_keys) != cases[i].code)
            fail_msg("%s, case %zu: %s", arch, i, wnw_last_error());
        if (cases[i].code != WNW_OK)
            assert_says("all layers of this");
    }
}

/* Rows that are looked up for the last tokens, which together are as long as a state. */
static void test_ngrams(void **state)
{
    (void)state;
    static const struct {
        uint32_t size, n_each, length;
        int32_t n_layer; /* layers that look rows up; -1: the file does not say it */
        int code;
    } cases[] = {
        {3, 2, N_EMBD / 4, 1, WNW_OK},       {2, 1, N_EMBD, 1, WNW_OK},
        {3, 1, N_EMBD / 4, 1, WNW_E_FORMAT}, {2, 2, N_EMBD / 4, 1, WNW_E_FORMAT},
        {3, 2, N_EMBD, 1, WNW_E_FORMAT},     {0, 2, N_EMBD / 4, 1, WNW_E_FORMAT},
        {3, 1, N_EMBD / 4, 0, WNW_OK},       {3, 1, N_EMBD / 4, -1, WNW_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, "qwen4exp");
        gguf_set_val_u32(f.g, "qwen4exp.attention.head_count", 2);
        gguf_set_val_u32(f.g, "qwen4exp.rope.dimension_sections", 4);
        gguf_set_val_u32(f.g, "qwen4exp.ple.ngram_size", cases[i].size);
        gguf_set_val_u32(f.g, "qwen4exp.ple.heads_per_ngram", cases[i].n_each);
        gguf_set_val_u32(f.g, "qwen4exp.embedding_length_per_layer_input", cases[i].length);
        if (cases[i].n_layer >= 0)
            gguf_set_arr_data(f.g, "qwen4exp.ple.layers", GGUF_TYPE_UINT32, (const uint32_t[]){0},
                              (size_t)cases[i].n_layer);
        assert_error(check_by(&f, wnw__admit_keys), cases[i].code);
        if (cases[i].code != WNW_OK)
            assert_says("heads_per_ngram");
    }
}

/* Queries, keys and values in one tensor, of layers that differ in their heads. */
static void test_fused(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *other; /* another tensor of the layer */
        int64_t n[N_LAYER];
        uint32_t n_head_kv[N_LAYER];
        int code;
    } cases[] = {
        {"starcoder", "attn_norm.weight", {192, 192}, {2, 2}, WNW_OK},
        {"starcoder", "attn_norm.weight", {192, 128}, {2, 1}, WNW_OK},
        {"starcoder", "attn_norm.weight", {192, 192}, {2, 1}, WNW_E_FORMAT},
        {"phi3", "attn_norm.weight", {192, 191}, {2, 2}, WNW_E_FORMAT},
        {"qwen35", "attn_norm.weight", {192, 256}, {2, 2}, WNW_OK}, /* with the queries' gates */
        {"qwen3next", "ssm_conv1d.weight", {192, 999}, {2, 2}, WNW_OK},
        {"kimi-linear", "attn_norm.weight", {7, 9}, {2, 2}, WNW_OK},
    };
    char key[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_gguf f;
        begin(&f, cases[i].arch);
        snprintf(key, sizeof key, "%s.attention.head_count", cases[i].arch);
        gguf_set_val_u32(f.g, key, 2);
        snprintf(key, sizeof key, "%s.attention.head_count_kv", cases[i].arch);
        gguf_set_arr_data(f.g, key, GGUF_TYPE_UINT32, cases[i].n_head_kv, N_LAYER);
        for (int32_t il = 0; il < N_LAYER; il++) {
            snprintf(key, sizeof key, "blk.%d.attn_qkv.weight", (int)il);
            test_gguf_add(&f, key, N_EMBD, cases[i].n[il], 0, 1);
            add(&f, il, cases[i].other, NULL);
        }
        if (check_by(&f, wnw__admit_tensors) != cases[i].code)
            fail_msg("%s, case %zu: %s", cases[i].arch, i, wnw_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_indexer),
                                       cmocka_unit_test(test_first),
                                       cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_widths),
                                       cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_experts_of_layers),
                                       cmocka_unit_test(test_heads_of_layers),
                                       cmocka_unit_test(test_recurrent),
                                       cmocka_unit_test(test_ngrams),
                                       cmocka_unit_test(test_fused),
                                       cmocka_unit_test(test_window_widths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
