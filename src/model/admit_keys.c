/* SPDX-License-Identifier: MIT */
/* Numbers in the keys of a family: alone, and beside each other. */
#include "model/admit.h"


#include <math.h>
#include <string.h>

/* libllama's LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS. */
enum { MOST_LAYERS = 512, MOST_EXPERTS = 1024 };
/* Sizes above these are taken for damage. No model comes near them, and products of two of them fit 64 bits. */
enum { MOST_SIZE = 1 << 24, MOST_HEADS = 1 << 16, MOST_COUNT = 1 << 20 };

/* Families whose graphs assert that keys and values have heads of one size, and that RoPE turns all of it. */
#define SAME_HEADS_AND_ROPE                                                                                      \
    "llama llama-embed llama4 maincoder talkie deci baichuan falcon grok mellum qwen2 dream llada llada-moe rnd1 " \
    "qwen2vl qwen2moe qwen3 qwen3moe qwen3vl qwen3vlmoe qwen3tts pockettts plamo codeshell orion internlm2 "       \
    "starcoder2 xverse cohere2moe dbrx olmo olmo2 olmoe arctic deepseek jais2 exaone exaone4 exaone-moe granite "  \
    "granitemoe minicpm graniteswitch granite_swa chameleon seed_oss dots1 arcee ernie4_5 ernie4_5-moe paddleocr " \
    "hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 smollm3 smallthinker grovemoe apertus cogvlm pangu-embedded "      \
    "mistral3"
#define SAME_HEADS                                                                                             \
    "starcoder refact bert modern-bert nomic-bert nomic-bert-moe jina-bert-v3 neo-bert eurobert bloom mpt stablelm " \
    "nanbeige qwen phi2 phi3 gpt2 maple command-r cohere2 muse-glimmer openelm gptneox chatglm glm4 glm4moe "        \
    "bitnet t5 t5encoder jais nemotron nemotron_h nemotron_h_moe granitehybrid bailingmoe2 afmoe laguna "            \
    "minimax-01 minimax-m2 minimax-m3 qwen3next qwen35 qwen35moe qwen4exp eagle3 dflash spark2_5"
/* Families without RoPE. */
#define NO_ROPE                                                                                         \
    "gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 " \
    "arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear kimi-k3 glm5-next"

/* Families with layers of state spaces or of linear attention that has a convolution. */
#define WITH_SSM   "mamba mamba2 jamba falcon-h1 granitehybrid plamo2 nemotron_h nemotron_h_moe"
#define WITH_DELTA "qwen3next qwen35 qwen35moe qwen4exp kimi-linear kimi-k3 bailingmoe3 glm5-next"

/* ---- Numbers ---- */

/* The least and the most that each number of a key may be, where the file has the key. */
static const struct limit {
    const char *key;
    double least, most;
    const char *archs; /* of these families alone; NULL = of all */
} limits[] = {
    {".context_length", 1, INT32_MAX, NULL},
    {".embedding_length", 1, MOST_SIZE, NULL},
    {".embedding_length_out", 0, MOST_SIZE, NULL},
    {".feed_forward_length", 0, MOST_SIZE, NULL},
    {".block_count", 1, MOST_LAYERS, NULL},
    {".nextn_predict_layers", 0, MOST_LAYERS, NULL},
    {".vocab_size", 0, MOST_SIZE, NULL},
    {".expert_count", 0, MOST_EXPERTS, NULL},
    {".expert_used_count", 0, MOST_EXPERTS, NULL},
    {".expert_feed_forward_length", 0, MOST_SIZE, NULL},
    {".expert_shared_feed_forward_length", 0, MOST_SIZE, NULL},
    {".expert_chunk_feed_forward_length", 0, MOST_SIZE, NULL},
    {".expert_shared_count", 0, MOST_EXPERTS, NULL},
    {".expert_group_count", 0, MOST_EXPERTS, NULL},
    {".expert_group_used_count", 0, MOST_EXPERTS, NULL},
    {".expert_gating_func", 0, 4, NULL},
    {".leading_dense_block_count", 0, MOST_LAYERS, NULL},
    {".attention.head_count", 0, MOST_HEADS, NULL},
    {".attention.head_count_kv", 0, MOST_HEADS, NULL},
    {".attention.key_length", 1, MOST_HEADS, NULL},
    {".attention.value_length", 1, MOST_HEADS, NULL},
    {".attention.key_length_swa", 1, MOST_HEADS, NULL},
    {".attention.value_length_swa", 1, MOST_HEADS, NULL},
    {".attention.key_length_mla", 0, MOST_HEADS, NULL},
    {".attention.value_length_mla", 0, MOST_HEADS, NULL},
    {".attention.q_lora_rank", 0, MOST_SIZE, NULL},
    {".attention.kv_lora_rank", 0, MOST_SIZE, NULL},
    {".attention.layer_norm_epsilon", 0, 1, NULL},
    {".attention.layer_norm_rms_epsilon", 0, 1, NULL},
    {".attention.group_norm_epsilon", 0, 1, NULL},
    {".attention.sliding_window", 0, INT32_MAX, NULL},
    {".rope.dimension_count", 0, MOST_HEADS, NULL},
    {".rope.dimension_count_swa", 0, MOST_HEADS, NULL},
    {".rope.dimension_sections", 0, MOST_HEADS, NULL},
    {".rope.freq_base", 0, HUGE_VAL, NULL},
    {".rope.freq_base_swa", 0, HUGE_VAL, NULL},
    {".rope.scaling.original_context_length", 0, INT32_MAX, NULL},
    {".ssm.conv_kernel", 0, MOST_COUNT, NULL},
    {".ssm.conv_kernel", 1, MOST_COUNT, WITH_SSM " " WITH_DELTA},
    {".ssm.inner_size", 0, MOST_SIZE, NULL},
    {".ssm.state_size", 0, MOST_SIZE, NULL},
    {".ssm.time_step_rank", 0, MOST_SIZE, NULL},
    {".ssm.group_count", 0, MOST_SIZE, NULL},
};

/* ---- Reading ---- */

/* Keys that have another one's number where they are absent, as libllama has it. */
static const struct default_key {
    const char *key, *of;
} defaults[] = {
    {".attention.head_count_kv", ".attention.head_count"},
    {".attention.key_length_swa", ".attention.key_length"},
    {".attention.value_length_swa", ".attention.value_length"},
    {".rope.dimension_count", ".attention.key_length"},
    {".rope.dimension_count_swa", ".rope.dimension_count"},
};

/* Number i of a key: of a layer where each has its own. false: the file has none, or no number there. */
static bool read_number(const struct wnw_model *m, const char *key, size_t i, double *out)
{
    char full[WNW_KEY_MAX];
    const int64_t id = wnw__key_find(m->gguf, key, full);
    if (id < 0)
        return false;
    const size_t n = wnw__key_count(m->gguf, id);
    return n > 0 && wnw__key_number(m->gguf, id, i < n ? i : n - 1, out);
}

static size_t count_of(const struct wnw_model *m, const char *key)
{
    char full[WNW_KEY_MAX];
    const int64_t id = wnw__key_find(m->gguf, key, full);
    return id < 0 ? 1 : wnw__key_count(m->gguf, id);
}

/* The number that libllama computes with: the file's, or the one that it takes where the file has none. */
static double number(const struct wnw_model *m, const char *key, size_t i)
{
    double x;
    if (read_number(m, key, i, &x))
        return x;
    if (strcmp(key, ".attention.key_length") == 0 || strcmp(key, ".attention.value_length") == 0) {
        const double n_head = number(m, ".attention.head_count", 0);
        return n_head > 0 ? floor(number(m, ".embedding_length", 0) / n_head) : 0;
    }
    for (size_t k = 0; k < sizeof defaults / sizeof *defaults; k++)
        if (strcmp(key, defaults[k].key) == 0)
            return number(m, defaults[k].of, i);
    return 0;
}

static bool is_of(const struct wnw_model *m, const char *archs)
{
    return !archs || wnw__admit_listed(archs, m->foreign.name);
}

/* ---- Checks ---- */

static int check_limit(const struct wnw_model *m, const struct limit *l)
{
    char full[WNW_KEY_MAX];
    double x;
    const int64_t id = is_of(m, l->archs) ? wnw__key_find(m->gguf, l->key, full) : -1;
    for (size_t i = 0; id >= 0 && i < wnw__key_count(m->gguf, id); i++)
        if (wnw__key_number(m->gguf, id, i, &x) && !(x >= l->least && x <= l->most && isfinite(x)))
            return wnw__fail(WNW_E_FORMAT,
                             isfinite(l->most) ? "the GGUF says %s = %.10g, which cannot be right: %.10g to %.10g are possible"
                                               : "the GGUF says %s = %.10g, which cannot be right",
                             full, x, l->least, l->most);
    return WNW_OK;
}

/* ---- Pairs of numbers ---- */

/* What the first number of a pair must be of the second. */
enum relation {
    SAME,     /* equal */
    AT_MOST,  /* no more */
    MULTIPLE, /* the second, any times; nothing is asked where one of them is 0 */
    EVEN      /* there is no second one */
};

static const struct pair {
    const char *a;
    enum relation relation;
    const char *b;
    const char *archs, *but; /* families that it is asked of: NULL = all, those of `but` never */
} pairs[] = {
    {".attention.head_count", MULTIPLE, ".attention.head_count_kv", NULL, NULL},
    {".attention.value_length", SAME, ".attention.key_length", SAME_HEADS_AND_ROPE, NULL},
    {".attention.value_length_swa", SAME, ".attention.key_length_swa", SAME_HEADS_AND_ROPE, NULL},
    {".attention.value_length", SAME, ".attention.key_length", SAME_HEADS, NULL},
    {".attention.value_length_swa", SAME, ".attention.key_length_swa", SAME_HEADS, NULL},
    {".rope.dimension_count", SAME, ".attention.key_length", SAME_HEADS_AND_ROPE, NULL},
    {".rope.dimension_count_swa", SAME, ".attention.key_length_swa", SAME_HEADS_AND_ROPE, NULL},
    {".rope.dimension_count", AT_MOST, ".attention.key_length", NULL, NO_ROPE},
    {".rope.dimension_count_swa", AT_MOST, ".attention.key_length_swa", NULL, NO_ROPE},
    {".rope.dimension_count", EVEN, NULL, NULL, NO_ROPE},
    {".rope.dimension_count_swa", EVEN, NULL, NULL, NO_ROPE},
    {".nextn_predict_layers", AT_MOST, ".block_count", NULL, NULL},
    {".expert_used_count", AT_MOST, ".expert_count", NULL, NULL},
};

static int misfit(const struct wnw_model *m, const struct pair *p, double a, double b)
{
    static const char *const words[] = {"the same", "no more than the second", "a multiple of the second", "even"};
    const char *arch = m->foreign.name;
    return p->b ? wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = %.10g and %s%s = %.10g: the first must be %s", arch,
                            p->a, a, arch, p->b, b, words[p->relation])
                : wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = %.10g: it must be %s", arch, p->a, a,
                            words[p->relation]);
}

static bool fits(enum relation relation, double a, double b)
{
    switch (relation) {
    case SAME:
        return a == b;
    case AT_MOST:
        return a <= b;
    case MULTIPLE:
        return a == 0 || b == 0 || fmod(a, b) == 0;
    default:
        return fmod(a, 2) == 0;
    }
}

static int check_pair(const struct wnw_model *m, const struct pair *p)
{
    if (!is_of(m, p->archs) || (p->but && is_of(m, p->but)))
        return WNW_OK;
    const size_t n_a = count_of(m, p->a), n_b = p->b ? count_of(m, p->b) : 1, n = n_a > n_b ? n_a : n_b;
    for (size_t i = 0; i < n; i++) {
        const double a = number(m, p->a, i), b = p->b ? number(m, p->b, i) : 0;
        if (!fits(p->relation, a, b))
            return misfit(m, p, a, b);
    }
    return WNW_OK;
}

/* ---- Experts ---- */

static int check_experts(const struct wnw_model *m)
{
    const double n = number(m, ".expert_count", 0), n_group = number(m, ".expert_group_count", 0),
                 n_group_used = number(m, ".expert_group_used_count", 0);
    double n_used = 0;
    for (size_t i = 0; i < count_of(m, ".expert_used_count"); i++)
        n_used = fmax(n_used, number(m, ".expert_used_count", i));
    if ((n > 0) != (n_used > 0))
        return wnw__fail(WNW_E_FORMAT, "the GGUF says expert_count = %g and expert_used_count = %g: they do not fit together",
                         n, n_used);
    const bool is_cut = n_group <= 1 || (n_group_used >= 1 && n_group_used < n_group && fmod(n, n_group) == 0);
    if (n_group > 0 && (n_group >= n || !is_cut))
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF says expert_count = %g, expert_group_count = %g and expert_group_used_count = %g: "
                         "they do not fit together",
                         n, n_group, n_group_used);
    return WNW_OK;
}

/* ---- Texts ---- */

/* libllama asserts that it knows the way of scaling. */
static int check_scaling(const struct wnw_model *m)
{
    static const char known[] = "none linear yarn longrope";
    const char *type = wnw__key_str(m->gguf, ".rope.scaling.type");
    if (type && !wnw__admit_listed(known, type))
        return wnw__fail(WNW_E_UNSUPPORTED, "the GGUF says %s.rope.scaling.type = '%.40s'; libllama has: %s",
                         m->foreign.name, type, known);
    return WNW_OK;
}

int wnw__admit_keys(const struct wnw_model *m)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        WNW_TRY(check_limit(m, &limits[i]));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        WNW_TRY(check_pair(m, &pairs[i]));
    WNW_TRY(check_experts(m));
    return check_scaling(m);
}
