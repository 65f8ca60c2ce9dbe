/* SPDX-License-Identifier: MIT */
/* RULER's variable tracking: a chain of assignments in noise, after a worked example. */
#include "eval/tasks/task.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

enum { N_NAMES = 5, MAX_NAME = 8, EXAMPLE_TOKENS = 500, EXAMPLE_STEP = 5 };

static const char intro[] =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
static const char question[] =
    "Question: Find all variables that are assigned the value {query} in the text above.";
static const char prefix[] =
    " Answer: According to the chain(s) of variable assignment in the text above, {num_v} "
    "variables are assigned the value {query}, they are: ";

struct chain {
    char name[N_NAMES][MAX_NAME];
    char value[8];
    char line[N_NAMES][48];
    char *lines[N_NAMES]; /* pointers to them for eval_put_in_noise */
};

static void draw_chain(struct chain *c, struct eval_random *r, int n_letters)
{
    for (int i = 0; i < N_NAMES;) {
        bool taken = false;
        for (int k = 0; k < n_letters; k++)
            c->name[i][k] = (char)('A' + eval_random_below(r, 26));
        c->name[i][n_letters] = '\0';
        for (int k = 0; k < i; k++)
            taken = taken || strcmp(c->name[k], c->name[i]) == 0;
        i += !taken;
    }
    snprintf(c->value, sizeof c->value, "%d", (int)(10000 + eval_random_below(r, 89999)));
    snprintf(c->line[0], sizeof c->line[0], "VAR %s = %s", c->name[0], c->value);
    for (int i = 1; i < N_NAMES; i++) /* RULER's text has the blank at the end too */
        snprintf(c->line[i], sizeof c->line[i], "VAR %s = VAR %s ", c->name[i], c->name[i - 1]);
    for (int i = 0; i < N_NAMES; i++)
        c->lines[i] = c->line[i];
}

/* Adds intro, the chain in n_blocks blocks of noise, and a line break. */
static bool put_text(struct eval_sample *s, const struct chain *c, int64_t n_blocks, struct eval_random *r,
                     bool is_evidence)
{
    size_t at[N_NAMES];
    bool evidence[N_NAMES];
    if (!eval_draw_ascending(at, r, (size_t)n_blocks, N_NAMES))
        return false;
    for (int i = 0; i < N_NAMES; i++)
        evidence[i] = is_evidence;
    eval_put(s, &s->context, "%s", intro);
    eval_put_in_noise(s, n_blocks, c->lines, at, N_NAMES, evidence);
    eval_put(s, &s->context, "\n");
    return true;
}

static void put_template(struct eval_sample *s, struct app_text *to, const char *text, const char *value)
{
    eval_put_template(s, to, text, (const char *const[]){"query", value, "num_v", "5", NULL});
}

/* The places of the example's lines are the same in all samples; its names and its number differ. */
static bool put_example(struct eval_sample *s, struct eval_world *w, int32_t n_blocks, struct eval_random *r)
{
    struct chain c;
    char key[64];
    snprintf(key, sizeof key, "vt_example|0|0|%llu", (unsigned long long)w->seed);
    struct eval_random places = eval_random_key(key);
    draw_chain(&c, r, 3);
    if (!put_text(s, &c, n_blocks, &places, false))
        return false;
    put_template(s, &s->context, question, c.value);
    put_template(s, &s->context, prefix, c.value);
    for (int i = 0; i < N_NAMES; i++)
        eval_put(s, &s->context, " %s", c.name[i]);
    eval_put(s, &s->context, "\n");
    return true;
}

/* Finds, in steps, the most blocks with which the example keeps within its number of tokens. */
static int fit_example(struct eval_world *w)
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

static int make(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                int64_t units, struct eval_random *r)
{
    struct chain c;
    (void)task;
    *fits = units >= N_NAMES;
    int rc = *fits && w->vt_example_units == 0 ? fit_example(w) : APP_OK;
    if (rc != APP_OK || !*fits)
        return rc;
    if (!put_example(s, w, w->vt_example_units, r))
        return app_fail(APP_FAILED, "out of memory");
    eval_put(s, &s->context, "\n");
    draw_chain(&c, r, 5);
    if (!put_text(s, &c, units, r, true))
        return app_fail(APP_FAILED, "out of memory");
    struct eval_turn *turn = eval_add_turn(s);
    put_template(s, turn ? &turn->question : NULL, question, c.value);
    put_template(s, turn ? &turn->prefix : NULL, prefix, c.value);
    for (int i = 0; i < N_NAMES; i++)
        eval_add_ref(s, turn, c.name[i]);
    return APP_OK;
}

const struct eval_task eval_tasks_vt[] = {
    {"vt", "ruler", "which variables have a value, over four hops", "blocks of noise", "string_match_all", 30,
     1024, 0, 10, make, NULL, NULL},
    {.name = NULL},
};
