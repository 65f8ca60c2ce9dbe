/* SPDX-License-Identifier: MIT */
#include "eval/base/task_names.h"

#include <string.h>

#define TASK(id, group, of, kind, by, max_new, least, flag, ...) \
    {.name = id,                                                 \
     .domain = of,                                               \
     .metric = by,                                               \
     .answer = EVAL_ANSWER_##kind,                               \
     .on_grid = ((flag)&EVAL_ON_GRID) != 0},
#define SET(id, group, of, kind, by, ...) \
    {.name = id, .domain = of, .metric = by, .answer = EVAL_ANSWER_##kind},
static const struct eval_task_name names[] = {
#include "eval/base/tasks.def"
    {.metric = ""},
};

const struct eval_task_name *eval_task_name_find(const char *name)
{
    const struct eval_task_name *t = names;
    while (t->name && strcmp(t->name, name) != 0)
        t++;
    return t;
}

int eval_task_name_compare(const char *a, const char *b)
{
    const struct eval_task_name *x = eval_task_name_find(a), *y = eval_task_name_find(b);
    return x != y ? (x > y) - (x < y) : strcmp(a, b);
}
