/* SPDX-License-Identifier: MIT */
/* Tokens of a text with bytes of input and bytes that a template wrote. */
#ifndef WNW_TOKENS_MARKED_H
#define WNW_TOKENS_MARKED_H

#include "model/model.h"
#include "winnow_tools.h"

/*
 * A text to tokenise.
 *
 * Bytes in `plain` are input: a control token's text is recognised only where all of its bytes lie outside.
 * Nothing else changes there: input and template merge to one token across the border as they do in a text
 * that libllama tokenises whole. User-defined tokens are recognised everywhere, as libllama does. A plain
 * text never makes a control token, not even where merges spell one.
 *
 * A token never reaches over a byte in `cut`. Otherwise the cut changes nothing: no blank is put before the second
 * piece, and white space that a special token swallows is swallowed across the cut. The ids of the pieces together
 * are those of the text without the cut wherever that one has a border between two tokens there: always with a
 * SentencePiece vocabulary, and with byte pairs where the pre-tokenizer, which looks at the whitespace on both sides,
 * splits there.
 */
struct wnw__marked {
    const char *text;
    size_t n;               /* bytes of it */
    const wnw_bytes *plain; /* [n_plain], ascending, disjoint */
    size_t n_plain;
    const size_t *cut; /* [n_cut], ascending */
    size_t n_cut;
    bool add_special; /* BOS and EOS as the vocabulary asks */
    bool follows;     /* the text goes on after the token `before`; else it begins a sequence */
    int32_t before;
};

/* Tokenises. *tokens, [*n_tokens], is released by the caller with free(); n_at_cut[n_cut] (may be NULL)
 * becomes the number of tokens before each cut. Errors: E_UNSUPPORTED (no tokenizer; libllama cannot take the
 * text), E_RANGE, E_NOMEM. */
int wnw__tokenize_marked(const wnw_model *m, const struct wnw__marked *in, int32_t **tokens,
                         int32_t *n_tokens, int32_t *n_at_cut);

/* Tokens of an input that goes on after the token *before, -1 for some text; NULL: it begins a sequence. */
int wnw__tokenize_plain(const wnw_model *m, const char *text, size_t n, const int32_t *before,
                        int32_t **tokens, int32_t *n_tokens);

#endif
