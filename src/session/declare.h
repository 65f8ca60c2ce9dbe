/* SPDX-License-Identifier: MIT */
/* A session is told which policies it will be asked for, so that it records what they need. */
#ifndef WNW_DECLARE_H
#define WNW_DECLARE_H

#include "winnow.h"

/* As wnw_session_observe. generated: queries of generated tokens are recorded too, because the rules plan
 * again while decoding. */
int wnw__session_declare(wnw_session *s, const wnw_policy *const *policies, int32_t n, bool generated);
/* Parts of wnw_session_begin for callers that go on with what was declared. Expected questions: task i is
 * tokens[i][n_tokens[i]], copied. */
int wnw__session_set_tasks(wnw_session *s, const int32_t *const *tokens, const int32_t *n_tokens,
                           int32_t n_tasks);
/* The first n_prefix tokens and suffix[n_suffix], copied, are the chat template's. */
int wnw__session_set_template(wnw_session *s, int32_t n_prefix, const int32_t *suffix, int32_t n_suffix);
/* Starts or stops the recorder type of this name, which must be one that no policy asks for. Starting a type
 * that is already recording changes nothing. E_ARG: there is no such type, or policies ask for it. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

#endif
