/* SPDX-License-Identifier: MIT */
/* Negative log-likelihoods of the last prompt tokens, each given the tokens before it. */
#ifndef WNW_NLL_H
#define WNW_NLL_H

#include "base/err.h"
#include "base/parallel.h"

/* A ring: that of position p is nll[p % cap]; those of positions end - n .. end - 1 are there. */
struct wnw__nll {
    double *nll;
    int32_t cap, n, end;
    int32_t from; /* first position that is wanted of what is being read; INT32_MAX = none */
};

int wnw__nll_init(struct wnw__nll *w, int32_t cap);
int wnw__nll_copy(struct wnw__nll *to, const struct wnw__nll *from);
void wnw__nll_free(struct wnw__nll *w);

/* n prompt tokens from position `first` on are going to be read, in any number of batches. */
void wnw__nll_begin(struct wnw__nll *w, int32_t first, int32_t n);

/* Of a batch of n tokens from position `first` on: how many of the last rows of logits are needed, at least
 * one. The row of a token predicts the token behind it. */
int32_t wnw__nll_rows(const struct wnw__nll *w, int32_t first, int32_t n);

/* n tokens were read from position `first` on. before: logits that were there before, or NULL; rows: the
 * logits of the last n_rows tokens. */
struct wnw__nll_batch {
    const int32_t *tokens;
    int32_t first, n;
    const float *before, *rows;
    int32_t n_rows, n_vocab;
    struct wnw__pool *pool; /* NULL = the caller's thread alone */
};
void wnw__nll_take(struct wnw__nll *w, const struct wnw__nll_batch *b);

/* -ln softmax(logits[n_vocab])[token] */
double wnw__nll_of(const float *logits, int32_t n_vocab, int32_t token);

/* exp of the mean over the last `window` tokens of n_past; the first token of all has none. w NULL: nothing
 * was kept. */
int wnw__nll_perplexity(const struct wnw__nll *w, int32_t n_past, int32_t window, double *out);

#endif
