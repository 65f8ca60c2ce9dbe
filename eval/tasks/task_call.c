/* SPDX-License-Identifier: MIT */
/* Many tools as JSON, one a line, and a call of one of them to write. Its name and the names of its two parameters are in the list
 * alone, so that a call is right only if the line is still there, letter by letter. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/tasks/prose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tool: what it is called, what it does, and the names of a text and of a number that it takes. */
struct tool {
    char name[64], does[96];
    const char *text, *number;
};

static void draw_tool(struct tool *tool, struct eval_random *r)
{
    const char *verb = eval_draw(r, &eval_verbs), *adjective = eval_draw(r, &eval_adjectives);
    snprintf(tool->name, sizeof tool->name, "%s_%s", eval_draw(r, &eval_adjectives),
             eval_draw(r, &eval_nouns));
    snprintf(tool->does, sizeof tool->does, "%c%s the %s %s.", toupper((unsigned char)verb[0]), verb + 1,
             adjective, eval_draw(r, &eval_nouns));
    tool->text = eval_draw(r, &eval_nouns);
    do
        tool->number = eval_draw(r, &eval_nouns);
    while (tool->number == tool->text);
}

/* Whether another tool before it has its name or does the same: the question would have two answers. */
static bool is_taken(const struct tool *tools, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(tools[k].name, tools[i].name) == 0 || strcmp(tools[k].does, tools[i].does) == 0)
            return true;
    return false;
}

static bool draw_tools(struct eval_sample *s, struct tool **tools, size_t n, struct eval_random *r)
{
    *tools = calloc(n, sizeof **tools);
    s->no_memory = s->no_memory || !*tools;
    for (size_t i = 0; *tools && i < n; i += !is_taken(*tools, i))
        draw_tool(&(*tools)[i], r);
    return *tools;
}

/* The line of a tool, and the call that is asked for. */
static void put_tool(struct eval_sample *s, const struct tool *tool, bool asked)
{
    char line[384];
    const int len =
        snprintf(line, sizeof line,
                 "{\"name\": \"%s\", \"description\": \"%s\", \"parameters\": {\"%s\": \"text\", \"%s\": "
                 "\"number\"}}",
                 tool->name, tool->does, tool->text, tool->number);
    eval_put_piece(s, line, (size_t)len, asked);
    eval_put(s, &s->context, "\n");
}

static void ask(struct eval_sample *s, const struct tool *tool, struct eval_random *r)
{
    char text[EVAL_MAX_VALUE], number[16], call[256];
    eval_draw_value(text, r, EVAL_WORDS);
    snprintf(number, sizeof number, "%d", 1000 + (int)eval_random_below(r, 9000));
    struct eval_turn *turn =
        eval_ask(s, &eval_form_call,
                 (const char *const[]){"does", tool->does, "text", text, "number", number, "shape",
                                       "{\"name\": ..., \"arguments\": {...}}", NULL});
    snprintf(call, sizeof call, "{\"name\": \"%s\", \"arguments\": {\"%s\": \"%s\", \"%s\": %s}}", tool->name,
             tool->text, text, tool->number, number);
    eval_add_ref(s, turn, call);
}

int eval_make_call(struct eval_sample *s, struct eval_draft *d)
{
    const size_t n = (size_t)d->units;
    struct tool *tools;
    if (!draw_tools(s, &tools, n, &d->r))
        return APP_OK;
    const size_t asked = (size_t)eval_random_below(&d->r, n);
    eval_put(s, &s->context, "%s", eval_form_call.at[EVAL_CONTEXT]);
    for (size_t i = 0; i < n; i++)
        put_tool(s, &tools[i], i == asked);
    ask(s, &tools[asked], &d->r);
    free(tools);
    return APP_OK;
}
