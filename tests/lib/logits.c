/* SPDX-License-Identifier: MIT */
#include "logits.h"

#include <math.h>
#include <string.h>

#include "asserts.h"

int32_t test_argmax(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double log_sum_exp(const float *x, int32_t n)
{
    const double max = (double)x[test_argmax(x, n)];
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

void test_diff_add(struct test_diff *d, const float *ref, const float *ours, int32_t n_vocab)
{
    double mean = 0, kl = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        /* A NaN would slip through every comparison below. */
        if (!isfinite(ref[i]) || !isfinite(ours[i]))
            fail_msg("logit %d is %g, reference %g", i, (double)ours[i], (double)ref[i]);
        mean += (double)ref[i] / n_vocab;
    }
    const double lse_ref = log_sum_exp(ref, n_vocab), lse_ours = log_sum_exp(ours, n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) {
        const double diff = (double)ours[i] - (double)ref[i];
        const double log_p = (double)ref[i] - lse_ref, log_q = (double)ours[i] - lse_ours;
        kl += exp(log_p) * (log_p - log_q);
        d->err2 += diff * diff;
        d->ref2 += ((double)ref[i] - mean) * ((double)ref[i] - mean);
        d->max_abs = fmax(d->max_abs, fabs(diff));
    }
    const int32_t want = test_argmax(ref, n_vocab), got = test_argmax(ours, n_vocab);
    d->n++;
    d->top1 += want == got;
    d->identical += memcmp(ref, ours, (size_t)n_vocab * sizeof *ref) == 0;
    d->kl_sum += kl;
    d->kl_max = fmax(d->kl_max, kl);
    if (want != got)
        d->flip_margin = fmax(d->flip_margin, (double)ref[want] - (double)ref[got]);
}

double test_diff_kl(const struct test_diff *d)
{
    return d->n ? d->kl_sum / (double)d->n : INFINITY;
}

double test_diff_nmse(const struct test_diff *d)
{
    return d->ref2 > 0 ? d->err2 / d->ref2 : INFINITY;
}

void test_diff_print(const char *what, const struct test_diff *d)
{
    print_message(
        "%-44s mean KL %.2e max %.2e | nmse %.2e | max abs %.2e | top-1 %lld/%lld | bit-equal %lld\n", what,
        test_diff_kl(d), d->kl_max, test_diff_nmse(d), d->max_abs, (long long)d->top1, (long long)d->n,
        (long long)d->identical);
}
