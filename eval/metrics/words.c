/* SPDX-License-Identifier: MIT */
/* Words of a text. */
#include "eval/metrics/words.h"

#include "eval/base/grow.h"

#include <stdlib.h>

struct eval_chars eval_next_run(const struct eval_chars *c, size_t *from, bool (*is)(uint32_t))
{
    size_t begin = *from;
    while (begin < c->n && !is(c->at[begin]))
        begin++;
    for (*from = begin; *from < c->n && is(c->at[*from]);)
        (*from)++;
    return (struct eval_chars){.at = c->at + begin, .n = *from - begin};
}

bool eval_words_add(struct eval_words *w, struct eval_chars word)
{
    if (!eval_grow(&w->at, w->n, sizeof *w->at))
        return false;
    w->at[w->n++] = word;
    return true;
}

static bool is_no_space(uint32_t c)
{
    return !eval_is_space(c);
}

bool eval_words_split(struct eval_words *w, const struct eval_chars *c)
{
    struct eval_chars word;
    for (size_t next = 0; (word = eval_next_run(c, &next, is_no_space)).n > 0;)
        if (!eval_words_add(w, word))
            return false;
    return true;
}

void eval_words_free(struct eval_words *w)
{
    free(w->at);
    *w = (struct eval_words){0};
}

int eval_word_compare(const struct eval_chars *a, const struct eval_chars *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++)
        if (a->at[i] != b->at[i])
            return a->at[i] < b->at[i] ? -1 : 1;
    return (a->n > b->n) - (a->n < b->n);
}

static int compare(const void *a, const void *b)
{
    return eval_word_compare(a, b);
}

void eval_words_sort(struct eval_words *w)
{
    if (w->n > 1)
        qsort(w->at, w->n, sizeof *w->at, compare);
}

void eval_words_unique(struct eval_words *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        if (n == 0 || eval_word_compare(&w->at[n - 1], &w->at[i]) != 0)
            w->at[n++] = w->at[i];
    w->n = n;
}

size_t eval_words_common(const struct eval_words *a, const struct eval_words *b)
{
    size_t n = 0, i = 0, j = 0;
    while (i < a->n && j < b->n) {
        const int c = eval_word_compare(&a->at[i], &b->at[j]);
        n += c == 0;
        i += c <= 0;
        j += c >= 0;
    }
    return n;
}
