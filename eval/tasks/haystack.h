/* SPDX-License-Identifier: MIT */
/* The text that needles are hidden in: generated prose, one block of sentences repeated, or the user's
 * files. */
#ifndef WNW_EVAL_HAYSTACK_H
#define WNW_EVAL_HAYSTACK_H

#include "eval/tasks/prose.h"
#include "eval/tasks/sample.h"

#include <stdint.h>

/* The block of sentences that RULER repeats as noise. */
extern const char eval_noise[];

struct eval_haystack {
    struct eval_prose prose;
    struct app_text text; /* words separated by one blank; grows as more is asked for */
    size_t *word;         /* [n_words]: where each begins in the text, owned */
    size_t n_words;
    bool generated; /* the text is generated prose */
    size_t n_own;   /* words before the text repeats; 0 = it never does */
    char name[48];  /* "prose", "noise" or "file:HASH" */
};

/* source is "prose", "noise", a text file, or a folder whose *.txt are read in the order of their names.
 * Returns an exit code. */
int eval_haystack_open(struct eval_haystack *h, const char *source, uint64_t seed);
void eval_haystack_close(struct eval_haystack *h);
/* Makes the text at least n words long: generated prose goes on, other text repeats. Returns an exit code. */
int eval_haystack_reserve(struct eval_haystack *h, size_t n);
/* Length of the first n words (n_words at most) in bytes. */
size_t eval_haystack_length(const struct eval_haystack *h, size_t n);

/* Length of the first sentence of text[len], without the blank after it; how many sentences there are. */
size_t eval_sentence_length(const char *text, size_t len);
size_t eval_count_sentences(const char *text, size_t len);

/* Lines that are hidden. */
struct eval_lines {
    char *const *at; /* [n] in the order of the context */
    size_t n;
    const bool *evidence; /* [n]; NULL: all are */
};
/* Add copies of the noise block, or the sentences of text[len], to the context with lines between them: line i goes before block
 * or sentence at[i], ascending in i, and behind the last where there is none. Line breaks separate blocks, blanks separate
 * sentences. */
void eval_put_in_noise(struct eval_sample *s, size_t n_blocks, const struct eval_lines *lines,
                       const size_t *at);
void eval_put_in_text(struct eval_sample *s, const char *text, size_t len, const struct eval_lines *lines,
                      const size_t *at);

#endif
