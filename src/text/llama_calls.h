/* SPDX-License-Identifier: MIT */
/*
 * Calls into libllama that can throw. libllama is C++ inside and lets some exceptions out, which would end
 * the process when they reach C code. Each call here has the meaning of the function it is named after.
 */
#ifndef WNW_LLAMA_CALLS_H
#define WNW_LLAMA_CALLS_H

#include "base/said.h"

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The vocabulary of the GGUF file alone. It never puts a blank before a text, regardless of what the file says, because
 * libllama would put one before each piece of a text (tokenizer.h). Errors: E_FORMAT, E_NOMEM. */
int wnw__llama_load_vocab(struct llama_model **out, const char *path);

/* All of the model, for a device that computes all layers. E_FORMAT, E_NOMEM, E_UNSUPPORTED (libllama has no such family). extra: weights may get layouts of their
 * own. */
int wnw__llama_load(struct llama_model **out, const char *path, ggml_backend_dev_t device, bool extra);
/* A context of n_cell cells for batches of n_batch rows, up to n_row of them in a graph, of up to n_seq sequences. E_BACKEND,
 * E_NOMEM. */
struct wnw__llama_sizes {
    int32_t n_cell, n_batch, n_row, n_seq, n_threads;
};
int wnw__llama_context(struct llama_context **out, struct llama_model *m,
                       const struct wnw__llama_sizes *sizes);
/* llama_decode; *result is what it returns, and reason[WNW_SAID_REASON] that of what was said meanwhile. */
int wnw__llama_decode(int32_t *result, char *reason, struct llama_context *ctx,
                      const struct llama_batch *batch);

/* Sorts ids, which ascend, as libllama sorts special tokens: longer texts first, and those of one length as
 * std::sort happens to leave them. */
void wnw__llama_sort_special(int32_t *ids, int32_t n, const struct llama_vocab *vocab);

/* llama_tokenize; *n is what it returns. Errors: E_UNSUPPORTED (the vocabulary lacks what the text needs),
 * E_NOMEM. */
int wnw__llama_tokenize(int32_t *n, const struct llama_vocab *vocab, const char *text, int32_t len,
                        int32_t *tokens, int32_t cap, bool add_special, bool parse_special);

/* llama_token_to_piece, control tokens included where `special`; a token without a piece has an empty one. */
int wnw__llama_piece(int32_t *n, const struct llama_vocab *vocab, int32_t token, char *buf, int32_t cap,
                     bool special);

/* llama_chat_apply_template with add_ass; *n < 0 where libllama has no such template. */
int wnw__llama_apply_template(int32_t *n, const char *tmpl, const struct llama_chat_message *chat,
                              size_t n_messages, char *buf, int32_t cap);

#ifdef __cplusplus
}
#endif

#endif
