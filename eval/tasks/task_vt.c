/* SPDX-License-Identifier: MIT */
/* Chains of variables in noise: RULER's variable tracking, after a worked example, and several chains with a question for each. */
#include "eval/tasks/makers.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_NAMES = 5, /* of a chain */
    N_CHAINS = 4,
    N_LINES = N_CHAINS * N_NAMES,
    EXAMPLE_TOKENS = 500,
    EXAMPLE_STEP = 5
};

struct chains {
    int n;                                                        /* N_CHAINS at most */
    char name[N_LINES][8], value[N_CHAINS][8], line[N_LINES][48]; /* name, line: by chain */
    char *lines[N_LINES];                                         /* in the order of the context */
};

/* Draws names and values without repetition. */
static void draw_chains(struct chains *c, struct eval_random *r, int n_letters)
{
    for (size_t i = 0; i < (size_t)(c->n * N_NAMES); i += !eval_is_repeated(c->name, sizeof c->name[0], i)) {
        for (int k = 0; k < n_letters; k++)
            c->name[i][k] = (char)('A' + eval_random_below(r, 26));
        c->name[i][n_letters] = '\0';
    }
    for (size_t i = 0; i < (size_t)c->n; i += !eval_is_repeated(c->value, sizeof c->value[0], i))
        snprintf(c->value[i], sizeof c->value[i], "%d", (int)(10000 + eval_random_below(r, 89999)));
    for (int i = 0; i < c->n * N_NAMES; i++) {
        c->lines[i] = c->line[i];
        if (i % N_NAMES == 0)
            snprintf(c->line[i], sizeof c->line[i], "VAR %s = %s", c->name[i], c->value[i / N_NAMES]);
        else /* RULER's text has the blank at the end too */
            snprintf(c->line[i], sizeof c->line[i], "VAR %s = VAR %s ", c->name[i], c->name[i - 1]);
    }
}

/* Adds the beginning and the lines in n_blocks blocks of noise. Returns false if memory runs out. */
static bool put_text(struct eval_sample *s, const struct chains *c, int64_t n_blocks, struct eval_random *r,
                     bool is_evidence)
{
    static const bool none[N_LINES] = {false};
    size_t places[N_LINES];
    const struct eval_lines lines = {
        .at = c->lines, .n = (size_t)(c->n * N_NAMES), .evidence = is_evidence ? NULL : none};
    if (!eval_draw_ascending(s, places, r, (size_t)n_blocks, lines.n))
        return false;
    eval_put(s, &s->context, "%s", eval_form_vt.at[EVAL_CONTEXT]);
    eval_put_in_noise(s, (size_t)n_blocks, &lines, places);
    return true;
}

/* Asks for the variables of chain i. */
static void ask(struct eval_sample *s, const struct chains *c, int i)
{
    struct eval_turn *turn = eval_ask(s, &eval_form_vt, (const char *const[]){"value", c->value[i], NULL});
    for (int k = 0; k < N_NAMES; k++)
        eval_add_ref(s, turn, c->name[i * N_NAMES + k]);
}

/* ---- One chain ---- */

/* The places of the example's lines are the same in all samples; its names and its number differ. */
static bool put_example(struct eval_sample *s, struct eval_source *w, int32_t n_blocks, struct eval_random *r)
{
    struct chains c = {.n = 1};
    char key[64];
    snprintf(key, sizeof key, "vt_example|0|0|%llu", (unsigned long long)w->seed);
    struct eval_random places = eval_random_key(key);
    draw_chains(&c, r, 3);
    if (!put_text(s, &c, n_blocks, &places, false))
        return false;
    eval_put(s, &s->context, "\n");
    for (int i = EVAL_QUESTION; i <= EVAL_PREFIX; i++)
        eval_put_template(s, &s->context, eval_form_vt.at[i],
                          (const char *const[]){"value", c.value[0], NULL});
    for (int i = 0; i < N_NAMES; i++)
        eval_put(s, &s->context, " %s", c.name[i]);
    eval_put(s, &s->context, "\n");
    return true;
}

/* Finds, in steps, the most blocks with which the example keeps within its number of tokens. */
static int fit_example(struct eval_source *w)
{
    int32_t n = 0;
    for (int32_t units = EXAMPLE_STEP;; units += EXAMPLE_STEP) {
        struct eval_sample s = {0};
        struct eval_random r = eval_random_seed(w->seed);
        int rc = put_example(&s, w, units, &r) && !s.no_memory
                     ? eval_count_tokens(&n, w->tokenizer, s.context.s, s.context.len)
                     : app_fail(APP_FAILED, "out of memory");
        eval_sample_clear(&s);
        if (rc != APP_OK || (n > EXAMPLE_TOKENS && units > EXAMPLE_STEP))
            return rc;
        w->vt_example_units = units;
        if (n > EXAMPLE_TOKENS)
            return APP_OK;
    }
}

int eval_make_vt(struct eval_sample *s, struct eval_draft *d)
{
    struct chains c = {.n = 1};
    const int rc = d->w->vt_example_units == 0 ? fit_example(d->w) : APP_OK;
    if (rc != APP_OK || !put_example(s, d->w, d->w->vt_example_units, &d->r))
        return rc;
    eval_put(s, &s->context, "\n");
    draw_chains(&c, &d->r, 5);
    if (put_text(s, &c, d->units, &d->r, true)) {
        eval_put(s, &s->context, "\n");
        ask(s, &c, 0);
    }
    return APP_OK;
}

/* ---- Several chains ---- */

/* Puts the lines of all chains in random order; the lines of one chain keep theirs. */
static void interleave(struct chains *c, struct eval_random *r)
{
    size_t chain[N_LINES];
    int next[N_CHAINS] = {0};
    for (int i = 0; i < N_LINES; i++)
        chain[i] = (size_t)(i / N_NAMES);
    eval_random_shuffle(r, chain, N_LINES);
    for (int i = 0; i < N_LINES; i++)
        c->lines[i] = c->line[chain[i] * N_NAMES + (size_t)next[chain[i]]++];
}

int eval_make_chains(struct eval_sample *s, struct eval_draft *d)
{
    struct chains c = {.n = N_CHAINS};
    draw_chains(&c, &d->r, 5);
    interleave(&c, &d->r);
    if (put_text(s, &c, d->units, &d->r, true)) {
        eval_put(s, &s->context, "\n\n");
        for (int i = 0; i < N_CHAINS; i++)
            ask(s, &c, i);
    }
    return APP_OK;
}
