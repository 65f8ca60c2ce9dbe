/* SPDX-License-Identifier: MIT */
/* How many bytes of text a token can have at most, measured once for a vocabulary (text_bound.c). */
#ifndef WNW_TEXT_BOUND_H
#define WNW_TEXT_BOUND_H

#include <llama.h>
#include <stdbool.h>
#include <stddef.h>

struct wnw__text_bound {
    bool counts[256]; /* bytes that cannot vanish */
    size_t longest;   /* bytes of the longest token; 0: the bound does not apply to this kind of vocabulary */
};

struct wnw__text_bound wnw__text_bound_of(const struct llama_vocab *vocab);

#endif
