/* SPDX-License-Identifier: MIT */
/*
 * The data that share/pages/inspect.html draws, of one text and of one or two ways to keep a part of it:
 * {winnow, n, texts, ids, document, plans: [{name, model, policy, moved, layers: [[digits, ..], ..]}, ..], answer}
 * texts and ids: [n] each, or null where they are not known. document: [first, end], the tokens that the chat template did not write, or
 * null where the template is not known. answer: null, or what cli_inspect_answer makes.
 */
#ifndef WNW_APP_INSPECT_DATA_H
#define WNW_APP_INSPECT_DATA_H

#include "app/text.h"

#include <jansson.h>

/* Adds the bytes of token i to a text. Returns a wnw_status. */
typedef int app_inspect_piece(struct app_text *t, int32_t i, void *user);
/* Makes the texts of n tokens. A character may be spread over several of them: the first one gets its text, the others get "". Bytes
 * that begin no character become U+FFFD. The caller releases *texts after errors, too. Returns a wnw_status. */
int app_inspect_texts(json_t **texts, int32_t n, app_inspect_piece *piece, void *user);

/* What a head has kept, kept[n] in 0 and 1, as hexadecimal digits: the first one is of tokens 0 to 3, and its lowest bit of token 0. NULL
 * if memory runs out. */
json_t *app_inspect_digits(const unsigned char *kept, int32_t n);

struct app_inspect_plan {
    const char *name, *model; /* any bytes */
    json_t *policy, *layers;  /* taken over; NULL: memory ran out */
    bool moved;               /* positions are new ones, which name no token */
};
/* A plan of the list. NULL if memory runs out, or did before. */
json_t *app_inspect_plan(const struct app_inspect_plan *plan);

struct app_inspect_data {
    int32_t n;
    int32_t first, end;                   /* tokens of the document: first <= i < end; end 0 = not known */
    json_t *texts, *ids, *plans, *answer; /* borrowed; NULL = none, but for plans */
};
/* The whole. NULL if memory runs out. */
json_t *app_inspect_data(const struct app_inspect_data *data);

#endif
