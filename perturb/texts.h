/* SPDX-License-Identifier: MIT */
/* Texts of the perturbation study: pieces of the user's file, and generated prose that does not repeat. */
#ifndef WNW_PERTURB_TEXTS_H
#define WNW_PERTURB_TEXTS_H

#include "eval/tasks/tokens.h"

struct perturb_texts {
    int32_t **ids; /* [n][n_tokens], owned */
    bool *of_file; /* [n] a piece of the file, not generated; owned */
    int32_t n, n_tokens, n_of_file;
    char hash[17]; /* of the file; "" without one */
};

/* Makes n texts of n_tokens tokens, BOS included where the vocabulary asks for one. Pieces of the file `path` (NULL =
 * none) come first, generated texts where it has no more. The generated ones are consecutive pieces of one
 * stream of sentences, which never repeats one. Returns an exit code; the caller clears in any case. */
int perturb_texts_make(struct perturb_texts *t, const struct eval_tokenizer *tokenizer, const char *path,
                       int32_t n, int32_t n_tokens, uint64_t seed);
void perturb_texts_clear(struct perturb_texts *t);

#endif
