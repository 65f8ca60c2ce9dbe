/* SPDX-License-Identifier: MIT */
#include "rounding.h"

#include <stdlib.h>

double test_noise(void)
{
#ifdef WNW_TEST_NOISE
    return 0x1p-9; /* SIZE in src/kernel/noise.c */
#else
    return 0;
#endif
}

bool test_other_kernels(void)
{
    return test_noise() > 0 || getenv("WNW_OTHER_KERNELS");
}

double test_rounding(double arithmetic, int steps)
{
    return arithmetic + 2 * steps * test_noise();
}

double test_nmse_most(double arithmetic)
{
    /* Errors of a few products in each of some layers add up like those of float32 in NMSE_FLOAT32 (model/parity.c), where a
     * thousand units do; here it is 64 of them. */
    const double steps = 64 * test_noise();
    return arithmetic + steps * steps;
}
