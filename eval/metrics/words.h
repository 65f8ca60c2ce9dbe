/* SPDX-License-Identifier: MIT */
/* Words of a text, and how many two texts share. */
#ifndef WNW_EVAL_WORDS_H
#define WNW_EVAL_WORDS_H

#include "eval/base/chars.h"

struct eval_words {
    struct eval_chars *at; /* [n], owned; their letters are borrowed from the text */
    size_t n;
};

/* The next longest run, at or after *from, of code points that satisfy `is`; empty if there is none. *from moves to its end. */
struct eval_chars eval_next_run(const struct eval_chars *c, size_t *from, bool (*is)(uint32_t));
/* Returns false if memory runs out. */
bool eval_words_add(struct eval_words *w, struct eval_chars word);
/* Adds the words of c, which white space separates; no word is empty. Returns false if memory runs out. */
bool eval_words_split(struct eval_words *w, const struct eval_chars *c);
void eval_words_free(struct eval_words *w);

int eval_word_compare(const struct eval_chars *a, const struct eval_chars *b);
void eval_words_sort(struct eval_words *w);
/* Keeps one of equal neighbours; sorted words become a set. */
void eval_words_unique(struct eval_words *w);
/* Number of words that both have; a word that occurs k and l times counts min(k, l) times. Both must be
 * sorted. */
size_t eval_words_common(const struct eval_words *a, const struct eval_words *b);

#endif
