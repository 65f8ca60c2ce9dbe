/* SPDX-License-Identifier: MIT */
/* Suites and studies. */
#include "eval/run/suite.h"

#include "app/console.h"
#include "base/strings.h"
#include "eval/base/grow.h"
#include "eval/tasks/lists.h"

/* ---- Reading ---- */

static int32_t number_of(char **rest)
{
    const char *word = strsep(rest, " ");
    return word ? (int32_t)strtol(word, NULL, 10) : -1;
}

static bool read_item(struct eval_suite *s, char *rest)
{
    if (!eval_grow(&s->items, (size_t)s->n_items, sizeof *s->items))
        return false;
    struct eval_suite_item *item = &s->items[s->n_items++];
    item->tasks = strsep(&rest, " ");
    item->length = number_of(&rest);
    item->n = number_of(&rest);
    item->n_trials = number_of(&rest);
    return item->length >= 0 && item->n >= 0 && item->n_trials > 0 && !rest;
}

static bool read_part(struct eval_suite *s, char *rest)
{
    static const char *const options[EVAL_N_LISTS] = {"policies",   "modes",      "ratios",
                                                      "budgets",    "kv-types",   "evict",
                                                      "mask-heads", "mask-phase", "mask-form"};
    if (!eval_grow(&s->parts, (size_t)s->n_parts, sizeof *s->parts))
        return false;
    struct eval_part *part = &s->parts[s->n_parts++];
    *part = (struct eval_part){.policies = NULL};
    for (char *word; (word = strsep(&rest, " "));) {
        const char *option = strsep(&word, "=");
        int i = 0;
        while (i < EVAL_N_LISTS && strcmp(options[i], option) != 0)
            i++;
        if (i == EVAL_N_LISTS || !word)
            return false;
        part->list[i] = word;
    }
    return part->policies;
}

/* Reads a line, which stays: texts point into it. Returns false if it is not understood, or if memory runs out. */
static bool read_line(struct eval_suites *all, char *line)
{
    char *rest = line;
    const char *word = strsep(&rest, " ");
    const bool study = strcmp(word, "study") == 0;
    if (study || strcmp(word, "suite") == 0) {
        if (!eval_grow(&all->items, (size_t)all->n, sizeof *all->items))
            return false;
        all->items[all->n++] = (struct eval_suite){.name = strsep(&rest, " "), .about = rest, .study = study};
        return rest;
    }
    struct eval_suite *s = &all->items[all->n - 1];
    const struct {
        const char *word;
        const char **text;
        bool *flag;
        int32_t *number;
    } settings[] = {{"depths", &s->depths, NULL, NULL},        {"lengths", &s->lengths, NULL, NULL},
                    {"short", NULL, &s->short_answers, NULL},  {"alone", NULL, &s->separate_readings, NULL},
                    {"frozen", NULL, &s->frozen, NULL},        {"plain", NULL, &s->plain, NULL},
                    {"perturbs", NULL, &s->perturbs, NULL},    {"probes", NULL, NULL, &s->n_probes},
                    {"answers", NULL, NULL, &s->answer_tokens}};
    if (strcmp(word, "item") == 0)
        return read_item(s, rest);
    if (strcmp(word, "part") == 0)
        return read_part(s, rest);
    if (strcmp(word, "contrast") == 0)
        return rest && app_text_put(&s->contrasts, "%s\n", rest);
    if (strcmp(word, "note") == 0)
        return rest && app_text_put(&s->notes, "%s\n", rest);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(settings[i].word, word) != 0)
            continue;
        if (settings[i].text)
            return (*settings[i].text = rest);
        if (settings[i].flag)
            return (*settings[i].flag = !rest);
        return (*settings[i].number = number_of(&rest)) > 0;
    }
    return false;
}

int eval_suites_open(struct eval_suites *all)
{
    *all = (struct eval_suites){.lines = calloc(eval_suites.n + 1, sizeof *all->lines)};
    for (size_t i = 0; all->lines && i < eval_suites.n; i++) {
        char *line = all->lines[all->n_lines++] = strdup(eval_suites.at[i]);
        if (!line || !read_line(all, line))
            return app_fail(APP_FAILED, "eval/data/suites.txt: '%.60s' is not understood, or memory ran out",
                            eval_suites.at[i]);
    }
    return all->lines ? APP_OK : eval_no_memory("suites");
}

void eval_suites_close(struct eval_suites *all)
{
    for (int32_t i = 0; i < all->n; i++) {
        free(all->items[i].items);
        free(all->items[i].parts);
        free(all->items[i].contrasts.s);
        free(all->items[i].notes.s);
    }
    for (int32_t i = 0; i < all->n_lines; i++)
        free(all->lines[i]);
    free(all->items);
    free(all->lines);
    *all = (struct eval_suites){0};
}

/* ---- Choosing ---- */

/* Finds a suite or a study by its name. An unknown one is refused with the one that was probably meant, or all of them. */
static int find(const struct eval_suite **suite, const struct eval_suites *all, const char *name, bool study)
{
    struct wnw__guess guess = {.word = name, .len = strlen(name)};
    for (int32_t i = 0; i < all->n; i++) {
        if (all->items[i].study != study)
            continue;
        if (strcmp(all->items[i].name, name) == 0)
            *suite = &all->items[i];
        wnw__guess_name(&guess, all->items[i].name);
    }
    const char *option = study ? "study" : "suite";
    if (*suite)
        return APP_OK;
    if (guess.best)
        return app_fail(APP_BAD_INPUT, "--%s '%s' is unknown; did you mean %s?", option, name, guess.best);
    return app_fail(APP_BAD_INPUT, "--%s '%s' is unknown; `winnow eval --list` lists them", option, name);
}

/* Refuses options that would make a protocol that is always the same another one. */
static int check_frozen(const struct eval_suite *suite, const struct eval_args *a)
{
    const struct {
        const char *option, *given;
    } options[] = {{"ratios", a->ratios},
                   {"budgets", a->budgets},
                   {"kv-bytes", a->kv_bytes},
                   {"kv-types", a->kv_types},
                   {"modes", a->modes},
                   {"evict", a->app.evict},
                   {"evict-every", a->app.evict_every},
                   {"mask-heads", a->app.mask_heads}};
    for (size_t i = 0; suite->frozen && i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            return app_fail(APP_BAD_INPUT, "--suite %s is a protocol that is always the same; leave out --%s",
                            suite->name, options[i].option);
    return APP_OK;
}

int eval_suite_choose(const struct eval_suite **suite, const struct eval_suites *all,
                      const struct eval_args *args)
{
    *suite = NULL;
    if (args->study)
        WNW_TRY(find(suite, all, args->study, true));
    if (args->suite && args->study)
        return app_fail(APP_BAD_INPUT, "--suite and --study exclude each other; give one of them");
    if (args->suite)
        WNW_TRY(find(suite, all, args->suite, false));
    return *suite ? check_frozen(*suite, args) : APP_OK;
}

int32_t eval_suite_answer(const char *task)
{
    const size_t len = strlen(task);
    for (size_t i = 0; i < eval_short_answers.n; i++)
        if (strncmp(eval_short_answers.at[i], task, len) == 0 && eval_short_answers.at[i][len] == ' ')
            return (int32_t)strtol(eval_short_answers.at[i] + len, NULL, 10);
    return 0;
}

bool eval_reads_separately(const struct eval_args *args, const struct eval_suite *suite)
{
    return args->separate_readings || (suite && suite->separate_readings);
}

int32_t eval_answer_tokens(const struct eval_args *args, const struct eval_suite *suite)
{
    if (args->answer_tokens != APP_UNSET)
        return (int32_t)args->answer_tokens;
    if (suite)
        return suite->answer_tokens;
    return 0;
}

const char *eval_chat_name(const struct eval_args *args, const struct eval_suite *suite)
{
    return suite && suite->plain && strcmp(args->app.chat, "auto") == 0 ? "none" : args->app.chat;
}

bool eval_recompresses(const struct eval_args *args)
{
    return args->recompress && strcmp(args->recompress, "each-turn") == 0;
}
