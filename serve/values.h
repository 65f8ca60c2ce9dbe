/* SPDX-License-Identifier: MIT */
/*
 * Values of fields whose types were checked (fields.h): members of lists and objects that llama.cpp's server would pass over without a word. They
 * are refused, since an answer would be another one than was asked for.
 */
#ifndef WNW_SERVE_VALUES_H
#define WNW_SERVE_VALUES_H

#include "serve/fields.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n_vocab: tokens of the vocabulary, 0 = not known. 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. */
int serve_values_check(const struct json_t *body, enum serve_form form, int32_t n_vocab, char *why,
                       const char **param);
/* Checks a list of adapters and their scales. The server would pass over one that it does not have. n: how many it has, -1 = not known.
 * name: of the field in messages; NULL: the list is the body, and param is the member's name. */
int serve_values_check_adapters(const struct json_t *list, const char *name, int32_t n, char *why,
                                const char **param);

#ifdef __cplusplus
}
#endif

#endif
