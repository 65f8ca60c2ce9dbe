/* SPDX-License-Identifier: MIT */
/* The texts of the tokens that a session has read, for policies that look at them. */
#ifndef WNW_TOKEN_TEXTS_H
#define WNW_TOKEN_TEXTS_H

#include "winnow.h"

/* The struct starts as {0} and is freed by wnw__token_texts_free. */
struct wnw__token_texts {
    const char **at; /* [n] by position, borrowed from `text`; NULL where the token is not known */
    int32_t n, cap;
    char **text; /* [n_vocab] by id, owned; NULL = not asked for yet. Tokens come again and again. */
    int32_t n_vocab;
};

/* Adds those of tokens[n] that are not there yet; an id of -1 is a token that is not known. `at` is not NULL
 * afterwards. E_NOMEM. */
int wnw__token_texts_reach(struct wnw__token_texts *t, const wnw_model *m, const int32_t *tokens, int32_t n);
void wnw__token_texts_free(struct wnw__token_texts *t);

#endif
