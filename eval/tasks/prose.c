/* SPDX-License-Identifier: MIT */
/* Generated prose. */
#include "eval/tasks/prose.h"

#include "base/random.h"
#include "eval/tasks/prose_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_OF(list) (sizeof list / sizeof *list)

enum { MAX_DRAWS = 1000 }; /* attempts to draw a sentence that was not used yet */

/* ---- Names ---- */

static const char *draw(struct eval_random *r, const char *const *list, size_t n)
{
    return list[eval_random_below(r, n)];
}

void eval_name_draw(char out[EVAL_MAX_NAME], struct eval_random *r, int n_syllables)
{
    static const char *const onsets[] = {"b", "d", "f", "g", "h", "j", "k",  "l",  "m",  "n",
                                         "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "tr"};
    static const char *const vowels[] = {"a", "e", "i", "o", "u"}, *const codas[] = {"",  "",  "n",
                                                                                     "r", "l", "s"};
    size_t n = 0;
    for (int i = 0; i < n_syllables && n < EVAL_MAX_NAME; i++) {
        const char *onset = draw(r, onsets, N_OF(onsets)), *vowel = draw(r, vowels, N_OF(vowels));
        n +=
            (size_t)snprintf(out + n, EVAL_MAX_NAME - n, "%s%s%s", onset, vowel, draw(r, codas, N_OF(codas)));
    }
    *out = (char)toupper((unsigned char)*out);
}

/* Whether one text occurs in the other, ignoring case; a name could occur within a longer one. */
static bool overlap(const char *a, const char *b)
{
    return strcasestr(a, b) || strcasestr(b, a);
}

/* Draws names into list[n]. No name contains another name of list or one of other[n_other], or is contained
 * in one. */
static void draw_names(char (*list)[EVAL_MAX_NAME], size_t n, char (*other)[EVAL_MAX_NAME], size_t n_other,
                       struct eval_random *r, int n_syllables)
{
    for (size_t have = 0; have < n;) {
        bool fresh = true;
        eval_name_draw(list[have], r, n_syllables);
        for (size_t i = 0; i < have; i++)
            fresh = fresh && !overlap(list[i], list[have]);
        for (size_t i = 0; i < n_other; i++)
            fresh = fresh && !overlap(other[i], list[have]);
        have += fresh;
    }
}

void eval_names_make(struct eval_names *names, uint64_t seed)
{
    char key[64];
    snprintf(key, sizeof key, "names|0|0|%llu", (unsigned long long)seed);
    struct eval_random r = eval_random_key(key);
    draw_names(names->person, EVAL_N_PERSONS, NULL, 0, &r, 2);
    draw_names(names->town, EVAL_N_TOWNS, names->person, EVAL_N_PERSONS, &r, 3);
}

/* ---- Sentences that were said ---- */

static bool was_said(const struct eval_prose *p, uint64_t hash)
{
    for (size_t i = hash & (p->n_slots - 1); p->n_slots > 0 && p->said[i] != 0;
         i = (i + 1) & (p->n_slots - 1))
        if (p->said[i] == hash)
            return true;
    return false;
}

static void put_said(uint64_t *slots, size_t n_slots, uint64_t hash)
{
    size_t i = hash & (n_slots - 1);
    while (slots[i] != 0)
        i = (i + 1) & (n_slots - 1);
    slots[i] = hash;
}

static bool note_said(struct eval_prose *p, uint64_t hash)
{
    if (2 * (p->n_said + 1) > p->n_slots) {
        const size_t n = p->n_slots > 0 ? 2 * p->n_slots : 1024;
        uint64_t *slots = calloc(n, sizeof *slots);
        if (!slots)
            return false;
        for (size_t i = 0; i < p->n_slots; i++)
            if (p->said[i] != 0)
                put_said(slots, n, p->said[i]);
        free(p->said);
        p->said = slots;
        p->n_slots = n;
    }
    put_said(p->said, p->n_slots, hash);
    p->n_said++;
    return true;
}

/* ---- Sentences ---- */

void eval_prose_open(struct eval_prose *p, uint64_t seed)
{
    char key[64];
    *p = (struct eval_prose){.last = SIZE_MAX};
    eval_names_make(&p->names, seed);
    snprintf(key, sizeof key, "prose|0|0|%llu", (unsigned long long)seed);
    p->random = eval_random_key(key);
}

void eval_prose_close(struct eval_prose *p)
{
    free(p->said);
    p->said = NULL;
}

/* The text for a slot whose name begins with `kind`. */
static const char *fill(struct eval_prose *p, char kind)
{
    struct eval_random *r = &p->random;
    switch (kind) {
    case 'N':
        return p->names.person[eval_random_below(r, EVAL_N_PERSONS)];
    case 'T':
        return p->names.town[eval_random_below(r, EVAL_N_TOWNS)];
    case 'a':
        return draw(r, adjectives, N_OF(adjectives));
    case 'n':
        return draw(r, nouns, N_OF(nouns));
    case 'v':
        return draw(r, verbs, N_OF(verbs));
    case 'd':
        return draw(r, manners, N_OF(manners));
    case 'c':
        return draw(r, clauses, N_OF(clauses));
    default:
        return draw(r, openers, N_OF(openers));
    }
}

/* Replaces the slots of text whose names begin with one of `kinds`, from left to right. */
static bool expand(struct eval_prose *p, struct app_text *to, const char *text, const char *kinds)
{
    while (*text) {
        const size_t n = strcspn(text, "{"), slot = strcspn(text + n, "}");
        if (!app_text_add(to, text, n))
            return false;
        text += n;
        if (!*text)
            break;
        const bool wanted = strchr(kinds, text[1]) != NULL;
        const char *what = wanted ? fill(p, text[1]) : text;
        if (!app_text_add(to, what, wanted ? strlen(what) : slot + 1))
            return false;
        text += slot + 1;
    }
    return true;
}

/* "a amber lamp" becomes "an amber lamp". */
static bool mend_articles(struct app_text *to, const char *text)
{
    for (const char *at = text; *at; at++) {
        const bool word = at == text || at[-1] == ' ';
        const bool article =
            word && (*at == 'a' || *at == 'A') && at[1] == ' ' && at[2] && strchr("aeiou", at[2]);
        if (!app_text_add(to, at, 1) || (article && !app_text_add(to, "n", 1)))
            return false;
    }
    return true;
}

static bool draw_sentence(struct eval_prose *p, struct app_text *out)
{
    struct app_text frame = {0}, words = {0};
    size_t i;
    do
        i = eval_random_below(&p->random, N_OF(patterns));
    while (i == p->last);
    p->last = i;
    out->len = 0;
    const bool good = expand(p, &frame, patterns[i], "cK") && expand(p, &words, frame.s, "NTanvd") &&
                      mend_articles(out, words.s);
    free(frame.s);
    free(words.s);
    if (good)
        out->s[0] = (char)toupper((unsigned char)out->s[0]);
    return good;
}

bool eval_prose_next(struct eval_prose *p, struct app_text *to)
{
    struct app_text sentence = {0};
    bool good = true, fresh = false;
    for (int i = 0; good && !fresh && i < MAX_DRAWS; i++) {
        good = draw_sentence(p, &sentence);
        const uint64_t hash = good ? wnw__hash_of(sentence.s, sentence.len) | 1 : 0;
        fresh = good && !was_said(p, hash);
        if (fresh)
            good = note_said(p, hash);
    }
    good = good && app_text_add(to, sentence.s, sentence.len);
    free(sentence.s);
    return good;
}
