/* SPDX-License-Identifier: MIT */
/* What one row of attention says about a head, on plain arrays. */
#ifndef WNW_CALIBRATE_IMPORTANCE_H
#define WNW_CALIBRATE_IMPORTANCE_H

#include "calibrate/retrieval.h"

/* HeadKV's importance of a head at one step ("Not All Heads Matter", arXiv 2410.19258, retrieval and
 * reasoning): of the span.n largest elements of row[n] the sum of those that lie in the span, over span.n. Of
 * equal elements the earlier is the larger one. */
double wnw__importance(const float *row, int32_t n, struct wnw__answer_span span);

/* The share of row[n] that a streaming head would not see: what lies after the first n_sink elements and
 * before the last n_recent ones, over the sum of all. 0 .. 1; 0 where nothing lies there. */
double wnw__far_share(const float *row, int32_t n, int32_t n_sink, int32_t n_recent);

#endif
