/* SPDX-License-Identifier: MIT */
/* How far a compressed cache's predictions are from the full cache's. */
#include "eval/run/compare.h"

#include <math.h>

int32_t eval_argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* log(sum(exp(x))). */
static double log_sum(const float *x, int32_t n)
{
    const double max = x[eval_argmax(x, n)];
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

double eval_token_nll(const float *logits, int32_t n_vocab, int32_t token)
{
    return log_sum(logits, n_vocab) - (double)logits[token];
}

double eval_kl(const float *full, const float *comp, int32_t n_vocab)
{
    const double of_full = log_sum(full, n_vocab), of_comp = log_sum(comp, n_vocab);
    double kl = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        const double p = (double)full[i] - of_full, q = (double)comp[i] - of_comp;
        kl += exp(p) * (p - q);
    }
    return kl < 0 ? 0 : kl;
}

void eval_agreement_add(struct eval_agreement *a, const float *full, const float *comp, int32_t n_vocab)
{
    const bool same = eval_argmax(full, n_vocab) == eval_argmax(comp, n_vocab);
    a->n_lead += same && a->n_lead == a->n;
    a->n++;
    a->n_same += same;
    a->kl += eval_kl(full, comp, n_vocab);
}
