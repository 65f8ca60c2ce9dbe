/* SPDX-License-Identifier: MIT */
/*
 * ROUGE as the Python package `rouge` computes it: sentences end at full stops and words at single blanks. It
 * compares sets of n-grams, or the set of words of the longest common subsequences.
 */
#include "base/vectors.h"
#include "eval/metrics/metric.h"
#include "eval/metrics/words.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 8192 }; /* of a sentence; bounds the memory of the longest common subsequence */

/* A text as sentences of words. Equal words of both texts have the same number. */
struct side {
    struct eval_chars text; /* sentences one after the other, white space collapsed */
    struct eval_words words;
    int32_t *ids;  /* [words.n], owned */
    size_t *first; /* [n_sentences + 1]: index of each sentence's first word, owned */
    size_t n_sentences;
};

struct pair {
    struct side hyp, ref;
    int32_t n_ids;
};

static void free_side(struct side *s)
{
    eval_chars_free(&s->text);
    eval_words_free(&s->words);
    free(s->ids);
    free(s->first);
}

static void free_pair(struct pair *p)
{
    free_side(&p->hyp);
    free_side(&p->ref);
}

/* Adds the words of one sentence; a sentence of white space alone is one empty word. */
static bool add_sentence(struct side *s, const struct eval_chars *sentence)
{
    struct eval_chars piece;
    if (!eval_chars_copy(&piece, sentence))
        return false;
    eval_chars_collapse(&piece);
    uint32_t *const to = s->text.at + s->text.n;
    if (piece.n > 0)
        memcpy(to, piece.at, piece.n * sizeof *to);
    s->text.n += piece.n;
    s->first[s->n_sentences++] = s->words.n;
    bool good = true;
    for (size_t i = 0, begin = 0; good && i <= piece.n; i++)
        if (i == piece.n || to[i] == ' ') {
            good = eval_words_add(&s->words, (struct eval_chars){to + begin, i - begin});
            begin = i + 1;
        }
    eval_chars_free(&piece);
    return good;
}

static bool is_no_stop(uint32_t c)
{
    return c != '.';
}

static bool make_side(struct side *s, const struct eval_chars *c)
{
    s->text.at = malloc((c->n + 1) * sizeof *s->text.at);
    s->first = malloc((c->n + 2) * sizeof *s->first);
    bool good = s->text.at && s->first;
    struct eval_chars sentence;
    for (size_t next = 0; good && (sentence = eval_next_run(c, &next, is_no_stop)).n > 0;)
        good = add_sentence(s, &sentence);
    if (good)
        s->first[s->n_sentences] = s->words.n;
    return good;
}

static size_t index_of(const struct eval_words *sorted, const struct eval_chars *w)
{
    size_t lo = 0, hi = sorted->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (eval_word_compare(&sorted->at[mid], w) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool number_side(struct side *s, const struct eval_words *sorted)
{
    s->ids = malloc((s->words.n + 1) * sizeof *s->ids);
    for (size_t i = 0; s->ids && i < s->words.n; i++)
        s->ids[i] = (int32_t)index_of(sorted, &s->words.at[i]);
    return s->ids != NULL;
}

static bool make_pair(struct pair *p, const struct eval_chars *hyp, const struct eval_chars *ref)
{
    struct eval_words all = {0};
    *p = (struct pair){0};
    bool good = make_side(&p->hyp, hyp) && make_side(&p->ref, ref);
    for (size_t i = 0; good && i < p->hyp.words.n; i++)
        good = eval_words_add(&all, p->hyp.words.at[i]);
    for (size_t i = 0; good && i < p->ref.words.n; i++)
        good = eval_words_add(&all, p->ref.words.at[i]);
    if (good) {
        eval_words_sort(&all);
        eval_words_unique(&all);
        good = number_side(&p->hyp, &all) && number_side(&p->ref, &all);
        p->n_ids = (int32_t)all.n;
    }
    eval_words_free(&all);
    return good;
}

/* ---- Longest common subsequences ---- */

/* Marks the words of one longest common subsequence of r[n] and h[m] in `in`. Returns false if memory runs
 * out. */
static bool mark_common(unsigned char *in, const int32_t *r, size_t n, const int32_t *h, size_t m)
{
    const size_t stride = m / 8 + 1;
    uint16_t *length = calloc(2 * (m + 1), sizeof *length), *above = length ? length + m + 1 : NULL;
    unsigned char *up = calloc(n + 1, stride); /* bit (i, j): the longest without r[i] is longer */
    bool good = length && up;
    for (size_t i = 0; good && i < n; i++) {
        uint16_t *const swap = above;
        above = length;
        length = swap;
        length[0] = 0;
        for (size_t j = 0; j < m; j++) {
            length[j + 1] = above[j + 1] > length[j] ? above[j + 1] : length[j];
            if (r[i] == h[j])
                length[j + 1] = (uint16_t)(above[j] + 1);
            if (above[j + 1] > length[j])
                up[i * stride + j / 8] |= (unsigned char)(1u << j % 8);
        }
    }
    for (size_t i = n, j = m; good && i > 0 && j > 0;) {
        if (r[i - 1] == h[j - 1]) {
            in[r[i - 1]] = 1;
            i--;
            j--;
        } else if (up[(i - 1) * stride + (j - 1) / 8] >> (j - 1) % 8 & 1) {
            i--;
        } else {
            j--;
        }
    }
    free(length < above ? length : above);
    free(up);
    return good;
}

static size_t sentence_words(const struct side *s, size_t i)
{
    const size_t n = s->first[i + 1] - s->first[i];
    return n < MAX_WORDS ? n : MAX_WORDS;
}

static size_t n_distinct(const int32_t *ids, size_t n, unsigned char *seen, size_t n_ids)
{
    size_t distinct = 0;
    memset(seen, 0, n_ids);
    for (size_t i = 0; i < n; i++)
        if (!seen[ids[i]]) {
            seen[ids[i]] = 1;
            distinct++;
        }
    return distinct;
}

struct counts {
    size_t hyp, ref, both;
};

static bool count_l(struct counts *c, const struct pair *p)
{
    unsigned char *in = calloc((size_t)p->n_ids + 1, 1);
    if (!in)
        return false;
    c->hyp = n_distinct(p->hyp.ids, p->hyp.words.n, in, (size_t)p->n_ids);
    c->ref = n_distinct(p->ref.ids, p->ref.words.n, in, (size_t)p->n_ids);
    memset(in, 0, (size_t)p->n_ids);
    bool good = true;
    for (size_t i = 0; i < p->ref.n_sentences; i++)
        for (size_t j = 0; good && j < p->hyp.n_sentences; j++)
            good = mark_common(in, p->ref.ids + p->ref.first[i], sentence_words(&p->ref, i),
                               p->hyp.ids + p->hyp.first[j], sentence_words(&p->hyp, j));
    for (int32_t i = 0; i < p->n_ids; i++)
        c->both += in[i];
    free(in);
    return good;
}

/* ---- Sets of n-grams ---- */

/* The distinct runs of n (1 or 2) words as sorted numbers. NULL: out of memory. */
static uint64_t *ngram_set(size_t *n_set, const struct side *s, size_t n)
{
    const size_t n_all = s->words.n >= n ? s->words.n - n + 1 : 0;
    uint64_t *keys = malloc((n_all + 1) * sizeof *keys);
    *n_set = 0;
    if (!keys)
        return NULL;
    for (size_t i = 0; i < n_all; i++)
        keys[i] = n == 1 ? (uint64_t)s->ids[i] : (uint64_t)s->ids[i] << 32 | (uint32_t)s->ids[i + 1];
    if (n_all > 1)
        qsort(keys, n_all, sizeof *keys, wnw__ascending_u64);
    for (size_t i = 0; i < n_all; i++)
        if (*n_set == 0 || keys[*n_set - 1] != keys[i])
            keys[(*n_set)++] = keys[i];
    return keys;
}

static bool count_n(struct counts *c, const struct pair *p, size_t n)
{
    uint64_t *h = ngram_set(&c->hyp, &p->hyp, n), *r = ngram_set(&c->ref, &p->ref, n);
    for (size_t i = 0, j = 0; h && r && i < c->hyp && j < c->ref;) {
        const uint64_t a = h[i], b = r[j];
        c->both += a == b;
        i += a <= b;
        j += b <= a;
    }
    const bool good = h && r;
    free(h);
    free(r);
    return good;
}

/* ---- Scorers ---- */

enum value { P, R, F };

/* n is 1 or 2 for n-grams, or 0 for the longest common subsequence. Texts without a sentence score 0. */
static bool rouge(double *out, const struct eval_chars *hyp, const struct eval_chars *ref, size_t n,
                  enum value v)
{
    struct pair pair;
    struct counts c = {0};
    bool good = make_pair(&pair, hyp, ref);
    *out = 0.0;
    if (good && pair.hyp.n_sentences > 0 && pair.ref.n_sentences > 0) {
        good = n > 0 ? count_n(&c, &pair, n) : count_l(&c, &pair);
        const double p = c.hyp > 0 ? (double)c.both / (double)c.hyp : 0.0;
        const double r = c.ref > 0 ? (double)c.both / (double)c.ref : 0.0;
        const double of[] = {[P] = p, [R] = r, [F] = 2.0 * (p * r / (p + r + 1e-8))};
        *out = of[v];
    }
    free_pair(&pair);
    return good;
}

bool eval_score_rouge_l(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    (void)variant;
    return rouge(out, &c->pred, ref, 0, F);
}

/* kvpress passes the needle to the package as hypothesis and the response as reference. */
bool eval_score_rouge_pkg(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    static const size_t n[] = {1, 2, 0};
    return rouge(out, ref, &c->pred, n[variant / 3], (enum value)(variant % 3));
}
