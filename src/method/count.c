/* SPDX-License-Identifier: MIT */
/* Parts share this code: arithmetic of counts and protected entries, names of choices. */
#include "method/count.h"
#include "base/clamp.h"

#include "base/topk.h"

#include <math.h>

const char *const wnw__proj_norm_choices[] = {"l1", "l2", "sketch", NULL};
const char *const wnw__rounding_choices[] = {"exact", "trunc", NULL};

int32_t wnw__round_count(double x, wnw_rounding rounding)
{
    /* x comes from n * (1 - r), whose last bits are noise; `exact` keeps 100 of 1000 at r = 0.9, not 99. */
    const double y = floor(rounding == WNW_ROUND_EXACT ? x + 1e-6 : x);
    if (y <= 0)
        return 0;
    if (y >= INT32_MAX)
        return INT32_MAX;
    return (int32_t)y;
}

int32_t wnw__count_together(const wnw_layer_problem *p, const int32_t *n_entry, int32_t n_row)
{
    int64_t sum = 0;
    bool equal = true;
    for (int32_t i = 0; i < n_row; i++) {
        sum += n_entry[i];
        equal = equal && n_entry[i] == p->n;
    }
    /* The order of factors is that of kvpress, because the last bits decide where a count is truncated. */
    const double x = equal && p->ratio > 0 ? (double)n_row * p->n * (1 - p->ratio) : n_row * p->mean;
    const int32_t total = wnw__round_count(x, p->rounding);
    return total < sum ? total : (int32_t)sum;
}

wnw_protected wnw__protected_clamp(wnw_protected p, int32_t n)
{
    p.n_first = (int32_t)wnw__clamp(p.n_first, 0, n);
    p.n_last = (int32_t)wnw__clamp(p.n_last, 0, n - p.n_first);
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

int32_t wnw__recent_count(const struct wnw__recent_opts *o, int32_t budget, int32_t n_first)
{
    const int32_t share = wnw__round_count(o->share * budget, WNW_ROUND_EXACT);
    const int64_t room = (int64_t)budget - n_first - o->recent;
    return o->recent + (int32_t)wnw__clamp(share, 0, room > 0 ? room : 0);
}

/* A total that is shared out among n parts, at most `most` to each, or part i at most each[i]. Parts that have less are open. */
struct sharing {
    const double *weight; /* [n] */
    const int32_t *each;  /* [n]; NULL: all may have `most` */
    int32_t n, most;
    double sum;   /* of the weights of open parts */
    int64_t left; /* of the total, for open parts */
    int32_t n_open;
};

static int32_t most_of(const struct sharing *s, int32_t i)
{
    return s->each ? s->each[i] : s->most;
}

/* What an open part is to get. */
static double share_of(const struct sharing *s, int32_t i)
{
    return s->sum > 0 ? (double)s->left * s->weight[i] / s->sum : (double)s->left / s->n_open;
}

static void count_open(struct sharing *s, int64_t total, const int32_t *out)
{
    s->sum = 0;
    s->left = total;
    s->n_open = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t most = most_of(s, i);
        s->sum += out[i] < most ? s->weight[i] : 0;
        s->left -= out[i] < most ? 0 : most;
        s->n_open += out[i] < most;
    }
}

/* Fills up parts whose share is too large until the shares of all others fit. */
static void fill_up(struct sharing *s, int64_t total, int32_t *out)
{
    for (bool again = true; again;) {
        again = false;
        count_open(s, total, out);
        for (int32_t i = 0; i < s->n; i++)
            if (out[i] < most_of(s, i) && s->sum > 0 && share_of(s, i) >= most_of(s, i)) {
                out[i] = most_of(s, i);
                again = true;
            }
    }
}

/* The open part that lacks most of its share, the first of several; -1: none is open. */
static int32_t most_lacking(const struct sharing *s, const int32_t *out)
{
    int32_t best = -1;
    double most_missing = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const double missing = share_of(s, i) - out[i];
        if (out[i] < most_of(s, i) && (best < 0 || missing > most_missing + 1e-9)) {
            best = i;
            most_missing = missing;
        }
    }
    return best;
}

static void share_out(struct sharing *s, int64_t total, int32_t *out)
{
    for (int32_t i = 0; i < s->n; i++)
        out[i] = 0;
    fill_up(s, total, out);
    int64_t missing = s->left;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t most = most_of(s, i);
        if (out[i] < most) {
            out[i] = wnw__round_count(share_of(s, i), WNW_ROUND_EXACT);
            out[i] = out[i] < most ? out[i] : most;
            missing -= out[i];
        }
    }
    for (int32_t best; missing > 0 && (best = most_lacking(s, out)) >= 0; missing--)
        out[best]++;
}

void wnw__share_out(const double *weight, int32_t n, int64_t total, int32_t most, int32_t *out)
{
    share_out(&(struct sharing){.weight = weight, .n = n, .most = most}, total, out);
}

void wnw__share_out_within(const double *weight, int32_t n, int64_t total, const int32_t *most, int32_t *out)
{
    share_out(&(struct sharing){.weight = weight, .n = n, .each = most}, total, out);
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

int32_t wnw__last_in_room(const wnw_keep_problem *p, double room, int32_t n_first, int32_t n_last)
{
    const int32_t most = (int32_t)(room * p->budget);
    if (!p->sized || room >= 1 || n_last <= most - n_first)
        return n_last;
    return most > n_first ? most - n_first : 0;
}

void wnw__look_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct wnw__look_opts *o = opts;
    const int32_t first = o->header && p->n_prefix > 0 ? p->n_here : o->sinks;
    out->n_first = first > out->n_first ? first : out->n_first;
    /* The newest entry stays in any case: it may be all that is left of what was asked. */
    const int32_t fit = wnw__last_in_room(p, o->room, out->n_first, o->last),
                  last = fit == 0 && o->last > 0 ? 1 : fit;
    out->n_last = last > out->n_last ? last : out->n_last;
}

double wnw__look_count(const wnw_layer_problem *p, int32_t r, double share)
{
    const int32_t n_prot = wnw__row_protected(p, r),
                  n_all = p->n_past > p->n_entry[r] ? p->n_past : p->n_entry[r];
    const double c = n_prot + share * (n_all - n_prot);
    return c > p->n_entry[r] ? p->n_entry[r] : c;
}
