/* SPDX-License-Identifier: MIT */
/* How likely a token was. */
#ifndef WNW_APP_LIKELIHOOD_H
#define WNW_APP_LIKELIHOOD_H

#include <stdint.h>

#define APP_EXPS 256 /* entries that app_exps takes at most, a multiple of 32 */

/* e[n] = exp(x[n] - max), n at most APP_EXPS; max is the largest of x or larger. In float, by the kernel of this CPU. */
void app_exps(float e[APP_EXPS], const float *x, int32_t n, float max);
/* ln(sum(exp(x[n]))), n at least 1. */
double app_log_sum(const float *x, int32_t n);
/* - ln softmax(logits[n_vocab])[token], in nats. */
double app_token_nll(const float *logits, int32_t n_vocab, int32_t token);

#endif
