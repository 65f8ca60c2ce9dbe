/* SPDX-License-Identifier: MIT */
#include "serve/turns.h"

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The first token from `from` on that no compression has judged; `to` if there is none. */
static int32_t after_done(const struct serve_turns *t, int32_t from, int32_t to)
{
    const int32_t at = larger(from, t->n_judged);
    return at < to ? at : to;
}

int32_t serve_turns_first_new(const struct serve_turns *t)
{
    return larger(larger(t->n_header, t->compressed ? t->n_judged : 0), t->at_prompt);
}

static int32_t add(struct serve_turns_part *out, int32_t n, const struct serve_turns_part *part)
{
    if (part->from >= part->to)
        return n;
    out[n] = *part;
    return n + 1;
}

/* A policy that looks with every query has only those of the last prompt. It would drop too much of earlier turns. So it
 * compresses only that prompt, if it is long enough. With a ratio, tokens that were compressed before stay as they are, and the
 * fallback compresses the rest. A budget is divided by numbers of tokens. */
static int32_t split(struct serve_turns_part *out, const struct serve_turns *t)
{
    const int32_t at = larger(t->at_prompt, t->n_header),
                  border = t->n - at < WNW_BRIDGE_LEAST_NEW ? t->n : at;
    struct serve_turns_part old = {.from = t->n_header, .to = border, .size = t->size, .fallback = true},
                            last = {.from = border, .to = t->n, .size = t->size};
    if (t->keeps_previous) {
        old.from = old.to;
    } else if (t->size.kind == WNW_SIZE_BUDGET) {
        const int64_t share = t->size.budget * (old.to - old.from) / (t->n - t->n_header);
        old.size.budget = share > 0 ? share : 1;
        last.size.budget = t->size.budget - share > 0 ? t->size.budget - share : 1;
    } else {
        old.from = after_done(t, old.from, old.to);
    }
    return add(out, add(out, 0, &old), &last);
}

int32_t serve_turns_parts(struct serve_turns_part out[2], const struct serve_turns *t)
{
    if (t->n <= t->n_header)
        return 0;
    if (t->all_queries)
        return split(out, t);
    const bool new_alone = t->compressed && t->keeps_previous;
    return add(out, 0,
               &(struct serve_turns_part){.from = new_alone ? after_done(t, t->n_header, t->n) : t->n_header,
                                          .to = t->n,
                                          .size = t->size});
}
