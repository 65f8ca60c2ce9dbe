/* SPDX-License-Identifier: MIT */
/* Text of tokens as they are generated. */
#ifndef WNW_APP_STREAM_H
#define WNW_APP_STREAM_H

#include "app/text.h"

#include <stdio.h>

/* Generated tokens and the text that is ready to be shown. */
struct app_stream {
    const wnw_model *model;
    FILE *echo;           /* where new text goes at once, NULL = nowhere */
    int32_t *ids;         /* [n], owned */
    int32_t n, cap;       /* generated tokens */
    int32_t base;         /* the text of ids[base..n) is worked out anew for every token */
    size_t done;          /* bytes of that text which are out */
    struct app_text text; /* all text so far, valid UTF-8, owned */
};
/* Adds a token. Returns an exit code. */
int app_stream_add(struct app_stream *st, int32_t token);
/* Lets out what was held back. */
int app_stream_end(struct app_stream *st);
void app_stream_clear(struct app_stream *st);

#endif
