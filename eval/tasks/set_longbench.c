/* SPDX-License-Identifier: MIT */
/* LongBench's 16 English and code sets: templates and settings as its own program has them. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "eval/base/record.h"

#include <stdlib.h>
#include <string.h>

int eval_make_longbench(struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_jsonl *j = d->file;
    const json_t *o = d->line, *context, *answers, *classes = NULL, *input = json_object_get(o, "input"),
                 *length = json_object_get(o, "length");
    const char *prefix = d->task->form->at[EVAL_PREFIX];
    WNW_TRY(eval_jsonl_text(&context, j, o, "context"));
    WNW_TRY(eval_jsonl_texts(&answers, j, o, "answers", 1));
    if (strcmp(d->task->metric, "classification") == 0)
        WNW_TRY(eval_jsonl_texts(&classes, j, o, "all_classes", 1));
    if (!json_is_string(input))
        return eval_jsonl_bad(j, "no text \"input\" (an empty one is fine)");
    const size_t n_prefix = strlen(prefix), n_input = json_string_length(input);
    const char *text = json_string_value(input);
    const bool ends = d->task->flags & EVAL_ENDS_WITH_PREFIX && n_input >= n_prefix &&
                      strcmp(text + n_input - n_prefix, prefix) == 0;
    char *asked = strndup(text, ends ? n_input - n_prefix : n_input);
    const char *const values[] = {"context", json_string_value(context), "input", asked ? asked : "", NULL};
    eval_put_template(s, &s->context, d->task->form->at[EVAL_CONTEXT], values);
    struct eval_turn *turn = eval_ask(s, d->task->form, values);
    s->no_memory = s->no_memory || !asked;
    free(asked);
    for (size_t i = 0; i < json_array_size(answers); i++)
        eval_add_ref(s, turn, json_string_value(json_array_get(answers, i)));
    if (classes)
        eval_set_meta(s, "classes", json_deep_copy(classes));
    if (json_is_integer(length)) {
        eval_set_meta(s, "words", json_integer(json_integer_value(length)));
        eval_set_meta(s, "bucket", json_string(eval_bucket_name(eval_bucket_of(json_integer_value(length)))));
    }
    return APP_OK;
}
