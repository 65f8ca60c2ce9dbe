/* SPDX-License-Identifier: MIT */
/* The prompts of tests/chat/fixtures.json, which jinja2 and other tokenizers made. */
#ifndef WNW_TESTS_CHAT_ROWS_H
#define WNW_TESTS_CHAT_ROWS_H

#include "helpers.h"

enum { CHAT_MAX_TURNS = 8 };

struct chat_row {
    const char *name;     /* what it tries */
    const char *template; /* its file in tests/chat without ".jinja", NULL = the text alone */
    wnw_prompt_params params;
    wnw_chat_message turns[CHAT_MAX_TURNS]; /* of params */
    const char *first, *second;             /* the rendered text, cut after the document */
    int32_t n_context;                      /* tokens of the first piece, BOS included */
    int32_t *ids;                           /* [n_ids], in the whole vocabulary of the model */
    int32_t n_ids;
};

/* Calls `use` for every prompt made for this model ("smollm2-135m", ...). The row is borrowed. Fails the test
 * if there is none. */
void chat_each_row(const char *model, void (*use)(const struct chat_row *row, void *user), void *user);

/* The text of tests/chat/<name>.jinja. Released with free. */
char *chat_template(const char *name);

#endif
