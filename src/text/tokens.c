/* SPDX-License-Identifier: MIT */
/* Turns text into tokens and back. */
#include "model/model.h"
#include "text/llama_calls.h"
#include "text/text.h"
#include "text/tokenizer.h"
#include "text/tokens_marked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libllama ends the process where a token that it adds to every text is missing. */
static int check_added(const struct llama_vocab *vocab)
{
    const bool bos = llama_vocab_get_add_bos(vocab), eos = llama_vocab_get_add_eos(vocab);
    if ((bos && llama_vocab_bos(vocab) < 0) || (eos && llama_vocab_eos(vocab) < 0))
        return wnw__fail(WNW_E_FORMAT, "the GGUF's vocabulary adds %s to every text and has none",
                         bos && llama_vocab_bos(vocab) < 0 ? "a BOS" : "an EOS");
    return WNW_OK;
}

int wnw__vocab_open(struct wnw_model *m, const char *path)
{
    bool prefix;
    WNW_TRY(wnw__vocab_check(m->gguf, m->hp.n_vocab));
    WNW_TRY(wnw__vocab_prefix(&prefix, m->gguf));
    if (!m->vocab)
        WNW_TRY(wnw__llama_load_vocab(&m->vocab, path));
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
        return WNW_OK;
    WNW_TRY(check_added(vocab));
    return wnw__tokenizer_new(&m->tokenizer, vocab, wnw__key_str(m->gguf, "tokenizer.ggml.pre"), prefix);
}

void wnw__vocab_free(struct wnw_model *m)
{
    wnw__tokenizer_free(m->tokenizer);
    m->tokenizer = NULL;
    if (m->vocab)
        llama_model_free(m->vocab);
    m->vocab = NULL;
}

int32_t wnw__vocab_size(const struct wnw_model *m)
{
    return llama_vocab_n_tokens(llama_model_get_vocab(m->vocab));
}

int wnw_tokenize(const wnw_model *m, const char *text, size_t len, bool add_special, bool parse_special,
                 int32_t **tokens, int32_t *n_tokens)
{
    WNW_REQUIRE(tokens);
    WNW_REQUIRE(n_tokens);
    *tokens = NULL;
    *n_tokens = 0;
    WNW_REQUIRE(m);
    WNW_REQUIRE(text || len == 0);
    const wnw_bytes all = {0, len};
    const struct wnw__marked in = {.text = text ? text : "",
                                   .n = len,
                                   .plain = &all,
                                   .n_plain = parse_special ? 0 : 1,
                                   .add_special = add_special};
    return wnw__tokenize_marked(m, &in, tokens, n_tokens, NULL);
}

/* A text that grows. */
struct pieces {
    char *s;
    size_t n, cap;
};

/* Adds the token's text; a terminating NUL always fits. */
static int add_piece(struct pieces *p, const struct llama_vocab *vocab, int32_t token, bool special)
{
    int32_t got = -16; /* minus the bytes of room that the first attempt makes */
    do {
        if (got < 0 && p->cap - p->n < (size_t)-got + 1) {
            const size_t cap = p->cap * 2 + (size_t)-got + 1;
            char *more = realloc(p->s, cap);
            if (!more)
                return wnw__fail(WNW_E_NOMEM, "no memory for a text of %zu bytes", cap);
            p->s = more;
            p->cap = cap;
        }
        const size_t room = p->cap - p->n - 1;
        WNW_TRY(wnw__llama_piece(&got, vocab, token, p->s + p->n,
                                 room > INT32_MAX ? INT32_MAX : (int32_t)room, special));
    } while (got < 0);
    p->n += (size_t)got;
    p->s[p->n] = '\0';
    return WNW_OK;
}

/* Which texts of tokens are wanted. */
struct wanted {
    bool control;    /* those of control tokens, too */
    bool as_written; /* as the text was before a blank was put before it */
    size_t *at;      /* [n_tokens + 1] where each token begins, and the end; NULL: not wanted */
};

/* Takes back the blank that the vocabulary has put before a text, and what follows a NUL, which no text has. */
static void as_written(struct pieces *p, size_t from, bool blank)
{
    p->n = from + strlen(p->s + from);
    if (!blank || p->s[from] != ' ')
        return;
    memmove(p->s + from, p->s + from + 1, p->n - from);
    p->n--;
}

static int pieces_of(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, const struct wanted *want,
                     char **text)
{
    WNW_REQUIRE(text);
    *text = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(tokens || n_tokens < 1);
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    /* Without a vocabulary no token has a text. */
    const int32_t n_vocab =
        llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE ? 0 : llama_vocab_n_tokens(vocab);
    const bool prefix = want->as_written && m->tokenizer && m->tokenizer->prefix;
    struct pieces p = {.cap = 64 + (size_t)(n_tokens > 0 ? n_tokens : 0) * 8};
    p.s = malloc(p.cap);
    if (!p.s)
        return wnw__fail(WNW_E_NOMEM, "no memory for the text of %d tokens", (int)n_tokens);
    *p.s = '\0';
    int rc = WNW_OK;
    for (int32_t i = 0; rc == WNW_OK && i < n_tokens; i++) {
        const size_t from = p.n;
        if (want->at)
            want->at[i] = from;
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            continue;
        rc = add_piece(&p, vocab, tokens[i], want->control);
        if (rc == WNW_OK && want->as_written)
            as_written(&p, from, prefix && (i == 0 || wnw__is_special(m->tokenizer, tokens[i - 1])));
    }
    if (rc != WNW_OK) {
        free(p.s);
        return rc;
    }
    if (want->at)
        want->at[n_tokens > 0 ? n_tokens : 0] = p.n;
    *text = p.s;
    return WNW_OK;
}

int wnw_detokenize(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text)
{
    return pieces_of(m, tokens, n_tokens, &(struct wanted){.control = false}, text);
}

int wnw__detokenize_all(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text)
{
    return pieces_of(m, tokens, n_tokens, &(struct wanted){.control = true}, text);
}

int wnw_token_piece(const wnw_model *m, int32_t token, char **text)
{
    return pieces_of(m, &token, 1, &(struct wanted){.control = true}, text);
}

int wnw_text_of(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, size_t *at, char **text)
{
    return pieces_of(m, tokens, n_tokens, &(struct wanted){.control = true, .as_written = true, .at = at},
                     text);
}

bool wnw_token_is_eog(const wnw_model *m, int32_t token)
{
    if (!m)
        return false;
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    return token >= 0 && token < llama_vocab_n_tokens(vocab) && llama_vocab_is_eog(vocab, token);
}
