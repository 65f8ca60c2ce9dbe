/* SPDX-License-Identifier: MIT */
#include "calibrate/retrieval.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* ---- The span ---- */

static bool holds(const int32_t *list, int32_t n, int32_t token)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i] == token)
            return true;
    return false;
}

/* Different tokens of answer[m], and how many of them are in window[m] too. */
static void overlap(const int32_t *answer, int32_t m, const int32_t *window, int32_t *n_all, int32_t *n_both)
{
    *n_all = *n_both = 0;
    for (int32_t i = 0; i < m; i++) {
        if (holds(answer, i, answer[i]))
            continue;
        ++*n_all;
        *n_both += holds(window, m, answer[i]);
    }
}

bool wnw__span_find(struct wnw__answer_span *out, const int32_t *prompt, int32_t n, const int32_t *answer,
                    int32_t m)
{
    int32_t best = 0, n_all, n_both;
    *out = (struct wnw__answer_span){0};
    if (m < 1)
        return false;
    for (int32_t i = 0; i + m <= n; i++)
        if (memcmp(prompt + i, answer, (size_t)m * sizeof *answer) == 0) {
            *out = (struct wnw__answer_span){.first = i, .n = m};
            return true;
        }
    for (int32_t i = 0; i + m <= n; i++) {
        overlap(answer, m, prompt + i, &n_all, &n_both);
        if (10 * n_both > 9 * n_all && n_both > best) {
            *out = (struct wnw__answer_span){.first = i, .n = m};
            best = n_both;
        }
    }
    return best > 0;
}

int32_t wnw__span_count(const int32_t *prompt, struct wnw__answer_span span, int32_t token)
{
    int32_t n = 0;
    for (int32_t i = 0; i < span.n; i++)
        n += prompt[span.first + i] == token;
    return n;
}

/* ---- Scores ---- */

/* The entry with the largest attention below that of entry `after`, which comes before it in the order;
 * after < 0: the largest of all. -1: there is none. */
static int32_t next_largest(const float *row, int32_t n, int32_t after)
{
    int32_t best = -1;
    for (int32_t j = 0; j < n; j++) {
        const bool later = after < 0 || row[j] < row[after] || (row[j] == row[after] && j > after);
        if (later && (best < 0 || row[j] > row[best]))
            best = j;
    }
    return best;
}

void wnw__retrieval_add(struct wnw__retrieval *r, const struct wnw__retrieval_rule *rule,
                        const struct wnw__retrieval_step *step)
{
    const struct wnw__answer_span span = step->span;
    const int32_t count = wnw__span_count(step->prompt, span, step->token);
    if (count == 0)
        return;
    double mass = 0;
    for (int32_t i = 0; i < span.n; i++)
        mass += (double)step->row[span.first + i];
    r->semantic += rule->multiplicity ? count * mass : mass;
    int32_t j = -1;
    for (int32_t k = 0; k < rule->top && (j = next_largest(step->row, step->n_row, j)) >= 0; k++) {
        const int32_t at = j - span.first;
        if (at < 0 || at >= span.n || step->prompt[j] != step->token)
            continue;
        if (!rule->distinct || !step->copied[at])
            r->traditional += 1.0 / span.n;
        if (rule->distinct)
            step->copied[at] = true;
        return;
    }
}

/* ---- One row of attention ---- */

double wnw__importance(const float *row, int32_t n, struct wnw__answer_span span)
{
    double sum = 0;
    for (int32_t i = span.first; i < span.first + span.n && i < n; i++) {
        int32_t n_above = 0;
        for (int32_t j = 0; j < n && n_above < span.n; j++)
            n_above += row[j] > row[i] || (row[j] >= row[i] && j < i);
        if (n_above < span.n)
            sum += (double)row[i];
    }
    return sum / span.n;
}

double wnw__far_share(const float *row, int32_t n, int32_t n_sink, int32_t n_recent)
{
    double all = 0, far = 0;
    for (int32_t i = 0; i < n; i++) {
        all += (double)row[i];
        far += i >= n_sink && i < n - n_recent ? (double)row[i] : 0;
    }
    return all > 0 ? far / all : 0;
}

/* ---- Ranks ---- */

void wnw__rank_heads(const double *mean, int32_t n, int32_t *rank)
{
    for (int32_t h = 0; h < n; h++) {
        int32_t i = h;
        for (; i > 0 && mean[rank[i - 1]] < mean[h]; i--)
            rank[i] = rank[i - 1];
        rank[i] = h;
    }
}

/* Whether element i is one of the k highest of x[n]. */
static bool is_top(const double *x, int32_t n, int32_t k, int32_t i)
{
    int32_t n_higher = 0;
    for (int32_t j = 0; j < n; j++)
        n_higher += x[j] > x[i] || (x[j] == x[i] && j < i);
    return n_higher < k;
}

double wnw__top_overlap(const double *a, const double *b, int32_t n, int32_t k)
{
    int32_t n_both = 0;
    for (int32_t i = 0; i < n; i++)
        n_both += is_top(a, n, k, i) && is_top(b, n, k, i);
    return (double)n_both / k;
}

/* ---- Words ---- */

struct word {
    const char *s; /* NULL = no further word */
    size_t len;
};

/* Bytes above 127 are parts of letters. */
static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static struct word next_word(const char *at)
{
    struct word w = {0};
    while (*at && !is_word_byte(*at))
        at++;
    w.s = *at ? at : NULL;
    while (w.s && is_word_byte(w.s[w.len]))
        w.len++;
    return w;
}

static bool same_word(struct word a, struct word b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (tolower((unsigned char)a.s[i]) != tolower((unsigned char)b.s[i]))
            return false;
    return true;
}

/* How often a word is in the part of text before `end`; end NULL = all of it. */
static int32_t count_word(struct word w, const char *text, const char *end)
{
    int32_t n = 0;
    for (struct word v = next_word(text); v.s && (!end || v.s < end); v = next_word(v.s + v.len))
        n += same_word(v, w);
    return n;
}

double wnw__word_recall(const char *reference, const char *response)
{
    int32_t n = 0, found = 0;
    for (struct word w = next_word(reference); w.s; w = next_word(w.s + w.len)) {
        n++;
        /* The k-th time a word comes it counts if the response has it k times. */
        found += count_word(w, reference, w.s) < count_word(w, response, NULL);
    }
    return n > 0 ? (double)found / n : 0;
}
