/* SPDX-License-Identifier: MIT */
/* How far a compressed cache's predictions are from the full cache's, where both read the same tokens. */
#ifndef WNW_EVAL_COMPARE_H
#define WNW_EVAL_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

/* The index of the largest of x[n]; of equal ones the first. */
int32_t eval_argmax(const float *x, int32_t n);
/* -log softmax(logits)[token]. */
double eval_token_nll(const float *logits, int32_t n_vocab, int32_t token);
/* sum_v p (log p - log q) in nats, p = softmax(full), q = softmax(comp). Sums are in double precision with the
 * maximum taken out; differences below 0, which rounding leaves where p = q, become 0. */
double eval_kl(const float *full, const float *comp, int32_t n_vocab);

/* Sums over the positions that were compared. */
struct eval_agreement {
    int32_t n;      /* positions */
    int32_t n_same; /* of which both have the same most likely token */
    int32_t n_lead; /* of which those before the first difference */
    double kl;      /* sum */
};
void eval_agreement_add(struct eval_agreement *a, const float *full, const float *comp, int32_t n_vocab);

#endif
