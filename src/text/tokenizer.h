/* SPDX-License-Identifier: MIT */
/*
 * What we know of a vocabulary next to libllama: its special tokens, in the order in which libllama looks for
 * them, and whether a blank is put before a text.
 *
 * libllama recognises special tokens either in a whole text or not at all, and puts the blank at the beginning of
 * each call. A prompt needs both in places (tokens_marked.h), so the text is cut at its special tokens here and
 * libllama tokenises what lies between.
 */
#ifndef WNW_TOKENIZER_H
#define WNW_TOKENIZER_H

#include "base/err.h"
#include "text/pretokenizer.h"
#include "text/text_bound.h"

#include <llama.h>

struct wnw__special {
    const char *text; /* owned by libllama's vocabulary */
    int32_t n;        /* bytes of it */
    int32_t id;
    int32_t rank;        /* place in the order in which libllama looks: longer texts first */
    bool control;        /* recognised only where text is parsed for control tokens; else everywhere */
    bool lstrip, rstrip; /* swallows white space before, after itself */
};

struct wnw__tokenizer {
    const struct llama_vocab *vocab;
    struct wnw__pretokenizer pre; /* of byte pairs; SentencePiece's kind has none, which neither recurses */
    bool prefix;                  /* a blank is put before text that begins, or follows a special token */
    struct wnw__special *special; /* [n_special], ascending by text */
    int32_t *by_rank;             /* [n_special]: index into special */
    int32_t n_special;
    bool merges_words;               /* byte pairs within words; else SentencePiece, over whole texts */
    bool parts_blank, parts_newline; /* SentencePiece: no token has one after another character */
    /* SentencePiece: characters that begin with this byte may have no token of their own */
    bool spelled[256];
    struct wnw__text_bound bound;
    int32_t first[257]; /* special[first[c] .. first[c + 1]) begin with byte c */
};

/* Collects the special tokens; `pre` is the file's tokenizer.ggml.pre or NULL. The caller frees *out. Errors:
 * E_NOMEM. */
int wnw__tokenizer_new(struct wnw__tokenizer **out, const struct llama_vocab *vocab, const char *pre,
                       bool prefix);
void wnw__tokenizer_free(struct wnw__tokenizer *t);

/* Calls see for every special token whose text is at text[at .. n), shorter ones first. */
void wnw__special_at(const struct wnw__tokenizer *t, const char *text, size_t n, size_t at,
                     void (*see)(const struct wnw__special *s, size_t at, void *user), void *user);

/* Whether libllama took the token for a special one when it made it of a text: a blank follows then. */
bool wnw__is_special(const struct wnw__tokenizer *t, int32_t id);
/* Whether the token is only made where text is parsed for control tokens. */
bool wnw__is_control(const struct wnw__tokenizer *t, int32_t id);

#endif
