/* SPDX-License-Identifier: MIT */
/* winnow: from the arguments to a sub-command. */
#include "app/args.h"
#include "app/console.h"
#include "app/options.h"
#include "app/values.h"
#include "base/strings.h"
#include "bench/commands.h"
#include "calibration/commands.h"
#include "cli/abort.h"
#include "cli/commands.h"
#include "eval/commands.h"
#include "winnow.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Families of sub-commands, in the order of the overview. */
static const struct app_command *const families[] = {cli_commands, bench_commands, eval_commands,
                                                     calibrate_commands};
enum { N_FAMILIES = sizeof families / sizeof *families, MAX_NAMES = 64 };

/* Sub-command number i of all families, NULL after the last. */
static const struct app_command *command(int i)
{
    for (int f = 0; f < N_FAMILIES; f++)
        for (const struct app_command *c = families[f]; c->name; c++)
            if (i-- == 0)
                return c;
    return NULL;
}

static void print_overview(FILE *f)
{
    fputs("winnow: language models with a compressed KV cache\n\nusage: winnow COMMAND "
          "[options]\n\nCommands:\n",
          f);
    const struct app_command *c;
    for (int i = 0; (c = command(i)); i++)
        fprintf(f, "  %-14s %s\n", c->name, c->about);
    fputs("  help CMD       The options of a command; so does `winnow CMD --help`.\n"
          "\n  --version      Print the version.\n\n"
          "Example: winnow run -f doc.txt -p \"What is it about?\" --policy snapkv --budget 512\n",
          f);
}

/* Whether `second` (may be NULL) is the second word of the command's name. */
static bool is_two_words(const struct app_command *cmd, const char *first, const char *second)
{
    const size_t len = strlen(first);
    return second && strncmp(cmd->name, first, len) == 0 && cmd->name[len] == ' ' &&
           strcmp(cmd->name + len + 1, second) == 0;
}

/* Says which second words go with the first word of commands of two. Returns false if there are none. */
static bool wants_second_word(const char *name)
{
    const size_t len = strlen(name);
    char list[200] = "";
    const struct app_command *c;
    for (int i = 0; (c = command(i)); i++)
        if (strncmp(c->name, name, len) == 0 && c->name[len] == ' ')
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     c->name + len + 1);
    if (*list)
        app_fail(APP_BAD_INPUT, "`winnow %s` needs one of: %s", name, list);
    return *list;
}

/* Finds a command by its name, which is the first *n_words of the arguments. Returns NULL, with one line on
 * stderr, if there is no such command. */
static const struct app_command *find_command(const char *name, const char *second, int *n_words)
{
    const struct app_command *c;
    const char *names[MAX_NAMES + 2];
    int n_names = 0;
    *n_words = 2;
    for (int i = 0; (c = command(i)); i++)
        if (is_two_words(c, name, second))
            return c;
    *n_words = 1;
    for (int i = 0; (c = command(i)); i++) {
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

static int help(int n, char **words)
{
    int n_words;
    if (n == 0) {
        print_overview(stdout);
        return app_finish_stdout();
    }
    const struct app_command *cmd = find_command(words[0], n > 1 ? words[1] : NULL, &n_words);
    if (!cmd)
        return APP_BAD_INPUT;
    if (n > n_words)
        return app_fail(APP_BAD_INPUT, "`winnow help` takes one command");
    app_print_help(stdout, cmd);
    return app_finish_stdout();
}

/* A closed standard descriptor would be given to the next file that is opened, a model or an output, and
 * messages would be written into that file. /dev/null takes its place, opened for the opposite direction, so
 * that using the descriptor fails. */
static bool hold_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

static int run(const struct app_command *cmd, int argc, const char **argv)
{
    struct app_args *args = calloc(1, cmd->args_size);
    if (!args)
        return app_fail(APP_FAILED, "out of memory");
    int rc = app_parse(args, cmd, argc, argv);
    if (rc == APP_OK && args->help) {
        app_print_help(stdout, cmd);
        rc = app_finish_stdout();
    } else if (rc == APP_OK) {
        rc = cmd->run(args);
    }
    app_args_clear(args, cmd);
    free(args);
    return rc;
}

int main(int argc, char **argv)
{
    if (!hold_descriptors())
        return APP_FAILED;
    /* With SIGXFSZ ignored, a write beyond a limit on file sizes fails, which is reported and cleaned up. */
    signal(SIGXFSZ, SIG_IGN);
    cli_catch_aborts();
    if (argc < 2)
        return app_fail(APP_BAD_INPUT, "no command; `winnow --help` lists them");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("winnow %s\n", wnw_version());
        return app_finish_stdout();
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(0, NULL);
    if (strcmp(name, "help") == 0)
        return help(argc - 2, argv + 2);
    int n_words;
    const struct app_command *cmd = find_command(name, argc > 2 ? argv[2] : NULL, &n_words);
    if (!cmd)
        return APP_BAD_INPUT;
    return run(cmd, argc - n_words, (const char **)argv + n_words);
}
