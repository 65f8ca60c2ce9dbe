/* SPDX-License-Identifier: MIT */
#include "app/likelihood.h"

#include <math.h>

double app_token_nll(const float *logits, int32_t n_vocab, int32_t token)
{
    double max = logits[0], sum = 0.0; /* without the maximum exp cannot overflow */
    for (int32_t i = 1; i < n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum) - (double)logits[token];
}
