/* SPDX-License-Identifier: MIT */
/* Generated text to hide needles in, instead of essays: people, towns and things, without digits. */
#ifndef WNW_EVAL_PROSE_H
#define WNW_EVAL_PROSE_H

#include "app/text.h"
#include "eval/base/random.h"
#include "eval/tasks/lists.h"

#include <jansson.h>

enum { EVAL_N_PERSONS = 80, EVAL_N_TOWNS = 60, EVAL_MAX_NAME = 16 };

/* Names made of syllables from the random numbers of a key. No name is a part of another. */
struct eval_names {
    char person[EVAL_N_PERSONS][EVAL_MAX_NAME], town[EVAL_N_TOWNS][EVAL_MAX_NAME];
};
/* A word of a list. */
const char *eval_draw(struct eval_random *r, const struct eval_list *list);
/* A name of n syllables (1 to 3), its first letter upper case. */
void eval_name_draw(char out[EVAL_MAX_NAME], struct eval_random *r, int n_syllables);

/* A stream of sentences without repetition. Streams of two keys have people, towns and sentences of their own. */
struct eval_prose {
    struct eval_names names;
    struct eval_random random;
    size_t last;  /* pattern of the sentence before */
    json_t *said; /* all sentences so far, as members, owned */
};
void eval_prose_open(struct eval_prose *p, const char *key);
void eval_prose_close(struct eval_prose *p);
/* Adds the next sentence, with its full stop or question mark, to `to`. false: out of memory. */
bool eval_prose_next(struct eval_prose *p, struct app_text *to);

#endif
