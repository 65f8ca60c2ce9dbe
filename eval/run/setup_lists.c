/* SPDX-License-Identifier: MIT */
/* From the command's lists to the tasks, lengths and numbers of samples of a run. */
#include "eval/run/setup.h"

#include "app/console.h"
#include "app/values.h"
#include "base/strings.h"
#include "eval/base/grow.h"
#include "eval/base/stats.h"
#include "eval/run/lists.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tasks ---- */

/* Whether a task belongs to a group. Tasks that stand in for the user's files belong to it if no file is
 * given. */
static bool in_group(const struct eval_setup *s, const struct eval_task *t, const char *group)
{
    if (strcmp(t->group, group) != 0)
        return false;
    if (t->flags & EVAL_WANTS_SQUAD || strcmp(t->name, "qa_syn_1") == 0)
        return (s->args->squad != NULL) == ((t->flags & EVAL_WANTS_SQUAD) != 0);
    if (t->flags & EVAL_WANTS_HOTPOT || strcmp(t->name, "qa_syn_2") == 0)
        return (s->args->hotpot != NULL) == ((t->flags & EVAL_WANTS_HOTPOT) != 0);
    return true;
}

static bool has_task(const struct eval_setup *s, const struct eval_task *t)
{
    for (int32_t i = 0; i < s->n_tasks; i++)
        if (s->tasks[i] == t)
            return true;
    return false;
}

static int unknown_task(const char *word)
{
    const char *names[EVAL_MAX_TASKS + 1];
    const struct eval_task *t;
    const struct eval_set *set;
    int n = 0;
    for (int32_t i = 0; n < EVAL_MAX_TASKS && (set = eval_set_get(i)); i++)
        names[n++] = set->name;
    for (int32_t i = 0; n < EVAL_MAX_TASKS && (t = eval_task_get(i)); i++)
        names[n++] = t->name;
    names[n] = NULL;
    const char *near = wnw__nearest(word, names);
    return near ? app_fail(APP_BAD_INPUT, "--tasks: there is no task or group '%s'; did you mean %s?", word,
                           near)
                : app_fail(APP_BAD_INPUT,
                           "--tasks: there is no task or group '%s'; `winnow eval --list` lists them", word);
}

const char *eval_setup_folder(const struct eval_setup *s, const struct eval_set *set)
{
    return set->flags & EVAL_OWN_FILE             ? s->args->jsonl
           : strcmp(set->group, "longbench") == 0 ? s->args->longbench
                                                  : s->args->scbench;
}

int32_t eval_extra_tokens(const struct eval_args *args, const struct eval_set *set)
{
    return strcmp(set->group, "longbench") == 0 ? (int32_t)args->lb_extra : 0;
}

/* Adds the sets of files that a word names; the name of a group adds those whose file exists. */
static int add_sets(struct eval_setup *s, const char *word, bool *found)
{
    const struct eval_set *set;
    bool group = false, any = false;
    for (int32_t i = 0; (set = eval_set_get(i)); i++) {
        const bool named = strcmp(set->name, word) == 0, in_group = strcmp(set->group, word) == 0;
        const char *folder = eval_setup_folder(s, set);
        bool known = false;
        for (int32_t k = 0; k < s->n_sets; k++)
            known = known || s->sets[k] == set;
        group = group || in_group;
        *found = *found || named || in_group;
        any = any || (known && in_group);
        if (!(named || in_group) || known)
            continue;
        if (!folder && set->flags & EVAL_OWN_FILE)
            return app_fail(APP_BAD_INPUT, "%s needs a file of questions; name it with --jsonl", word);
        if (!folder)
            return app_fail(APP_BAD_INPUT, "%s needs the files of --%s; name their folder", word, set->group);
        if (!named && !eval_set_exists(set, folder))
            continue;
        s->sets[s->n_sets++] = set;
        any = true;
    }
    return group && !any ? app_fail(APP_BAD_INPUT, "--%s: there is no file of these sets in the folder", word)
                         : APP_OK;
}

static int add_tasks(void *user, const char *word)
{
    struct eval_setup *s = user;
    const struct eval_task *t;
    bool found = strcmp(word, "ppl") == 0;
    const int rc = add_sets(s, word, &found);
    if (rc != APP_OK)
        return rc;
    if (found && strcmp(word, "ppl") == 0) {
        s->wants_text = true;
        return s->args->text ? APP_OK : app_fail(APP_BAD_INPUT, "ppl needs a text; name it with --text");
    }
    for (int32_t i = 0; (t = eval_task_get(i)); i++) {
        const bool named = strcmp(t->name, word) == 0;
        found = found || named || strcmp(t->group, word) == 0;
        if (!(named || in_group(s, t, word)) || has_task(s, t))
            continue;
        if ((t->flags & EVAL_WANTS_SQUAD && !s->args->squad) ||
            (t->flags & EVAL_WANTS_HOTPOT && !s->args->hotpot))
            return app_fail(APP_BAD_INPUT, "%s needs documents and questions; name them with --%s", t->name,
                            t->flags & EVAL_WANTS_SQUAD ? "squad" : "hotpot");
        s->tasks[s->n_tasks++] = t;
    }
    return found ? APP_OK : unknown_task(word);
}

/* ---- Lists ---- */

static int add_length(struct eval_setup *s, int64_t n)
{
    if (s->n_lengths == EVAL_MAX_LENGTHS)
        return app_fail(APP_BAD_INPUT, "--lengths: at most %d lengths", EVAL_MAX_LENGTHS);
    s->lengths[s->n_lengths++] = (int32_t)n;
    return APP_OK;
}

static int add_length_word(void *user, const char *word)
{
    struct eval_setup *s = user;
    static const struct {
        const char *name;
        int32_t first, last, step;
    } grids[] = {{"c32", 2000, 32000, 2000}, {"c128", 8000, 128000, 8000}};
    int64_t n;
    int rc = APP_OK;
    if (strcmp(word, "s") == 0) {
        for (n = 512; rc == APP_OK && n <= 2048; n *= 2)
            rc = add_length(s, n);
        return rc;
    }
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (strcmp(word, grids[i].name) != 0)
            continue;
        for (n = grids[i].first; rc == APP_OK && n <= grids[i].last; n += grids[i].step)
            rc = add_length(s, n);
        return rc;
    }
    if (!app_parse_int(&n, word))
        return app_fail(APP_BAD_INPUT, "--lengths: '%s' is neither a whole number nor s, c32 or c128", word);
    if (n < 64 || n > 1 << 24)
        return app_fail(APP_BAD_INPUT, "--lengths: %s is out of range; it must be 64 to 16777216", word);
    return add_length(s, n);
}

static int add_depth_word(void *user, const char *word)
{
    struct eval_setup *s = user;
    const int n = strcmp(word, "lin5") == 0                                    ? 5
                  : strcmp(word, "lin10") == 0 || strcmp(word, "sigmoid") == 0 ? 10
                                                                               : 1;
    for (int i = 0; i < n; i++) {
        double x = n > 1 ? 100.0 * i / (n - 1) : 0.0;
        if (n == 1 && (!app_parse_real(&x, word) || x < 0 || x > 100))
            return app_fail(APP_BAD_INPUT, "--depths: '%s' is neither 0 to 100 nor lin5, lin10 or sigmoid",
                            word);
        if (strcmp(word, "sigmoid") == 0)
            x = i == 0 ? 0 : i == n - 1 ? 100 : 100 / (1 + exp(-0.1 * (x - 50)));
        else if (n > 1)
            x = rint(x);
        if (s->source.n_depths == EVAL_MAX_DEPTHS)
            return app_fail(APP_BAD_INPUT, "--depths: at most %d depths", EVAL_MAX_DEPTHS);
        s->source.depths[s->source.n_depths++] = x;
    }
    return APP_OK;
}

/* ---- Items ---- */

/* Samples that only say whether the full cache can solve the task; files of the user have none to spare. */
static int32_t probes_of(const struct eval_setup *s, const struct eval_item *item)
{
    if (!item->task || s->args->no_gate || s->args->closed_book ||
        item->task->flags & (EVAL_WANTS_SQUAD | EVAL_WANTS_HOTPOT))
        return 0;
    return s->suite ? s->suite->n_probes : item->n >= 50 ? 10 : item->n >= 8 ? 4 : 0;
}

static int add_item(struct eval_setup *s, struct eval_item item)
{
    if (!eval_grow(&s->items, (size_t)s->n_items, sizeof *s->items))
        return eval_no_memory("the tasks");
    const int32_t cap =
        s->suite && s->suite->short_answers && item.task ? eval_suite_answer(item.task->name) : 0;
    item.max_new = item.task  ? item.task->max_new
                   : item.set ? item.set->max_new + eval_extra_tokens(s->args, item.set)
                              : 0;
    if (cap > 0 && cap < item.max_new)
        item.max_new = cap;
    if (eval_answer_tokens(s->args, s->suite) > 0 && !item.text)
        item.max_new = eval_answer_tokens(s->args, s->suite);
    if (s->args->samples != APP_UNSET && !(item.task && item.task->flags & EVAL_ON_GRID))
        item.n = (int32_t)s->args->samples;
    item.n_probes = probes_of(s, &item);
    s->items[s->n_items++] = item;
    return APP_OK;
}

/* One item for each task and length that was named last, and one for each set. */
static int add_product(struct eval_setup *s, int32_t n, int32_t n_trials)
{
    int rc = APP_OK;
    for (int32_t t = 0; t < s->n_tasks; t++) {
        const struct eval_task *task = s->tasks[t];
        const bool grid = task->flags & EVAL_ON_GRID;
        for (int32_t l = 0; rc == APP_OK && l < s->n_lengths; l++)
            rc = add_item(s, (struct eval_item){.task = task,
                                                .n_target = s->lengths[l],
                                                .n_trials = n_trials,
                                                .n = grid ? s->source.n_depths * n_trials : n});
    }
    for (int32_t i = 0; rc == APP_OK && i < s->n_sets; i++)
        rc = add_item(s, (struct eval_item){.set = s->sets[i],
                                            .n = s->sets[i]->flags & EVAL_OWN_FILE ? INT32_MAX : n,
                                            .n_trials = 1});
    for (int32_t l = 0; rc == APP_OK && s->wants_text && l < s->n_lengths; l++)
        rc = add_item(s, (struct eval_item){.text = true,
                                            .n_target = s->lengths[l],
                                            .n = EVAL_GATE_FIRST, /* the whole text */
                                            .n_trials = 1});
    s->wants_text = false;
    s->n_tasks = s->n_sets = s->n_lengths = 0;
    return rc;
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
static int add_suite(struct eval_setup *s)
{
    const char *lengths = s->args->lengths;
    int rc = APP_OK;
    const struct eval_suite_item *end = s->suite->items + s->suite->n_items;
    for (const struct eval_suite_item *i = s->suite->items; rc == APP_OK && i < end; i++) {
        if (lengths && is_again(s->suite, i))
            continue;
        rc = add_tasks(s, i->tasks);
        if (rc == APP_OK && i->length > 0 && !lengths)
            rc = add_length(s, i->length);
        else if (rc == APP_OK)
            rc = eval_each_word("lengths", lengths ? lengths : s->suite->lengths, ',', add_length_word, s);
        if (rc == APP_OK)
            rc = add_product(s, i->n, s->args->trials == APP_UNSET ? i->n_trials : s->source.n_trials);
    }
    if (rc == APP_OK && strcmp(s->suite->name, "full") == 0 && s->args->longbench) {
        rc = add_tasks(s, "longbench");
        if (rc == APP_OK)
            rc = add_product(s, INT32_MAX, 1);
    }
    if (rc == APP_OK && s->args->jsonl)
        rc = add_tasks(s, "user");
    if (rc == APP_OK && s->args->jsonl)
        rc = add_product(s, INT32_MAX, 1);
    return rc;
}

static int add_named(struct eval_setup *s)
{
    int rc = s->args->tasks ? eval_each_word("tasks", s->args->tasks, ',', add_tasks, s) : APP_OK;
    if (rc == APP_OK && s->args->jsonl)
        rc = add_tasks(s, "user");
    if (rc == APP_OK)
        rc = eval_each_word("lengths",
                            s->args->lengths ? s->args->lengths
                            : s->suite       ? s->suite->lengths
                                             : "2048",
                            ',', add_length_word, s);
    return rc == APP_OK ? add_product(s, s->suite ? s->suite->items[0].n : 20, s->source.n_trials) : rc;
}

static int check_tasks(const struct eval_setup *s)
{
    const struct eval_args *args = s->args;
    if (!s->suite && !args->tasks && !args->jsonl)
        return app_fail(APP_BAD_INPUT, "no tasks; name them with --tasks, a --suite, a --study or --jsonl, "
                                       "`winnow eval --list` lists them");
    if (args->suite && (args->tasks || args->lengths))
        return app_fail(APP_BAD_INPUT, "--suite brings tasks and lengths; leave out --%s",
                        args->tasks ? "tasks" : "lengths");
    return APP_OK;
}

int eval_setup_lists(struct eval_setup *s)
{
    const struct eval_args *args = s->args;
    const char *depths = args->depths ? args->depths : s->suite ? s->suite->depths : "lin10";
    int rc = check_tasks(s);
    if (rc == APP_OK)
        rc = eval_each_word("depths", depths, ',', add_depth_word, s);
    if (rc == APP_OK)
        rc = s->suite && !args->tasks ? add_suite(s) : add_named(s);
    return rc == APP_OK ? eval_check_words(args) : rc;
}
