/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common. */
#include "eval/setup.h"

#include "app/console.h"
#include "app/models.h"
#include "app/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 6 }; /* turns in SCBench's files; room for their answers is kept free */

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
    const char *near = app_nearest(word, names);
    return near ? app_fail(APP_BAD_INPUT, "--tasks: there is no task or group '%s'; did you mean %s?", word,
                           near)
                : app_fail(APP_BAD_INPUT,
                           "--tasks: there is no task or group '%s'; `winnow eval --list` lists them", word);
}

const char *eval_setup_folder(const struct eval_setup *s, const struct eval_set *set)
{
    return strcmp(set->group, "longbench") == 0 ? s->args->longbench : s->args->scbench;
}

/* Adds the sets of files that a word names; the name of a group adds those whose file exists. */
static int add_sets(struct eval_setup *s, const char *word, bool *found)
{
    const struct eval_set *set;
    int32_t n_before = s->n_sets;
    bool group = false;
    for (int32_t i = 0; (set = eval_set_get(i)); i++) {
        const bool named = strcmp(set->name, word) == 0, in_group = strcmp(set->group, word) == 0;
        const char *folder = eval_setup_folder(s, set);
        bool known = false;
        for (int32_t k = 0; k < s->n_sets; k++)
            known = known || s->sets[k] == set;
        group = group || in_group;
        *found = *found || named || in_group;
        if (!(named || in_group) || known)
            continue;
        if (!folder)
            return app_fail(APP_BAD_INPUT, "%s needs the files of --%s; name their folder", word, set->group);
        if (named || eval_set_exists(set, folder))
            s->sets[s->n_sets++] = set;
    }
    return group && s->n_sets == n_before
               ? app_fail(APP_BAD_INPUT, "--%s: there is no file of these sets in the folder", word)
               : APP_OK;
}

static int add_tasks(struct eval_setup *s, const char *word)
{
    const struct eval_task *t;
    bool found = false;
    const int rc = add_sets(s, word, &found);
    if (rc != APP_OK)
        return rc;
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

/* Calls `add` for each word of a list separated by commas. */
static int each_word(struct eval_setup *s, const char *list, int (*add)(struct eval_setup *, const char *))
{
    char *copy = strdup(list), *save = NULL;
    int rc = copy ? APP_OK : app_fail(APP_FAILED, "out of memory");
    for (char *word = copy ? strtok_r(copy, ",", &save) : NULL; word && rc == APP_OK;
         word = strtok_r(NULL, ",", &save))
        rc = add(s, word);
    free(copy);
    return rc;
}

static int add_length(struct eval_setup *s, int64_t n)
{
    if (s->n_lengths == EVAL_MAX_LENGTHS)
        return app_fail(APP_BAD_INPUT, "--lengths: at most %d lengths", EVAL_MAX_LENGTHS);
    s->lengths[s->n_lengths++] = (int32_t)n;
    return APP_OK;
}

static int add_length_word(struct eval_setup *s, const char *word)
{
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

static int add_depth_word(struct eval_setup *s, const char *word)
{
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
        if (s->world.n_depths == EVAL_MAX_DEPTHS)
            return app_fail(APP_BAD_INPUT, "--depths: at most %d depths", EVAL_MAX_DEPTHS);
        s->world.depths[s->world.n_depths++] = x;
    }
    return APP_OK;
}

static int check_lists(struct eval_setup *s)
{
    const struct eval_args *args = s->args;
    if (!args->tasks)
        return app_fail(APP_BAD_INPUT, "no tasks; name them with --tasks, `winnow eval --list` lists them");
    int rc = each_word(s, args->tasks, add_tasks);
    if (rc == APP_OK)
        rc = each_word(s, args->lengths, add_length_word);
    if (rc == APP_OK)
        rc = each_word(s, args->depths, add_depth_word);
    if (rc == APP_OK && (s->n_tasks + s->n_sets == 0 || s->n_lengths == 0 || s->world.n_depths == 0))
        rc = app_fail(APP_BAD_INPUT, "--%s is empty",
                      s->n_tasks + s->n_sets == 0 ? "tasks"
                      : s->n_lengths == 0         ? "lengths"
                                                  : "depths");
    if (rc == APP_OK && strcmp(args->needle, "rand") != 0 && strcmp(args->needle, "num") != 0 &&
        strcmp(args->needle, "sf") != 0)
        rc = app_fail(APP_BAD_INPUT, "--needle '%s' is unknown; use rand, num or sf", args->needle);
    return rc;
}

/* Refuses more samples than the file has questions, because sample i is question i of the file. */
static int check_questions(const struct eval_setup *s)
{
    for (int32_t i = 0; i < s->n_tasks; i++) {
        const struct eval_records *r = s->tasks[i]->flags & EVAL_WANTS_SQUAD    ? s->world.squad
                                       : s->tasks[i]->flags & EVAL_WANTS_HOTPOT ? s->world.hotpot
                                                                                : NULL;
        if (r && s->args->samples > r->n_questions)
            return app_fail(APP_BAD_INPUT, "%s has %d questions; lower --samples to that", s->tasks[i]->name,
                            r->n_questions);
    }
    return APP_OK;
}

/* Every line of the files is looked at before the first sample is made. */
static int check_sets(const struct eval_setup *s)
{
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < s->n_sets; i++) {
        int32_t n;
        rc = eval_set_check(&n, s->sets[i], eval_setup_folder(s, s->sets[i]));
    }
    return rc;
}

int eval_setup_open_set(struct eval_set_reader *r, const struct eval_setup *s, const struct eval_set *set)
{
    int32_t overhead;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    int rc = eval_set_open(r, set, eval_setup_folder(s, set));
    if (rc == APP_OK)
        rc = eval_count_overhead(&overhead, &s->world);
    if (rc != APP_OK)
        return rc;
    wnw_model_get_info(s->model, &info);
    r->tokenizer = &s->tokenizer;
    r->chat = &s->chat;
    r->max_prompt = s->args->max_prompt != APP_UNSET ? (int32_t)s->args->max_prompt
                    : strcmp(set->group, "scbench") == 0
                        ? eval_set_max_prompt(info.n_ctx_train, set->max_new, MOST_TURNS, overhead)
                        : eval_set_max_prompt(info.n_ctx_train, set->max_new, 1, overhead);
    return APP_OK;
}

/* ---- Opening ---- */

static int open_model(struct eval_setup *s)
{
    wnw_model_params params = wnw_model_default_params();
    params.repack = false; /* no product uses the weights */
    int rc = app_model_path(&s->model_path, s->args->app.model);
    if (rc != APP_OK)
        return rc;
    const int status = wnw_model_open(&s->model, s->model_path, &params);
    if (status != WNW_OK)
        return app_fail_status(status);
    s->tokenizer = eval_tokenizer_of(s->model);
    return eval_chat_open(&s->chat, s->model, s->args->app.chat);
}

int eval_setup_open(struct eval_setup *s, const struct eval_args *args)
{
    *s = (struct eval_setup){.args = args};
    s->world.seed = (uint64_t)args->app.seed;
    s->world.n_trials = (int32_t)args->trials;
    s->world.needle = args->needle;
    int rc = check_lists(s);
    if (rc == APP_OK && args->squad && (rc = eval_records_read(&s->squad, args->squad)) == APP_OK)
        s->world.squad = &s->squad;
    if (rc == APP_OK && args->hotpot && (rc = eval_records_read(&s->hotpot, args->hotpot)) == APP_OK)
        s->world.hotpot = &s->hotpot;
    if (rc == APP_OK)
        rc = check_questions(s);
    if (rc == APP_OK)
        rc = check_sets(s);
    if (rc == APP_OK)
        rc = eval_haystack_open(&s->world.haystack, args->haystack, s->world.seed);
    if (rc == APP_OK)
        rc = open_model(s);
    s->world.tokenizer = &s->tokenizer;
    s->world.chat = &s->chat;
    return rc;
}

void eval_setup_close(struct eval_setup *s)
{
    eval_haystack_close(&s->world.haystack);
    eval_records_clear(&s->squad);
    eval_records_clear(&s->hotpot);
    eval_chat_close(&s->chat);
    wnw_model_free(s->model);
    free(s->model_path);
}

int32_t eval_setup_n_samples(const struct eval_setup *s, const struct eval_task *task)
{
    return task->flags & EVAL_ON_GRID ? s->world.n_depths * s->world.n_trials : (int32_t)s->args->samples;
}
