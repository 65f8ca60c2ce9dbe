/* SPDX-License-Identifier: MIT */
/* SCBench's public files: several questions about one context. */
#include "eval/tasks/makers.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* Adds the context, which is text or an array of numbers; numbers are written as a list. */
static int put_list(struct eval_sample *s, struct app_text *to, const struct eval_jsonl *j,
                    const json_t *context)
{
    if (json_is_string(context)) {
        eval_put_n(s, to, json_string_value(context), json_string_length(context));
        return APP_OK;
    }
    if (!json_is_array(context) || json_array_size(context) == 0)
        return eval_jsonl_bad(j, "\"context\" is neither text nor a list of numbers");
    for (size_t i = 0; i < json_array_size(context); i++) {
        const json_t *number = json_array_get(context, i);
        if (!json_is_integer(number))
            return eval_jsonl_bad(j, "\"context\" has something that is no whole number");
        eval_put(s, to, "%s%lld", i > 0 ? ", " : "[", (long long)json_integer_value(number));
    }
    eval_put(s, to, "]");
    return APP_OK;
}

/* Adds an answer, which is text, a number or a list of texts. */
static int put_answer(struct eval_sample *s, struct eval_turn *turn, const struct eval_jsonl *j,
                      const json_t *turn_json)
{
    const json_t *answer = json_object_get(turn_json, "answer");
    char number[64];
    if (json_is_string(answer)) {
        eval_add_ref(s, turn, json_string_value(answer));
        return APP_OK;
    }
    if (json_is_number(answer)) {
        if (json_is_integer(answer))
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(answer));
        else
            snprintf(number, sizeof number, "%.15g", json_real_value(answer));
        eval_add_ref(s, turn, number);
        return APP_OK;
    }
    const int rc = eval_jsonl_texts(&answer, j, turn_json, "answer", 1);
    for (size_t i = 0; rc == APP_OK && i < json_array_size(answer); i++)
        eval_add_ref(s, turn, json_string_value(json_array_get(answer, i)));
    return rc;
}

/* "largest number" of "The largest number of the list is: "; "number" where the input has another form.
 * Owned. */
static char *what_is_asked(const char *input)
{
    const char *from = strstr(input, "The "), *to = from ? strstr(from, " of the ") : NULL;
    return to ? strndup(from + 4, (size_t)(to - from - 4)) : strdup("number");
}

int eval_make_scbench(struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_jsonl *j = d->file;
    const json_t *turns = json_object_get(d->line, "multi_turns");
    struct app_text context = {0};
    int rc = put_list(s, &context, j, json_object_get(d->line, "context"));
    if (rc == APP_OK && (!json_is_array(turns) || json_array_size(turns) == 0))
        rc = eval_jsonl_bad(j, "no list \"multi_turns\" of at least one turn");
    for (size_t i = 0; rc == APP_OK && i < json_array_size(turns); i++) {
        const json_t *input, *turn = json_array_get(turns, i);
        rc = eval_jsonl_text(&input, j, turn, "input");
        if (rc != APP_OK)
            break;
        char *what = what_is_asked(json_string_value(input));
        const char *const values[] = {
            "input", json_string_value(input), "context", context.s ? context.s : "",
            "what",  what ? what : "",         NULL};
        if (i == 0)
            eval_put_template(s, &s->context, d->task->form->at[EVAL_CONTEXT], values);
        rc = put_answer(s, eval_ask(s, d->task->form, values), j, turn);
        free(what);
    }
    free(context.s);
    return rc;
}
