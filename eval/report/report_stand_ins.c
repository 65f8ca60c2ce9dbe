/* SPDX-License-Identifier: MIT */
/* What stood in for data of benchmarks. run.json has a sentence for each kind, which ends with the names of tasks in
 * parentheses. */
#include "eval/report/report_impl.h"

#include <stdlib.h>
#include <string.h>

void eval_stand_ins_note(struct eval_doc *d, const json_t *info)
{
    const json_t *list = json_object_get(info, "stand_ins");
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text) {
            eval_doc_put(d, "%s%s", any ? "; " : "Stand-ins: ", text);
            any = true;
        }
    }
    if (any)
        eval_doc_put(d, ". The numbers are not the benchmarks' own.\n");
}

/* Whether a list "(a, b)" has the name. */
static bool lists(const char *list, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += len)
        if ((at[-1] == '(' || at[-1] == ' ') && (at[len] == ',' || at[len] == ')'))
            return true;
    return false;
}

void eval_stand_ins_csv(struct eval_doc *d, const json_t *info, const char *task)
{
    const json_t *list = json_object_get(info, "stand_ins");
    struct app_text all = {0};
    bool good = app_text_add(&all, "", 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *names = text ? strrchr(text, '(') : NULL;
        if (!names || names - text < 2 || (task && !lists(names, task)))
            continue;
        good = good && app_text_add(&all, "; ", all.len > 0 ? 2 : 0) &&
               app_text_add_utf8(&all, text, (size_t)(names - text) - 1);
    }
    if (good)
        eval_doc_csv(d, all.s);
    d->no_memory = d->no_memory || !good;
    free(all.s);
}
