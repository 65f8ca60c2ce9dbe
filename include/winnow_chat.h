/* SPDX-License-Identifier: MIT */
/*
 * Conversations: the tokens of one turn after another, as the model's template lays them out. examples/chat.c is a whole program.
 * Conventions are those of winnow.h.
 */
#ifndef WINNOW_CHAT_H
#define WINNOW_CHAT_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A conversation. A turn's tokens begin where those so far end, usually with the token that ends the answer's turn. */
typedef struct wnw_chat wnw_chat;

/* Begins one with the system message and the earlier turns of params; its document and question are not read. Errors are those
 * of wnw_prompt_build. The model must outlive it; release it with wnw_chat_free. */
WNW_API int wnw_chat_open(wnw_chat **out, const wnw_model *m, const wnw_prompt_params *params);
WNW_API void wnw_chat_free(wnw_chat *c);

/* Adds a user's turn and makes *out, which is released with wnw_prompt_free. `begin` is text with which the answer begins. All may be NULL. Before an answer, a
 * document of NULL asks another question about the same document in place of the last, and *out begins after the document; later,
 * "" parts the question from the header before it, and NULL does not. Where a template writes earlier turns differently than before
 * (without the reasoning in answers), n_past is smaller than the number of tokens so far: a session that has read more goes back
 * to it (wnw_session_rewind). Nothing changes on failure. Errors: E_ARG (no text; a document while an answer is missing), those of
 * wnw_prompt_build. */
WNW_API int wnw_chat_user(wnw_prompt **out, wnw_chat *c, const char *document, const char *question,
                          const char *begin);

/* Tokens of the conversation before those of a turn; 0 in a first one. */
WNW_API int32_t wnw_prompt_n_past(const wnw_prompt *p);

/* Adds the answer: tokens[n] that the model generated, with the one that ended its turn if the session has read that too, or a
 * text, whose tokens the next turn has. E_ARG: no question waits. E_RANGE: an id that is not a token. */
WNW_API int wnw_chat_answer(wnw_chat *c, const int32_t *tokens, int32_t n);
WNW_API int wnw_chat_answer_text(wnw_chat *c, const char *text);

/* All tokens so far, [*n]; those after the ones that were read are what a session lacks. A program counts them: wnw_session_n_past is less
 * once entries got new positions. Borrowed until the next call. */
WNW_API const int32_t *wnw_chat_tokens(const wnw_chat *c, int32_t *n);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_CHAT_H */
