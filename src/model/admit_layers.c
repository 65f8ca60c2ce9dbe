/* SPDX-License-Identifier: MIT */
/* Tensors that libllama takes as ones which may be missing, and computes with all the same: a layer that lacks one is refused. */
#include "model/admit.h"
#include "model/files.h"
#include "model/model_impl.h"

#include <stdio.h>
#include <string.h>

/* Families whose layers have experts or a network of their own for all tokens, as the tensors say and not the keys. */
#define EXPERTS_BY_TENSORS "mimo2 step35 hy_v3"
#define SHARED_EXPERT      "step35 hy_v3 kimi-linear kimi-k3"

/* Layers that have all tensors of `has` and lack that of `lacks` need all of `needs`. Lists have blanks between the names. */
static const struct need {
    const char *archs, *has, *lacks, *needs;
} needs[] = {
    {"falcon-h1 granitehybrid nemotron_h nemotron_h_moe", "ssm_conv1d.weight", NULL, "ssm_conv1d.bias"},
    {"nemotron_h nemotron_h_moe", "ffn_latent_down.weight", NULL, "ffn_latent_up.weight"},
    {"nemotron_h nemotron_h_moe", "ffn_latent_up.weight", NULL, "ffn_latent_down.weight"},
    {"qwen35 qwen35moe", "ssm_conv1d.weight", NULL, "attn_qkv.weight attn_gate.weight"},
    {"qwen3next", "ssm_conv1d.weight", "ssm_in.weight", "attn_qkv.weight attn_gate.weight"},
    {"qwen3next", "ssm_conv1d.weight attn_qkv.weight", NULL, "attn_gate.weight"},
    {"grok", "ffn_up.weight", NULL, "ffn_down.weight"},
    {EXPERTS_BY_TENSORS, "attn_norm.weight", "ffn_gate_inp.weight", "ffn_up.weight ffn_down.weight"},
    {EXPERTS_BY_TENSORS, "ffn_gate_inp.weight", NULL, "ffn_down_exps.weight"},
    {EXPERTS_BY_TENSORS, "ffn_gate_inp.weight", "ffn_gate_up_exps.weight", "ffn_up_exps.weight"},
    {SHARED_EXPERT, "ffn_gate_shexp.weight", NULL, "ffn_up_shexp.weight ffn_down_shexp.weight"},
    {SHARED_EXPERT, "ffn_up_shexp.weight", NULL, "ffn_down_shexp.weight"},
    {SHARED_EXPERT, "ffn_down_shexp.weight", NULL, "ffn_up_shexp.weight"},
    {"phi3 pockettts", "attn_norm.weight", "attn_qkv.weight", "attn_q.weight attn_k.weight attn_v.weight"},
    {"rwkv6", "time_mix_lerp_x.weight", "time_mix_lerp_fused.weight",
     "time_mix_lerp_w.weight time_mix_lerp_k.weight time_mix_lerp_v.weight time_mix_lerp_r.weight "
     "time_mix_lerp_g.weight"},
    /* No file can have both: libllama reads no time_mix_ln here, and refuses tensors that it does not read. */
    {"rwkv6qwen2", "time_mix_first.weight", NULL, "time_mix_ln.weight"},
};

/* Families with layers that predict several tokens ahead. libllama takes a file without this tensor for one with only these layers.
 * It then accepts that tensors of the other layers are missing. */
static const char with_nextn[] =
    "bailingmoe3 cohere2moe deepseek2 mistral4 deepseek32 deepseek4 glm-dsa glm4moe hy_v3 mimo2 nemotron_h "
    "nemotron_h_moe qwen35 qwen35moe qwen3next step35";

static struct ggml_tensor *tensor_of(const struct wnw_model *m, int32_t il, const char *name, size_t n)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%.*s", (int)il, (int)n, name);
    return wnw__files_tensor(m, full);
}

/* The first name of a list that the layer lacks, and its length; NULL: it has all. */
static const char *missing(const struct wnw_model *m, int32_t il, const char *list, size_t *n)
{
    for (; *list; list += *n + strspn(list + *n, " ")) {
        *n = strcspn(list, " ");
        if (!tensor_of(m, il, list, *n))
            return list;
    }
    return NULL;
}

static int check_need(const struct wnw_model *m, int32_t il, const struct need *need)
{
    size_t n;
    if (missing(m, il, need->has, &n) || (need->lacks && tensor_of(m, il, need->lacks, strlen(need->lacks))))
        return WNW_OK;
    const char *name = missing(m, il, need->needs, &n), *lacks = need->lacks ? need->lacks : "";
    if (!name)
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor blk.%d.%.*s: layers of %s that have %s%s%s need it",
                     (int)il, (int)n, name, m->foreign.name, need->has, *lacks ? " and no " : "", lacks);
}

static double key_of(const struct wnw_model *m, const char *key, size_t i, double def)
{
    char full[WNW_KEY_MAX];
    double x;
    const int64_t id = wnw__key_find(m->gguf, key, full);
    const size_t n = id < 0 ? 0 : wnw__key_count(m->gguf, id);
    const bool there = n > 0 && wnw__key_number(m->gguf, id, i < n ? i : n - 1, &x);
    return there ? x : def;
}

/* Whether a layer of glm-dsa chooses the tokens that it reads, as libllama has it where the file does not say it. */
static bool has_indexer(const struct wnw_model *m, int32_t il)
{
    enum { FIRST_OF_LONG = 1048576 };
    const bool every = key_of(m, ".context_length", 0, 0) < FIRST_OF_LONG;
    return key_of(m, ".attention.indexer.types", (size_t)il, every || il < 2 || il % 4 == 2) != 0;
}

static int check_indexer(const struct wnw_model *m, int32_t il)
{
    static const struct need indexer = {
        NULL, "attn_norm.weight", NULL,
        "indexer.proj.weight indexer.attn_k.weight indexer.attn_q_b.weight indexer.k_norm.weight"};
    return has_indexer(m, il) ? check_need(m, il, &indexer) : WNW_OK;
}

/* Experts that read vectors of another width than the layer's need the two products that make and undo them. */
static int check_latent(const struct wnw_model *m, int32_t il)
{
    static const char up[] = "ffn_up_exps.weight", down[] = "ffn_latent_down.weight";
    const struct ggml_tensor *t = tensor_of(m, il, up, strlen(up));
    const int64_t n_embd = (int64_t)key_of(m, ".embedding_length", 0, 0);
    return !t || t->ne[0] == n_embd || tensor_of(m, il, down, strlen(down))
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT,
                           "tensor blk.%d.%s has rows of %lld, the GGUF says %s.embedding_length = %lld and "
                           "lacks tensor blk.%d.%s",
                           (int)il, up, (long long)t->ne[0], m->foreign.name, (long long)n_embd, (int)il,
                           down);
}

/* The vectors that mix a token with the one before it: six with a gate, five without. */
static int check_lerp(const struct wnw_model *m, int32_t il)
{
    size_t n;
    static const char lerp[] = "time_mix_lerp_fused.weight";
    const struct ggml_tensor *t = tensor_of(m, il, lerp, strlen(lerp));
    const bool gate = !missing(m, il, "time_mix_g1.weight time_mix_g2.weight", &n);
    if (!t || t->ne[3] == (gate ? 6 : 5))
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT, "tensor blk.%d.%s has %lld vectors: a layer %s a gate needs %d", (int)il,
                     lerp, (long long)t->ne[3], gate ? "with" : "without", gate ? 6 : 5);
}

/* libllama has the rows of this tensor begin elsewhere, where the file's are of another length; blocks cannot be cut. */
static int check_groups(const struct wnw_model *m, int32_t il)
{
    static const char name[] = "attn_output_a.weight";
    const struct ggml_tensor *t = tensor_of(m, il, name, strlen(name));
    const int64_t n_group = (int64_t)key_of(m, ".attention.output_group_count", 0, 0),
                  n_row = (int64_t)key_of(m, ".attention.head_count", 0, 0) *
                          (int64_t)key_of(m, ".attention.key_length", 0, 0);
    return !t || n_group < 1 || n_row / n_group % ggml_blck_size(t->type) == 0
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "tensor blk.%d.%s has type %s, which cannot have rows of %lld",
                           (int)il, name, ggml_type_name(t->type), (long long)(n_row / n_group));
}

/* The second dimension of a tensor that libllama takes for one of two kinds by it, and aborts on any other. */
static int check_two(const struct wnw_model *m, int32_t il, const char *name, int64_t one, int64_t other)
{
    const struct ggml_tensor *t = tensor_of(m, il, name, strlen(name));
    return !t || t->ne[1] == one || t->ne[1] == other
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT,
                           "tensor blk.%d.%s is %lld x %lld: the GGUF's keys need %lld or %lld of these",
                           (int)il, name, (long long)t->ne[0], (long long)t->ne[1], (long long)one,
                           (long long)other);
}

/* A gate for each head, or for each of its elements, as many as the layer's output reads. */
static int check_gate(const struct wnw_model *m, int32_t il)
{
    static const char name[] = "attn_output.weight";
    const struct ggml_tensor *out = tensor_of(m, il, name, strlen(name));
    const int64_t n_head = (int64_t)key_of(m, ".attention.head_count", (size_t)il, 0);
    return check_two(m, il, "attn_gate.weight", n_head, out ? out->ne[0] : n_head);
}

/* A product that makes what goes up, or that and its gate. */
static int check_up(const struct wnw_model *m, int32_t il)
{
    const int64_t n_ff = (int64_t)key_of(m, ".feed_forward_length", 0, 0);
    return check_two(m, il, "ffn_up.weight", n_ff, 2 * n_ff);
}

/* libllama chooses as many experts as the first layer has, and sums up as many as the layer has. */
static int check_used(const struct wnw_model *m, int32_t il)
{
    static const char by_layer[] = "nemotron_h nemotron_h_moe", gate[] = "ffn_gate_inp.weight";
    const double first = key_of(m, ".expert_used_count", 0, 0),
                 n = key_of(m, ".expert_used_count", (size_t)il, 0);
    if (!tensor_of(m, il, gate, strlen(gate)) || key_of(m, ".expert_count", 0, 0) < 1 ||
        (n >= 1 && (n == first || wnw__admit_listed(by_layer, m->foreign.name))))
        return WNW_OK;
    return wnw__fail(
        WNW_E_FORMAT,
        "the GGUF says %s.expert_used_count = %g for the first layer and %g for layer %d, which has "
        "experts: both must be the same, and 1 or more",
        m->foreign.name, first, n, (int)il);
}

/* libllama asserts that a product of this type has a scale or a bias, and not both. */
static int check_nvfp4(const struct wnw_model *m, int32_t il)
{
    static const char *const names[] = {"ffn_up", "ffn_gate", "ffn_down"};
    char weight[32], both[64];
    size_t n;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(weight, sizeof weight, "%s.weight", names[i]);
        snprintf(both, sizeof both, "%s.scale %s.bias", names[i], names[i]);
        const struct ggml_tensor *t = tensor_of(m, il, weight, strlen(weight));
        if (t && t->type == GGML_TYPE_NVFP4 && !missing(m, il, both, &n))
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "tensor %s has type nvfp4, a scale and a bias: libllama has products of this type "
                "with one of them",
                t->name);
    }
    return WNW_OK;
}

static int check_layer(const struct wnw_model *m, int32_t il)
{
    const char *arch = m->foreign.name;
    const int32_t n_trunk =
        (int32_t)(key_of(m, ".block_count", 0, 0) - key_of(m, ".nextn_predict_layers", 0, 0));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (wnw__admit_listed(needs[i].archs, arch))
            WNW_TRY(check_need(m, il, &needs[i]));
    if (strcmp(arch, "glm-dsa") == 0 && il < n_trunk)
        WNW_TRY(check_indexer(m, il));
    if (wnw__admit_listed("nemotron_h nemotron_h_moe", arch))
        WNW_TRY(check_latent(m, il));
    if (strcmp(arch, "arwkv7") == 0)
        WNW_TRY(check_lerp(m, il));
    if (strcmp(arch, "deepseek4") == 0)
        WNW_TRY(check_groups(m, il));
    if (strcmp(arch, "laguna") == 0)
        WNW_TRY(check_gate(m, il));
    if (strcmp(arch, "jina-bert-v2") == 0)
        WNW_TRY(check_up(m, il));
    WNW_TRY(check_used(m, il));
    return check_nvfp4(m, il);
}

/* Tensors of the first layer that represent those of all others. */
static int check_first(const struct wnw_model *m)
{
    static const struct first {
        const char *archs, *name;
    } firsts[] = {
        {with_nextn, "blk.0.attn_norm.weight"},
        {"t5 t5encoder", "enc.blk.0.attn_rel_b.weight"},
        {"t5", "dec.blk.0.attn_rel_b.weight"},
    };
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
        if (wnw__admit_listed(firsts[i].archs, m->foreign.name) && !wnw__files_tensor(m, firsts[i].name))
            return wnw__fail(WNW_E_FORMAT, "the GGUF lacks tensor %s, which models of %s need",
                             firsts[i].name, m->foreign.name);
    return WNW_OK;
}

int wnw__admit_layers(const struct wnw_model *m)
{
    const int32_t n_layer = (int32_t)key_of(m, ".block_count", 0, 0);
    WNW_TRY(check_first(m));
    for (int32_t il = 0; il < n_layer; il++)
        WNW_TRY(check_layer(m, il));
    return WNW_OK;
}
