/* SPDX-License-Identifier: MIT */
/*
 * Attention Matching (arXiv 2602.16284): what a few entries need so that queries see of them what they see of all. Per KV
 * head, with logits S[m][n] of m queries with n entries (-infinity: not seen), kept entries I, b of them:
 *
 *     E = exp(S - row maximum), M = E 1;
 *     B = argmin ||E_I B - M||^2, e^-3 <= B <= e^3           by accelerated projected gradients from B = 1;
 *     beta = log B                                           added to the logits of the kept entries;
 *     X = softmax(S_I + beta), Y = softmax(S) V;
 *     V' = V_I + argmin ||X D - (Y - X V_I)||^2 + ridge tr(X^T X) / b ||D||^2
 *
 * The paper's ridge pulls V' to 0; this one pulls it to the values that are there, so that nothing changes where nothing is
 * missing and values stay in directions in which no query looks. Where there are fewer queries than entries the same D
 * comes from a system of m equations in place of b.
 */
#ifndef WNW_MATCH_FIT_H
#define WNW_MATCH_FIT_H

#include "policy/part.h"

/* One head. Arrays are borrowed. */
struct wnw__match {
    int32_t m, n, b, d;
    const float *logits; /* [m][n]; every row has one that is not -infinity */
    const float *values; /* [n][d] */
    const int32_t *keep; /* [b] entries that stay, ascending */
    double ridge;
    const wnw_observation *obs; /* whose threads share the work, to the same bits; NULL = one */
};

/* Floats of scratch for both functions. */
size_t wnw__match_scratch(int32_t m, int32_t n, int32_t b, int32_t d);
/* Sets beta[b]. */
void wnw__match_beta(const struct wnw__match *p, float *beta, float *scratch);
/* Sets v[b][d] to V', with beta[b] added to the logits of the kept entries. False where the system is singular to rounding
 * or something is not finite: v is then not set. */
bool wnw__match_values(const struct wnw__match *p, const float *beta, float *v, float *scratch);

#endif
