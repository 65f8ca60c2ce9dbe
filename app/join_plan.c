/* SPDX-License-Identifier: MIT */
#include "app/join_plan.h"

#include "base/prefix.h"

/* Tokens between two documents that follow each other, at most: an empty line. */
enum { MOST_BETWEEN = 64 };

struct text {
    const int32_t *ids;
    int32_t n;
};

/* Whether a text is in a prompt from `at` on, but for its edges. */
static bool is_at(const struct text *text, const int32_t *prompt, int32_t n_prompt, int32_t at)
{
    const int32_t to = text->n - APP_JOIN_EDGE;
    if (at + to > n_prompt)
        return false;
    for (int32_t k = APP_JOIN_EDGE; k < to; k++)
        if (text->ids[k] != prompt[at + k])
            return false;
    return true;
}

/* First tokens of a text that are read again. */
static int32_t n_again(int32_t n, double share)
{
    if (share <= 0.0)
        return 0;
    const double wanted = share * n;
    const int32_t again = wanted < n ? (int32_t)wanted + 1 : n;
    return again > APP_JOIN_LEAST ? again : APP_JOIN_LEAST;
}

/* Takes a text whose first token is at `at`. */
static struct app_join_part part_of(const struct text *text, const int32_t *prompt, int32_t n_prompt,
                                    int32_t at, double share)
{
    int32_t from = APP_JOIN_EDGE, to = text->n - APP_JOIN_EDGE;
    while (from > 0 && text->ids[from - 1] == prompt[at + from - 1])
        from--;
    while (to < text->n && at + to < n_prompt && text->ids[to] == prompt[at + to])
        to++;
    const int32_t again = n_again(text->n, share);
    from = again > from ? again : from;
    from = from < to ? from : to;
    return (struct app_join_part){.at = at + from, .from = from, .n = to - from};
}

bool app_join_plan(struct app_join_part *parts, const struct app_join_source *of, int32_t n,
                   const int32_t *prompt, int32_t n_prompt, double share, int32_t *total, int32_t *wrong)
{
    const int32_t same = n > 0 ? wnw__common_tokens(of[0].ids, of[0].n, prompt, n_prompt) : 0;
    int64_t between = MOST_BETWEEN; /* tokens from *total on, at most, before the next document */
    *wrong = 0;
    if (n < 1 || same + APP_JOIN_EDGE < of[0].n)
        return false;
    parts[0] = (struct app_join_part){.n = same};
    *total = same;
    for (int32_t i = 1; i < n; i++) {
        const struct text text = {of[i].ids + of[i].n_header, of[i].n - of[i].n_header};
        int32_t at = *total;
        *wrong = i;
        parts[i] = (struct app_join_part){.at = at, .from = of[i].n_header};
        if (text.n < 3 * APP_JOIN_EDGE) { /* it is read with what follows it */
            between += 3 * APP_JOIN_EDGE + MOST_BETWEEN;
            continue;
        }
        while (at - *total <= between && !is_at(&text, prompt, n_prompt, at))
            at++;
        if (at - *total > between)
            return false;
        between = MOST_BETWEEN;
        parts[i] = part_of(&text, prompt, n_prompt, at, share);
        parts[i].from += of[i].n_header;
        if (parts[i].from == 0 && parts[i].n > 0) /* one token must not be needed (join_cells.c) */
            parts[i] = (struct app_join_part){.at = parts[i].at + 1, .from = 1, .n = parts[i].n - 1};
        *total = parts[i].at + parts[i].n;
    }
    return true;
}
