/* SPDX-License-Identifier: MIT */
/* How likely a token was. */
#ifndef WNW_APP_LIKELIHOOD_H
#define WNW_APP_LIKELIHOOD_H

#include <stdint.h>

/* ln(sum(exp(x[n]))). */
double app_log_sum(const float *x, int32_t n);
/* - ln softmax(logits[n_vocab])[token], in nats. */
double app_token_nll(const float *logits, int32_t n_vocab, int32_t token);

#endif
