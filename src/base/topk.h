/* SPDX-License-Identifier: MIT */
/*
 * The one order of scores in this project: higher score first, then lower position. Selection is a radix
 * search for the score at the cut, so it costs O(n) for any input, needs no scratch and gives its result in
 * ascending position. Scores must not be NaN; -0 equals +0.
 */
#ifndef WNW_BASE_TOPK_H
#define WNW_BASE_TOPK_H

#include <stdbool.h>
#include <stdint.h>

/* Where the k best of an array end: every score above `key`, and the first n_tie scores
 * equal to it. */
struct wnw__cut {
    uint32_t key;
    int64_t n_tie;
};

/* Maps a float to an integer of the same order. */
uint32_t wnw__score_key(float x);

/* The cut of the k best of score[n], 0 <= k <= n. With k = 0 nothing passes it. */
struct wnw__cut wnw__topk_cut(const float *score, int64_t n, int64_t k);

/* The same of scores that lie in several arrays: {.shift = 24, .left = k}, k > 0; then all of them are counted as often
 * as there is a next byte of the key, from the top; then key and left are the cut's. */
struct wnw__cut_search {
    uint32_t key, mask; /* what is known of the key, and which of its bits are */
    int shift;          /* of the byte that is looked for */
    int64_t left;       /* of the k best, how many have the known part of the key */
    int64_t count[256]; /* of scores with the known part, by the next byte */
};
void wnw__cut_count(struct wnw__cut_search *s, const float *score, int64_t n);
/* Ends a round. False: the cut is found. */
bool wnw__cut_next(struct wnw__cut_search *s);

/* Whether the next score, scanned in ascending position, is among the k best. Counts n_tie down. */
static inline bool wnw__cut_take(struct wnw__cut *cut, float score)
{
    const uint32_t key = wnw__score_key(score);
    if (key > cut->key)
        return true;
    if (key == cut->key && cut->n_tie > 0) {
        cut->n_tie--;
        return true;
    }
    return false;
}

/* Writes first + i for the k best i, ascending, to out[k]. k is clamped to 0 .. n and returned. */
int32_t wnw__topk(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out);
/* As wnw__topk, but ties go to the higher position. */
int32_t wnw__topk_late(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out);

/* The sum of the k largest of x[n]; 0 where x is NULL. k is clamped to 0 .. n. */
double wnw__topk_sum(const float *x, int32_t n, int32_t k);

/* Sorts x[n], highest first, in place and without further memory. x must have no NaN. */
void wnw__sort_descending(float *x, int32_t n);

#endif
