/* SPDX-License-Identifier: MIT */
/*
 * How much a head retrieves, and how important it is, on plain arrays. A model answers a question with words of its prompt, the answer
 * span; the attention of every generated token tells which heads look at that span.
 *
 *   semantic score:     attention on the whole span at steps that produce a token of the span
 *                       ("CompressKV", arXiv 2508.02401, equation 5, as the released code has it)
 *   traditional score:  share of the span that a head copies, i.e. its largest attention is on the very token
 *                       that is produced ("Retrieval Head", arXiv 2404.15574)
 */
#ifndef WNW_CALIBRATE_RETRIEVAL_H
#define WNW_CALIBRATE_RETRIEVAL_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens first .. first + n - 1 of a prompt. */
struct wnw__answer_span {
    int32_t first, n;
};

/* Finds answer[m] in prompt[n]: the same sequence; else the window of m tokens whose set shares most with
 * that of the answer, more than 0.9 of it; the earliest of several. False if there is none. */
bool wnw__span_find(struct wnw__answer_span *out, const int32_t *prompt, int32_t n, const int32_t *answer,
                    int32_t m);
/* How often a token is in the span. */
int32_t wnw__span_count(const int32_t *prompt, struct wnw__answer_span span, int32_t token);

struct wnw__retrieval_rule {
    int32_t top;       /* traditional: the largest `top` attentions are looked at, and one hit counts */
    bool multiplicity; /* semantic: a token that is k times in the span counts k times */
    bool distinct;     /* traditional: a token of the span counts once, so that the score is at most 1 */
};

/* Scores of one head over the steps of a probe; begins as {0}. */
struct wnw__retrieval {
    double semantic, traditional;
};

/* A step of a probe, as one head sees it. */
struct wnw__retrieval_step {
    const float *row; /* [n_row] the head's attention over all entries, the prompt's first */
    int32_t n_row;
    const int32_t *prompt; /* holds the span */
    struct wnw__answer_span span;
    int32_t token; /* what the step produced */
    bool *copied;  /* [span.n] what the head has copied; begins as false; used with rule.distinct alone */
};

/* Adds a step. Equal attention: the earlier entry is the larger one. */
void wnw__retrieval_add(struct wnw__retrieval *r, const struct wnw__retrieval_rule *rule,
                        const struct wnw__retrieval_step *step);

/* ---- What one row of attention says about a head ---- */

/* HeadKV's importance of a head at one step ("Not All Heads Matter", arXiv 2410.19258, retrieval and
 * reasoning): of the span.n largest elements of row[n] the sum of those that lie in the span, over span.n. Of
 * equal elements the earlier is the larger one. */
double wnw__importance(const float *row, int32_t n, struct wnw__answer_span span);

/* The share of row[n] that a streaming head would not see: what lies after the first n_sink elements and
 * before the last n_recent ones, over the sum of all. 0 .. 1; 0 where nothing lies there. */
double wnw__far_share(const float *row, int32_t n, int32_t n_sink, int32_t n_recent);

/* ---- Heads and answers ---- */

/* Writes the heads of mean[n] to rank[n], highest first, equal ones in their order. */
void wnw__rank_heads(const double *mean, int32_t n, int32_t *rank);
/* Share of the k highest of a[n] that are among the k highest of b[n], 0..1; of equal elements the earlier is the higher one.
 * k is 1 .. n. */
double wnw__top_overlap(const double *a, const double *b, int32_t n, int32_t k);
/* Share of words of `reference` that are in `response`, in 0..1; a word that is there k times counts at most
 * as often as in the response (ROUGE-1's recall, without stemming). Words are letters and digits, in lower
 * case. 0 if the reference has none. */
double wnw__word_recall(const char *reference, const char *response);

#endif
