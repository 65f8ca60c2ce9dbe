/* SPDX-License-Identifier: MIT */
/*
 * A document's text is plain: what looks like a control token in it is text, as everywhere in winnow. The server tokenises a prompt as one
 * text, with the control tokens that the chat template wrote. So a thread says where the document is in the text. libllama's function is
 * then called for each part of it.
 */
#ifndef WNW_SERVE_PLAIN_H
#define WNW_SERVE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_vocab;
typedef int32_t serve_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_len,
                               int32_t *tokens, int32_t n_tokens_max, bool add_special, bool parse_special);

/* From here to serve_plain_end this thread's texts that have `document` at byte `at` have it as plain text; other texts are what they
 * were. The text is borrowed. */
void serve_plain_begin(const char *document, size_t at);
void serve_plain_end(void);

/* Does what libllama's llama_tokenize does, by that function. */
int32_t serve_plain_tokenize(serve_tokenize *real, const struct llama_vocab *vocab, const char *text,
                             int32_t text_len, int32_t *tokens, int32_t n_tokens_max, bool add_special,
                             bool parse_special);

#ifdef __cplusplus
}
#endif

#endif
