/* SPDX-License-Identifier: MIT */
/*
 * Every tensor and key that libllama reads for a family, and those it reads for families near it, one at a time in a copy of
 * every tiny model: winnow's logits are libllama's, or the file is refused with a sentence that names the tensor or key. What
 * winnow has no code for is never left out in silence (decision 043).
 *
 * Each copy is run in a process of its own, because libllama ends the process for some files. With a path on its command line the
 * program does that for one file.
 */
#include "child.h"
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <llama.h>

/* ---- One file, in a process of its own ---- */

enum { N_PROMPT = 40, N_ALL = N_PROMPT + 1, N_CTX = 256, N_THREADS = 1 };

/* How the process ends. */
enum { SAME, DIFFERENT, REFUSED, ASSERTED };
static bool is_child;

/* Bounds of our own attention against libllama's, as in model_parity: [0] weights in f32 or f16, [1] quantised. */
static const double max_kl[] = {2e-4, 2e-2}, max_nmse[] = {5e-5, 1e-2};

/* All logits of the tokens by libllama, [N_ALL][n_vocab]; NULL where it refuses the file. */
static float *of_libllama(const char *path, const int32_t *tokens, int32_t n_vocab)
{
    struct llama_model *m = llama_model_load_from_file(path, llama_model_default_params());
    if (!m)
        return NULL;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = N_CTX;
    cp.n_threads = cp.n_threads_batch = N_THREADS;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    struct llama_context *ctx = llama_init_from_model(m, cp);
    float *out = calloc((size_t)N_ALL * (size_t)n_vocab, sizeof *out);
    bool ok = ctx && out;
    for (int32_t at = 0, n = N_PROMPT; ok && at < N_ALL; at += n, n = 1) {
        struct llama_batch b = llama_batch_init(n, 0, 1);
        for (int32_t i = 0; i < n; i++) {
            b.token[i] = tokens[at + i];
            b.pos[i] = at + i;
            b.n_seq_id[i] = 1;
            b.seq_id[i][0] = 0;
            b.logits[i] = 1;
        }
        b.n_tokens = n;
        ok = llama_decode(ctx, b) == 0;
        for (int32_t i = 0; ok && i < n; i++)
            memcpy(out + (size_t)(at + i) * (size_t)n_vocab, llama_get_logits_ith(ctx, i),
                   (size_t)n_vocab * sizeof *out);
        llama_batch_free(b);
    }
    llama_free(ctx);
    llama_model_free(m);
    if (!ok)
        free(out);
    return ok ? out : NULL;
}

struct rows {
    float *at;
    int32_t n_vocab;
};

static bool take_row(int32_t i, const float *logits, void *user)
{
    const struct rows *r = user;
    memcpy(r->at + (size_t)i * (size_t)r->n_vocab, logits, (size_t)r->n_vocab * sizeof *logits);
    return true;
}

/* False where the file runs through libllama, whose graphs have no other attention than ours. */
static bool of_winnow(const wnw_model *m, wnw_attn attn, const int32_t *tokens, int32_t n_vocab, float *out)
{
    wnw_session_params params = wnw_session_default_params();
    wnw_session *s = NULL;
    params.attn = attn;
    params.n_ctx = N_CTX;
    params.n_threads = N_THREADS;
    const int rc = wnw_session_new(&s, m, &params);
    if (rc == WNW_E_UNSUPPORTED && attn == WNW_ATTN_GGML)
        return false;
    assert_ok(rc);
    struct rows rows = {.at = out, .n_vocab = n_vocab};
    assert_ok(wnw_session_prefill(s, tokens, N_PROMPT, take_row, &rows));
    assert_ok(wnw_session_decode(s, tokens[N_PROMPT]));
    take_row(N_PROMPT, wnw_session_logits(s), &rows);
    wnw_session_free(s);
    return true;
}

static bool is_same(const char *what, const float *ref, const float *ours, int32_t n_vocab, bool bits,
                    bool quantised)
{
    struct test_diff d = {0};
    for (int32_t i = 0; i < N_ALL; i++)
        test_diff_add(&d, ref + (size_t)i * (size_t)n_vocab, ours + (size_t)i * (size_t)n_vocab, n_vocab);
    if (bits ? d.identical == N_ALL
             : test_diff_kl(&d) <= max_kl[quantised] && test_diff_nmse(&d) <= max_nmse[quantised])
        return true;
    printf("%s: %d of %d rows equal libllama's, mean KL %g, normalised error %g\n", what, (int)d.identical,
           (int)N_ALL, test_diff_kl(&d), test_diff_nmse(&d));
    return false;
}

static uint64_t sum_of(const float *x, size_t n)
{
    uint64_t sum = 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum = sum * UINT64_C(6364136223846793005) + bits;
    }
    return sum;
}

/* Prints the sentence of a refusal, or how winnow and libllama differ, or a number that identifies libllama's logits. */
static int run_file(const char *path)
{
    wnw_model *m = NULL;
    const int rc = wnw_model_open(&m, path, NULL);
    if (rc != WNW_OK) {
        printf("%s\n", wnw_last_error());
        return rc == WNW_E_UNSUPPORTED || rc == WNW_E_FORMAT ? REFUSED : DIFFERENT;
    }
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    const bool quantised = !test_all_float(path);
    const size_t n = (size_t)N_ALL * (size_t)info.n_vocab;
    int32_t *tokens = test_random_tokens(N_ALL, info.n_vocab, 1);
    float *ref = of_libllama(path, tokens, info.n_vocab), *ours = calloc(n, sizeof *ours);
    assert_non_null(ours);
    bool same = ref != NULL;
    if (!ref)
        printf("winnow runs the file, libllama does not\n");
    for (int attn = 0; same && attn < 2; attn++) {
        const bool bits = attn == 0;
        if (of_winnow(m, bits ? WNW_ATTN_GGML : WNW_ATTN_F32, tokens, info.n_vocab, ours))
            same = is_same(bits ? "ggml" : "float32", ref, ours, info.n_vocab, bits, quantised);
    }
    if (same)
        printf("%016llx\n", (unsigned long long)sum_of(ref, n));
    free(ref);
    free(ours);
    free(tokens);
    wnw_model_free(m);
    return same ? SAME : DIFFERENT;
}

/* In the child: prints to `out` alone, and does not return. */
static void run_in_child(const char *path, int out)
{
    const int nowhere = open("/dev/null", O_WRONLY);
    is_child = true;
    dup2(out, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    const int end = run_file(path);
    fflush(stdout);
    _exit(end);
}

/* Runs the file in a process of its own; `says` is the last line that it prints. A copy of this process has libllama loaded and
 * its tables filled, which take most of the time of a new one. */
static int run_apart(const char *path, char *says, size_t cap)
{
    char line[1024];
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = test_child(0);
    if (child == 0)
        run_in_child(path, ends[1]);
    close(ends[1]);
    FILE *p = fdopen(ends[0], "r");
    assert_non_null(p);
    says[0] = '\0';
    while (fgets(line, sizeof line, p))
        snprintf(says, cap, "%.*s", (int)strcspn(line, "\n"), line);
    fclose(p);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > REFUSED) {
        snprintf(says, cap, "the process ended with status %d: winnow runs the file, libllama does not",
                 status);
        return DIFFERENT;
    }
    return WEXITSTATUS(status);
}

/* ---- The table ---- */

enum shape {
    ONE,
    EMBD,
    FF,
    QUERIES, /* all query heads */
    KEYS,    /* all KV heads */
    HEAD,
    HALF, /* of a head */
    HEADS,
    VOCAB,
};

enum change {
    LAYERS, /* a tensor in every layer */
    ENDS,   /* a tensor of the whole model */
    U32,    /* a key; names that begin with '.' follow the architecture's */
    F32,
    BOOL,
    STRING,
    LIST_U32, /* a list with a value per layer: `value` of the layers from list_from on, `before` of those before */
    LIST_BOOL,
    LIST_F32,
    REMOVE,
    TENSOR_EXTRA,
    NVFP4, /* weights in NVFP4 with factors */
};

struct row {
    const char *name;
    enum change change;
    enum shape ne0, ne1;
    float mean, spread;
    double value, before;
    const char *string;
    int list_from;
    const char *runs; /* families in which winnow must run it; "" = none must, it may refuse */
    bool nothing;     /* changes no logit */
    const char *says; /* what a refusal names; NULL = the row's name */
};

#define ALL "llama qwen2 qwen3 gemma3"

static const struct row rows[] = {
    /* Tensors. */
    {"attn_q.bias", LAYERS, QUERIES, ONE, 0, 0.5f, .runs = ALL},
    {"attn_k.bias", LAYERS, KEYS, ONE, 0, 0.5f, .runs = ALL},
    {"attn_v.bias", LAYERS, KEYS, ONE, 0, 0.5f, .runs = ALL},
    {"attn_output.bias", LAYERS, EMBD, ONE, 0, 0.5f, .runs = "llama"},
    {"attn_qkv.bias", LAYERS, QUERIES, ONE, 0, 0.5f, .runs = ""},
    {"attn_qkv.weight", LAYERS, EMBD, QUERIES, 0, 0.1f, .runs = ""},
    {"ffn_gate.bias", LAYERS, FF, ONE, 0, 0.5f, .runs = "llama"},
    {"ffn_up.bias", LAYERS, FF, ONE, 0, 0.5f, .runs = "llama"},
    {"ffn_down.bias", LAYERS, EMBD, ONE, 0, 0.5f, .runs = "llama"},
    {"attn_q.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL},
    {"attn_k.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL},
    {"attn_v.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL},
    {"attn_output.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL},
    {"ffn_gate.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = "llama qwen3"},
    {"ffn_up.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = "llama qwen3"},
    {"ffn_down.scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = "llama qwen3"},
    {"attn_q.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"attn_k.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"attn_v.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"attn_output.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"ffn_gate.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"ffn_up.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"ffn_down.input_scale", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ALL, .nothing = true},
    {"attn_q_norm.weight", LAYERS, HEAD, ONE, 1.2f, 0.1f, .runs = ""},
    {"attn_k_norm.weight", LAYERS, HEAD, ONE, 1.2f, 0.1f, .runs = ""},
    {"attn_norm.bias", LAYERS, EMBD, ONE, 0, 0.5f, .runs = ""},
    {"ffn_norm.bias", LAYERS, EMBD, ONE, 0, 0.5f, .runs = ""},
    {"attn_sinks.weight", LAYERS, HEADS, ONE, 0, 1, .runs = ""},
    {"post_attention_norm.weight", LAYERS, EMBD, ONE, 1.2f, 0.1f, .runs = ""},
    {"post_ffw_norm.weight", LAYERS, EMBD, ONE, 1.2f, 0.1f, .runs = ""},
    {"layer_output_scale.weight", LAYERS, ONE, ONE, 0.7f, 0.1f, .runs = ""},
    {"ffn_gate_inp.weight", LAYERS, EMBD, HEADS, 0, 0.1f, .runs = ""},
    {"nextn.eh_proj.weight", LAYERS, EMBD, EMBD, 0, 0.1f, .runs = ""},
    {"rope_freqs.weight", LAYERS, HALF, ONE, 3, 0.5f, .runs = ""},
    {"output.weight", ENDS, EMBD, VOCAB, 0, 0.3f, .runs = ALL},
    {"output.bias", ENDS, VOCAB, ONE, 0, 1, .runs = "qwen2"},
    {"output.scale", ENDS, ONE, ONE, 0.7f, 0.1f, .runs = ""},
    {"output.input_scale", ENDS, ONE, ONE, 0.7f, 0.1f, .runs = ""},
    {"output_norm.bias", ENDS, EMBD, ONE, 0, 0.5f, .runs = ""},
    {"token_embd_norm.weight", ENDS, EMBD, ONE, 1.2f, 0.1f, .runs = ""},
    {"position_embd.weight", ENDS, EMBD, VOCAB, 0, 0.3f, .runs = ""},
    {"rope_freqs.weight", ENDS, HALF, ONE, 3, 0.5f, .runs = "llama"},
    {"rope_factors_long.weight", ENDS, HALF, ONE, 3, 0.5f, .runs = ""},
    {"rope_factors_short.weight", ENDS, HALF, ONE, 3, 0.5f, .runs = ""},
    {"cls.output.weight", ENDS, EMBD, ONE, 0, 0.3f, .runs = ""},
    {"dense_2.weight", ENDS, EMBD, EMBD, 0, 0.3f, .runs = ""},
    {"dense_3.weight", ENDS, EMBD, EMBD, 0, 0.3f, .runs = ""},
    {"blk.99.attn_norm.weight", ENDS, EMBD, ONE, 1.2f, 0.1f, .runs = ""},
    {"v.blk.0.attn_q.weight", ENDS, EMBD, EMBD, 0, 0.3f, .runs = ""},
    {"nvfp4", NVFP4, .mean = 0.7f, .runs = "llama qwen3", .says = "ffn_gate.scale"},

    /* Keys of RoPE. */
    {".rope.freq_base", F32, .value = 5e4, .runs = ALL},
    {".rope.freq_base_swa", F32, .value = 5e3, .runs = ALL, .nothing = true}, /* but in gemma3 */
    {".rope.scale_linear", F32, .value = 4, .runs = ALL},
    {".rope.scaling.factor", F32, .value = 4, .runs = ALL},
    {".rope.scaling.factor", F32, .value = 0, .runs = ALL, .nothing = true},
    {".rope.scaling.factor", F32, .value = -4, .runs = ""},
    {".rope.scaling.type", STRING, .string = "linear", .runs = ALL, .nothing = true},
    {".rope.scaling.type", STRING, .string = "none", .runs = ALL, .nothing = true},
    {".rope.scaling.type", STRING, .string = "yarn", .value = 4, .runs = ALL},
    {".rope.scaling.type", STRING, .string = "longrope", .runs = "", .says = "'longrope'"},
    {".rope.scaling.type", STRING, .string = "spiral", .runs = "", .says = "'spiral'"},
    {".rope.scaling.attn_factor", F32, .value = 1.5, .runs = ALL},
    {".rope.scaling.attn_factor", F32, .value = 1, .runs = ALL, .nothing = true},
    {".rope.scaling.alpha", F32, .value = 1000, .runs = ""},
    {".rope.scaling.original_context_length", U32, .value = 16, .runs = ALL, .nothing = true},
    {".rope.scaling.finetuned", BOOL, .value = 1, .runs = ALL, .nothing = true},
    {".rope.scaling.yarn_log_multiplier", F32, .value = 0.1, .runs = ALL, .nothing = true},
    {".rope.scaling.yarn_beta_fast", F32, .value = 16, .runs = ALL, .nothing = true},
    {".rope.scaling.yarn_ext_factor", F32, .value = 1, .runs = ALL, .nothing = true},
    {".rope.scaling.yarn_attn_factor", F32, .value = 1.5, .runs = ALL, .nothing = true},
    {".rope.dimension_count", U32, .value = 16, .runs = "gemma3"},
    {".rope.dimension_count_swa", U32, .value = 16, .runs = ""},
    {".rope.dimension_sections", LIST_U32, .value = 4, .runs = ""},

    /* Keys of the attention. */
    {".attention.causal", BOOL, .value = 0, .runs = ""},
    {".attention.causal", BOOL, .value = 1, .runs = ALL, .nothing = true},
    {".attention.scale", F32, .value = 0.5, .runs = ""},
    {".attention.scale", F32, .value = 0, .runs = ALL, .nothing = true},
    {".attention.output_scale", F32, .value = 0.5, .runs = ""},
    {".attention.value_scale", F32, .value = 0.5, .runs = ""},
    {".attention.temperature_scale", F32, .value = 0.5, .runs = ""},
    {".attention.temperature_length", U32, .value = 16, .runs = ""},
    {".attention.clamp_kqv", F32, .value = 0.5, .runs = ""},
    {".attention.max_alibi_bias", F32, .value = 8, .runs = ""},
    {".attention.key_length_swa", U32, .value = 16, .runs = ""},
    {".attention.value_length_swa", U32, .value = 16, .runs = ""},
    {".attention.layer_norm_rms_epsilon", F32, .value = 1e-2, .runs = ALL},
    {".attention.layer_norm_rms_epsilon", REMOVE, .runs = ""},
    {".attention.layer_norm_epsilon", F32, .value = 1e-2, .runs = ALL, .nothing = true},
    {".attention.group_norm_epsilon", F32, .value = 1e-2, .runs = ALL, .nothing = true},
    {".attention.shared_kv_layers", U32, .value = 1, .runs = ""},
    {".attention.rope_pattern", LIST_U32, .value = 1, .list_from = 1, .runs = ""},
    {".attention.sliding_window", U32, .value = 8, .runs = "gemma3"},
    {".attention.sliding_window", U32, .value = 0, .runs = ALL, .nothing = true},         /* but in gemma3 */
    {".attention.sliding_window", U32, .value = 8192, .runs = ALL, .nothing = true},      /* but in gemma3 */
    {".attention.sliding_window_pattern", U32, .value = 2, .runs = ALL, .nothing = true}, /* but in gemma3 */
    {".attention.sliding_window_pattern", U32, .value = 1, .runs = "llama qwen2 qwen3", .nothing = true},
    {".attention.sliding_window_pattern", U32, .value = 0, .runs = ALL, .nothing = true},
    {".attention.sliding_window_pattern", LIST_BOOL, .value = 1, .list_from = 1, .runs = ALL,
     .nothing = true},
    {".attention.sliding_window_pattern", LIST_U32, .before = 1, .list_from = 2, .runs = ALL,
     .nothing = true},
    {".attention.of_a_later_version", F32, .value = 2, .runs = ALL, .nothing = true},
    {".attention.key_length", U32, .value = 20, .runs = "", .says = "multiple of 8"},
    {".attention.value_length", REMOVE, .runs = "llama qwen2", .nothing = true, .says = "head sizes"},
    {".attention.head_count_kv", LIST_U32, .value = 1, .before = 2, .list_from = 1, .runs = ""},

    /* Keys of everything else. */
    {".attn_logit_softcapping", F32, .value = 2, .runs = ""},
    {".final_logit_softcapping", F32, .value = 2, .runs = "gemma3"},
    {".final_logit_softcapping", F32, .value = 0, .runs = ALL, .nothing = true},
    {".logit_scale", F32, .value = 0.25, .runs = ""},
    {".logit_scale", F32, .value = 1, .runs = ALL, .nothing = true},
    {".residual_scale", F32, .value = 0.25, .runs = ""},
    {".embedding_scale", F32, .value = 0.25, .runs = ""},
    {".swiglu_clamp_shexp", LIST_F32, .value = 0.5, .before = 0.5, .runs = ""},
    {".feed_forward_length", LIST_U32, .value = 64, .before = 128, .list_from = 1, .runs = ""},
    {".use_parallel_residual", BOOL, .value = 1, .runs = ""},
    {".expert_count", U32, .value = 4, .runs = ""},
    {".expert_count", U32, .value = 0, .runs = ALL, .nothing = true},
    {".expert_used_count", U32, .value = 2, .runs = ""},
    {".expert_group_count", U32, .value = 2, .runs = ""},
    {".nextn_predict_layers", U32, .value = 1, .runs = ""},
    {".block_count", U32, .value = 1, .runs = "", .says = "blk.1."},
    {".embedding_length_out", U32, .value = 32, .runs = ALL, .nothing = true},
    {".pooling_type", U32, .value = 1, .runs = ALL, .nothing = true},
    {".context_length", U32, .value = 4096, .runs = ALL, .nothing = true},
    {".context_length", REMOVE, .runs = "", .says = "context_length = 0"},
    {"general.tensor_extra.name", TENSOR_EXTRA, .runs = ALL, .nothing = true},
    {"general.file_type", U32, .value = 7, .runs = ALL, .nothing = true},
};

static int64_t size_of(const struct test_gguf *f, enum shape shape)
{
    const int64_t embd = test_gguf_u32(f, ".embedding_length", 0),
                  head = test_gguf_u32(f, ".attention.head_count", 0),
                  kv = test_gguf_u32(f, ".attention.head_count_kv", 0),
                  d = test_gguf_u32(f, ".attention.key_length", (uint32_t)(embd / head)),
                  ff = test_gguf_u32(f, ".feed_forward_length", 0);
    const int64_t sizes[] = {
        [ONE] = 1,
        [EMBD] = embd,
        [FF] = ff,
        [QUERIES] = head * d,
        [KEYS] = kv * d,
        [HEAD] = d,
        [HALF] = d / 2,
        [HEADS] = head,
        [VOCAB] = test_gguf_tensor(f, "token_embd.weight")->ne[1],
    };
    return sizes[shape];
}

static void set_list(struct test_gguf *f, const char *key, const struct row *r)
{
    uint32_t u[64];
    int8_t b[64];
    float x[64];
    const size_t n = test_gguf_u32(f, ".block_count", 0);
    assert_cmp(n, <=, 64);
    for (size_t i = 0; i < n; i++) {
        const double v = (int)i < r->list_from ? r->before : r->value;
        u[i] = (uint32_t)v;
        b[i] = v != 0;
        x[i] = (float)v;
    }
    gguf_set_arr_data(f->g, key,
                      r->change == LIST_U32    ? GGUF_TYPE_UINT32
                      : r->change == LIST_BOOL ? GGUF_TYPE_BOOL
                                               : GGUF_TYPE_FLOAT32,
                      r->change == LIST_U32    ? (const void *)u
                      : r->change == LIST_BOOL ? (const void *)b
                                               : (const void *)x,
                      n);
}

static void set_key(struct test_gguf *f, const struct row *r, const char *arch)
{
    char key[128];
    snprintf(key, sizeof key, "%s%s", r->name[0] == '.' ? arch : "", r->name);
    switch (r->change) {
    case U32:
        gguf_set_val_u32(f->g, key, (uint32_t)r->value);
        break;
    case F32:
        gguf_set_val_f32(f->g, key, (float)r->value);
        break;
    case BOOL:
        gguf_set_val_bool(f->g, key, r->value != 0);
        break;
    case STRING:
        gguf_set_val_str(f->g, key, r->string);
        if (r->value != 0) { /* a scaling without its factor changes nothing */
            snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
            gguf_set_val_f32(f->g, key, (float)r->value);
        }
        break;
    case REMOVE:
        gguf_remove_key(f->g, key);
        break;
    case TENSOR_EXTRA:
        gguf_set_arr_str(f->g, key, (const char *[]){"blk.0.attn_q.weight"}, 1);
        gguf_set_arr_data(f->g, "general.tensor_extra.prec_a4", GGUF_TYPE_BOOL, (const int8_t[]){0}, 1);
        break;
    default:
        set_list(f, key, r);
    }
}

/* Matrices of the layers become NVFP4, each with a factor. Returns false where a row is no multiple of its blocks. */
static bool make_nvfp4(struct test_gguf *f, const struct row *r)
{
    for (int32_t i = 0, n = f->n_tensor; i < n; i++) {
        const struct ggml_tensor *t = f->tensor[i];
        char name[128];
        if (strncmp(t->name, "blk.", 4) != 0 || t->ne[1] == 1)
            continue;
        if (t->type != GGML_TYPE_F32 || t->ne[0] % ggml_blck_size(GGML_TYPE_NVFP4) != 0)
            return false;
        test_gguf_quantize(f, i, GGML_TYPE_NVFP4);
        snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(t->name) - strlen(".weight")), t->name);
        test_gguf_add(f, name, 1, 1, r->mean, 0.1f);
        snprintf(name, sizeof name, "%.*s.input_scale", (int)(strlen(t->name) - strlen(".weight")), t->name);
        test_gguf_add(f, name, 1, 1, r->mean, 0.1f);
    }
    return true;
}

/* Makes the change; false where the model has it already or cannot have it. */
static bool change(struct test_gguf *f, const struct row *r, const char *arch)
{
    const uint32_t n_layer = test_gguf_u32(f, ".block_count", 0);
    if (r->change == NVFP4)
        return make_nvfp4(f, r);
    if (r->change != LAYERS && r->change != ENDS) {
        set_key(f, r, arch);
        return true;
    }
    for (uint32_t il = 0; il < (r->change == LAYERS ? n_layer : 1); il++) {
        char name[128];
        if (r->change == LAYERS)
            snprintf(name, sizeof name, "blk.%u.%s", il, r->name);
        else
            snprintf(name, sizeof name, "%s", r->name);
        if (test_gguf_tensor(f, name))
            return false;
        test_gguf_add(f, name, size_of(f, r->ne0), size_of(f, r->ne1), r->mean, r->spread);
    }
    return true;
}

/* ---- Tests ---- */

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

struct model {
    char path[4096], arch[32], base[1024];
    const char *name;
};

/* What is wrong with how a copy went, or NULL. */
static const char *judge(const struct model *m, const struct row *r, int end, const char *says)
{
    const bool in_gemma3 = strcmp(m->arch, "gemma3") == 0;
    const bool nothing = r->nothing && !(in_gemma3 && strstr(r->name, "_swa")) &&
                         !(in_gemma3 && strstr(r->name, "sliding_window"));
    if (end == DIFFERENT)
        return "other logits than libllama's, and no refusal";
    if (end == REFUSED && has_word(r->runs, m->arch))
        return strstr(says, "has no backend") ? NULL : "refused";
    if (end == REFUSED && !strstr(says, r->says ? r->says : r->name[0] == '.' ? r->name + 1 : r->name))
        return "the refusal does not name what is refused";
    if (end == SAME && has_word(r->runs, m->arch) && nothing != (strcmp(says, m->base) == 0))
        return nothing ? "changes logits" : "changes no logit, so that nothing is tested";
    return NULL;
}

static bool run_row(const struct model *m, const struct row *r, const char *copy)
{
    struct test_gguf f;
    char says[1024];
    test_gguf_read(&f, m->path);
    const bool is_made = change(&f, r, m->arch);
    if (is_made)
        test_gguf_write(&f, copy);
    test_gguf_free(&f);
    if (!is_made)
        return true;
    const char *wrong = judge(m, r, run_apart(copy, says, sizeof says), says);
    if (wrong)
        print_error("%s, %s%s%s (%g, row %d): %s: %s\n", m->name, r->name, r->string ? " " : "",
                    r->string ? r->string : "", r->value, (int)(r - rows), wrong, says);
    return !wrong;
}

static void open_model(struct model *m, const char *name)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_model *opened = test_model_open(name);
    assert_ok(wnw_model_get_info(opened, &info));
    snprintf(m->arch, sizeof m->arch, "%s", info.arch);
    wnw_model_free(opened);
    m->name = name;
    test_model_path(m->path, sizeof m->path, name);
    const int end = run_apart(m->path, m->base, sizeof m->base);
    if (end != SAME)
        fail_msg("%s, unchanged: %s", name, m->base);
}

static void each_tensor_and_key(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX], copy[] = "/tmp/winnow-variant-XXXXXX";
    const int n = test_tiny_models(names, 32);
    int bad = 0, n_run = 0;
    test_file_new(copy);
    for (int i = 0; i < n; i++) {
        struct model m;
        open_model(&m, names[i]);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++, n_run++)
            bad += !run_row(&m, &rows[k], copy);
    }
    remove(copy);
    if (bad)
        fail_msg("%d of %d copies are neither as in libllama nor refused", bad, n_run);
}

/* Whether the graphs of a file are libllama's, or the file is refused because this build has no way to run them. */
static bool is_libllamas(const char *path)
{
    wnw_model *m = NULL;
    wnw_session *s = NULL;
    wnw_session_params params = wnw_session_default_params();
    params.attn = WNW_ATTN_GGML;
    if (wnw_model_open(&m, path, NULL) != WNW_OK) {
        assert_non_null(strstr(wnw_last_error(), "has no backend"));
        return true;
    }
    const int rc = wnw_session_new(&s, m, &params);
    wnw_session_free(s);
    wnw_model_free(m);
    assert_true(rc == WNW_OK || rc == WNW_E_UNSUPPORTED);
    return rc == WNW_E_UNSUPPORTED;
}

/* What such a key changes depends on libllama's version, so that its graphs are the only ones that fit. */
static void keys_that_versions_read_differently(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3", "gemma3"};
    static const struct row later = {".attention.of_a_later_version", F32, .value = 2},
                            list = {".attention.sliding_window_pattern", LIST_U32, .value = 1,
                                    .list_from = 1},
                            period = {".attention.sliding_window_pattern", U32, .value = 2};
    static const struct row *const changes[] = {NULL, &period, &list, &later};
    char path[4096], name[TEST_NAME_MAX], copy[] = "/tmp/winnow-variant-XXXXXX";
    test_file_new(copy);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "tiny/tiny-%s.gguf", names[i]);
        test_model_path(path, sizeof path, name);
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
            struct test_gguf f;
            test_gguf_read(&f, path);
            if (changes[k])
                set_key(&f, changes[k], names[i]);
            test_gguf_write(&f, copy);
            test_gguf_free(&f);
            const bool want =
                changes[k] == &later || (changes[k] == &list && strcmp(names[i], "gemma3") == 0);
            if (is_libllamas(copy) != want)
                fail_msg("%s with change %d: winnow's graphs are%s to compute it", names[i], (int)k,
                         want ? " not" : "");
        }
    }
    remove(copy);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_and_key),
        cmocka_unit_test(keys_that_versions_read_differently),
    };
    if (argc == 2)
        return run_file(argv[1]);
    const int failed = cmocka_run_group_tests_name("parts of models that libllama knows", tests, NULL, NULL);
    if (is_child) /* an assertion about its file has ended the test in it */
        _exit(ASSERTED);
    return failed;
}
