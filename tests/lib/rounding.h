/* SPDX-License-Identifier: MIT */
/*
 * What rounding leaves in this program. Bounds of tests are those of the arithmetic that CPUs have; a program with the rounding of another
 * CPU (NAME.noise, src/kernel/noise.h) adds its own to them. Every other program adds nothing.
 */
#ifndef WNW_TESTS_ROUNDING_H
#define WNW_TESTS_ROUNDING_H

#include <stdbool.h>

/* The largest relative error that noise gives to the result of one product or attention; 0 without noise. */
double test_noise(void);
/* Ends a test that compares the same bits of the same kernels (bounds.md), where noise would compare them once more. */
#define test_not_with_noise() \
    do {                      \
        if (test_noise() > 0) \
            skip();           \
    } while (0)
/* Whether this is a repetition with the kernels or the rounding of another CPU (tests/kernels.cmake). What neither can change was tested
 * with the best kernels. */
bool test_other_kernels(void);
/* The bound `arithmetic` on relative errors of results that `steps` products or attentions led to, one after the other. Each
 * may amplify what it is given: steps are counted twice. */
double test_rounding(double arithmetic, int steps);
/* The bound on normalised square errors of logits, or of what else a whole model computes. */
double test_nmse_most(double arithmetic);

#endif
