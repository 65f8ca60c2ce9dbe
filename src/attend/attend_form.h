/* SPDX-License-Identifier: MIT */
/*
 * The forms of scores that models have (base/shape.h): soft caps (arXiv 2408.00118, section 2), ALiBi (arXiv 2108.12409)
 * and attention sinks, scores in a query's softmax that have no entry (arXiv 2309.17453, section 3.2). Everything
 * that computes attention goes by these functions.
 */
#ifndef WNW_ATTEND_FORM_H
#define WNW_ATTEND_FORM_H

#include "base/shape.h"

/* Slope of query head h of n_head, for any number of heads; 1 where there is no ALiBi. */
float wnw__form_slope(float max_bias, int32_t n_head, int32_t h);
/* x = cap tanh(x / cap), unless cap is 0. */
void wnw__form_cap(float cap, float *x, int32_t n);
/* Turns products x = scale q . k of a query of head h at position `query` with n entries at positions pos into scores.
 * f = NULL: they are. */
void wnw__form_scores(const struct wnw__score_form *f, float slope, int32_t query, const int32_t *pos,
                      float *x, int32_t n);
/* Gives the sink of head h its share of a softmax p[n] over scores whose largest is `top`. */
void wnw__form_share(const struct wnw__score_form *f, int32_t h, float top, float *p, int32_t n);

#endif
