/* SPDX-License-Identifier: MIT */
/* The text that needles are hidden in: generated prose, one sentence block over and over, or files of the user's. */
#ifndef WNW_EVAL_HAYSTACK_H
#define WNW_EVAL_HAYSTACK_H

#include "eval/prose.h"

#include <stdint.h>

/* RULER's noise. */
extern const char eval_noise[];

struct eval_haystack {
    struct eval_prose prose;
    struct app_text text; /* words separated by one blank; grows as more is asked for */
    size_t *word;         /* [n_words]: where each begins in the text, owned */
    size_t n_words, cap;
    bool generated; /* prose */
    size_t n_own;   /* words before the text starts again; 0 = it never does */
    char name[48];  /* "prose", "noise" or "file:HASH" */
};

/* source: "prose", "noise", a text, or a folder of *.txt, which are read in the order of their names. Returns an exit
 * code. */
int eval_haystack_open(struct eval_haystack *h, const char *source, uint64_t seed);
void eval_haystack_close(struct eval_haystack *h);
/* Makes sure of n words: text of generated prose grows, other text starts again. Returns an exit code. */
int eval_haystack_reserve(struct eval_haystack *h, size_t n);
/* Length of the first n words (n_words at most) in bytes. */
size_t eval_haystack_length(const struct eval_haystack *h, size_t n);

/* Length of the first sentence of text[len], without the blank behind it. */
size_t eval_sentence_length(const char *text, size_t len);

#endif
