/* SPDX-License-Identifier: MIT */
/* A list in random order that says for each name which name is next. The answer follows it from one name on, with up to 2000 tokens. Each
 * line of the answer is a line of the list and names the next one. An entry evicted while it is written cannot be recovered from the
 * answer so far. */
#include "eval/tasks/makers.h"

#include "app/console.h"

#include <stdlib.h>

enum { MOST_STEPS = 144 };

struct names {
    char (*at)[EVAL_MAX_VALUE]; /* [n] along the chain, which ends where it began */
    size_t n;
};

static bool draw_names(struct eval_sample *s, struct names *names, size_t n, struct eval_random *r)
{
    *names = (struct names){.at = calloc(n, sizeof *names->at), .n = n};
    s->no_memory = s->no_memory || !names->at;
    for (size_t i = 0; names->at && i < n; i += !eval_is_repeated(names->at, sizeof *names->at, i))
        eval_draw_value(names->at[i], r, EVAL_WORDS);
    return names->at;
}

static void put_step(struct eval_sample *s, struct app_text *to, const struct names *names, size_t i)
{
    eval_put(s, to, "%s leads to %s.\n", names->at[i], names->at[(i + 1) % names->n]);
}

/* The first line is the beginning of the answer, the next ones are asked for. */
static void ask(struct eval_sample *s, const struct names *names)
{
    const size_t n = names->n - 2 < MOST_STEPS ? names->n - 2 : MOST_STEPS;
    struct app_text first = {0}, wanted = {0};
    char number[24];
    snprintf(number, sizeof number, "%zu", n + 1);
    put_step(s, &first, names, 0);
    for (size_t i = 1; i <= n; i++)
        put_step(s, &wanted, names, i);
    struct eval_turn *turn = eval_ask(
        s, &eval_form_steps,
        (const char *const[]){"first", names->at[0], "n", number, "line", first.s ? first.s : "", NULL});
    if (wanted.s)
        eval_add_ref(s, turn, wanted.s);
    free(first.s);
    free(wanted.s);
}

int eval_make_steps(struct eval_sample *s, struct eval_draft *d)
{
    struct names names;
    size_t *order = eval_iota((size_t)d->units);
    s->no_memory = s->no_memory || !order;
    if (order && draw_names(s, &names, (size_t)d->units, &d->r)) {
        eval_random_shuffle(&d->r, order, names.n);
        eval_put(s, &s->context, "%s", eval_form_steps.at[EVAL_CONTEXT]);
        for (size_t i = 0; i < names.n; i++)
            put_step(s, &s->context, &names, order[i]);
        ask(s, &names);
        free(names.at);
    }
    free(order);
    return APP_OK;
}
