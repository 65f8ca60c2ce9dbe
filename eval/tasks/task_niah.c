/* SPDX-License-Identifier: MIT */
/* RULER's needles: sentences that give a key a value, hidden in noise, in text or among similar sentences. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NEEDLES = 8, N_DEPTHS = 40, MAX_TRIES = 1000 };

/* Keys and values of one sample, all different. */
struct needles {
    size_t n;                                /* needles: n_keys * n_values */
    char key[MAX_NEEDLES][EVAL_MAX_VALUE];   /* [n_keys] */
    char value[MAX_NEEDLES][EVAL_MAX_VALUE]; /* [n], the values of a key side by side */
    size_t asked[MAX_NEEDLES];               /* [n_keys]: the question asks for the first n_queries */
    char *text[MAX_NEEDLES];                 /* [n] needles in the order of the context, owned */
    bool evidence[MAX_NEEDLES];              /* in that order: whether the question asks for it */
};

/* Draws list[n] without repetition and without values that occur in the text. */
static void draw_distinct(char (*list)[EVAL_MAX_VALUE], size_t n, enum eval_value kind, struct eval_draft *d)
{
    const bool in_text = ((const struct eval_niah *)d->task->params)->hay == EVAL_IN_TEXT;
    for (size_t i = 0; i < n; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            eval_draw_value(list[i], &d->r, kind);
            if (!eval_is_repeated(list, sizeof *list, i) &&
                !(in_text && eval_haystack_says(&d->w->haystack, (size_t)d->units, list[i])))
                break;
        }
}

static void draw_needles(struct needles *g, struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_niah *p = d->task->params;
    const size_t n_keys = (size_t)p->n_keys;
    size_t order[MAX_NEEDLES];
    g->n = n_keys * (size_t)p->n_values;
    draw_distinct(g->key, n_keys, p->key, d);
    draw_distinct(g->value, g->n, p->value, d);
    for (size_t i = 0; i < n_keys; i++)
        g->asked[i] = i;
    eval_random_sample(&d->r, g->asked, n_keys, (size_t)p->n_queries);
    for (size_t i = 0; i < g->n; i++)
        order[i] = i;
    eval_random_shuffle(&d->r, order, g->n);
    for (size_t i = 0; i < g->n; i++) {
        const size_t key = order[i] / (size_t)p->n_values;
        g->text[i] = eval_needle_text(s, p->value, g->key[key], g->value[order[i]]);
        for (int32_t k = 0; k < p->n_queries; k++)
            g->evidence[i] = g->evidence[i] || g->asked[k] == key;
    }
}

static void ask(struct eval_sample *s, const struct needles *g, const struct eval_niah *p,
                const struct eval_list *form)
{
    struct app_text query = {0};
    /* "a", "a, and b" or "a, b, c, and d" */
    for (int32_t i = 0; i < p->n_queries; i++) {
        const char *between = i + 1 < p->n_queries ? ", " : ", and ";
        eval_put(s, &query, "%s%s", i == 0 ? "" : between, g->key[g->asked[i]]);
    }
    struct eval_turn *turn = eval_ask(
        s, form,
        (const char *const[]){"type", eval_value_name(p->value), "query", query.s ? query.s : "", NULL});
    for (int32_t i = 0; i < p->n_queries; i++)
        for (int32_t k = 0; k < p->n_values; k++)
            eval_add_ref(s, turn, g->value[g->asked[i] * (size_t)p->n_values + (size_t)k]);
    free(query.s);
}

/* Puts the needles among units that are other needles, in places[n]. */
static void put_among_needles(struct eval_sample *s, const struct needles *g, struct eval_draft *d,
                              const size_t *places)
{
    const struct eval_niah *p = d->task->params;
    size_t next = 0;
    for (int64_t i = 0; i < d->units; i++) {
        char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE];
        bool taken;
        if (next < g->n && places[next] == (size_t)i) {
            eval_put_piece(s, g->text[next], strlen(g->text[next]), g->evidence[next]);
            eval_put_n(s, &s->context, "\n", 1);
            next++;
        }
        do {
            taken = false;
            eval_draw_value(key, &d->r, p->key);
            eval_draw_value(value, &d->r, p->value);
            for (size_t k = 0; k < g->n; k++)
                taken = taken || strcmp(value, g->value[k]) == 0 ||
                        strcmp(key, g->key[k / (size_t)p->n_values]) == 0;
        } while (taken);
        char *text = eval_needle_text(s, p->value, key, value);
        eval_put(s, &s->context, "%s%s", text ? text : "", i + 1 < d->units ? "\n" : "");
        free(text);
    }
}

/* Puts the needles between sentences of the first `units` words, at depth[n] of N_DEPTHS, which are whole per cents from 0 to
 * 100. */
static void put_in_text(struct eval_sample *s, const struct eval_lines *lines, const struct eval_draft *d,
                        const size_t *depth)
{
    const char *text = d->w->haystack.now.text.s;
    const size_t len = eval_haystack_length(&d->w->haystack, (size_t)d->units);
    const double n = (double)eval_count_sentences(text, len);
    size_t places[MAX_NEEDLES];
    for (size_t i = 0; i < lines->n; i++)
        places[i] = (size_t)(n * rint(100.0 * (double)depth[i] / (N_DEPTHS - 1)) / 100);
    eval_put_in_text(s, text, len, lines, places);
}

int eval_make_niah(struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_niah *p = d->task->params;
    const struct eval_list *form =
        p->n_queries * p->n_values == 1 ? &eval_form_niah_one : &eval_form_niah_several;
    struct needles g = {0};
    size_t places[MAX_NEEDLES];
    WNW_TRY(p->hay == EVAL_IN_TEXT ? eval_haystack_reserve(&d->w->haystack, (size_t)d->units) : APP_OK);
    draw_needles(&g, s, d);
    eval_put_template(s, &s->context, form->at[EVAL_CONTEXT],
                      (const char *const[]){"type", eval_value_name(p->value), NULL});
    if (!s->no_memory &&
        eval_draw_ascending(s, places, &d->r, p->hay == EVAL_IN_TEXT ? N_DEPTHS : (size_t)d->units, g.n)) {
        const struct eval_lines lines = {.at = g.text, .n = g.n, .evidence = g.evidence};
        if (p->hay == EVAL_IN_TEXT)
            put_in_text(s, &lines, d, places);
        else if (p->hay == EVAL_IN_NEEDLES)
            put_among_needles(s, &g, d, places);
        else
            eval_put_in_noise(s, (size_t)d->units, &lines, places);
        eval_put_n(s, &s->context, "\n", 1);
        ask(s, &g, p, form);
    }
    for (int i = 0; i < MAX_NEEDLES; i++)
        free(g.text[i]);
    return APP_OK;
}
