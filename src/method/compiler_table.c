/* SPDX-License-Identifier: MIT */
#include "method/compiler.h"

#include "base/vectors.h"

#include <math.h>

enum { MASS_BLOCK = 256 };

const char *const wnw__table_choices[] = {"profile", "none", NULL};

/* Places layer il of n_layer between rows *low and *high of the table; returns the share of row *high. */
static double depth(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t *low,
                    int32_t *high)
{
    const double x = (double)il * (t->n_layer - 1) / (n_layer > 1 ? n_layer - 1 : 1);
    *low = (int32_t)x < t->n_layer ? (int32_t)x : t->n_layer - 1;
    *high = *low + 1 < t->n_layer ? *low + 1 : *low;
    return x - *low;
}

double wnw__table_weight(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t h,
                         int32_t n_head)
{
    int32_t low, high;
    const double f = depth(t, il, n_layer, &low, &high);
    return (1 - f) * (double)t->weight[(int64_t)low * n_head + h] +
           f * (double)t->weight[(int64_t)high * n_head + h];
}

double wnw__table_tau(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t entropy_bin,
                      int32_t ppl_bin)
{
    int32_t low, high;
    const double f = depth(t, il, n_layer, &low, &high);
    const int64_t cell = (int64_t)entropy_bin * t->n_ppl + ppl_bin, row = (int64_t)t->n_entropy * t->n_ppl;
    return (1 - f) * (double)t->tau[low * row + cell] + f * (double)t->tau[high * row + cell];
}

int32_t wnw__bin(const double *edge, int32_t n_bin, double x, bool *odd)
{
    int32_t bin = 0;
    if (!isfinite(x)) {
        *odd = true;
        return n_bin - 1;
    }
    while (bin < n_bin - 1 && edge[bin] <= x)
        bin++;
    return bin;
}

double wnw__entropy(const double *mass, int64_t n, double total)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++) {
        const double p = mass[t] / total;
        if (p > 0)
            sum -= p * log(p);
    }
    return sum;
}

void wnw__window_mass(const wnw_observation *obs, int32_t n_row, double *mass)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group;
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        const float *a = obs->window_attn + (int64_t)h * obs->n_window * obs->n;
        /* All rows of one block of entries are summed first: the sums read memory in order, and only they are
         * scattered. */
        for (int32_t at = 0; at < obs->n_entry[ih]; at += MASS_BLOCK) {
            const int32_t left = obs->n_entry[ih] - at, n = left < MASS_BLOCK ? left : MASS_BLOCK;
            double sum[MASS_BLOCK] = {0};
            for (int32_t w = obs->n_window - n_row; w < obs->n_window; w++)
                for (int32_t i = 0; i < n; i++)
                    sum[i] += (double)a[(int64_t)w * obs->n + at + i];
            for (int32_t i = 0; i < n; i++)
                mass[pos[at + i]] += sum[i];
        }
    }
}

void wnw__relative_norms(const wnw_observation *obs, int32_t ih, float *rho)
{
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    const float *v = obs->values(obs, ih);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        rho[i] = (float)wnw__norm(v + (int64_t)i * d, d);
        sum += (double)rho[i];
    }
    const double scale = n > 0 ? 1 / (sum / n + 1e-8) : 0;
    for (int32_t i = 0; i < n; i++)
        rho[i] = (float)((double)rho[i] * scale);
}
