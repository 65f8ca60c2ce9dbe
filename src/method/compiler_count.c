/* SPDX-License-Identifier: MIT */
#include "method/compiler.h"

#include "base/topk.h"
#include "profile/profile.h"

#include <math.h>

/* The k-th largest of u[n], 1 <= k <= n. */
static double largest(const float *u, int32_t n, int32_t k)
{
    const struct wnw__cut cut = wnw__topk_cut(u, n, k);
    int32_t t = 0;
    while (t < n - 1 && wnw__score_key(u[t]) != cut.key)
        t++;
    return (double)u[t];
}

/* The median of u[n]: the mean of the two in the middle where n is even. */
static double median(const float *u, int32_t n)
{
    return (largest(u, n, (n + 1) / 2) + largest(u, n, n / 2 + 1)) / 2;
}

int32_t wnw__gate_above(const float *u, int32_t n, int32_t norm, double tau)
{
    double sum = 0, max = 0, by;
    int32_t count = 0;
    for (int32_t t = 0; t < n; t++) {
        sum += (double)u[t];
        max = (double)u[t] > max ? (double)u[t] : max;
    }
    if (!(sum > 0))
        return tau <= 1 ? n : 0; /* every z is 1 */
    if (norm == WNW_NORM_MAX)
        by = max + 1e-8;
    else
        by = (norm == WNW_NORM_MEDIAN ? median(u, n) : sum / n) + 1e-20;
    for (int32_t t = 0; t < n; t++)
        count += (double)u[t] / by >= tau;
    return count;
}

int32_t wnw__gate_elastic(int32_t above, int32_t n, int32_t c, double least)
{
    const int32_t most = n < c ? n : c, part = (int32_t)ceil(least * c - 1e-9), low = n < part ? n : part;
    if (above < low)
        return low;
    if (above > most)
        return most;
    return above;
}

/* ---- pooled ---- */

struct pool {
    const double *room;    /* [n_layer] */
    const int32_t *demand; /* [n_layer] */
    int32_t n_layer;
    int32_t c;
    double floor;
    double lo, want, cap, total; /* lo, want and cap summed over the layers; total = L C */
};

static int32_t cap_of(const struct pool *s, int32_t i)
{
    const int64_t most = (int64_t)4 * s->c;
    const int32_t n = (int32_t)s->room[i];
    return n < most ? n : (int32_t)most;
}

static int32_t lo_of(const struct pool *s, int32_t i)
{
    const int32_t n = (int32_t)s->room[i], part = (int32_t)floor(s->floor * s->c + 1e-9),
                  least = part > 1 ? part : 1;
    const int32_t lo = n < s->c ? n : s->c;
    return lo < least ? lo : least;
}

static int32_t want_of(const struct pool *s, int32_t i)
{
    const int32_t lo = lo_of(s, i), cap = cap_of(s, i);
    if (s->demand[i] < lo)
        return lo;
    if (s->demand[i] > cap)
        return cap;
    return s->demand[i];
}

/* Share of the layer before rounding. */
static double quota(const struct pool *s, int32_t i)
{
    const double lo = lo_of(s, i), want = want_of(s, i), cap = cap_of(s, i);
    if (s->cap <= s->total)
        return cap;
    if (s->want >= s->total)
        return lo + (s->want > s->lo ? (want - lo) * (s->total - s->lo) / (s->want - s->lo) : 0);
    return want + (s->cap > s->want ? (cap - want) * (s->total - s->want) / (s->cap - s->want) : 0);
}

static int32_t whole_of(const struct pool *s, int32_t i)
{
    return (int32_t)floor(quota(s, i) + 1e-9);
}

/* The layer that follows `last` (-1: the first) in the order of remainders, largest first, ties to the lower
 * layer. Layers that are at their cap are passed over; -1 at the end. */
static int32_t next_remainder(const struct pool *s, int32_t last)
{
    const double before = last >= 0 ? quota(s, last) - whole_of(s, last) : 0;
    int32_t best = -1;
    double best_rest = 0;
    for (int32_t i = 0; i < s->n_layer; i++) {
        const double rest = quota(s, i) - whole_of(s, i);
        if (whole_of(s, i) >= cap_of(s, i) || (last >= 0 && (rest > before || (rest == before && i <= last))))
            continue;
        if (best < 0 || rest > best_rest) {
            best = i;
            best_rest = rest;
        }
    }
    return best;
}

void wnw__gate_pooled(const double *room, int32_t n_layer, int32_t c, double least, int32_t *count)
{
    struct pool s = {.room = room,
                     .demand = count,
                     .n_layer = n_layer,
                     .c = c,
                     .floor = least,
                     .total = (double)c * n_layer};
    for (int32_t i = 0; i < n_layer; i++) {
        s.lo += lo_of(&s, i);
        s.want += want_of(&s, i);
        s.cap += cap_of(&s, i);
    }
    double given = 0;
    for (int32_t i = 0; i < n_layer; i++)
        given += whole_of(&s, i);
    int64_t missing = (int64_t)((s.cap < s.total ? s.cap : s.total) - given);
    int32_t last = -1; /* the last layer in the order that gets one more */
    for (int32_t next; missing > 0 && (next = next_remainder(&s, last)) >= 0; missing--)
        last = next;
    const double cut = last >= 0 ? quota(&s, last) - whole_of(&s, last) : 0;
    /* From here on a layer's count depends on its own demand alone, so count may be overwritten. */
    for (int32_t i = 0; i < n_layer; i++) {
        const int32_t whole = whole_of(&s, i);
        const double rest = quota(&s, i) - whole;
        const bool more = last >= 0 && whole < cap_of(&s, i) && (rest > cut || (rest == cut && i <= last));
        count[i] = whole + more;
    }
}
