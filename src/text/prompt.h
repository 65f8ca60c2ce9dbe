/* SPDX-License-Identifier: MIT */
/* A user's turn as tokens. */
#ifndef WNW_PROMPT_H
#define WNW_PROMPT_H

#include "winnow_tools.h"

/* The fields are those of wnw_prompt_parts; arrays are owned. */
struct wnw_prompt {
    int32_t n_tokens, *tokens, n_context, n_prefix, *suffix, n_suffix;
    char *text; /* NULL: the program has made the tokens itself */
    size_t n_text;
    wnw_bytes *plain;
    int32_t n_plain, n_past;
};

#endif
