/* SPDX-License-Identifier: MIT */
/* A conversation as the text that a template makes of it, and the places in it that prompts are cut at. */
#ifndef WNW_LAYOUT_H
#define WNW_LAYOUT_H

#include "text/render.h"

/* The messages of a conversation; the last one is the user's. */
struct wnw__talk {
    const wnw_chat_message *messages; /* [n] */
    int32_t n;
    const char *document,
        *question;     /* of the last message, "" = none; its content is both with a blank line between */
    const char *begin; /* of the answer, after what the template writes; "" = none */
    bool verbatim;     /* contents are written as they are where the template writes messages */
};

struct wnw__layout {
    struct wnw__rendered r; /* first and end: of the last message */
    size_t n_head;          /* bytes before the first turn's text */
    size_t border;          /* byte after the document */
    size_t tail_end;        /* byte after what the template writes after the last message */
};

/* The content of the last message. NULL if memory runs out; released with free. */
char *wnw__talk_content(const char *document, const char *question, bool verbatim);

/* Errors: E_UNSUPPORTED (those of wnw__render; the template drops the system message, or the border or a content is not
 * found in the text), E_RANGE, E_NOMEM. Released with wnw__layout_clear. */
int wnw__layout_make(struct wnw__layout *out, const struct wnw__template *t, const struct wnw__talk *talk);
void wnw__layout_clear(struct wnw__layout *l);

#endif
