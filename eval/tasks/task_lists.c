/* SPDX-License-Identifier: MIT */
/* RULER's aggregation: the most common words of a list, the most frequent words of a coded text. */
#include "eval/tasks/task.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* ---- Common words ---- */

enum { N_COMMON = 10, LONG = 4096, MAX_WORD = 16, MAX_TRIES = 1000 };

static const char cwe_intro[] =
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n";
static const char cwe_question[] = "Question: What are the 10 most common words in the above list?";
static const char cwe_prefix[] = " Answer: The top 10 words that appear most often in the list are:";

/* Distinct words, of which none is a part of another. */
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

/* Adds the question's text with word[n]: the first 10 n_often times, the others n_seldom times. */
static bool put_list(struct eval_sample *s, const char *const *word, size_t n, size_t n_often,
                     size_t n_seldom, struct eval_random *r)
{
    const size_t n_all = N_COMMON * n_often + (n - N_COMMON) * n_seldom;
    size_t *ids = malloc((n_all + 1) * sizeof *ids), k = 0;
    if (!ids)
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < (i < N_COMMON ? n_often : n_seldom); c++)
            ids[k++] = i;
    eval_random_shuffle(r, ids, n_all);
    eval_put(s, &s->context, "%s", cwe_intro);
    for (size_t i = 0; i < n_all; i++)
        eval_put(s, &s->context, "%s%zu. %s", i > 0 ? " " : "", i + 1, word[ids[i]]);
    eval_put(s, &s->context, "\n");
    free(ids);
    return true;
}

static int make_cwe(struct eval_sample *s, struct eval_draft *d)
{
    const bool is_long = s->n_target >= LONG;
    const size_t n_example = is_long ? 40 : 20, n = (size_t)d->units;
    struct pool pool;
    bool good = draw_pool(&pool, &d->r, n_example + n) &&
                put_list(s, pool.word, n_example, is_long ? 10 : 3, is_long ? 3 : 1, &d->r);
    if (good) {
        eval_put(s, &s->context, "%s%s", cwe_question, cwe_prefix);
        for (int i = 0; i < N_COMMON; i++)
            eval_put(s, &s->context, " %d. %s", i + 1, pool.word[i]);
        eval_put(s, &s->context, "\n\n");
        good = put_list(s, pool.word + n_example, n, is_long ? 30 : 6, is_long ? 3 : 1, &d->r);
    }
    if (good) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, &turn->question, "%s", cwe_question);
        eval_put(s, &turn->prefix, "%s", cwe_prefix);
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

static int make_fwe(struct eval_sample *s, struct eval_draft *d)
{
    int32_t overhead;
    const int rc = eval_count_overhead(&overhead, d->w);
    const int64_t weight = untie(d->units);
    size_t n_all = 0, k = 0;
    s->too_few = weight <= 0 || s->n_target - GENERATED - overhead < 5 * 50;
    if (rc != APP_OK || s->too_few)
        return rc;
    const size_t n_words = (size_t)(s->n_target - GENERATED - overhead) / 50; /* the vocabulary */
    for (size_t i = 0; i < n_words; i++)
        n_all += frequency(weight, i + 1);
    char(*word)[CODED_LETTERS + 1] = malloc(n_words * sizeof *word);
    size_t *ids = malloc((n_all + 1) * sizeof *ids);
    if (word && ids) {
        draw_coded(word, n_words, &d->r);
        for (size_t i = 0; i < n_words; i++)
            for (size_t c = frequency(weight, i + 1); c > 0; c--)
                ids[k++] = i;
        eval_random_shuffle(&d->r, ids, n_all);
        eval_put(s, &s->context,
                 "Read the following coded text and track the frequency of each coded word. Find the three "
                 "most frequently appeared coded words. ");
        for (size_t i = 0; i < n_all; i++)
            eval_put(s, &s->context, "%s%s", i > 0 ? " " : "", ids[i] == 0 ? "..." : word[ids[i]]);
        eval_put(s, &s->context, "\n");
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, &turn->question,
                 "Question: Do not provide any explanation. Please ignore the dots '....'. What are the "
                 "three most "
                 "frequently appeared words in the above coded text?");
        eval_put(s, &turn->prefix,
                 " Answer: According to the coded text above, the three most frequently appeared words are:");
        for (int i = 1; i < 4; i++)
            eval_add_ref(s, turn, word[i]);
        eval_set_meta(s, "weight", json_integer(weight));
    } else {
        s->no_memory = true;
    }
    free(word);
    free(ids);
    return APP_OK;
}

const struct eval_task eval_tasks_lists[] = {
    {"cwe", "ruler", "the ten most common words of a list, behind an example", "distinct words",
     "string_match_all", 120, 1024, EVAL_OWN_WORDS, 10, N_COMMON + 1, make_cwe, NULL, NULL},
    {"fwe", "ruler", "the three most frequent words of a coded text", "weight of the frequencies",
     "string_match_all", GENERATED, 512, 0, 64, 1, make_fwe, NULL, NULL},
    {.name = NULL},
};
