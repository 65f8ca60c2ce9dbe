/* SPDX-License-Identifier: MIT */
/* Bodies that this program asks the server's own routes with, what it reads in their replies, and errors. Texts are to be freed; NULL: no
 * memory, or a reply without what is looked for. */
#ifndef WNW_SERVE_BODIES_H
#define WNW_SERVE_BODIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

char *serve_body_tokenize(const char *text);
/* A chat that begins with a document, and goes on with `more` in the system message and from the user. */
char *serve_body_document(const char *text, const char *more);
/* A chat whose user begins with a document and goes on with `more`; system = NULL: without that message. */
char *serve_body_user(const char *system, const char *text, const char *more);
/* A prompt of tokens that is read into a slot and not answered. */
char *serve_body_read_tokens(const int32_t *tokens, int32_t n, int32_t slot);
/* Has a slot saved to a file, or restored from it. */
char *serve_body_file(const char *file);
/* The file that such a body names; NULL: none, no text, one with a NUL, or no memory. */
char *serve_body_get_file(const char *body, size_t n);

/* The prompt that a reply has, and its tokens. */
char *serve_reply_prompt(const char *reply, size_t n);
int32_t *serve_reply_tokens(const char *reply, size_t n, int32_t *n_tokens);
/* How many members a reply has that is a list; -1: it is none. */
int32_t serve_reply_length(const char *reply, size_t n);
/* A reply with the number of tokens that were removed, in its `usage`. NULL: it has none. */
char *serve_reply_add_removed(const char *reply, size_t n, int32_t n_removed);
/* The same for whole events of a stream. */
char *serve_events_add_removed(const char *events, size_t n, int32_t n_removed);
/* A copy of a string, with each character NUL replaced by one that takes as many tokens. NULL if it is no string, or out of memory. */
char *serve_text_of(const struct json_t *string);

/* An error as OpenAI's clients read it. */
char *serve_error(int status, const char *why, const char *param);
/* That a prompt is too long, in the words of llama.cpp's server, which clients know. */
char *serve_error_too_long(int64_t n_prompt, int32_t n_ctx, const char *param);
/* An error of the server's in our words: a sentence of its JSON library without that library's marks, with the field's name; and 400 in place
 * of 500 where nothing was `posted` to the decoding thread, since what fails then is the reading of a body. NULL: it stays as it is. */
char *serve_error_in_words(const char *reply, size_t n, bool posted, int *status);

#ifdef __cplusplus
}
#endif

#endif
