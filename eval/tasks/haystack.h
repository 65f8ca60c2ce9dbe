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

struct eval_spaced {
    struct app_text text; /* words separated by one blank */
    size_t *word;         /* [n]: where each begins in the text, owned */
    size_t n;
};

struct eval_haystack {
    struct eval_spaced now;  /* the text of the current sample; grows as more is asked for */
    struct eval_prose prose; /* its generated sentences; its people and towns, with any text */
    struct eval_spaced own;  /* the user's text, or one block of noise; empty where sentences are generated */
    size_t next;             /* word of it that comes next */
    bool generated, noise;
    uint64_t id;                   /* of the current text; samples with the same number share it; 0 = noise */
    char key[EVAL_MAX_SAMPLE_KEY]; /* of the current sample, "" = none */
    char name[48];                 /* "prose", "noise" or "file:HASH" */
};

/* source is "prose", "noise", a text file, or a folder whose *.txt are read in the order of their names.
 * Returns an exit code. */
int eval_haystack_open(struct eval_haystack *h, const char *source);
void eval_haystack_close(struct eval_haystack *h);
/* Begins the text of a sample whose task, length, index and seed are set. Generated prose differs for every sample. From the user's
 * text every index gets its own piece, as long as there are enough. Pieces begin with a sentence. The text depends only on the
 * sample, so any sample can be made alone. */
void eval_haystack_begin(struct eval_haystack *h, const struct eval_sample *s);
/* Makes the text at least n words long: generated prose goes on, other text repeats at its end. Returns an exit code. */
int eval_haystack_reserve(struct eval_haystack *h, size_t n);
/* Length of the first n words (n_words at most) in bytes. */
size_t eval_haystack_length(const struct eval_haystack *h, size_t n);
/* Whether the first n words have a text among them. */
bool eval_haystack_says(const struct eval_haystack *h, size_t n, const char *text);

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
 * or sentence places[i], ascending in i, and after the last where there is none. Line breaks separate blocks, blanks separate
 * sentences. */
void eval_put_in_noise(struct eval_sample *s, size_t n_blocks, const struct eval_lines *lines,
                       const size_t *places);
void eval_put_in_text(struct eval_sample *s, const char *text, size_t len, const struct eval_lines *lines,
                      const size_t *places);

#endif
