/* SPDX-License-Identifier: MIT */
/*
 * Checks what libllama assumes about a vocabulary. Some damage makes libllama end the process, so the keys
 * are checked before it reads them.
 */
#include "text/text.h"

#include "base/random.h"
#include "model/arch/arch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key that holds an array of n elements; n = -1 where the key is absent. */
struct array {
    int64_t id;
    int64_t n;
    enum gguf_type type;
};

static int find_array(struct array *out, const struct gguf_context *g, const char *key)
{
    *out = (struct array){.id = gguf_find_key(g, key), .n = -1};
    if (out->id < 0)
        return WNW_OK;
    if (gguf_get_kv_type(g, out->id) != GGUF_TYPE_ARRAY)
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s is not a list", key);
    out->type = gguf_get_arr_type(g, out->id);
    out->n = (int64_t)gguf_get_arr_n(g, out->id);
    return WNW_OK;
}

/* ---- The tokens themselves ---- */

/* A hash table of token texts, with open addressing. */
struct texts {
    const char **slot; /* [mask + 1] */
    size_t mask;
};

static size_t place_of(const struct texts *t, const char *text)
{
    const uint64_t h = wnw__hash_of(text, strlen(text));
    size_t i = (size_t)(h ^ h >> 32) & t->mask;
    while (t->slot[i] && strcmp(t->slot[i], text) != 0)
        i = (i + 1) & t->mask;
    return i;
}

static bool contains(const struct texts *t, const char *text)
{
    return t->slot[place_of(t, text)] != NULL;
}

/* Collects the texts, which must differ: libllama gives each text one id and counts them. It names an empty
 * text by its number. */
static int collect(struct texts *t, const struct gguf_context *g, const struct array *tokens)
{
    size_t cap = 16;
    while (cap < 2 * (size_t)tokens->n)
        cap *= 2;
    t->slot = calloc(cap, sizeof *t->slot);
    t->mask = cap - 1;
    if (!t->slot)
        return wnw__fail(WNW_E_NOMEM, "no memory for a vocabulary of %lld tokens", (long long)tokens->n);
    for (int64_t i = 0; i < tokens->n; i++) {
        const char *text = gguf_get_arr_str(g, tokens->id, (size_t)i);
        long long number;
        int end = 0;
        if (*text == '\0')
            continue;
        const size_t at = place_of(t, text);
        if (t->slot[at])
            return wnw__fail(WNW_E_FORMAT,
                             "the GGUF's vocabulary is damaged: token %lld, '%.40s', is there twice",
                             (long long)i, text);
        if (sscanf(text, "[EMPTY_%lld]%n", &number, &end) == 1 && text[end] == '\0' && end > 0 &&
            number >= 0 && number < tokens->n && *gguf_get_arr_str(g, tokens->id, (size_t)number) == '\0')
            return wnw__fail(WNW_E_FORMAT, "the GGUF's vocabulary is damaged: '%.40s' is an empty token",
                             text);
        t->slot[at] = text;
    }
    return WNW_OK;
}

/* Checks for byte tokens, to which SentencePiece falls back for text that no token spells. */
static int check_bytes(const struct texts *t)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        const char alone[2] = {(char)byte, '\0'};
        snprintf(name, sizeof name, "<0x%02X>", byte);
        if (!contains(t, name) && (byte == 0 || !contains(t, alone)))
            return wnw__fail(WNW_E_FORMAT, "the GGUF's vocabulary is damaged: no token for byte %s", name);
    }
    return WNW_OK;
}

/* ---- Arrays next to the tokens ---- */

static int check_length(const char *key, const struct array *a, int64_t n_tokens)
{
    if (a->n >= 0 && a->n < n_tokens)
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s has %lld entries for %lld tokens", key, (long long)a->n,
                         (long long)n_tokens);
    return WNW_OK;
}

static int check_scores(const struct gguf_context *g, int64_t n_tokens)
{
    static const char key[] = "tokenizer.ggml.scores";
    struct array a;
    WNW_TRY(find_array(&a, g, key));
    WNW_TRY(check_length(key, &a, n_tokens));
    if (a.n >= 0 && a.type != GGUF_TYPE_FLOAT32 && a.type != GGUF_TYPE_INT32)
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s are not numbers of 32 bits", key);
    if (a.n < 0 || a.type != GGUF_TYPE_FLOAT32)
        return WNW_OK;
    const float *scores = gguf_get_arr_data(g, a.id);
    for (int64_t i = 0; i < n_tokens; i++)
        if (isnan(scores[i])) /* libllama sorts by scores, and NaN has no order */
            return wnw__fail(WNW_E_FORMAT, "the GGUF's %s: number %lld is not a number", key, (long long)i);
    return WNW_OK;
}

static int check_types(const struct gguf_context *g, const struct array *tokens)
{
    static const char key[] = "tokenizer.ggml.token_type";
    enum { BYTE = 6 };
    struct array a;
    WNW_TRY(find_array(&a, g, key));
    WNW_TRY(check_length(key, &a, tokens->n));
    if (a.n < 0)
        return WNW_OK;
    if (a.type != GGUF_TYPE_INT32)
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s are not numbers of 32 bits", key);
    const int32_t *types = gguf_get_arr_data(g, a.id);
    for (int64_t i = 0; i < tokens->n; i++) {
        const char *text = gguf_get_arr_str(g, tokens->id, (size_t)i);
        if (types[i] == BYTE && strlen(text) != strlen("<0x00>"))
            return wnw__fail(WNW_E_FORMAT, "the GGUF's vocabulary is damaged: '%.40s' is no byte", text);
    }
    return WNW_OK;
}

static int check_merges(const struct gguf_context *g)
{
    static const char key[] = "tokenizer.ggml.merges";
    struct array a;
    WNW_TRY(find_array(&a, g, key));
    if (a.n < 0 || a.type != GGUF_TYPE_STRING)
        return wnw__fail(WNW_E_FORMAT, "the GGUF has no list of texts %s", key);
    return WNW_OK;
}

/* Checks ids that name a token's role, because libllama replaces an id out of range by a default of its
 * own. */
static int check_ids(const struct gguf_context *g, int64_t n_tokens)
{
    static const char *const roles[] = {"bos", "eos", "eot", "eom", "unknown", "padding"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", roles[i]);
        const int64_t id = gguf_find_key(g, key);
        if (id < 0)
            continue;
        if (gguf_get_kv_type(g, id) != GGUF_TYPE_UINT32)
            return wnw__fail(WNW_E_FORMAT, "the GGUF's %s is not a number of 32 bits", key);
        if (gguf_get_val_u32(g, id) >= n_tokens && gguf_get_val_u32(g, id) != UINT32_MAX) /* -1: none */
            return wnw__fail(WNW_E_FORMAT, "the GGUF's %s is %u, the vocabulary has %lld tokens", key,
                             gguf_get_val_u32(g, id), (long long)n_tokens);
    }
    return WNW_OK;
}

/* libllama ends the process on a blank between words, which this pre-tokenizer leaves in texts where the
 * tokenizer is not the one of that name. */
static int check_pre(const struct gguf_context *g)
{
    const char *pre = wnw__key_str(g, "tokenizer.ggml.pre");
    if (pre && strcmp(pre, "whitespace") == 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "the pre-tokenizer 'whitespace' is not supported");
    return WNW_OK;
}

static int check_none(const struct gguf_context *g, int32_t n_rows)
{
    int32_t size;
    WNW_TRY(wnw__key_i32(g, ".vocab_size", 0, &size));
    if (size < 0 || size > n_rows) /* libllama makes up that many tokens */
        return wnw__fail(WNW_E_FORMAT, "the GGUF says vocab_size = %d and has %d rows of embeddings",
                         (int)size, (int)n_rows);
    return WNW_OK;
}

/* Finds the name of the tokenizer; NULL: the file says that it has no vocabulary, and that was checked. */
static int find_tokenizer(const char **model, const struct gguf_context *g, int32_t n_rows)
{
    *model = wnw__key_str(g, "tokenizer.ggml.model");
    if (!*model)
        return wnw__fail(WNW_E_FORMAT, "the GGUF lacks the text tokenizer.ggml.model");
    if (strcmp(*model, "none") != 0 && strcmp(*model, "no_vocab") != 0)
        return WNW_OK;
    *model = NULL;
    return check_none(g, n_rows);
}

static int find_tokens(struct array *tokens, const struct gguf_context *g)
{
    WNW_TRY(find_array(tokens, g, "tokenizer.ggml.tokens"));
    if (tokens->n < 1 || tokens->type != GGUF_TYPE_STRING)
        return wnw__fail(WNW_E_FORMAT, "the GGUF has no list of texts tokenizer.ggml.tokens");
    return WNW_OK;
}

int wnw__vocab_check(const struct gguf_context *g, int32_t n_rows)
{
    struct array tokens;
    struct texts texts = {0};
    const char *model;
    WNW_TRY(find_tokenizer(&model, g, n_rows));
    if (!model)
        return WNW_OK;
    const bool spm = strcmp(model, "llama") == 0;
    if (!spm && strcmp(model, "gpt2") != 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "tokenizer '%.40s' is not supported (gpt2 and llama are)", model);
    WNW_TRY(find_tokens(&tokens, g));
    if (tokens.n > n_rows)
        return wnw__fail(WNW_E_FORMAT, "%lld tokens in the vocabulary, %d rows of embeddings",
                         (long long)tokens.n, (int)n_rows);
    WNW_TRY(check_scores(g, tokens.n));
    WNW_TRY(check_types(g, &tokens));
    WNW_TRY(check_ids(g, tokens.n));
    if (!spm)
        WNW_TRY(check_merges(g));
    WNW_TRY(check_pre(g));
    int rc = collect(&texts, g, &tokens);
    if (rc == WNW_OK && spm)
        rc = check_bytes(&texts);
    free(texts.slot);
    return rc;
}

/* ---- Vocabularies of other tokenizers ---- */

/* Tokens that libllama puts around a text, by the tokenizer: their ids where the file gives none, -1 = no token, and whether they are put
 * there unless the file says otherwise. */
static const struct around {
    const char *model;
    struct role {
        int64_t id;
        bool put;
    } bos, eos, sep;
} around[] = {
    {"llama", {1, true}, {2, false}, {-1, false}},   {"bert", {101, true}, {-1, false}, {102, true}},
    {"gpt2", {11, false}, {11, false}, {-1, false}}, {"hybriddna", {11, false}, {11, false}, {-1, false}},
    {"t5", {-1, false}, {1, true}, {-1, false}},     {"gemma4", {-1, true}, {-1, false}, {-1, false}},
};

/* Whether the file, or else the tokenizer, has such a token put. A separator is put in any case. */
static bool is_put(const struct gguf_context *g, const char *role, bool by_default)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", role);
    const int64_t id = gguf_find_key(g, key);
    return id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_BOOL
               ? gguf_get_val_bool(g, id) || strcmp(role, "sep") == 0
               : by_default;
}

/* libllama asserts that tokens which it puts around a text are there. `name`: as the key of its id has it. */
static int check_role(const struct gguf_context *g, const char *role, const char *name, const struct role *r,
                      int64_t n_tokens)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    const int64_t at = gguf_find_key(g, key);
    const bool given =
        at >= 0 && gguf_get_kv_type(g, at) == GGUF_TYPE_UINT32 && gguf_get_val_u32(g, at) < n_tokens;
    if (given || (r->id >= 0 && r->id < n_tokens) || !is_put(g, role, r->put))
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT,
                     "the GGUF says that texts get a token %s, and its %s names none of its %lld tokens",
                     role, key, (long long)n_tokens);
}

static int check_around(const struct gguf_context *g, const char *model, int64_t n_tokens)
{
    for (const struct around *a = around; a < around + sizeof around / sizeof *around; a++) {
        if (strcmp(model, a->model) != 0)
            continue;
        WNW_TRY(check_role(g, "bos", "bos", &a->bos, n_tokens));
        WNW_TRY(check_role(g, "eos", "eos", &a->eos, n_tokens));
        if (a->sep.put)
            WNW_TRY(check_role(g, "sep", "seperator", &a->sep, n_tokens));
    }
    return WNW_OK;
}

int wnw__vocab_admit(const struct gguf_context *g, int32_t n_rows)
{
    struct array tokens;
    struct texts texts = {0};
    const char *model;
    WNW_TRY(find_tokenizer(&model, g, n_rows));
    if (!model)
        return WNW_OK;
    WNW_TRY(find_tokens(&tokens, g));
    WNW_TRY(check_scores(g, tokens.n));
    WNW_TRY(check_types(g, &tokens));
    WNW_TRY(check_around(g, model, tokens.n));
    if (strcmp(model, "gpt2") == 0)
        WNW_TRY(check_pre(g));
    int rc = collect(&texts, g, &tokens);
    if (rc == WNW_OK && strcmp(model, "rwkv") == 0 && !contains(&texts, "\\n"))
        rc = wnw__fail(WNW_E_FORMAT, "the GGUF's vocabulary is damaged: no token for the end of a line");
    free(texts.slot);
    return rc;
}

int wnw__vocab_prefix(bool *out, const struct gguf_context *g)
{
    static const char key[] = "tokenizer.ggml.add_space_prefix";
    const char *model = wnw__key_str(g, "tokenizer.ggml.model");
    const int64_t id = gguf_find_key(g, key);
    *out = model && strcmp(model, "llama") == 0; /* byte pairs ignore the key */
    if (id < 0)
        return WNW_OK;
    if (gguf_get_kv_type(g, id) != GGUF_TYPE_BOOL)
        return wnw__fail(WNW_E_FORMAT, "the GGUF's %s is neither true nor false", key);
    *out = *out && gguf_get_val_bool(g, id);
    return WNW_OK;
}
