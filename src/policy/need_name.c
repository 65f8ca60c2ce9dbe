/* SPDX-License-Identifier: MIT */
#include "winnow_method.h"

const char *wnw_need_name(int32_t bit)
{
    static const char *const names[] = {
        "window attention",
        "keys",
        "values",
        "attention sums",
        "attention maxima",
        "projected value norms",
        "query statistics",
        "all queries",
        "perplexity",
        "second pass",
        "profile",
        "rotation by position",
        "gates on hidden states",
        "tokens to come",
        "all queries in f16",
        "texts of tokens",
        "notes of the last compression",
    };
    return bit >= 0 && (size_t)bit < sizeof names / sizeof *names ? names[bit] : NULL;
}
