/* SPDX-License-Identifier: MIT */
#include "app/likelihood.h"

#include "base/vectors.h"

double app_log_sum(const float *x, int32_t n)
{
    const double max = x[wnw__argmax(x, n)]; /* without the maximum exp cannot overflow */
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

double app_token_nll(const float *logits, int32_t n_vocab, int32_t token)
{
    return app_log_sum(logits, n_vocab) - (double)logits[token];
}
