/* SPDX-License-Identifier: MIT */
/* A conversation's text as the tokens of its newest turn. */
#ifndef WNW_TURN_H
#define WNW_TURN_H

#include "text/layout.h"

/* A border between two tokens of a conversation. */
struct wnw__mark {
    size_t text;    /* bytes before it */
    int32_t tokens; /* tokens before it */
};

struct wnw__turn {
    const wnw_model *m;
    struct wnw__mark kept; /* what stands before it has its tokens already */
    int32_t before;        /* the last of these, -1 = none */
    size_t border;         /* byte that no token reaches over; at most kept.text: there is none */
    bool special;          /* control tokens are parsed in messages too */
};

/* Fills in *out, which takes the text of the layout over; n_prefix if no tokens are kept. The caller clears *out. */
int wnw__turn_tokenize(wnw_prompt *out, const struct wnw__turn *t, struct wnw__layout *l);

#endif
