/* SPDX-License-Identifier: MIT */
/* Parts share this code: arithmetic of counts and protected entries, names of choices. */
#include "policy/count.h"

#include "base/topk.h"

#include <math.h>

const char *const wnw__proj_norm_choices[] = {"l1", "l2", "sketch", NULL};
const char *const wnw__rounding_choices[] = {"exact", "trunc", NULL};

int32_t wnw__round_count(double x, wnw_rounding rounding)
{
    /* x comes from n * (1 - r), whose last bits are noise; `exact` keeps 100 of 1000 at r = 0.9, not 99. */
    const double y = floor(rounding == WNW_ROUND_EXACT ? x + 1e-6 : x);
    return y <= 0 ? 0 : y >= INT32_MAX ? INT32_MAX : (int32_t)y;
}

int32_t wnw__count_together(const wnw_layer_problem *p, const int32_t *n_entry, int32_t n_row)
{
    int64_t sum = 0;
    bool equal = true;
    for (int32_t i = 0; i < n_row; i++) {
        sum += n_entry[i] < p->budget ? n_entry[i] : p->budget;
        equal = equal && n_entry[i] == p->n;
    }
    /* The order of factors is that of kvpress, because the last bits decide where a count is truncated. */
    if (equal && p->ratio > 0)
        return wnw__round_count((double)n_row * p->n * (1 - p->ratio), p->rounding);
    return equal ? wnw__round_count(n_row * p->mean, p->rounding)
                 : (int32_t)(sum < INT32_MAX ? sum : INT32_MAX);
}

wnw_protected wnw__protected_clamp(wnw_protected p, int32_t n)
{
    p.n_first = p.n_first < 0 ? 0 : p.n_first > n ? n : p.n_first;
    p.n_last = p.n_last < 0 ? 0 : p.n_last > n - p.n_first ? n - p.n_first : p.n_last;
    return p;
}

wnw_protected wnw__protected_make_room(wnw_protected p, int32_t n_keep)
{
    const int32_t share = n_keep / 4 > 8 ? n_keep / 4 : 8;
    const int32_t most = n_keep - 1 < share ? n_keep - 1 : share;
    p.n_last = p.n_last < most ? p.n_last : most;
    if (p.n_last < 0)
        p.n_last = 0;
    p.n_first = p.n_first < n_keep - p.n_last ? p.n_first : n_keep - p.n_last;
    return p;
}

wnw_protected wnw__protected_shrink(wnw_protected p, int32_t n_keep)
{
    if ((int64_t)p.n_first + p.n_last <= n_keep)
        return p;
    p = wnw__protected_make_room(p, n_keep);
    /* Without a window nothing recent is protected, so recent entries are left half of the room. */
    if (p.n_last == 0 && p.n_first > n_keep / 2)
        p.n_first = n_keep / 2;
    return p;
}

/* Returns the sum of weights of parts below `most`; *left loses `most` for every other part. */
static double open_weight(const double *weight, int32_t n, int64_t *left, int32_t most, const int32_t *out)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += out[i] < most ? weight[i] : 0;
        *left -= out[i] < most ? 0 : most;
    }
    return sum;
}

int32_t wnw__recent_count(const struct wnw__recent_opts *o, int32_t budget, int32_t n_first)
{
    const int32_t share = wnw__round_count(o->share * budget, WNW_ROUND_EXACT);
    const int64_t room = (int64_t)budget - n_first - o->recent;
    return o->recent + (share < room ? share : room > 0 ? (int32_t)room : 0);
}

void wnw__share_out(const double *weight, int32_t n, int64_t total, int32_t most, int32_t *out)
{
    double sum = 0;
    int64_t left = total;
    for (int32_t i = 0; i < n; i++)
        out[i] = 0;
    /* Fill up parts whose share is too large until the shares of all others fit. */
    for (bool again = true; again;) {
        again = false;
        left = total;
        sum = open_weight(weight, n, &left, most, out);
        for (int32_t i = 0; i < n; i++)
            if (out[i] < most && sum > 0 && (double)left * weight[i] / sum >= most) {
                out[i] = most;
                again = true;
            }
    }
    int32_t n_open = 0;
    for (int32_t i = 0; i < n; i++)
        n_open += out[i] < most;
    int64_t missing = left;
    for (int32_t i = 0; i < n; i++)
        if (out[i] < most) {
            out[i] = wnw__round_count(sum > 0 ? (double)left * weight[i] / sum : (double)left / n_open,
                                      WNW_ROUND_EXACT);
            out[i] = out[i] < most ? out[i] : most;
            missing -= out[i];
        }
    while (missing > 0) {
        int32_t best = -1;
        double most_missing = 0;
        for (int32_t i = 0; i < n; i++) {
            const double want = sum > 0 ? (double)left * weight[i] / sum : (double)left / n_open;
            if (out[i] < most && (best < 0 || want - out[i] > most_missing + 1e-9)) {
                best = i;
                most_missing = want - out[i];
            }
        }
        if (best < 0)
            return;
        out[best]++;
        missing--;
    }
}

void wnw__hand_out(const int32_t *n_entry, int32_t n, int64_t missing, float *fraction, int32_t *n_keep)
{
    for (; missing > 0; missing--) {
        int32_t best = -1;
        for (int32_t r = 0; r < n; r++)
            if (n_keep[r] < n_entry[r] && (best < 0 || fraction[r] > fraction[best]))
                best = r;
        if (best < 0)
            return;
        n_keep[best]++;
        fraction[best] -= 1;
    }
}

double wnw__count_rule_find(const struct wnw__count_rule *rule, double total)
{
    double low = 0, high = 1;
    for (int step = 0; step < 60; step++) {
        const double x = (low + high) / 2;
        double sum = 0;
        for (int32_t r = 0; r < rule->n_row; r++)
            sum += rule->count(rule->user, r, x);
        *(sum > total ? &low : &high) = x;
    }
    return high;
}

void wnw__count_rule_round(const struct wnw__count_rule *rule, double x, int32_t first, int32_t n,
                           int64_t total, float *fraction, int32_t *n_keep)
{
    for (int32_t r = first; r < first + n; r++) {
        const double c = rule->count(rule->user, r, x);
        n_keep[r] = (int32_t)floor(c + 1e-6);
        fraction[r] = c > n_keep[r] ? (float)(c - n_keep[r]) : 0;
        total -= n_keep[r];
    }
    wnw__hand_out(rule->n_entry + first, n, total, fraction + first, n_keep + first);
}

int32_t wnw__candidates(const float *score, int32_t n_entry, wnw_protected prot, int32_t n_skip, float *out)
{
    const int32_t n_free = n_entry - prot.n_first - prot.n_last;
    struct wnw__cut cut = wnw__topk_cut(score + prot.n_first, n_free, n_skip < n_free ? n_skip : n_free);
    int32_t m = 0;
    for (int32_t i = 0; i < n_free; i++)
        if (!wnw__cut_take(&cut, score[prot.n_first + i]))
            out[m++] = score[prot.n_first + i];
    return m;
}

int32_t wnw__row_protected(const wnw_layer_problem *p, int32_t r)
{
    const wnw_protected prot = wnw__protected_shrink(p->prot[r], p->budget);
    return prot.n_first + prot.n_last;
}
