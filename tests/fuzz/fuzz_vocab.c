/* SPDX-License-Identifier: MIT */
/*
 * The input is a list of edits of a small model's metadata, vocabulary and tensors: byte 0 chooses the model,
 * then each edit is an operation and its values. The result is always a well-formed GGUF file, so that what
 * is tried is what the file says, not how it is written. The text behind operation 0 is the prompt.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml.h>
#include <gguf.h>

enum { MAX_TOKENS = 512, MAX_MERGES = 64, MAX_EDITS = 64 };

/* The lists of a vocabulary; text is kept in the tables themselves, so that a copy is one assignment. */
struct vocab {
    char token[MAX_TOKENS][256], merge[MAX_MERGES][256];
    int32_t type[MAX_TOKENS];
    float score[MAX_TOKENS];
    size_t n_tokens, n_types, n_scores, n_merges;
};

/* A model in memory. */
struct base {
    struct gguf_context *gguf;
    struct ggml_context *tensors;
    const char *arch;
    struct vocab vocab;
};

/* Tensors are added at the end, so that their edits are remembered. */
struct tensor_edit {
    int64_t index;
    uint8_t what, value;
};

/* The model as edited so far. */
struct edited {
    const struct base *base;
    struct gguf_context *gguf;
    struct vocab *vocab;
    struct tensor_edit tensor[MAX_EDITS];
    size_t n_tensor;
    char prompt[256];
};

/* What edits write to: all that the library or libllama reads of the file. */
static const char *const keys[] = {
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.ggml.token_type_count",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.chat_template",
    "general.architecture",
    "general.name",
    "*.vocab_size",
    "*.block_count",
    "*.embedding_length",
    "*.feed_forward_length",
    "*.context_length",
    "*.attention.head_count",
    "*.attention.head_count_kv",
    "*.attention.key_length",
    "*.attention.value_length",
    "*.attention.layer_norm_rms_epsilon",
    "*.attention.sliding_window",
    "*.rope.dimension_count",
    "*.rope.freq_base",
    "*.rope.scaling.type",
    "*.rope.scaling.factor",
    "*.rope.scale_linear",
    "*.expert_count",
};

enum operation {
    OP_PROMPT, /* text: the prompt; ends the list */
    OP_TOKEN,  /* index, text */
    OP_SAME,   /* index, index: the second gets the first's text */
    OP_TYPE,   /* index, type */
    OP_SCORE,  /* index, float */
    OP_MERGE,  /* index, text */
    OP_COUNT,  /* which list, how many */
    OP_TEXT,   /* key, text */
    OP_U32,    /* key, value */
    OP_I32,
    OP_F32,
    OP_BOOL,
    OP_U64,
    OP_LIST,   /* key, type and length of a list of numbers */
    OP_REMOVE, /* key */
    OP_TENSOR, /* index, what, value */
    N_OPERATIONS
};

/* ---- The models ---- */

static size_t find_list(const struct gguf_context *g, const char *key, size_t cap, int64_t *id)
{
    *id = gguf_find_key(g, key);
    const size_t n = *id < 0 ? 0 : gguf_get_arr_n(g, *id);
    fuzz_require(n <= cap, "the target's model has too large a vocabulary");
    return n;
}

static void read_vocab(const struct gguf_context *g, struct vocab *v)
{
    int64_t id;
    v->n_tokens = find_list(g, "tokenizer.ggml.tokens", MAX_TOKENS, &id);
    for (size_t i = 0; i < v->n_tokens; i++)
        snprintf(v->token[i], sizeof v->token[i], "%s", gguf_get_arr_str(g, id, i));
    v->n_merges = find_list(g, "tokenizer.ggml.merges", MAX_MERGES, &id);
    for (size_t i = 0; i < v->n_merges; i++)
        snprintf(v->merge[i], sizeof v->merge[i], "%s", gguf_get_arr_str(g, id, i));
    v->n_types = find_list(g, "tokenizer.ggml.token_type", MAX_TOKENS, &id);
    if (v->n_types > 0)
        memcpy(v->type, gguf_get_arr_data(g, id), v->n_types * sizeof *v->type);
    v->n_scores = find_list(g, "tokenizer.ggml.scores", MAX_TOKENS, &id);
    if (v->n_scores > 0)
        memcpy(v->score, gguf_get_arr_data(g, id), v->n_scores * sizeof *v->score);
}

static const struct base *load(uint8_t which)
{
    static const char *const seeds[] = {"gguf/llama", "gguf/gemma3"};
    static struct base models[2];
    struct base *b = &models[which % 2];
    if (!b->gguf) {
        char path[4096];
        fuzz_seed_path(path, seeds[which % 2]);
        b->gguf = gguf_init_from_file(path, (struct gguf_init_params){.ctx = &b->tensors});
        fuzz_require(b->gguf && b->tensors, "the target's model cannot be read");
        b->arch = gguf_get_val_str(b->gguf, gguf_find_key(b->gguf, "general.architecture"));
        read_vocab(b->gguf, &b->vocab);
    }
    return b;
}

/* ---- Edits of the vocabulary ---- */

static size_t read_index(struct fuzz_input *in, size_t n)
{
    const size_t low = fuzz_u8(in);
    return (low | (size_t)fuzz_u8(in) << 8) % n;
}

static void set_count(struct vocab *v, struct fuzz_input *in)
{
    const uint8_t which = fuzz_u8(in) % 4;
    if (which == 0) {
        const size_t n = read_index(in, MAX_TOKENS + 1);
        for (; v->n_tokens < n; v->n_tokens++)
            snprintf(v->token[v->n_tokens], sizeof v->token[0], "more %zu", v->n_tokens);
        v->n_tokens = n;
    } else if (which == 1) {
        v->n_types = read_index(in, MAX_TOKENS + 1);
    } else if (which == 2) {
        v->n_scores = read_index(in, MAX_TOKENS + 1);
    } else {
        v->n_merges = read_index(in, MAX_MERGES + 1);
    }
}

/* Whether the operation was one of these. */
static bool edit_vocab(struct vocab *v, enum operation op, struct fuzz_input *in)
{
    switch (op) {
    case OP_TOKEN: {
        char *at = v->token[read_index(in, MAX_TOKENS)];
        fuzz_text(in, at);
        return true;
    }
    case OP_SAME: {
        const char *from = v->token[read_index(in, MAX_TOKENS)];
        char *to = v->token[read_index(in, MAX_TOKENS)];
        memmove(to, from, sizeof v->token[0]);
        return true;
    }
    case OP_TYPE: {
        int32_t *at = &v->type[read_index(in, MAX_TOKENS)];
        *at = (int8_t)fuzz_u8(in);
        return true;
    }
    case OP_SCORE: {
        float *at = &v->score[read_index(in, MAX_TOKENS)];
        const uint32_t bits = fuzz_u32(in);
        memcpy(at, &bits, sizeof bits);
        return true;
    }
    case OP_MERGE:
        fuzz_text(in, v->merge[fuzz_u8(in) % MAX_MERGES]);
        return true;
    case OP_COUNT:
        set_count(v, in);
        return true;
    default:
        return false;
    }
}

/* ---- Edits of keys ---- */

static void set_list(struct gguf_context *g, const char *key, struct fuzz_input *in)
{
    static const enum gguf_type types[] = {GGUF_TYPE_UINT8, GGUF_TYPE_INT32, GGUF_TYPE_FLOAT32,
                                           GGUF_TYPE_UINT64, GGUF_TYPE_BOOL};
    static const uint64_t zeros[64];
    const enum gguf_type type = types[fuzz_u8(in) % (sizeof types / sizeof *types)];
    gguf_set_arr_data(g, key, type, zeros, fuzz_u8(in) % (sizeof zeros / sizeof *zeros));
}

static void edit_key(struct edited *e, enum operation op, struct fuzz_input *in)
{
    struct gguf_context *g = e->gguf;
    char text[256], key[128];
    float x;
    /* "*" stands for the architecture of the unedited model. */
    const char *name = keys[fuzz_u8(in) % (sizeof keys / sizeof *keys)];
    snprintf(key, sizeof key, "%s%s", *name == '*' ? e->base->arch : "", name + (*name == '*'));
    if (op == OP_TEXT) {
        fuzz_text(in, text);
        gguf_set_val_str(g, key, text);
    } else if (op == OP_U32) {
        gguf_set_val_u32(g, key, fuzz_u32(in));
    } else if (op == OP_I32) {
        gguf_set_val_i32(g, key, (int32_t)fuzz_u32(in));
    } else if (op == OP_F32) {
        const uint32_t bits = fuzz_u32(in);
        memcpy(&x, &bits, sizeof x);
        gguf_set_val_f32(g, key, x);
    } else if (op == OP_BOOL) {
        gguf_set_val_bool(g, key, fuzz_u8(in) & 1);
    } else if (op == OP_U64) {
        gguf_set_val_u64(g, key, (uint64_t)fuzz_u32(in) << 16);
    } else if (op == OP_LIST) {
        set_list(g, key, in);
    } else {
        gguf_remove_key(g, key);
    }
}

static void run_edits(struct edited *e, struct fuzz_input in)
{
    e->n_tensor = 0;
    for (int i = 0; i < MAX_EDITS && in.n > 0; i++) {
        const enum operation op = fuzz_u8(&in) % N_OPERATIONS;
        if (op == OP_PROMPT) {
            fuzz_text(&in, e->prompt);
            return;
        }
        if (op == OP_TENSOR) {
            struct tensor_edit *t = &e->tensor[e->n_tensor++];
            t->index = fuzz_u8(&in) % gguf_get_n_tensors(e->base->gguf);
            t->what = fuzz_u8(&in);
            t->value = fuzz_u8(&in);
        } else if (!edit_vocab(e->vocab, op, &in)) {
            edit_key(e, op, &in);
        }
    }
}

/* ---- The file ---- */

static void write_vocab(struct gguf_context *g, const struct vocab *v)
{
    const char *list[MAX_TOKENS];
    for (size_t i = 0; i < v->n_tokens; i++)
        list[i] = v->token[i];
    gguf_set_arr_str(g, "tokenizer.ggml.tokens", list, v->n_tokens);
    for (size_t i = 0; i < v->n_merges; i++)
        list[i] = v->merge[i];
    if (v->n_merges > 0)
        gguf_set_arr_str(g, "tokenizer.ggml.merges", list, v->n_merges);
    if (v->n_types > 0)
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v->type, v->n_types);
    if (v->n_scores > 0)
        gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, v->score, v->n_scores);
}

/* Makes the tensor what the edit wants; false = leave it out. It keeps its data, so that it must not grow. */
static bool edit_tensor(struct ggml_tensor *t, const struct tensor_edit *e)
{
    if (e->what % 4 == 0)
        return false;
    if (e->what % 4 == 1)
        t->ne[1] = 1 + e->value % t->ne[1];
    else if (e->what % 4 == 2)
        t->ne[0] = 1 + e->value % t->ne[0];
    else if (t->type == GGML_TYPE_F32)
        t->type = e->value % 2 ? GGML_TYPE_F16 : GGML_TYPE_BF16;
    t->nb[0] = ggml_type_size(t->type);
    t->nb[1] = ggml_row_size(t->type, t->ne[0]);
    t->nb[2] = t->nb[1] * (size_t)t->ne[1];
    t->nb[3] = t->nb[2];
    return true;
}

static void add_tensors(struct edited *e)
{
    const struct base *b = e->base;
    for (int64_t i = 0; i < gguf_get_n_tensors(b->gguf); i++) {
        struct ggml_tensor t = *ggml_get_tensor(b->tensors, gguf_get_tensor_name(b->gguf, i));
        bool kept = true;
        for (size_t k = 0; k < e->n_tensor && kept; k++)
            kept = e->tensor[k].index != i || edit_tensor(&t, &e->tensor[k]);
        if (kept)
            gguf_add_tensor(e->gguf, &t);
    }
}

static struct gguf_context *copy_keys(const struct base *b)
{
    struct gguf_context *g = gguf_init_empty();
    fuzz_require(g != NULL, "no memory for the target's model");
    gguf_set_kv(g, b->gguf);
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vocab vocab;
    struct fuzz_input in = {data, size};
    struct edited e = {
        .base = load(fuzz_u8(&in)), .vocab = &vocab, .prompt = "The harbor <|im_end|> is\nred."};
    /* Twice: the vocabulary is written in between, so that edits of keys can replace its lists. */
    vocab = e.base->vocab;
    e.gguf = copy_keys(e.base);
    run_edits(&e, in);
    gguf_free(e.gguf);
    e.gguf = copy_keys(e.base);
    write_vocab(e.gguf, &vocab);
    run_edits(&e, in);
    add_tensors(&e);
    const char *path = fuzz_file(NULL, 0);
    fuzz_require(gguf_write_to_file(e.gguf, path, false), "the target cannot write its model");
    gguf_free(e.gguf);
    fuzz_open_model(path, e.prompt);
    return 0;
}
