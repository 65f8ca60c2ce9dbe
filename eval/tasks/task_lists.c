/* SPDX-License-Identifier: MIT */
/* RULER's aggregation: the most common words of a list, the most frequent words of a coded text. */
#include "eval/tasks/makers.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* ---- Common words ---- */

enum { N_COMMON = 10, LONG = 4096, MAX_WORD = 16, MAX_TRIES = 1000 };

/* Distinct words; no word is part of another. */
struct pool {
    const char **word;      /* [n], owned */
    char (*made)[MAX_WORD]; /* [n_made] those that are made up, owned */
    size_t n, n_made;
};

static void free_pool(struct pool *p)
{
    free(p->made);
    free(p->word);
}

/* Makes up a word of three syllables. */
static void make_up(char out[MAX_WORD], struct eval_random *r)
{
    static const char vowels[] = "aeiou", codas[] = "nrls";
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        const char *onset = eval_draw(r, &eval_word_onsets);
        const char vowel = vowels[eval_random_below(r, 5)];
        n += (size_t)snprintf(out + n, MAX_WORD - n, "%s%c", onset, vowel);
        if (eval_random_below(r, 3) == 0)
            n += (size_t)snprintf(out + n, MAX_WORD - n, "%c", codas[eval_random_below(r, 4)]);
    }
}

static const char *listed(size_t i)
{
    if (i < eval_adjectives.n)
        return eval_adjectives.at[i];
    i -= eval_adjectives.n;
    return i < eval_nouns.n ? eval_nouns.at[i] : eval_verbs.at[i - eval_nouns.n];
}

/* Draws n words in random order; if the lists have fewer, the rest are made up. */
static bool draw_pool(struct pool *p, struct eval_random *r, size_t n)
{
    const size_t n_listed = eval_adjectives.n + eval_nouns.n + eval_verbs.n,
                 n_plain = n < n_listed ? n : n_listed;
    size_t *ids = eval_iota(n_listed);
    *p = (struct pool){.word = malloc((n + 1) * sizeof *p->word),
                       .made = malloc((n - n_plain + 1) * sizeof *p->made)};
    if (!ids || !p->word || !p->made) {
        free(ids);
        return false;
    }
    eval_random_sample(r, ids, n_listed, n_plain);
    for (size_t i = 0; i < n_plain; i++)
        p->word[p->n++] = listed(ids[i]);
    free(ids);
    for (int tries = 0; p->n < n && tries < MAX_TRIES; tries++) {
        char *word = p->made[p->n_made];
        bool fresh = true;
        make_up(word, r);
        for (size_t i = 0; fresh && i < p->n; i++)
            fresh = !strstr(word, p->word[i]) && !strstr(p->word[i], word);
        if (!fresh)
            continue;
        tries = 0;
        p->word[p->n++] = word;
        p->n_made++;
    }
    return p->n == n;
}

/* Adds the beginning and word[n]: the first 10 n_often times, the others n_seldom times. */
static bool put_list(struct eval_sample *s, const char *const *word, size_t n, size_t n_often,
                     size_t n_seldom, struct eval_random *r)
{
    size_t *times = malloc((n + 1) * sizeof *times), n_all = 0;
    for (size_t i = 0; times && i < n; i++)
        times[i] = i < N_COMMON ? n_often : n_seldom;
    size_t *ids = times ? eval_draw_repeated(&n_all, r, times, n) : NULL;
    eval_put(s, &s->context, "%s", eval_form_cwe.at[EVAL_CONTEXT]);
    for (size_t i = 0; ids && i < n_all; i++)
        eval_put(s, &s->context, "%s%zu. %s", i > 0 ? " " : "", i + 1, word[ids[i]]);
    eval_put(s, &s->context, "\n");
    free(times);
    const bool good = ids != NULL;
    free(ids);
    return good;
}

int eval_make_cwe(struct eval_sample *s, struct eval_draft *d)
{
    const bool is_long = s->n_target >= LONG;
    const size_t n_example = is_long ? 40 : 20, n = (size_t)d->units;
    struct pool pool;
    bool good = draw_pool(&pool, &d->r, n_example + n) &&
                put_list(s, pool.word, n_example, is_long ? 10 : 3, is_long ? 3 : 1, &d->r);
    if (good) {
        eval_put(s, &s->context, "%s%s", eval_form_cwe.at[EVAL_QUESTION], eval_form_cwe.at[EVAL_PREFIX]);
        for (int i = 0; i < N_COMMON; i++)
            eval_put(s, &s->context, " %d. %s", i + 1, pool.word[i]);
        eval_put(s, &s->context, "\n\n");
        good = put_list(s, pool.word + n_example, n, is_long ? 30 : 6, is_long ? 3 : 1, &d->r);
    }
    if (good) {
        struct eval_turn *turn = eval_ask(s, &eval_form_cwe, NULL);
        for (size_t i = 0; i < N_COMMON; i++)
            eval_add_ref(s, turn, pool.word[n_example + i]);
        if (pool.n_made > 0)
            eval_set_meta(s, "pseudo", json_true());
    }
    free_pool(&pool);
    return good ? APP_OK
                : app_fail(APP_FAILED, "cwe: no memory for, or no more than, %zu distinct words", pool.n);
}

/* ---- Frequent words ---- */

enum { CODED_LETTERS = 6, GENERATED = 50 };
static const double zeta_2 = 1.6449340668482264;

/* How often the word of rank k (from 1) occurs. */
static size_t frequency(int64_t weight, size_t k)
{
    return (size_t)((double)weight / (double)(k * k) / zeta_2);
}

static void draw_coded(char (*word)[CODED_LETTERS + 1], size_t n, struct eval_random *r)
{
    for (size_t i = 0; i < n; i += !eval_is_repeated(word, sizeof *word, i)) {
        for (int k = 0; k < CODED_LETTERS; k++)
            word[i][k] = (char)('a' + eval_random_below(r, 26));
        word[i][CODED_LETTERS] = '\0';
    }
}

/* Rank 5, which is no answer, must not occur as often as rank 4, which is one: the weight goes down until
 * then. */
static int64_t untie(int64_t weight)
{
    while (weight > 0 && frequency(weight, 4) == frequency(weight, 5))
        weight--;
    return weight;
}

int eval_make_fwe(struct eval_sample *s, struct eval_draft *d)
{
    int32_t overhead;
    const int rc = eval_count_overhead(&overhead, d->w);
    const int64_t weight = untie(d->units);
    s->too_few = weight <= 0 || s->n_target - GENERATED - overhead < 5 * 50;
    if (rc != APP_OK || s->too_few)
        return rc;
    const size_t n_words = (size_t)(s->n_target - GENERATED - overhead) / 50; /* the vocabulary */
    char(*word)[CODED_LETTERS + 1] = malloc(n_words * sizeof *word);
    size_t *times = malloc(n_words * sizeof *times), *ids = NULL, n_all;
    if (word && times) {
        draw_coded(word, n_words, &d->r);
        for (size_t i = 0; i < n_words; i++)
            times[i] = frequency(weight, i + 1);
        ids = eval_draw_repeated(&n_all, &d->r, times, n_words);
    }
    s->no_memory = s->no_memory || !ids;
    if (ids) {
        eval_put(s, &s->context, "%s", eval_form_fwe.at[EVAL_CONTEXT]);
        for (size_t i = 0; i < n_all; i++)
            eval_put(s, &s->context, "%s%s", i > 0 ? " " : "", ids[i] == 0 ? "..." : word[ids[i]]);
        eval_put(s, &s->context, "\n");
        struct eval_turn *turn = eval_ask(s, &eval_form_fwe, NULL);
        for (int i = 1; i < 4; i++)
            eval_add_ref(s, turn, word[i]);
        eval_set_meta(s, "weight", json_integer(weight));
    }
    free(word);
    free(times);
    free(ids);
    return APP_OK;
}
