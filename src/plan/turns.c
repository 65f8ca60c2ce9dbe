/* SPDX-License-Identifier: MIT */
/*
 * Which part of a timeline is compressed next, and to what. Sessions, sequences on devices, the backend's watch and the server ask here.
 * No store is known: a timeline is a few numbers.
 *
 *     |- header -|------ judged ------|------ new ------|
 *     0          n_header             n_judged          n
 *                                 ^ at_prompt may be on either side
 */
#include "plan/turns.h"

#include "base/err.h"

#include <float.h>
#include <math.h>

/* No rounding of a product takes an entry. */
static const double LITTLE = 1e-6;

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* ---- Sizes ---- */

/* Entries that a ratio leaves of n. */
static int64_t left_of(double ratio, int32_t n)
{
    return (int64_t)floor((1 - ratio) * (double)n + LITTLE);
}

/* x times as much, at most `most`. */
static double times(double x, double slack, double most)
{
    const double more = x * slack;
    return more < most ? more : most;
}

/* The size while more of the prompt follows. */
static wnw_size with_slack(wnw_size size, const wnw_turns *t)
{
    if (!t->more_follows || !(t->slack > 1))
        return size;
    if (size.kind == WNW_SIZE_RATIO)
        size.ratio = 1 - times(1 - size.ratio, t->slack, 1);
    const double budget = times((double)size.budget, t->slack, INT32_MAX),
                 bytes = times((double)size.bytes, t->slack, 9e18);
    if (size.kind == WNW_SIZE_BUDGET)
        size.budget = (int64_t)(t->rounds_up ? ceil(budget) : budget);
    if (size.kind == WNW_SIZE_BYTES)
        size.bytes = (uint64_t)bytes;
    return size;
}

/* The same with the header. */
static wnw_size size_of_all(const wnw_turns *t)
{
    wnw_size size = t->size;
    if (size.kind == WNW_SIZE_RATIO && t->ratio == WNW_TURNS_OF_READ) {
        const int64_t all = left_of(size.ratio, t->n);
        size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = all > 1 ? all : 1};
    }
    return with_slack(size, t);
}

wnw_size wnw__turns_size(const wnw_turns *t)
{
    wnw_size size = size_of_all(t);
    const int64_t budget = size.budget - t->n_counted;
    if (size.kind == WNW_SIZE_BUDGET)
        size.budget = budget > t->n_least ? budget : t->n_least;
    if (size.kind != WNW_SIZE_RATIO || t->ratio != WNW_TURNS_OF_ALL || t->n_counted < 1)
        return size;
    /* A ratio stays one: a budget must hold all that the policy protects, and of a short prompt a ratio leaves less. */
    const int64_t left = left_of(size.ratio, t->n) - t->n_counted;
    const double share = ((double)(left > 1 ? left : 1) + LITTLE) / (t->n - t->n_header);
    size.ratio = share < 1 ? 1 - share : 0;
    return size;
}

/* ---- Parts ---- */

/* The first token from `from` on that no compression has judged; `to` if there is none. */
static int32_t after_judged(const wnw_turns *t, int32_t from, int32_t to)
{
    const int32_t at = larger(from, t->n_judged);
    return at < to ? at : to;
}

/* The size of a part from `from` on. After judged tokens a ratio is of the part alone. */
static wnw_size size_from(const wnw_turns *t, int32_t from)
{
    wnw_turns of = *t;
    if (t->n_judged > t->n_header && from >= t->n_judged && t->ratio == WNW_TURNS_OF_ALL)
        of.ratio = WNW_TURNS_OF_REST;
    return wnw__turns_size(&of);
}

static int32_t add(wnw_turns_part *out, int32_t n, const wnw_turns_part *part)
{
    if (part->from >= part->to)
        return n;
    out[n] = *part;
    return n + 1;
}

/* budget * part / all, for any budget. */
static int64_t share_of(int64_t budget, int32_t part, int32_t all)
{
    return budget / all * part + budget % all * part / all;
}

/* A policy that looks with every query has only those of the last prompt. It would drop too much of earlier turns. So it
 * compresses only that prompt, if it is long enough. With a ratio, tokens that were judged before stay as they are, and the
 * fallback compresses the rest. A budget is divided by numbers of tokens. */
static int32_t split(wnw_turns_part *out, const wnw_turns *t)
{
    const wnw_size size = wnw__turns_size(t);
    const int32_t at = larger(t->at_prompt, t->n_header),
                  border = t->n - at < WNW_TURNS_LEAST_NEW ? t->n : at;
    wnw_turns_part old = {.from = t->n_header, .to = border, .size = size, .fallback = true},
                   last = {.from = border, .to = t->n, .size = size};
    if (t->keeps_previous) {
        old.from = old.to;
        if (t->compressed)
            last.from = after_judged(t, last.from, last.to);
    } else if (size.kind == WNW_SIZE_BUDGET) {
        const int64_t share = share_of(size.budget, old.to - old.from, t->n - t->n_header);
        old.size.budget = share > 0 ? share : 1;
        last.size.budget = size.budget - share > 0 ? size.budget - share : 1;
    } else {
        old.from = after_judged(t, old.from, old.to);
        old.size = size_from(t, old.from);
        last.size = size_from(t, last.from);
    }
    return add(out, add(out, 0, &old), &last);
}

/* Whether every number is one, and not negative. */
static bool are_numbers(const wnw_turns *t)
{
    const bool counts = t->n_header >= 0 && t->n >= 0 && t->n_judged >= 0 && t->at_prompt >= 0 &&
                        t->n_counted >= 0 && t->n_least >= 0;
    return counts && t->size.budget >= 0 && t->size.ratio >= 0 && t->size.ratio <= 1 && t->slack >= 0 &&
           t->slack <= DBL_MAX;
}

static bool take(wnw_turns *own, const wnw_turns *given)
{
    *own = wnw_turns_default();
    return given && WNW_SIZED_TAKE(wnw_turns, own, given) == WNW_OK && are_numbers(own);
}

int32_t wnw_turns_parts(wnw_turns_part out[2], const wnw_turns *turns)
{
    wnw_turns t;
    if (!out || !take(&t, turns) || t.n <= t.n_header)
        return 0;
    if (t.all_queries)
        return split(out, &t);
    const int32_t from = t.compressed && t.keeps_previous ? after_judged(&t, t.n_header, t.n) : t.n_header;
    return add(out, 0, &(wnw_turns_part){.from = from, .to = t.n, .size = size_from(&t, from)});
}

int32_t wnw_turns_first_new(const wnw_turns *turns)
{
    wnw_turns t;
    if (!take(&t, turns))
        return 0;
    return larger(larger(t.n_header, t.compressed ? t.n_judged : 0), t.at_prompt);
}

bool wnw_turns_is_due(int32_t n_new, int32_t chunk, bool ended)
{
    if (ended)
        return n_new >= WNW_TURNS_LEAST_NEW;
    return chunk > 0 && n_new >= chunk;
}
