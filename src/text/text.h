/* SPDX-License-Identifier: MIT */
/* The model's vocabulary, the tokens of a conversation's turn, and the text of generated ones. */
#ifndef WNW_TEXT_H
#define WNW_TEXT_H

#include "model/model.h"
#include "text/prompt.h"

struct wnw__layout; /* text/layout.h */

/* ---- The model's vocabulary and tokenizer, which libllama runs (tokens.c, vocab.c) ---- */

/* Checks the vocabulary and has libllama read it, unless m->vocab has been opened; m->gguf and m->hp are set before. */
int wnw__vocab_open(struct wnw_model *m, const char *path);
void wnw__vocab_free(struct wnw_model *m);
int32_t wnw__vocab_size(const struct wnw_model *m);
/* wnw_detokenize with the texts of control tokens too. */
int wnw__detokenize_all(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text);

/* Checks that libllama can read the vocabulary of a file with n_rows embeddings: types and lengths of the
 * keys tokenizer.ggml.*, ids in range, no token twice, all byte tokens where the tokenizer falls back to
 * them. Tokenizers that no supported architecture uses are refused. Errors: E_FORMAT, E_UNSUPPORTED,
 * E_NOMEM. */
int wnw__vocab_check(const struct gguf_context *g, int32_t n_rows);

/* The same for files of any family and any tokenizer of libllama, as far as it ends the process where they are wrong: n_rows of
 * embeddings at most. Errors: E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int wnw__vocab_admit(const struct gguf_context *g, int32_t n_rows);

/* Whether the tokenizer puts a blank before a text, which SentencePiece does unless the file says otherwise.
 * Errors: E_FORMAT. */
int wnw__vocab_prefix(bool *out, const struct gguf_context *g);

/* ---- A conversation's text as the tokens of its newest turn (turn.c) ---- */

/* A border between two tokens of a conversation. */
struct wnw__mark {
    size_t text;    /* bytes before it */
    int32_t tokens; /* tokens before it */
};

struct wnw__turn {
    const wnw_model *m;
    struct wnw__mark kept; /* the text before it has its tokens already */
    int32_t before;        /* the last of these, -1 = none */
    size_t border;         /* byte that no token reaches over; at most kept.text: there is none */
    bool special;          /* control tokens are parsed in messages too */
};

/* Fills in *out, which takes the text of the layout over; n_prefix if no tokens are kept. The caller clears *out. */
int wnw__turn_tokenize(wnw_prompt *out, const struct wnw__turn *t, struct wnw__layout *l);

/* ---- The text of tokens as they are generated: whole characters, and nothing after a stop string (stream.c) ---- */

struct wnw__stream {
    const char *const *stop; /* [n_stop], each not empty, borrowed */
    int32_t n_stop;
    char *text; /* [n] valid UTF-8, NUL-terminated, owned; NULL before the first byte */
    size_t n, cap;
    size_t ready; /* bytes of the text that no stop string can begin in any more */
    char open[4]; /* [n_open] the beginning of a character */
    size_t n_open;
    bool stopped; /* a stop string came; the text ends before it */
};

/* Starts as {0} with its stop strings. */
void wnw__stream_free(struct wnw__stream *st);
/* Adds bytes[n] of tokens. Bytes that are no UTF-8 become U+FFFD each; the beginning of a character waits for the rest of
 * it. Nothing happens once it has stopped. */
int wnw__stream_add(struct wnw__stream *st, const char *bytes, size_t n);
/* Ends the text: what waits is no character, and no stop string comes any more. */
int wnw__stream_end(struct wnw__stream *st);

#endif
