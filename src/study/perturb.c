/* SPDX-License-Identifier: MIT */
/*
 * How far evicting entries moves the output of one head, and the bounds that explain which entries to evict.
 * Paper: "CriticalKV: Optimizing KV Cache Eviction from an Output Perturbation Perspective" (arXiv
 * 2502.03805).
 *
 *     sigma = sum of A_i kept          A'_i = A_i / sigma for kept entries, else 0         (theorem 3.2);
 *     L_p   = || sum (A_i - A'_i) v_i W_O ||_1
 *           <= theta = sum of A_i nu_i evicted + (1 / sigma - 1) sum of A_i nu_i kept     (theorem 3.3);
 *           <= theta_hat = C1 - (2 - 1 / sigma1) sum of A_i nu_i in stage 2               (theorem 3.5);
 *     C1    = sum A_i nu_i - (2 - 1 / sigma1) sum of A_i nu_i in stage 1;
 *     theta_relax = C1 - min_i nu_i (2 - 1 / sigma1) sum of A_i in stage 2                (theorem C.1)
 *
 * theta_hat is theta with sigma1, the attention of stage 1, for sigma.
 * The bounds say nothing about L_p of one selection against another: a lower bound does not mean a lower L_p.
 */
#include "study/perturb.h"

#include "base/err.h"

#include <math.h>

/* Sums the attention that is kept (*in) and evicted (*dropped); together they are 1 but for rounding. The
 * formulas use their ratio instead of 1 / sigma - 1, so that evicting nearly nothing gives nearly 0. */
static int split_mass(const float *attn, const bool *kept, int32_t n, double *in, double *dropped)
{
    *in = *dropped = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(attn[i] >= 0))
            return wnw__fail(WNW_E_ARG, "attention %g on entry %d is not a probability", (double)attn[i], i);
        *(kept[i] ? in : dropped) += attn[i];
    }
    if (!(fabs(*in + *dropped - 1) < 1e-3))
        return wnw__fail(WNW_E_ARG,
                         "attention over %d entries sums to %g; it must be a softmax over all of them", n,
                         *in + *dropped);
    if (!(*in > 0))
        return wnw__fail(WNW_E_ARG, "no attention is left: keep at least one entry that has some");
    return WNW_OK;
}

int wnw__perturb_bounds(struct wnw__perturbation *out, const float *attn, const float *nu, const bool *kept,
                        const bool *first, int32_t n)
{
    WNW_REQUIRE(out);
    *out = (struct wnw__perturbation){0};
    WNW_REQUIRE(attn);
    WNW_REQUIRE(nu);
    WNW_REQUIRE(kept);
    double in, dropped, in_first = 0;
    WNW_TRY(split_mass(attn, kept, n, &in, &dropped));
    double evicted = 0, stage1 = 0, stage2 = 0, attn2 = 0, least = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        const bool early = first ? first[i] : kept[i];
        if (!(nu[i] >= 0))
            return wnw__fail(WNW_E_ARG, "norm %g of entry %d is not a norm", (double)nu[i], i);
        if (early && !kept[i])
            return wnw__fail(WNW_E_ARG, "entry %d is of stage 1 but not kept", i);
        least = nu[i] < least ? nu[i] : least;
        in_first += early ? attn[i] : 0;
        attn2 += kept[i] && !early ? attn[i] : 0;
        double *stage = early ? &stage1 : &stage2;
        *(kept[i] ? stage : &evicted) += (double)attn[i] * nu[i];
    }
    if (!(in_first > 0))
        return wnw__fail(WNW_E_ARG, "stage 1 has no attention: it needs at least one entry that has some");
    const double total = in + dropped, rest = dropped / in; /* 1 / sigma - 1 */
    const double rest1 = (dropped + attn2) / in_first;      /* 1 / sigma1 - 1 */
    *out = (struct wnw__perturbation){.sigma = in / total,
                                      .sigma_first = in_first / total,
                                      .guaranteed = in_first / total > 0.5,
                                      .theta = evicted + rest * (stage1 + stage2),
                                      .theta_hat = evicted + rest1 * (stage1 + stage2),
                                      .theta_relax =
                                          evicted + rest1 * stage1 + stage2 - (1 - rest1) * least * attn2};
    return WNW_OK;
}

int wnw__perturb_output(double *l1, double *delta, const float *attn, const float *rows, const bool *kept,
                        int32_t n, int32_t d)
{
    double in, dropped, norm = 0;
    if (l1)
        *l1 = 0;
    WNW_REQUIRE(attn);
    WNW_REQUIRE(rows);
    WNW_REQUIRE(kept);
    WNW_TRY(split_mass(attn, kept, n, &in, &dropped));
    for (int32_t c = 0; c < d; c++) {
        double change = 0;
        for (int32_t i = 0; i < n; i++)
            change += attn[i] * (kept[i] ? -dropped / in : 1) * rows[(int64_t)i * d + c];
        norm += fabs(change);
        if (delta)
            delta[c] = change;
    }
    if (l1)
        *l1 = norm;
    return WNW_OK;
}
