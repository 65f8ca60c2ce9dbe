/* SPDX-License-Identifier: MIT */
/* Words of a text, and how many two texts share. */
#ifndef WNW_EVAL_WORDS_H
#define WNW_EVAL_WORDS_H

#include "eval/chars.h"

struct eval_word {
    const uint32_t *at; /* [n], borrowed from the text */
    size_t n;
};
struct eval_words {
    struct eval_word *at; /* [n], owned */
    size_t n, cap;
};

/* false: out of memory. */
bool eval_words_add(struct eval_words *w, const uint32_t *at, size_t n);
/* Adds what lies between white space; no word is empty. false: out of memory. */
bool eval_words_split(struct eval_words *w, const struct eval_chars *c);
void eval_words_free(struct eval_words *w);

int eval_word_compare(const struct eval_word *a, const struct eval_word *b);
void eval_words_sort(struct eval_words *w);
/* Leaves one of equal neighbours: with the sort before it, a set. */
void eval_words_unique(struct eval_words *w);
/* Words that both have, a word that comes k and l times counted min(k, l) times. Both sorted. */
size_t eval_words_common(const struct eval_words *a, const struct eval_words *b);

#endif
