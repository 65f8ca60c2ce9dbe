/* SPDX-License-Identifier: MIT */
/*
 * The fields of bodies that llama.cpp's server reads (0.3.36: server-schema.cpp, server-common.cpp, server-chat.cpp): their types, and which
 * routes follow them. What a route would take and not follow is refused, and so are two names of one field that do not agree.
 */
#ifndef WNW_SERVE_FIELDS_H
#define WNW_SERVE_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

/* Bodies by their form: of routes that generate and take a slot by its number, of completion of code, and of routes that generate no text. */
enum serve_form {
    SERVE_FORM_PROMPT,
    SERVE_FORM_CHAT,
    SERVE_FORM_MESSAGES,
    SERVE_FORM_RESPONSES,
    SERVE_FORM_INFILL,
    SERVE_FORM_TOKENIZE,
    SERVE_FORM_DETOKENIZE,
    SERVE_FORM_EMBEDDINGS,
    SERVE_FORM_RERANK
};

/* Checks the members of a body, and makes those that have several names have one: "n", and "n_predict" or the form's own name of it. Lists that
 * the sampler would keep room for are cut to n_cells. 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. */
int serve_fields_check(struct json_t *body, enum serve_form form, int32_t n_cells, char *why,
                       const char **param);
/* Checks the grammars and JSON schemas of a body, those of its tools too. The same for all forms. */
int serve_fields_check_grammars(const struct json_t *body, char *why, const char **param);

/* The name under which a form has the number of tokens that are answered at most. */
const char *serve_fields_answer(enum serve_form form);

#ifdef __cplusplus
}
#endif

#endif
