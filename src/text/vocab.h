/* SPDX-License-Identifier: MIT */
#ifndef WNW_VOCAB_H
#define WNW_VOCAB_H

#include "base/err.h"

#include <gguf.h>

/* Checks that libllama can read the vocabulary of a file with n_rows embeddings: types and lengths of the
 * keys tokenizer.ggml.*, ids in range, no token twice, all byte tokens where the tokenizer falls back to
 * them. Tokenizers that no supported architecture uses are refused. Errors: E_FORMAT, E_UNSUPPORTED,
 * E_NOMEM. */
int wnw__vocab_check(const struct gguf_context *g, int32_t n_rows);

/* Whether the tokenizer puts a blank before a text, which SentencePiece does unless the file says otherwise.
 * Errors: E_FORMAT. */
int wnw__vocab_prefix(bool *out, const struct gguf_context *g);

#endif
