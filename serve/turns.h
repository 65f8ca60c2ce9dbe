/* SPDX-License-Identifier: MIT */
/* Which tokens of a slot are compressed next, and to what: numbers alone. */
#ifndef WNW_SERVE_TURNS_H
#define WNW_SERVE_TURNS_H

#include "winnow_bridge.h"

/* What a slot has read. */
struct serve_turns {
    int32_t n_header, n; /* first tokens that stay whole; all tokens */
    int32_t n_judged;    /* first tokens that a compression has judged */
    int32_t at_prompt;   /* the first token of the last prompt that it read */
    bool compressed;
    /* The rule may compress each token once, and what stays of earlier turns fits the size. */
    bool keeps_previous;
    bool all_queries; /* the rule looks with every query. Those of the last prompt alone are known. */
    wnw_size size;    /* of what follows the header */
};

/* Tokens from .. to - 1, which are compressed together. */
struct serve_turns_part {
    int32_t from, to;
    wnw_size size;
    bool fallback; /* by the fallback policy, which needs no records */
};

/* Writes what is compressed, in this order. Returns the number of parts: 0 to 2. */
int32_t serve_turns_parts(struct serve_turns_part out[2], const struct serve_turns *t);
/* The first token that no compression has judged and that is of the last prompt. */
int32_t serve_turns_first_new(const struct serve_turns *t);

#endif
