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
struct golds {
    char key[MAX_NEEDLES][EVAL_MAX_VALUE];   /* [n_keys] */
    char value[MAX_NEEDLES][EVAL_MAX_VALUE]; /* [n_keys * n_values], the values of a key side by side */
    size_t asked[MAX_NEEDLES];               /* [n_keys]: the question asks for the first n_queries */
    char *text[MAX_NEEDLES];                 /* needles in the order of the context, owned */
    bool evidence[MAX_NEEDLES];              /* in that order: whether the question asks for it */
};

static bool is_taken(char (*list)[EVAL_MAX_VALUE], int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(list[i], list[n]) == 0)
            return true;
    return false;
}

/* Draws list[n] without repetition and without values that occur in the haystack. */
static void draw_distinct(char (*list)[EVAL_MAX_VALUE], int32_t n, enum eval_value kind, const struct niah *p,
                          const struct eval_world *w, struct eval_random *r)
{
    for (int32_t i = 0; i < n; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            eval_draw_value(list[i], r, kind);
            if (!is_taken(list, i) &&
                !(p->hay == TEXT && w->haystack.text.s && strstr(w->haystack.text.s, list[i])))
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

static void make_golds(struct golds *g, struct eval_sample *s, const struct eval_world *w,
                       const struct niah *p, struct eval_random *r)
{
    const int32_t n = p->n_keys * p->n_values;
    size_t order[MAX_NEEDLES];
    draw_distinct(g->key, p->n_keys, p->key, p, w, r);
    draw_distinct(g->value, n, p->value, p, w, r);
    for (size_t i = 0; i < (size_t)p->n_keys; i++)
        g->asked[i] = i;
    eval_random_sample(r, g->asked, (size_t)p->n_keys, (size_t)p->n_queries);
    for (size_t i = 0; i < (size_t)n; i++)
        order[i] = i;
    eval_random_shuffle(r, order, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        const size_t key = order[i] / (size_t)p->n_values;
        g->text[i] = needle_text(s, p->value, g->key[key], g->value[order[i]]);
        for (int32_t k = 0; k < p->n_queries; k++)
            g->evidence[i] = g->evidence[i] || g->asked[k] == key;
    }
}

/* Adds needle i to the context. */
static void put_needle(struct eval_sample *s, const struct golds *g, size_t i)
{
    if (g->evidence[i])
        eval_put_evidence(s, g->text[i], strlen(g->text[i]));
    else
        eval_put_n(s, &s->context, g->text[i], strlen(g->text[i]));
}

static void put_question(struct eval_sample *s, const struct golds *g, const struct niah *p)
{
    const char *const *templates = p->n_queries * p->n_values == 1 ? single : several;
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
    eval_put_template(s, turn ? &turn->question : NULL, templates[1], values);
    eval_put_template(s, turn ? &turn->prefix : NULL, templates[2], values);
    free(query.s);
}

/* Puts the gold needles among units that are other needles. */
static int put_among_needles(struct eval_sample *s, bool *fits, const struct golds *g, const struct niah *p,
                             int64_t units, struct eval_random *r)
{
    size_t at[MAX_NEEDLES], n_gold = (size_t)(p->n_keys * p->n_values), next = 0;
    *fits = (size_t)units >= n_gold;
    if (!*fits)
        return APP_OK;
    if (!eval_draw_ascending(at, r, (size_t)units, n_gold))
        return app_fail(APP_FAILED, "out of memory");
    for (int64_t i = 0; i < units; i++) {
        char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE];
        bool taken;
        if (next < n_gold && at[next] == (size_t)i) {
            put_needle(s, g, next);
            eval_put_n(s, &s->context, "\n", 1);
            next++;
        }
        do {
            taken = false;
            eval_draw_value(key, r, p->key);
            eval_draw_value(value, r, p->value);
            for (size_t k = 0; k < n_gold; k++)
                taken = taken || strcmp(value, g->value[k]) == 0 ||
                        strcmp(key, g->key[k / (size_t)p->n_values]) == 0;
        } while (taken);
        char *text = needle_text(s, p->value, key, value);
        eval_put(s, &s->context, "%s%s", text ? text : "", i + 1 < units ? "\n" : "");
        free(text);
    }
    return APP_OK;
}

/* Puts the gold needles between blocks of noise. */
static int put_in_noise(struct eval_sample *s, bool *fits, struct golds *g, const struct niah *p,
                        int64_t units, struct eval_random *r)
{
    size_t at[MAX_NEEDLES], n_gold = (size_t)(p->n_keys * p->n_values);
    *fits = (size_t)units >= n_gold;
    if (!*fits)
        return APP_OK;
    if (!eval_draw_ascending(at, r, (size_t)units, n_gold))
        return app_fail(APP_FAILED, "out of memory");
    eval_put_in_noise(s, units, g->text, at, n_gold, g->evidence);
    return APP_OK;
}

static size_t count_sentences(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t at = 0; at < len; n++)
        at += eval_sentence_length(text + at, len - at) + 1;
    return n;
}

/* Puts the gold needles between sentences of the first `units` words, at some of 40 depths. */
static int put_in_text(struct eval_sample *s, struct eval_world *w, const struct golds *g,
                       const struct niah *p, int64_t units, struct eval_random *r)
{
    size_t depth[MAX_NEEDLES], n_gold = (size_t)(p->n_keys * p->n_values), next = 0, i = 0;
    const int rc = eval_haystack_reserve(&w->haystack, (size_t)units);
    if (rc != APP_OK)
        return rc;
    const char *text = w->haystack.text.s;
    const size_t len = eval_haystack_length(&w->haystack, (size_t)units), n = count_sentences(text, len);
    if (!eval_draw_ascending(depth, r, N_DEPTHS, n_gold))
        return app_fail(APP_FAILED, "out of memory");
    for (size_t at = 0; at < len || next < n_gold; i++) {
        /* Depths are whole per cents from 0 to 100. */
        for (;
             next < n_gold &&
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
    return APP_OK;
}

static int make(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                int64_t units, struct eval_random *r)
{
    const struct niah *p = task->params;
    struct golds g = {0};
    int rc = p->hay == TEXT ? eval_haystack_reserve(&w->haystack, (size_t)units) : APP_OK;
    if (rc != APP_OK)
        return rc;
    make_golds(&g, s, w, p, r);
    if (s->no_memory)
        rc = app_fail(APP_FAILED, "out of memory for needles");
    const char *const *templates = p->n_queries * p->n_values == 1 ? single : several;
    eval_put_template(s, &s->context, templates[0],
                      (const char *const[]){"type", types[p->value][0], "types", types[p->value][1], NULL});
    if (rc == APP_OK)
        rc = p->hay == TEXT      ? put_in_text(s, w, &g, p, units, r)
             : p->hay == NEEDLES ? put_among_needles(s, fits, &g, p, units, r)
                                 : put_in_noise(s, fits, &g, p, units, r);
    eval_put_n(s, &s->context, "\n", 1);
    if (rc == APP_OK)
        put_question(s, &g, p);
    for (int i = 0; i < MAX_NEEDLES; i++)
        free(g.text[i]);
    return rc;
}

#define NIAH(hay, key, value, k, v, q) \
    &(const struct niah)               \
    {                                  \
        hay, key, value, k, v, q       \
    }
#define IN_TEXT(id, text, p)                                                                                \
    {                                                                                                       \
        id, "ruler", text, "words", "string_match_all", 128, 512, EVAL_HIDES_IN_TEXT | EVAL_OWN_WORDS, 500, \
            make, p, NULL                                                                                   \
    }
#define IN_LINES(id, text, of, least, flags, p)                                         \
    {                                                                                   \
        id, "ruler", text, of, "string_match_all", 128, least, flags, 25, make, p, NULL \
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
