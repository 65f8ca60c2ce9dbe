/* SPDX-License-Identifier: MIT */
/* Negative log-likelihoods, in nats, of the last prompt tokens, each given the tokens before it. */
#ifndef WNW_NLL_H
#define WNW_NLL_H

#include "base/err.h"
#include "base/parallel.h"

/* A ring of numbers. The number of position p is nll[p % cap]; it holds positions end - n .. end - 1. */
struct wnw__nll {
    double *nll;
    int32_t cap, n, end;
    int32_t from; /* first wanted position of the prompt that is being read; INT32_MAX = none */
};

int wnw__nll_init(struct wnw__nll *w, int32_t cap);
int wnw__nll_copy(struct wnw__nll *to, const struct wnw__nll *from);
void wnw__nll_free(struct wnw__nll *w);

/* Announces n prompt tokens from position `first` on, which will be read in any number of batches. */
void wnw__nll_begin(struct wnw__nll *w, int32_t first, int32_t n);

/* The number of last rows of logits that are needed of a batch of n tokens from position `first` on, at least
 * one. The row of a token predicts the token after it. */
int32_t wnw__nll_rows(const struct wnw__nll *w, int32_t first, int32_t n);

/* A batch of n tokens that was read from position `first` on. before: logits of the token before it, or NULL;
 * rows: the logits of the last n_rows tokens. */
struct wnw__nll_batch {
    const int32_t *tokens;
    int32_t first, n;
    const float *before, *rows;
    int32_t n_rows, n_vocab;
    struct wnw__pool *pool; /* NULL = the caller's thread alone */
};
void wnw__nll_take(struct wnw__nll *w, const struct wnw__nll_batch *b);

/* Returns -ln softmax(logits[n_vocab])[token]. */
double wnw__nll_of(const float *logits, int32_t n_vocab, int32_t token);

/* Sets *out to exp of the mean negative log-likelihood of the last `window` of n_past tokens. The first token
 * of a sequence has no likelihood. w is NULL if nothing was kept. E_NOT_OBSERVED: a number is missing. */
int wnw__nll_perplexity(const struct wnw__nll *w, int32_t n_past, int32_t window, double *out);

#endif
