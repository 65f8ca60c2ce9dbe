/* SPDX-License-Identifier: MIT */
/* From the lists of the options to tasks with lengths and numbers of samples. */
#include "eval/run/items.h"

#include "app/console.h"
#include "base/strings.h"
#include "eval/base/grow.h"
#include "eval/base/stats.h"

#include <stdlib.h>
#include <string.h>

/* Lists while they are read: what was named last, until it is multiplied. */
struct reading {
    struct eval_items *items;
    const struct eval_args *args;
    const struct eval_suite *suite;
    const struct eval_task *tasks[EVAL_MAX_TASKS];
    int32_t n_tasks;
    struct eval_numbers lengths;
};

bool eval_item_fits(const struct eval_item *item, int32_t n_ctx)
{
    return item->n_target <= n_ctx;
}

bool eval_item_is_made(const struct eval_item *item)
{
    return !(item->task->flags & (EVAL_IS_SET | EVAL_IS_TEXT));
}

int32_t eval_n_trials(const struct eval_args *args)
{
    return args->trials == APP_UNSET ? 1 : (int32_t)args->trials;
}

int32_t eval_extra_tokens(const struct eval_args *args, const struct eval_task *task)
{
    return eval_task_is_of(task, "longbench") ? (int32_t)args->lb_extra : 0;
}

/* ---- Tasks ---- */

/* What tasks need of the user: those with a flag, or of a group. */
static const struct need {
    uint32_t flag;
    const char *group, *what;
    size_t option;
} needs[] = {
    {EVAL_IS_TEXT, NULL, "a text; name it with --text", offsetof(struct eval_args, text)},
    {EVAL_OWN_FILE, NULL, "a file of questions; name it with --jsonl", offsetof(struct eval_args, jsonl)},
    {EVAL_WANTS_SQUAD, NULL, "documents and questions; name them with --squad",
     offsetof(struct eval_args, squad)},
    {EVAL_WANTS_HOTPOT, NULL, "documents and questions; name them with --hotpot",
     offsetof(struct eval_args, hotpot)},
    {EVAL_WANTS_DOCUMENTS, NULL, "a folder of documents and questions; name it with --documents",
     offsetof(struct eval_args, documents)},
    {0, "longbench", "the files of --longbench; name their folder", offsetof(struct eval_args, longbench)},
    {0, "scbench", "the files of --scbench; name their folder", offsetof(struct eval_args, scbench)},
};

/* NULL if a task needs nothing. */
static const struct need *need_of(const struct eval_task *task)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (task->flags & needs[i].flag || (needs[i].group && eval_task_is_of(task, needs[i].group)))
            return &needs[i];
    return NULL;
}

const char *eval_task_source(const struct eval_args *args, const struct eval_task *task)
{
    const struct need *need = need_of(task);
    const char *given = NULL;
    if (need)
        memcpy(&given, (const char *)args + need->option, sizeof given);
    return given;
}

/* Whether a task belongs to the group that a word names. A task with generated data that replaces one with the user's files belongs to
 * it if no file is given. A set belongs to it if its file exists. */
static bool is_in_group(const struct reading *r, const struct eval_task *task, const char *word)
{
    if (!eval_task_is_of(task, word))
        return false;
    if (task->instead_of)
        return !eval_task_source(r->args, eval_task_find(task->instead_of));
    const char *source = eval_task_source(r->args, task);
    if (task->flags & EVAL_IS_SET)
        return !source || eval_set_exists(task, source); /* without any, the group is refused */
    return source || !need_of(task);
}

static int unknown_task(const char *word)
{
    struct wnw__guess guess = {.word = word, .len = strlen(word)};
    const struct eval_task *t;
    for (int32_t i = 0; (t = eval_task_get(i)); i++)
        wnw__guess_name(&guess, t->name);
    return guess.best
               ? app_fail(APP_BAD_INPUT, "--tasks: there is no task or group '%s'; did you mean %s?", word,
                          guess.best)
               : app_fail(APP_BAD_INPUT,
                          "--tasks: there is no task or group '%s'; `winnow eval --list` lists them", word);
}

static int add_task(struct reading *r, const struct eval_task *task, const char *word)
{
    if (need_of(task) && !eval_task_source(r->args, task))
        return app_fail(APP_BAD_INPUT, "%s needs %s", word, need_of(task)->what);
    for (int32_t i = 0; i < r->n_tasks; i++)
        if (r->tasks[i] == task)
            return APP_OK;
    r->tasks[r->n_tasks++] = task;
    return APP_OK;
}

/* Adds the tasks that a word names; the name of a group adds all that belong to it. */
static int add_tasks(void *user, const char *word)
{
    struct reading *r = user;
    const struct eval_task *t;
    bool known = false, any = false;
    if (strcmp(word, eval_task_text.name) == 0)
        return add_task(r, &eval_task_text, word);
    for (int32_t i = 0; (t = eval_task_get(i)); i++) {
        const bool named = strcmp(t->name, word) == 0;
        known = known || named || eval_task_is_of(t, word);
        if (!named && !is_in_group(r, t, word))
            continue;
        any = true;
        WNW_TRY(add_task(r, t, word));
    }
    if (any)
        return APP_OK;
    for (int32_t i = 0; (t = eval_task_get(i)); i++)
        if (eval_task_is_of(t, word) && !eval_task_source(r->args, t))
            return add_task(r, t, word); /* which says what it needs */
    if (known)
        return app_fail(APP_BAD_INPUT, "--%s: there is no file of these sets in the folder", word);
    return unknown_task(word);
}

/* ---- Items ---- */

/* Samples that only say whether the full cache can solve the task; files of the user have none to spare. */
static int32_t probes_of(const struct reading *r, const struct eval_item *item)
{
    if (need_of(item->task) || r->args->no_gate || r->args->closed_book)
        return 0;
    if (r->suite)
        return r->suite->n_probes;
    if (item->n >= 8)
        return EVAL_GATE_PROBES;
    return 0;
}

static int32_t max_new_of(const struct reading *r, const struct eval_item *item)
{
    const int32_t fixed = eval_answer_tokens(r->args, r->suite);
    const int32_t own =
        eval_task_max_new(item->task, item->n_target) + eval_extra_tokens(r->args, item->task);
    const int32_t cap = r->suite && r->suite->short_answers && eval_item_is_made(item)
                            ? eval_suite_answer(item->task->name)
                            : 0;
    if (fixed > 0 && !(item->task->flags & EVAL_IS_TEXT))
        return fixed;
    return cap > 0 && cap < own ? cap : own;
}

static int add_item(struct reading *r, struct eval_item item)
{
    struct eval_items *x = r->items;
    if (!eval_grow(&x->items, (size_t)x->n, sizeof *x->items))
        return eval_no_memory("the tasks");
    item.max_new = max_new_of(r, &item);
    if (r->args->samples != APP_UNSET && !(item.task->flags & EVAL_ON_GRID))
        item.n = (int32_t)r->args->samples;
    item.n_probes = probes_of(r, &item);
    x->items[x->n++] = item;
    return APP_OK;
}

/* One item for each length of a task; of a set one in all. */
static int add_lengths(struct reading *r, const struct eval_task *task, int32_t n, int32_t n_trials)
{
    struct eval_item item = {.task = task, .n = n, .n_trials = 1};
    if (task->flags & EVAL_IS_SET) {
        item.n = task->flags & EVAL_OWN_FILE ? INT32_MAX : n;
        return add_item(r, item);
    }
    if (task->flags & EVAL_IS_TEXT)
        item.n = EVAL_GATE_FIRST; /* the whole text */
    else
        item.n_trials = n_trials;
    if (task->flags & EVAL_WANTS_DOCUMENTS)
        item.n = INT32_MAX;
    if (task->flags & EVAL_ON_GRID)
        item.n = r->items->depths.n * n_trials;
    for (int32_t i = 0; i < r->lengths.n; i++) {
        item.n_target = (int32_t)r->lengths.items[i];
        WNW_TRY(add_item(r, item));
    }
    return APP_OK;
}

/* The tasks and lengths that were named last: first samples that are made, then those of files, then texts. */
static int add_product(struct reading *r, int32_t n, int32_t n_trials)
{
    static const uint32_t kinds[] = {0, EVAL_IS_SET, EVAL_IS_TEXT};
    for (int k = 0; k < 3; k++)
        for (int32_t t = 0; t < r->n_tasks; t++)
            if ((r->tasks[t]->flags & (EVAL_IS_SET | EVAL_IS_TEXT)) == kinds[k])
                WNW_TRY(add_lengths(r, r->tasks[t], n, n_trials));
    r->n_tasks = r->lengths.n = 0;
    return APP_OK;
}

/* Whether an earlier item of the suite has the same tasks, so that --lengths names them once. */
static bool is_again(const struct eval_suite *suite, const struct eval_suite_item *item)
{
    for (const struct eval_suite_item *i = suite->items; i < item; i++)
        if (strcmp(i->tasks, item->tasks) == 0)
            return true;
    return false;
}

/* The items of a suite, or of a study, whose lengths the options may replace. */
static int add_suite(struct reading *r)
{
    const char *lengths = r->args->lengths;
    const struct eval_suite_item *end = r->suite->items + r->suite->n_items;
    for (const struct eval_suite_item *i = r->suite->items; i < end; i++) {
        if (lengths && is_again(r->suite, i))
            continue;
        WNW_TRY(add_tasks(r, i->tasks));
        if (i->length > 0 && !lengths)
            r->lengths = (struct eval_numbers){.items = {i->length}, .n = 1};
        else
            WNW_TRY(eval_add_numbers(&r->lengths, &eval_axis_lengths, lengths ? lengths : r->suite->lengths));
        WNW_TRY(add_product(r, i->n, r->args->trials == APP_UNSET ? i->n_trials : eval_n_trials(r->args)));
    }
    if (strcmp(r->suite->name, "full") == 0 && r->args->longbench)
        WNW_TRY(add_tasks(r, "longbench"));
    if (r->args->jsonl)
        WNW_TRY(add_tasks(r, "user"));
    return add_product(r, INT32_MAX, 1);
}

static int add_named(struct reading *r)
{
    const char *usual = r->suite ? r->suite->lengths : "2048",
               *lengths = r->args->lengths ? r->args->lengths : usual;
    if (r->args->tasks)
        WNW_TRY(eval_each_word("tasks", r->args->tasks, ',', add_tasks, r));
    if (r->args->jsonl)
        WNW_TRY(add_tasks(r, "user"));
    WNW_TRY(eval_add_numbers(&r->lengths, &eval_axis_lengths, lengths));
    return add_product(r, r->suite ? r->suite->items[0].n : 20, eval_n_trials(r->args));
}

int eval_items_open(struct eval_items *items, const struct eval_args *args, const struct eval_suite *suite)
{
    struct reading r = {.items = items, .args = args, .suite = suite};
    *items = (struct eval_items){.n = 0};
    if (!suite && !args->tasks && !args->jsonl)
        return app_fail(APP_BAD_INPUT, "no tasks; name them with --tasks, a --suite, a --study or --jsonl, "
                                       "`winnow eval --list` lists them");
    if (args->suite && (args->tasks || args->lengths))
        return app_fail(APP_BAD_INPUT, "--suite brings tasks and lengths; leave out --%s",
                        args->tasks ? "tasks" : "lengths");
    const char *usual = suite ? suite->depths : "lin10", *depths = args->depths ? args->depths : usual;
    WNW_TRY(eval_add_numbers(&items->depths, &eval_axis_depths, depths));
    WNW_TRY(suite && !args->tasks ? add_suite(&r) : add_named(&r));
    return eval_check_words(args);
}

void eval_items_close(struct eval_items *items)
{
    for (int32_t i = 0; i < items->n; i++)
        if (items->items[i].open)
            eval_set_close(&items->items[i].reader);
    free(items->items);
    *items = (struct eval_items){.n = 0};
}
