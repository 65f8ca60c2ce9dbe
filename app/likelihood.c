/* SPDX-License-Identifier: MIT */
#include "app/likelihood.h"

#include "base/vectors.h"
#include "kernel/kernel.h"

#define STEP    32       /* of wnw__exps */
#define NOTHING -1000.0f /* its exp is 0 */

void app_exps(float e[APP_EXPS], const float *x, int32_t n, float max)
{
    int32_t i = 0;
    for (; i < n; i++)
        e[i] = x[i] - max;
    for (; i % STEP != 0; i++)
        e[i] = NOTHING;
    wnw__exps(e, i);
}

double app_log_sum(const float *x, int32_t n)
{
    const float max = x[wnw__argmax(x, n)]; /* without the maximum exp cannot overflow */
    double sum = 0.0;
    for (int32_t at = 0; at < n; at += APP_EXPS) {
        float e[APP_EXPS];
        const int32_t n_now = n - at < APP_EXPS ? n - at : APP_EXPS;
        app_exps(e, x + at, n_now, max);
        for (int32_t i = 0; i < n_now; i++)
            sum += (double)e[i];
    }
    return (double)max + log(sum);
}

double app_token_nll(const float *logits, int32_t n_vocab, int32_t token)
{
    return app_log_sum(logits, n_vocab) - (double)logits[token];
}
