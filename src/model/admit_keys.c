/* SPDX-License-Identifier: MIT */
/* Checks the numbers in the keys of a family: each alone, and in relation to each other. */
#include "model/admit.h"

#include <math.h>
#include <string.h>

/* libllama's LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS. */
enum { MOST_LAYERS = 512, MOST_EXPERTS = 1024 };
/* Sizes above these are taken for damage. No model comes near them, and products of two of them fit 64 bits. */
enum { MOST_SIZE = 1 << 24, MOST_HEADS = 1 << 16, MOST_COUNT = 1 << 20 };
/* What a layer computes again and again. */
enum { MOST_ROUNDS = 1000 };

/* Families whose graphs assert that keys and values have heads of one size, and that RoPE turns all of it. */
#define SAME_HEADS_AND_ROPE                                                                         \
    "llama llama-embed llama4 maincoder talkie deci baichuan falcon grok mellum qwen2 dream llada " \
    "llada-moe rnd1 qwen2vl qwen2moe qwen3 qwen3moe qwen3vl qwen3vlmoe qwen3tts pockettts plamo "   \
    "codeshell orion internlm2 starcoder2 xverse cohere2moe dbrx olmo olmo2 olmoe arctic deepseek " \
    "jais2 exaone exaone4 exaone-moe granite granitemoe minicpm graniteswitch granite_swa "         \
    "chameleon seed_oss dots1 arcee ernie4_5 ernie4_5-moe paddleocr hunyuan-moe hunyuan-dense "     \
    "hunyuan_vl hy_v3 smollm3 smallthinker grovemoe apertus cogvlm pangu-embedded mistral3"
#define SAME_HEADS                                                                                        \
    "gpt-oss starcoder refact bert modern-bert nomic-bert nomic-bert-moe jina-bert-v3 neo-bert eurobert " \
    "bloom mpt stablelm nanbeige qwen phi2 phi3 gpt2 maple command-r cohere2 muse-glimmer openelm "       \
    "gptneox chatglm glm4 glm4moe bitnet t5 t5encoder jais nemotron nemotron_h nemotron_h_moe "           \
    "granitehybrid bailingmoe bailingmoe2 afmoe laguna gemma gemma2 gemma3 gemma3n gemma4 lfm2 "          \
    "lfm2moe deepseek4 minimax-01 minimax-m2 minimax-m3 qwen3next qwen35 qwen35moe qwen4exp "             \
    "eagle3 dflash spark2_5"
/* Families with windows whose graphs take the size of the first layer's heads for all layers, and whose cache does not. */
#define WINDOWS_OF_ONE_SIZE                                                                        \
    "afmoe cohere2 cohere2moe exaone-moe exaone4 gemma-embedding gemma2 gemma3 gemma3n gpt-oss "   \
    "granite_swa laguna lfm2 lfm2moe llama4 maple mellum mimo2 modern-bert muse-glimmer nanbeige " \
    "olmo2 phi3 plamo3 smallthinker step35"
/* Families without RoPE. */
#define NO_ROPE                                                                                            \
    "gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 " \
    "arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear kimi-k3 glm5-next"

/* Families with layers of state spaces or of linear attention that has a convolution. */
#define WITH_SSM   "mamba mamba2 jamba falcon-h1 granitehybrid plamo2 nemotron_h nemotron_h_moe"
#define WITH_DELTA "qwen3next qwen35 qwen35moe qwen4exp kimi-linear kimi-k3 bailingmoe3 glm5-next"

/* Those of them that have several heads of a state in a layer. */
#define WITH_STATE_HEADS \
    "mamba2 falcon-h1 granitehybrid plamo2 nemotron_h nemotron_h_moe qwen3next qwen35 qwen35moe qwen4exp"
#define WITH_STATE_GROUPS "mamba2 falcon-h1 granitehybrid nemotron_h nemotron_h_moe"
#define WITH_DELTA_HEADS  "qwen3next qwen35 qwen35moe qwen4exp"
/* Families whose keys and values are in one vector of low rank, and those of them that have an indexer. */
#define WITH_MLA                                                                                           \
    "deepseek2 deepseek2-ocr mistral4 deepseek32 glm-dsa dots3note hy_v4 kimi-linear kimi-k3 bailingmoe3 " \
    "glm5-next"
#define WITH_MLA_INDEXER "deepseek32 glm-dsa dots3note"
/* Families with recurrent layers and others that attend: which they are follows from the KV heads of each, or is listed. */
#define RECURRENT_BY_HEADS                                                                               \
    "lfm2 lfm2moe jamba granitehybrid plamo2 nemotron_h nemotron_h_moe kimi-linear kimi-k3 bailingmoe3 " \
    "glm5-next"
#define RECURRENT_BY_LIST "qwen3next qwen35 qwen35moe qwen4exp minimax-01"
/* Families of experts that have no way of choosing them unless the file says it. */
#define WITH_GATING                                                                          \
    "bailingmoe2 bailingmoe3 deepseek32 deepseek4 dots1 dots3note exaone-moe hy_v4 kimi-k3 " \
    "kimi-linear lfm2moe minimax-m2 minimax-m3 smallthinker"
/* Families that divide the size of a layer by the number of its experts, where they have no size of their own. */
#define DIVIDED_BY_EXPERTS "glm4moe grovemoe hy_v3 llada-moe mellum qwen2moe qwen35moe qwen3moe qwen3next"

/* Families that assert that they have experts. */
#define ALWAYS_EXPERTS "bailingmoe2 glm4moe grovemoe llada-moe smallthinker lfm2moe"

/* Families with layers that may have no attention heads. */
#define NO_HEADS                                                                                            \
    "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec clip deci jamba granitehybrid nemotron_h " \
    "nemotron_h_moe plamo2 lfm2 lfm2moe falcon-h1 kimi-linear kimi-k3 bailingmoe3 glm5-next minimax-01 "    \
    "qwen3next qwen35 qwen35moe qwen4exp"

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
    {".ssm.time_step_rank", 1, MOST_SIZE, WITH_STATE_HEADS},
    {".ssm.group_count", 1, MOST_SIZE, WITH_STATE_GROUPS " " WITH_DELTA_HEADS},
    {".ssm.group_count", 0, 0, "plamo2"},
    {".ssm.inner_size", 1, MOST_SIZE, WITH_SSM " " WITH_DELTA_HEADS},
    {".ssm.state_size", 1, MOST_SIZE, WITH_SSM " " WITH_DELTA_HEADS},
    {".kda.head_dim", 1, MOST_HEADS, "kimi-linear kimi-k3 bailingmoe3 glm5-next"},
    {".kda.gate_lower_bound", -1e6, -1e-30, "bailingmoe3"},
    {".kda.safe_gate", 1, 1, "bailingmoe3"},
    {".attn_res.block_size", 1, MOST_COUNT, "kimi-k3"},
    {".full_attention_interval", 1, MOST_COUNT, WITH_DELTA_HEADS " minimax-01"},
    {".interleave_moe_layer_step", 1, MOST_COUNT, "ernie4_5-moe"},
    {".experts_per_group", 1, MOST_EXPERTS, "grovemoe"},
    {".shortconv.l_cache", 2, MOST_COUNT, "lfm2 lfm2moe"},
    {".num_loops", 1, MOST_LAYERS, "nanbeige"},
    {".posnet.block_count", 0, 6, "wavtokenizer-dec"},
    {".hrm.layers_per_stack", 1, MOST_LAYERS, "hrm_text"},
    {".hrm.h_cycles", 1, MOST_LAYERS, "hrm_text"},
    {".hrm.l_cycles", 1, MOST_LAYERS, "hrm_text"},
    {".hyper_connection.count", 4, 4, "deepseek4 glm5-next"},
    {".hyper_connection.sinkhorn_iterations", 1, MOST_ROUNDS, "deepseek4 glm5-next"},
    {".hyper_connection.count", 1, MOST_HEADS, "hy_v4 qwen4exp"},
    {".attention.output_group_count", 1, MOST_HEADS, "deepseek4"},
    {".attention.indexer.block_size", 1, MOST_COUNT, "minimax-m3"},
    {".attention.indexer.kpool", 2, MOST_COUNT, "glm5-next"},
    {".attention.indexer.head_count", 0, MOST_HEADS, NULL},
    {".attention.indexer.key_length", 0, MOST_HEADS, NULL},
    {".attention.indexer.top_k", 0, INT32_MAX, NULL},
    {".attention.key_length_mla", 1, MOST_HEADS, WITH_MLA_INDEXER " hy_v4"},
    {".attention.value_length_mla", 1, MOST_HEADS, WITH_MLA_INDEXER " hy_v4"},
    {".wkv.head_size", 1, MOST_SIZE, "rwkv6 rwkv6qwen2 rwkv7 arwkv7"},
    {".token_shift_count", 2, 2, "rwkv6 rwkv7"},
    {".token_shift_count", 1, 1, "rwkv6qwen2 arwkv7"},
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
            return wnw__fail(
                WNW_E_FORMAT,
                isfinite(l->most)
                    ? "the GGUF says %s = %.10g, which cannot be right: %.10g to %.10g are possible"
                    : "the GGUF says %s = %.10g, which cannot be right",
                full, x, l->least, l->most);
    return WNW_OK;
}

/* ---- Pairs of numbers ---- */

/* What the first number of a pair must be of the second. */
enum relation {
    SAME,         /* equal */
    NONE_OR_SAME, /* 0, or equal */
    AT_MOST,      /* no more */
    TWICE,        /* two times the second */
    MULTIPLE,     /* a number of times the second; nothing is asked where one of them is 0 */
    EVEN          /* there is no second one */
};

static const struct pair {
    const char *a;
    enum relation relation;
    const char *b;
    const char *archs, *but; /* families that it is asked of: NULL = all, those of `but` never */
} pairs[] = {
    {".attention.head_count", MULTIPLE, ".attention.head_count_kv", NULL, NULL},
    {".attention.head_count_kv", SAME, ".attention.head_count", "minicpm3", NULL},
    {".attention.value_length", SAME, ".attention.key_length", SAME_HEADS_AND_ROPE, NULL},
    {".attention.value_length_swa", SAME, ".attention.key_length_swa", SAME_HEADS_AND_ROPE, NULL},
    {".attention.value_length", SAME, ".attention.key_length", SAME_HEADS, NULL},
    {".attention.value_length_swa", SAME, ".attention.key_length_swa", SAME_HEADS, NULL},
    {".attention.key_length_swa", SAME, ".attention.key_length", WINDOWS_OF_ONE_SIZE, NULL},
    {".attention.value_length_swa", SAME, ".attention.value_length", WINDOWS_OF_ONE_SIZE, NULL},
    {".rope.dimension_count", SAME, ".attention.key_length", SAME_HEADS_AND_ROPE, NULL},
    {".rope.dimension_count_swa", SAME, ".attention.key_length_swa", SAME_HEADS_AND_ROPE, NULL},
    {".rope.dimension_count", AT_MOST, ".attention.key_length", NULL, NO_ROPE},
    {".rope.dimension_count_swa", AT_MOST, ".attention.key_length_swa", NULL, NO_ROPE},
    {".rope.dimension_count", EVEN, NULL, NULL, NO_ROPE},
    {".rope.dimension_count_swa", EVEN, NULL, NULL, NO_ROPE},
    {".ssm.inner_size", TWICE, ".embedding_length", "jamba granitehybrid", NULL},
    {".ssm.inner_size", MULTIPLE, ".ssm.time_step_rank", WITH_STATE_HEADS, NULL},
    {".ssm.inner_size", MULTIPLE, ".ssm.group_count", WITH_STATE_GROUPS, NULL},
    {".ssm.time_step_rank", MULTIPLE, ".ssm.group_count", WITH_STATE_HEADS, NULL},
    {".expert_count", MULTIPLE, ".experts_per_group", "grovemoe", NULL},
    {".attention.head_count", MULTIPLE, ".attention.output_group_count", "deepseek4", NULL},
    {".attention.indexer.top_k", MULTIPLE, ".attention.indexer.kpool", "glm5-next", NULL},
    {".attention.head_count_kv", SAME, ".attention.indexer.head_count", "minimax-m3", NULL},
    {".rope.dimension_count", AT_MOST, ".attention.indexer.key_length", WITH_MLA_INDEXER " deepseek4", NULL},
    {".embedding_length", MULTIPLE, ".wkv.head_size", "rwkv6 rwkv6qwen2 rwkv7 arwkv7", NULL},
    {".nextn_predict_layers", AT_MOST, ".block_count", NULL, NULL},
    {".posnet.block_count", AT_MOST, ".block_count", "wavtokenizer-dec", NULL},
    {".convnext.block_count", AT_MOST, ".block_count", "wavtokenizer-dec", NULL},
    {".posnet.embedding_length", SAME, ".convnext.embedding_length", "wavtokenizer-dec", NULL},
    {".dense_2_feat_in", NONE_OR_SAME, ".embedding_length", "gemma-embedding", NULL},
    {".dense_3_feat_out", NONE_OR_SAME, ".embedding_length", "gemma-embedding", NULL},
    {".expert_used_count", AT_MOST, ".expert_count", NULL, NULL},
};

static int misfit(const struct wnw_model *m, const struct pair *p, double a, double b)
{
    static const char *const must[] = {
        [SAME] = "both must be the same",
        [NONE_OR_SAME] = "the first must be 0 or the same",
        [AT_MOST] = "the first must be no more than the second",
        [TWICE] = "the first must be twice the second",
        [MULTIPLE] = "the first must be a multiple of the second",
        [EVEN] = "it must be even",
    };
    const char *arch = m->foreign.name;
    return p->b ? wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = %.10g and %s%s = %.10g: %s", arch, p->a, a,
                            arch, p->b, b, must[p->relation])
                : wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = %.10g: %s", arch, p->a, a, must[p->relation]);
}

static bool fits(enum relation relation, double a, double b)
{
    switch (relation) {
    case SAME:
        return a == b;
    case NONE_OR_SAME:
        return a == 0 || a == b;
    case AT_MOST:
        return a <= b;
    case TWICE:
        return a == 2 * b;
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
    const bool is_dense = n <= 1 && is_of(m, "hunyuan_vl hunyuan-dense"); /* one expert is none there */
    if (!is_dense && (n > 0) != (n_used > 0))
        return wnw__fail(
            WNW_E_FORMAT,
            "the GGUF says expert_count = %g and expert_used_count = %g: they do not fit together", n,
            n_used);
    const bool is_cut =
        n_group <= 1 || (n_group_used >= 1 && n_group_used < n_group && fmod(n, n_group) == 0);
    if (n_group > 0 && (is_dense || n_group >= n || !is_cut))
        return wnw__fail(
            WNW_E_FORMAT,
            "the GGUF says expert_count = %g, expert_group_count = %g and expert_group_used_count = %g: "
            "they do not fit together",
            n, n_group, n_group_used);
    return WNW_OK;
}

/* ---- What pairs do not say ---- */

static int check_sections(const struct wnw_model *m)
{
    static const char always[] = "qwen2vl paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe qwen4exp qwen3tts";
    double sum = 0;
    for (size_t i = 0; i < 4; i++)
        sum += i < count_of(m, ".rope.dimension_sections") ? number(m, ".rope.dimension_sections", i) : 0;
    if (sum <= 0 && is_of(m, always))
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s.rope.dimension_sections are all 0", m->foreign.name);
    const double d = number(m, ".attention.key_length", 0);
    if (sum > d && d > 0)
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF's %s.rope.dimension_sections are %g in all, more than key_length = %g",
                         m->foreign.name, sum, d);
    return WNW_OK;
}

/* Numbers that must be there: libllama takes 0 for those that are not, and computes with it. */
static const struct need {
    const char *key;
    double least;
    const char *where;       /* only where the number of this key is more than 0; NULL = always */
    const char *archs, *but; /* as of pairs */
} needs[] = {
    {".attention.head_count", 1, ".block_count", NULL, NO_HEADS},
    {".attention.head_count_kv", 1, ".block_count", NULL, NO_HEADS},
    /* Without a part that turns it computes for ever. */
    {".rope.dimension_count", 2, ".attention.head_count", NULL, NO_ROPE " granitehybrid"},
    {".rope.dimension_count_swa", 2, ".attention.head_count", NULL, NO_ROPE " granitehybrid"},
    {".rope.dimension_count", 2, ".rope.scaling.finetuned", "granitehybrid", NULL},
    {".attention.sliding_window", 1, NULL, "afmoe", NULL},
    {".expert_gating_func", 1, ".expert_count", WITH_GATING, NULL},
    {".expert_used_count", 1, ".expert_count", DIVIDED_BY_EXPERTS, NULL},
    {".expert_count", 1, NULL, ALWAYS_EXPERTS, NULL},
    {".attention.key_length_mla", 1, NULL, "hy_v4", NULL},
    {".attention.output_group_count", 1, ".hyper_connection.count", "dflash", NULL},
    {".attention.sliding_window", 1, ".hyper_connection.count", "dflash", NULL},
};

static int check_need(const struct wnw_model *m, const struct need *n)
{
    if ((n->where && number(m, n->where, 0) <= 0) || !is_of(m, n->archs) || (n->but && is_of(m, n->but)))
        return WNW_OK;
    for (size_t i = 0; i < count_of(m, n->key); i++)
        if (number(m, n->key, i) < n->least)
            return wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = %.10g, or lacks it: it must be %g or more",
                             m->foreign.name, n->key, number(m, n->key, i), n->least);
    return WNW_OK;
}

/* Keys and values of low rank, with what RoPE turns after them. */
static int check_mla(const struct wnw_model *m)
{
    const double key = number(m, ".attention.key_length", 0), rank = number(m, ".attention.kv_lora_rank", 0),
                 n_rot = number(m, ".rope.dimension_count", 0),
                 key_mla = number(m, ".attention.key_length_mla", 0),
                 value_mla = number(m, ".attention.value_length_mla", 0);
    const char *arch = m->foreign.name;
    if (!is_of(m, WITH_MLA))
        return WNW_OK;
    if ((key_mla > 0) != (value_mla > 0))
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF says %s.attention.key_length_mla = %g and value_length_mla = %g", arch,
                         key_mla, value_mla);
    if (key_mla > 0 && (key != rank + n_rot || key_mla <= n_rot))
        return wnw__fail(
            WNW_E_FORMAT,
            "the GGUF says %s.attention.key_length = %g, kv_lora_rank = %g, key_length_mla = %g and "
            "rope.dimension_count = %g: the first must be the second with the last, and the third more "
            "than the last",
            arch, key, rank, key_mla, n_rot);
    for (size_t i = 0; key_mla > 0 && i < count_of(m, ".attention.head_count_kv"); i++)
        if (number(m, ".attention.head_count_kv", i) > 1)
            return wnw__fail(
                WNW_E_FORMAT,
                "the GGUF says %s.attention.head_count_kv = %g, or lacks it: its layers have one", arch,
                number(m, ".attention.head_count_kv", i));
    if (key_mla == 0 && key <= n_rot)
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF says %s.attention.key_length = %g and rope.dimension_count = %g", arch,
                         key, n_rot);
    return WNW_OK;
}

/* The window's layers: if the file or the family gives a window, libllama asserts that at least one layer has it. */
static int check_pattern(const struct wnw_model *m)
{
    static const char with_pattern[] = "afmoe cohere2 cohere2moe dots3note exaone-moe exaone4 "
                                       "gemma-embedding gemma2 gemma3 gemma3n gemma4 gpt-oss "
                                       "granite_swa laguna llama4 maple mellum mimo2 modern-bert "
                                       "muse-glimmer olmo2 plamo3 smallthinker spark2_5 step35";
    static const char with_window[] = "exaone-moe gemma2 llama4";
    char full[WNW_KEY_MAX];
    double x;
    const int64_t id = wnw__key_find(m->gguf, ".attention.sliding_window_pattern", full);
    const double n_layer = number(m, ".block_count", 0);
    const bool window = number(m, ".attention.sliding_window", 0) >= 1 ||
                        (is_of(m, with_window) && !read_number(m, ".attention.sliding_window", 0, &x));
    if (id < 0 || !window || !is_of(m, with_pattern))
        return WNW_OK;
    const bool list = gguf_get_kv_type(m->gguf, id) == GGUF_TYPE_ARRAY;
    bool any = false;
    for (size_t i = 0; i < wnw__key_count(m->gguf, id) && (double)i < n_layer; i++)
        any = any || (wnw__key_number(m->gguf, id, i, &x) && (list ? x != 0 : x != 1));
    return any ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "the GGUF's %s has no layer that slides, and there is a window",
                           full);
}

/* Layers without an indexer of their own take the choice of an earlier one. */
static int check_indexers(const struct wnw_model *m)
{
    static const char key[] = ".attention.indexer.types";
    double x;
    bool any = !is_of(m, "glm-dsa glm5-next") || !read_number(m, key, 0, &x);
    for (size_t i = 0; !any && i < count_of(m, key); i++)
        any = number(m, key, i) != 0;
    return any ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "the GGUF says %s%s = 0: a layer must have an indexer",
                           m->foreign.name, key);
}

/* Whether a layer slides, where the file lists it. */
static bool slides(const struct wnw_model *m, double il)
{
    return number(m, ".attention.sliding_window_pattern", (size_t)il) != 0;
}

/* Layers that share another one's keys and values take those of the last two that have their own: the last but one slides, the last
 * does not. */
static int check_shared(const struct wnw_model *m)
{
    const double n_layer = number(m, ".block_count", 0),
                 n_shared = number(m, ".attention.shared_kv_layers", 0), first = n_layer - n_shared;
    bool good = first >= 2;
    if (!is_of(m, "gemma4") || n_shared == 0)
        return WNW_OK;
    for (double il = first; good && il < n_layer; il++)
        good = slides(m, il) ? slides(m, first - 2) : !slides(m, first - 1);
    return good ? WNW_OK
                : wnw__fail(WNW_E_FORMAT,
                            "the GGUF says gemma4.attention.shared_kv_layers = %g of %g layers: they have no "
                            "keys and values to share",
                            n_shared, n_layer);
}

/* Counts of layers that families need, without those that predict further tokens. */
static int check_layers(const struct wnw_model *m)
{
    const double n = number(m, ".block_count", 0) - number(m, ".nextn_predict_layers", 0);
    bool good = true;
    if (is_of(m, "deepseek4") && number(m, ".attention.head_count_kv", 0) != 1)
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF says deepseek4.attention.head_count_kv = %g, or lacks it: it must be 1",
                         number(m, ".attention.head_count_kv", 0));
    if (is_of(m, "deepseek4") && count_of(m, ".attention.compress_ratios") > MOST_LAYERS)
        return wnw__fail(WNW_E_FORMAT,
                         "the GGUF says %zu deepseek4.attention.compress_ratios: %d are possible",
                         count_of(m, ".attention.compress_ratios"), MOST_LAYERS);
    if (is_of(m, "hrm_text"))
        good = n == number(m, ".hrm.layers_per_stack", 0) * number(m, ".hrm.h_cycles", 0) *
                        (number(m, ".hrm.l_cycles", 0) + 1);
    /* Vectors are added to whole layers, and the last one has fewer rows. */
    if (is_of(m, "qwen3vl qwen3vlmoe qwen3tts"))
        good = number(m, ".n_deepstack_layers", 0) < n;
    if (is_of(m, "nanbeige"))
        good = n * fmax(1, number(m, ".num_loops", 0)) <= MOST_LAYERS;
    return good ? WNW_OK
                : wnw__fail(WNW_E_FORMAT,
                            "the GGUF says %s.block_count = %g, which does not fit its other keys",
                            m->foreign.name, number(m, ".block_count", 0));
}

/* Whether a layer is recurrent, as libllama has it. */
static bool is_recurrent(const struct wnw_model *m, size_t il)
{
    double x;
    if (is_of(m, RECURRENT_BY_HEADS))
        return number(m, ".attention.head_count_kv", il) == 0 &&
               (!is_of(m, "nemotron_h nemotron_h_moe") || number(m, ".feed_forward_length", il) == 0);
    if (read_number(m, ".attention.recurrent_layers", il, &x))
        return x != 0;
    if (!read_number(m, ".full_attention_interval", 0, &x))
        x = is_of(m, "minimax-01") ? 8 : 4;
    return fmod((double)il + 1, x) != 0;
}

/* libllama asserts on the list of states that its graph reads, and the graph has none where no layer is recurrent. */
static int check_recurrent(const struct wnw_model *m)
{
    const double n = number(m, ".block_count", 0) - number(m, ".nextn_predict_layers", 0);
    bool any = !is_of(m, RECURRENT_BY_HEADS " " RECURRENT_BY_LIST);
    for (size_t il = 0; !any && (double)il < n; il++)
        any = is_recurrent(m, il);
    return any ? WNW_OK
               : wnw__fail(WNW_E_UNSUPPORTED,
                           "the GGUF says that all layers of this %s attend: libllama cannot compute a model "
                           "of this family without a recurrent layer",
                           m->foreign.name);
}

/* A head of the delta rule has keys and values of one size. */
static int check_delta(const struct wnw_model *m)
{
    const double n_head = number(m, ".ssm.time_step_rank", 0), inner = number(m, ".ssm.inner_size", 0),
                 state = number(m, ".ssm.state_size", 0);
    if (is_of(m, WITH_DELTA_HEADS) && inner != n_head * state)
        return wnw__fail(
            WNW_E_FORMAT,
            "the GGUF says %s.ssm.inner_size = %g, time_step_rank = %g and state_size = %g: the first must "
            "be the product of the others",
            m->foreign.name, inner, n_head, state);
    return WNW_OK;
}

/* The rows that are looked up for the last tokens are as long together as a state, where a layer has them. libllama checks neither. */
static int check_ngrams(const struct wnw_model *m)
{
    const double n = number(m, ".ple.ngram_size", 0), n_each = number(m, ".ple.heads_per_ngram", 0),
                 length = number(m, ".embedding_length_per_layer_input", 0),
                 embd = number(m, ".embedding_length", 0);
    char full[WNW_KEY_MAX];
    if (!is_of(m, "qwen4exp") || wnw__key_find(m->gguf, ".ple.layers", full) < 0 ||
        count_of(m, ".ple.layers") == 0 || (n - 1) * n_each * length == embd)
        return WNW_OK;
    return wnw__fail(
        WNW_E_FORMAT,
        "the GGUF says %s.ple.ngram_size = %g, ple.heads_per_ngram = %g and "
        "embedding_length_per_layer_input = %g: the first less 1, the second and the third must give "
        "embedding_length = %g as their product",
        m->foreign.name, n, n_each, length, embd);
}

/* libllama asserts on it while it computes. */
static int check_temperature(const struct wnw_model *m)
{
    if (is_of(m, "deepseek2 deepseek2-ocr mistral4") && number(m, ".attention.temperature_scale", 0) != 0 &&
        number(m, ".attention.temperature_length", 0) < 1)
        return wnw__fail(
            WNW_E_FORMAT,
            "the GGUF says %s.attention.temperature_length = 0, and there is a temperature_scale",
            m->foreign.name);
    return WNW_OK;
}

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

/* libllama aborts on a pooling that it does not know, once embeddings are asked of it. A number with all bits set means that no choice was made. */
static int check_pooling(const struct wnw_model *m)
{
    enum { MOST_POOLING = 4 };
    const double x = number(m, ".pooling_type", 0);
    return (x >= 0 && x <= MOST_POOLING) || x == -1 || x == UINT32_MAX
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "the GGUF says %s.pooling_type = %.10g: 0 to %d are possible",
                           m->foreign.name, x, MOST_POOLING);
}

int wnw__admit_keys(const struct wnw_model *m)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        WNW_TRY(check_limit(m, &limits[i]));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        WNW_TRY(check_pair(m, &pairs[i]));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        WNW_TRY(check_need(m, &needs[i]));
    WNW_TRY(check_experts(m));
    WNW_TRY(check_sections(m));
    WNW_TRY(check_mla(m));
    WNW_TRY(check_pattern(m));
    WNW_TRY(check_indexers(m));
    WNW_TRY(check_shared(m));
    WNW_TRY(check_layers(m));
    WNW_TRY(check_recurrent(m));
    WNW_TRY(check_delta(m));
    WNW_TRY(check_ngrams(m));
    WNW_TRY(check_temperature(m));
    WNW_TRY(check_pooling(m));
    return check_scaling(m);
}
