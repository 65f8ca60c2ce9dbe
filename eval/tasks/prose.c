/* SPDX-License-Identifier: MIT */
/* Generated prose. */
#include "eval/tasks/prose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRAWS = 1000 }; /* attempts to draw a sentence that was not used yet */

/* ---- Names ---- */

const char *eval_draw(struct eval_random *r, const struct eval_list *list)
{
    return list->at[eval_random_below(r, list->n)];
}

void eval_name_draw(char out[EVAL_MAX_NAME], struct eval_random *r, int n_syllables)
{
    static const char vowels[] = "aeiou";
    static const char *const codas[] = {"", "", "n", "r", "l", "s"};
    static const struct eval_list endings = {codas, sizeof codas / sizeof *codas};
    size_t n = 0;
    for (int i = 0; i < n_syllables && n < EVAL_MAX_NAME; i++) {
        const char *onset = eval_draw(r, &eval_name_onsets);
        const char vowel = vowels[eval_random_below(r, 5)];
        n += (size_t)snprintf(out + n, EVAL_MAX_NAME - n, "%s%c%s", onset, vowel, eval_draw(r, &endings));
    }
    *out = (char)toupper((unsigned char)*out);
}

/* Whether one text occurs in the other, ignoring case; a name could occur within a longer one. */
static bool overlap(const char *a, const char *b)
{
    return strlen(a) < strlen(b) ? strcasestr(b, a) : strcasestr(a, b);
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

/* The random numbers of a purpose under a key. */
static struct eval_random stream(const char *purpose, const char *key)
{
    char name[192];
    snprintf(name, sizeof name, "%s|%s", purpose, key);
    return eval_random_key(name);
}

static void make_names(struct eval_names *names, const char *key)
{
    struct eval_random r = stream("names", key);
    draw_names(names->person, EVAL_N_PERSONS, NULL, 0, &r, 2);
    draw_names(names->town, EVAL_N_TOWNS, names->person, EVAL_N_PERSONS, &r, 3);
}

/* ---- Sentences ---- */

void eval_prose_open(struct eval_prose *p, const char *key)
{
    *p = (struct eval_prose){.last = SIZE_MAX, .said = json_object(), .random = stream("prose", key)};
    make_names(&p->names, key);
}

void eval_prose_close(struct eval_prose *p)
{
    json_decref(p->said);
    p->said = NULL;
}

/* The text for a slot whose name begins with `kind`. */
static const char *fill(struct eval_prose *p, char kind)
{
    static const struct {
        char kind;
        const struct eval_list *list;
    } slots[] = {{'a', &eval_prose_adjectives}, {'n', &eval_prose_nouns},   {'v', &eval_prose_verbs},
                 {'d', &eval_prose_manners},    {'c', &eval_prose_clauses}, {'K', &eval_prose_openers}};
    struct eval_random *r = &p->random;
    if (kind == 'N')
        return p->names.person[eval_random_below(r, EVAL_N_PERSONS)];
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (slots[i].kind == kind)
            return eval_draw(r, slots[i].list);
    return p->names.town[eval_random_below(r, EVAL_N_TOWNS)];
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
    for (const char *next = text; *next; next++) {
        const bool word = next == text || next[-1] == ' ';
        const bool article =
            word && (*next == 'a' || *next == 'A') && next[1] == ' ' && next[2] && strchr("aeiou", next[2]);
        if (!app_text_add(to, next, 1) || (article && !app_text_add(to, "n", 1)))
            return false;
    }
    return true;
}

static bool draw_sentence(struct eval_prose *p, struct app_text *out)
{
    struct app_text frame = {0}, words = {0};
    size_t i;
    do
        i = eval_random_below(&p->random, eval_prose_patterns.n);
    while (i == p->last);
    p->last = i;
    out->len = 0;
    const bool good = expand(p, &frame, eval_prose_patterns.at[i], "cK") &&
                      expand(p, &words, frame.s, "NTanvd") && mend_articles(out, words.s);
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
        fresh = good && !json_object_get(p->said, sentence.s);
        if (fresh)
            good = json_object_set_new(p->said, sentence.s, json_true()) == 0;
    }
    good = good && app_text_add(to, sentence.s, sentence.len);
    free(sentence.s);
    return good;
}
