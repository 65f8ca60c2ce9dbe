/* SPDX-License-Identifier: MIT */
/* All sub-commands in one list, and finding one by its name. */
#include "cli/find.h"

#include "app/console.h"
#include "base/strings.h"
#include "bench/commands.h"
#include "calibration/commands.h"
#include "cli/commands.h"
#include "eval/commands.h"

#include <stdbool.h>
#include <string.h>

/* Families of sub-commands, in the order of the overview. */
static const struct app_command *const families[] = {cli_commands, bench_commands, eval_commands,
                                                     calibrate_commands};
enum { N_FAMILIES = sizeof families / sizeof *families, MAX_NAMES = 64 };

const struct app_command *cli_command(int i)
{
    for (int f = 0; f < N_FAMILIES; f++)
        for (const struct app_command *c = families[f]; c->name; c++)
            if (i-- == 0)
                return c;
    return NULL;
}

bool cli_is_of(const struct app_command *c, const char *first)
{
    const size_t len = strlen(first);
    return len > 0 && strncmp(c->name, first, len) == 0 && c->name[len] == ' ';
}

/* Whether `second` (may be NULL) is the second word of the command's name. */
static bool is_two_words(const struct app_command *cmd, const char *first, const char *second)
{
    return second && cli_is_of(cmd, first) && strcmp(cmd->name + strlen(first) + 1, second) == 0;
}

/* Says which second words go with the first word of commands of two. Returns false if there are none. */
static bool wants_second_word(const char *name)
{
    const size_t len = strlen(name);
    char list[200] = "";
    const struct app_command *c;
    for (int i = 0; (c = cli_command(i)); i++)
        if (cli_is_of(c, name))
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     c->name + len + 1);
    if (*list)
        app_fail(APP_BAD_INPUT, "`winnow %s` needs one of: %s", name, list);
    return *list;
}

const struct app_command *cli_find_command(const char *name, const char *second, int *n_words)
{
    const struct app_command *c;
    const char *names[MAX_NAMES + 2];
    int n_names = 0;
    *n_words = 2;
    for (int i = 0; (c = cli_command(i)); i++)
        if (is_two_words(c, name, second))
            return c;
    *n_words = 1;
    for (int i = 0; (c = cli_command(i)); i++) {
        if (strcmp(name, c->name) == 0)
            return c;
        if (n_names < MAX_NAMES)
            names[n_names++] = c->name;
    }
    names[n_names++] = "help";
    names[n_names] = NULL;
    if (wants_second_word(name))
        return NULL;
    const char *near = wnw__nearest(name, names);
    if (near)
        app_fail(APP_BAD_INPUT, "unknown command '%s'; did you mean `winnow %s`?", name, near);
    else
        app_fail(APP_BAD_INPUT, "unknown command '%s'; `winnow --help` lists the commands", name);
    return NULL;
}
