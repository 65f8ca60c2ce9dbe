/* SPDX-License-Identifier: MIT */
/* RULER's needles: sentences that give a key a value, hidden in noise, in text or among similar sentences. */
#include "eval/tasks/task.h"

#include "app/console.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum hay { NOISE, TEXT, NEEDLES };

struct niah {
    enum hay hay;
    enum eval_value key, value;
    int32_t n_keys, n_values, n_queries;
};

enum { MAX_NEEDLES = 8, N_DEPTHS = 40, MAX_TRIES = 1000 };

static const char needle[] = "One of the special magic {types} for {key} is: {value}.";
static const char *const single[] = {
    "A special magic {type} is hidden within the following text. Make sure to memorize it. I will quiz you "
    "about the "
    "{type} afterwards.\n",
    "What is the special magic {type} for {query} mentioned in the provided text?",
    " The special magic {type} for {query} mentioned in the provided text is"};
static const char *const several[] = {
    "Some special magic {types} are hidden within the following text. Make sure to memorize it. I will quiz "
    "you about "
    "the {types} afterwards.\n",
    "What are all the special magic {types} for {query} mentioned in the provided text?",
    " The special magic {types} for {query} mentioned in the provided text are"};

static const char *const types[][2] = {{"number", "numbers"}, {"word", "words"}, {"uuid", "uuids"}};

/* Keys and values of one sample, all different. */
struct needles {
    size_t n;                                /* needles: n_keys * n_values */
    char key[MAX_NEEDLES][EVAL_MAX_VALUE];   /* [n_keys] */
    char value[MAX_NEEDLES][EVAL_MAX_VALUE]; /* [n], the values of a key side by side */
    size_t asked[MAX_NEEDLES];               /* [n_keys]: the question asks for the first n_queries */
    char *text[MAX_NEEDLES];                 /* [n] needles in the order of the context, owned */
    bool evidence[MAX_NEEDLES];              /* in that order: whether the question asks for it */
};

/* Draws list[n] without repetition and without values that occur in the haystack. */
static void draw_distinct(char (*list)[EVAL_MAX_VALUE], size_t n, enum eval_value kind, const char *haystack,
                          struct eval_random *r)
{
    for (size_t i = 0; i < n; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            eval_draw_value(list[i], r, kind);
            if (!eval_is_repeated(list, sizeof *list, i) && !(haystack && strstr(haystack, list[i])))
                break;
        }
}

static char *needle_text(struct eval_sample *s, enum eval_value value_kind, const char *key,
                         const char *value)
{
    struct app_text text = {0};
    eval_put_template(s, &text, needle,
                      (const char *const[]){"types", types[value_kind][1], "key", key, "value", value, NULL});
    return text.s;
}

static void draw_needles(struct needles *g, struct eval_sample *s, struct eval_draft *d)
{
    const struct niah *p = d->task->params;
    const char *haystack = p->hay == TEXT ? d->w->haystack.text.s : NULL;
    const size_t n_keys = (size_t)p->n_keys;
    size_t order[MAX_NEEDLES];
    g->n = n_keys * (size_t)p->n_values;
    draw_distinct(g->key, n_keys, p->key, haystack, &d->r);
    draw_distinct(g->value, g->n, p->value, haystack, &d->r);
    for (size_t i = 0; i < n_keys; i++)
        g->asked[i] = i;
    eval_random_sample(&d->r, g->asked, n_keys, (size_t)p->n_queries);
    for (size_t i = 0; i < g->n; i++)
        order[i] = i;
    eval_random_shuffle(&d->r, order, g->n);
    for (size_t i = 0; i < g->n; i++) {
        const size_t key = order[i] / (size_t)p->n_values;
        g->text[i] = needle_text(s, p->value, g->key[key], g->value[order[i]]);
        for (int32_t k = 0; k < p->n_queries; k++)
            g->evidence[i] = g->evidence[i] || g->asked[k] == key;
    }
}

/* Adds needle i to the context. */
static void put_needle(struct eval_sample *s, const struct needles *g, size_t i)
{
    eval_put_piece(s, g->text[i], strlen(g->text[i]), g->evidence[i]);
}

static void put_question(struct eval_sample *s, const struct needles *g, const struct niah *p,
                         const char *const *templates)
{
    struct eval_turn *turn = eval_add_turn(s);
    const char *keys[MAX_NEEDLES];
    struct app_text query = {0};
    for (int32_t i = 0; i < p->n_queries; i++) {
        keys[i] = g->key[g->asked[i]];
        for (int32_t k = 0; k < p->n_values; k++)
            eval_add_ref(s, turn, g->value[g->asked[i] * (size_t)p->n_values + (size_t)k]);
    }
    eval_put_list(s, &query, keys, p->n_queries);
    const char *const values[] = {"type",  types[p->value][0],     "types", types[p->value][1],
                                  "query", query.s ? query.s : "", NULL};
    eval_put_template(s, &turn->question, templates[1], values);
    eval_put_template(s, &turn->prefix, templates[2], values);
    free(query.s);
}

/* Puts the needles among units that are other needles, at at[n]. */
static void put_among_needles(struct eval_sample *s, const struct needles *g, struct eval_draft *d,
                              const size_t *at)
{
    const struct niah *p = d->task->params;
    size_t next = 0;
    for (int64_t i = 0; i < d->units; i++) {
        char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE];
        bool taken;
        if (next < g->n && at[next] == (size_t)i) {
            put_needle(s, g, next++);
            eval_put_n(s, &s->context, "\n", 1);
        }
        do {
            taken = false;
            eval_draw_value(key, &d->r, p->key);
            eval_draw_value(value, &d->r, p->value);
            for (size_t k = 0; k < g->n; k++)
                taken = taken || strcmp(value, g->value[k]) == 0 ||
                        strcmp(key, g->key[k / (size_t)p->n_values]) == 0;
        } while (taken);
        char *text = needle_text(s, p->value, key, value);
        eval_put(s, &s->context, "%s%s", text ? text : "", i + 1 < d->units ? "\n" : "");
        free(text);
    }
}

static size_t count_sentences(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t at = 0; at < len; n++)
        at += eval_sentence_length(text + at, len - at) + 1;
    return n;
}

/* Puts the needles between sentences of the first `units` words, at depth[n] of N_DEPTHS. */
static void put_in_text(struct eval_sample *s, const struct needles *g, const struct eval_draft *d,
                        const size_t *depth)
{
    const char *text = d->w->haystack.text.s;
    const size_t len = eval_haystack_length(&d->w->haystack, (size_t)d->units),
                 n = count_sentences(text, len);
    size_t next = 0;
    for (size_t at = 0, i = 0; at < len || next < g->n; i++) {
        /* Depths are whole per cents from 0 to 100. */
        for (;
             next < g->n &&
             (i >= n || (size_t)((double)n * rint(100.0 * (double)depth[next] / (N_DEPTHS - 1)) / 100) <= i);
             next++) {
            if (i > 0 || next > 0)
                eval_put_n(s, &s->context, " ", 1);
            put_needle(s, g, next);
        }
        if (at >= len)
            break;
        const size_t sentence = eval_sentence_length(text + at, len - at);
        if (i > 0 || next > 0)
            eval_put_n(s, &s->context, " ", 1);
        eval_put_n(s, &s->context, text + at, sentence);
        at += sentence + 1;
    }
}

static int make(struct eval_sample *s, struct eval_draft *d)
{
    const struct niah *p = d->task->params;
    const char *const *templates = p->n_queries * p->n_values == 1 ? single : several;
    struct needles g = {0};
    size_t at[MAX_NEEDLES];
    const int rc = p->hay == TEXT ? eval_haystack_reserve(&d->w->haystack, (size_t)d->units) : APP_OK;
    if (rc != APP_OK)
        return rc;
    draw_needles(&g, s, d);
    eval_put_template(s, &s->context, templates[0],
                      (const char *const[]){"type", types[p->value][0], "types", types[p->value][1], NULL});
    if (!s->no_memory &&
        eval_draw_ascending(s, at, &d->r, p->hay == TEXT ? N_DEPTHS : (size_t)d->units, g.n)) {
        if (p->hay == TEXT)
            put_in_text(s, &g, d, at);
        else if (p->hay == NEEDLES)
            put_among_needles(s, &g, d, at);
        else
            eval_put_in_noise(s, d->units, g.text, at, g.n, g.evidence);
        eval_put_n(s, &s->context, "\n", 1);
        put_question(s, &g, p, templates);
    }
    for (int i = 0; i < MAX_NEEDLES; i++)
        free(g.text[i]);
    return APP_OK;
}

#define NIAH(hay, key, value, k, v, q) \
    &(const struct niah)               \
    {                                  \
        hay, key, value, k, v, q       \
    }
#define IN_TEXT(id, text, p)                                                                                \
    {                                                                                                       \
        id, "ruler", text, "words", "string_match_all", 128, 512, EVAL_HIDES_IN_TEXT | EVAL_OWN_WORDS, 500, \
            1, make, p, NULL                                                                                \
    }
#define IN_LINES(id, text, of, least, flags, p)                                            \
    {                                                                                      \
        id, "ruler", text, of, "string_match_all", 128, least, flags, 25, 1, make, p, NULL \
    }

const struct eval_task eval_tasks_niah[] = {
    IN_LINES("niah_single_1", "one number in noise", "blocks of noise", 512, EVAL_OWN_WORDS,
             NIAH(NOISE, EVAL_WORDS, EVAL_NUMBER, 1, 1, 1)),
    IN_TEXT("niah_single_2", "one number in text", NIAH(TEXT, EVAL_WORDS, EVAL_NUMBER, 1, 1, 1)),
    IN_TEXT("niah_single_3", "one UUID in text", NIAH(TEXT, EVAL_WORDS, EVAL_UUID, 1, 1, 1)),
    IN_TEXT("niah_multikey_1", "one number, beside those of three other keys, in text",
            NIAH(TEXT, EVAL_WORDS, EVAL_NUMBER, 4, 1, 1)),
    IN_LINES("niah_multikey_2", "one number among those of other keys", "needles", 512, EVAL_OWN_WORDS,
             NIAH(NEEDLES, EVAL_WORDS, EVAL_NUMBER, 1, 1, 1)),
    IN_LINES("niah_multikey_3", "the UUID of a UUID among others", "needles", 1024, 0,
             NIAH(NEEDLES, EVAL_UUID, EVAL_UUID, 1, 1, 1)),
    IN_TEXT("niah_multivalue", "four numbers of one key in text",
            NIAH(TEXT, EVAL_WORDS, EVAL_NUMBER, 1, 4, 1)),
    IN_TEXT("niah_multiquery", "the numbers of four keys in text",
            NIAH(TEXT, EVAL_WORDS, EVAL_NUMBER, 4, 1, 4)),
    {.name = NULL},
};
