/* SPDX-License-Identifier: MIT */
/* Text of tokens as they are generated. */
#ifndef WNW_APP_STREAM_H
#define WNW_APP_STREAM_H

#include "app/text.h"

#include <stdio.h>

/* Generated tokens and the text that is ready to be shown. */
struct app_stream {
    const wnw_model *model;
    FILE *echo;           /* new text is written here at once; NULL = nowhere */
    int32_t *ids;         /* [n], owned */
    int32_t n, cap;       /* generated tokens */
    int32_t base;         /* the text of ids[base..n) is computed again for every token */
    size_t done;          /* bytes of that text that were shown */
    struct app_text text; /* all text so far, valid UTF-8, owned */
};
/* Adds a token. Returns an exit code. */
int app_stream_add(struct app_stream *st, int32_t token);
/* Shows the bytes that were held back. Returns an exit code. */
int app_stream_end(struct app_stream *st);
void app_stream_clear(struct app_stream *st);

#endif
