/* SPDX-License-Identifier: MIT */
#include "base/cholesky.h"

#include <math.h>

bool wnw__cholesky(double *a, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int32_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    return true;
}
