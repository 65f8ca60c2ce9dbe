/* SPDX-License-Identifier: MIT */
/* How far logits are from their reference. */
#ifndef WNW_TESTS_LOGITS_H
#define WNW_TESTS_LOGITS_H

#include <stdint.h>

/* How far logits are from their reference, gathered over any number of positions. */
struct test_diff {
    int64_t n;          /* positions compared */
    int64_t top1;       /* those with the same most likely token */
    int64_t identical;  /* those where every bit is the same */
    double kl_sum;      /* KL(reference || ours), nats */
    double kl_max;      /* over positions */
    double max_abs;     /* largest difference of one logit */
    double err2, ref2;  /* sums of squares: of the difference, of the reference about its mean */
    double flip_margin; /* largest lead that a reference token had which ours did not put first */
};
void test_diff_add(struct test_diff *d, const float *ref, const float *ours, int32_t n_vocab);
double test_diff_kl(const struct test_diff *d); /* mean over positions */
/* Normalised mean square error: err2 / ref2. Free of the scale of the logits. */
double test_diff_nmse(const struct test_diff *d);
void test_diff_print(const char *what, const struct test_diff *d);

/* Index of the largest logit, the lowest of equals. */
int32_t test_argmax(const float *logits, int32_t n_vocab);

#endif
