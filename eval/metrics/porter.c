/* SPDX-License-Identifier: MIT */
/* M. F. Porter, An algorithm for suffix stripping, 1980, with the changes that NLTK makes by default. */
#include "eval/metrics/porter.h"

#include <stdbool.h>
#include <string.h>

static bool is_plain_consonant(uint32_t c)
{
    return !(c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u');
}

/* The letter y is a consonant at the beginning of a word and after a vowel. */
static bool is_consonant(const uint32_t *letters, size_t i)
{
    size_t n_y = 0;
    for (; letters[i] == 'y' && i > 0; i--)
        n_y++;
    return is_plain_consonant(letters[i]) != (n_y % 2 == 1);
}

/* Number of changes from vowels to consonants in letters[n], Porter's m. */
static int measure(const uint32_t *letters, size_t n)
{
    int m = 0;
    bool vowel = false;
    for (size_t i = 0; i < n; i++) {
        /* This gives the same result as is_consonant without going back over a run of y. */
        const bool consonant = letters[i] == 'y' ? i == 0 || vowel : is_plain_consonant(letters[i]);
        m += consonant && vowel;
        vowel = !consonant;
    }
    return m;
}

static bool has_vowel(const uint32_t *letters, size_t n)
{
    size_t i = 0;
    while (i < n && is_consonant(letters, i))
        i++;
    return i < n;
}

static bool ends(const struct eval_chars *w, const char *suffix)
{
    const size_t len = strlen(suffix);
    for (size_t i = 0; i < len && len <= w->n; i++)
        if (w->at[w->n - len + i] != (uint32_t)suffix[i])
            return false;
    return len <= w->n;
}

static void replace(struct eval_chars *w, size_t n_suffix, const char *by)
{
    w->n -= n_suffix;
    for (; *by; by++)
        w->at[w->n++] = (uint32_t)*by;
}

static bool ends_double_consonant(const struct eval_chars *w)
{
    return w->n >= 2 && w->at[w->n - 1] == w->at[w->n - 2] && is_consonant(w->at, w->n - 1);
}

/* Whether letters[n] ends with consonant, vowel and a consonant other than w, x, y. A word of two letters may lack
 * the first consonant. */
static bool ends_cvc(const uint32_t *letters, size_t n)
{
    if (n == 2)
        return !is_consonant(letters, 0) && is_consonant(letters, 1);
    return n >= 3 && is_consonant(letters, n - 3) && !is_consonant(letters, n - 2) &&
           is_consonant(letters, n - 1) && letters[n - 1] != 'w' && letters[n - 1] != 'x' &&
           letters[n - 1] != 'y';
}

struct rule {
    const char *suffix, *by;
};

/* Applies the first rule whose suffix fits, if the rest of the word has a measure of at least m. */
static void apply(struct eval_chars *w, const struct rule *rules, size_t n, int m)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(rules[i].suffix);
        if (!ends(w, rules[i].suffix))
            continue;
        if (measure(w->at, w->n - len) >= m)
            replace(w, len, rules[i].by);
        return;
    }
}

static void step_1a(struct eval_chars *w)
{
    if (ends(w, "ies"))
        replace(w, 3, w->n == 4 ? "ie" : "i");
    else if (ends(w, "sses"))
        replace(w, 4, "ss");
    else if (ends(w, "s") && !ends(w, "ss"))
        replace(w, 1, "");
}

/* Mends the end of a word after "ed" or "ing" was removed. */
static void mend_1b(struct eval_chars *w)
{
    const uint32_t last = w->at[w->n - 1];
    if (ends(w, "at") || ends(w, "bl") || ends(w, "iz"))
        replace(w, 0, "e");
    else if (ends_double_consonant(w))
        w->n -= last != 'l' && last != 's' && last != 'z';
    else if (measure(w->at, w->n) == 1 && ends_cvc(w->at, w->n))
        replace(w, 0, "e");
}

static void step_1b(struct eval_chars *w)
{
    if (ends(w, "ied")) {
        replace(w, 3, w->n == 4 ? "ie" : "i");
    } else if (ends(w, "eed")) {
        if (measure(w->at, w->n - 3) > 0)
            replace(w, 3, "ee");
    } else if (ends(w, "ed") && has_vowel(w->at, w->n - 2)) {
        w->n -= 2;
        mend_1b(w);
    } else if (ends(w, "ing") && has_vowel(w->at, w->n - 3)) {
        w->n -= 3;
        mend_1b(w);
    }
}

static void step_1c(struct eval_chars *w)
{
    if (ends(w, "y") && w->n > 2 && is_consonant(w->at, w->n - 2))
        w->at[w->n - 1] = 'i';
}

static void step_2(struct eval_chars *w)
{
    static const struct rule rules[] = {
        {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
        {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
        {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
        {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
        {"fulli", "ful"}};
    while (ends(w, "alli") && measure(w->at, w->n - 4) > 0)
        replace(w, 4, "al");
    if (ends(w, "logi")) {
        if (measure(w->at, w->n - 3) > 0) /* the measure includes the l */
            replace(w, 4, "log");
        return;
    }
    apply(w, rules, sizeof rules / sizeof *rules, 1);
}

static void step_3(struct eval_chars *w)
{
    static const struct rule rules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                        {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
    apply(w, rules, sizeof rules / sizeof *rules, 1);
}

static void step_4(struct eval_chars *w)
{
    static const struct rule before[] = {{"al", ""},    {"ance", ""}, {"ence", ""}, {"er", ""},
                                         {"ic", ""},    {"able", ""}, {"ible", ""}, {"ant", ""},
                                         {"ement", ""}, {"ment", ""}, {"ent", ""}};
    static const struct rule after[] = {{"ou", ""},  {"ism", ""}, {"ate", ""}, {"iti", ""},
                                        {"ous", ""}, {"ive", ""}, {"ize", ""}};
    if (!ends(w, "ion")) {
        const size_t n = w->n;
        apply(w, before, sizeof before / sizeof *before, 2);
        if (w->n == n)
            apply(w, after, sizeof after / sizeof *after, 2);
    } else if (w->n > 3 && (w->at[w->n - 4] == 's' || w->at[w->n - 4] == 't') &&
               measure(w->at, w->n - 3) > 1) {
        replace(w, 3, "");
    }
}

static void step_5(struct eval_chars *w)
{
    if (ends(w, "e")) {
        const int m = measure(w->at, w->n - 1);
        if (m > 1 || (m == 1 && !ends_cvc(w->at, w->n - 1)))
            w->n--;
    }
    if (ends(w, "ll") && measure(w->at, w->n - 1) > 1)
        w->n--;
}

/* Replaces words that have an irregular stem; returns whether the word is one of them. */
static bool is_irregular(struct eval_chars *w)
{
    static const struct rule pool[] = {
        {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
        {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
        {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};
    for (size_t i = 0; i < sizeof pool / sizeof *pool; i++) {
        if (strlen(pool[i].suffix) != w->n || !ends(w, pool[i].suffix))
            continue;
        replace(w, w->n, pool[i].by);
        return true;
    }
    return false;
}

void eval_porter_stem(struct eval_chars *word)
{
    if (is_irregular(word) || word->n <= 2)
        return;
    step_1a(word);
    step_1b(word);
    step_1c(word);
    step_2(word);
    step_3(word);
    step_4(word);
    step_5(word);
}
