/* SPDX-License-Identifier: MIT */
/* Sub-commands and their options as tables, and what is derived from them: parsing, range errors, help. */
#ifndef WNW_APP_OPTIONS_H
#define WNW_APP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct app_args;

#define APP_UNSET INT64_MIN /* an integer option that was not given and has no default */

enum app_type {
    APP_FLAG,
    APP_TEXT,
    APP_TEXTS, /* may be given several times; the target is a struct app_list */
    APP_INT,
    APP_REAL,
    APP_BYTES
};

/* The values of an option that was given several times, in this order. */
struct app_list {
    char **s; /* [n], NULL-terminated, owned; NULL = none */
    int n;
};

/* One option: drives parsing, range errors and --help. */
struct app_option {
    const char *name; /* long name, NULL if the option has only a letter */
    char letter;      /* 0 if the option has only a name */
    enum app_type type;
    const char *arg; /* name of the argument in the help, NULL for flags */
    const char *def; /* default, parsed like an argument; NULL = none */
    const char *
        shown; /* how the help names the default where def does not say it; NULL = def, or nothing where there is none */
    const char *help;
    size_t offset; /* of the target in the command's struct of arguments, in bytes */
    double min, max;
    const char *range; /* the allowed range in words, for numbers */
};

/* Options under one heading. */
struct app_group {
    const char *title;
    const struct app_option *options; /* [n] */
    int n;
};

/* A sub-command. */
struct app_command {
    const char *name;  /* one word or two, such as "bench observe" */
    const char *about; /* one sentence */
    const char *usage; /* what follows the name */
    const char *notes; /* closing paragraph of its help, "" if none */
    const char *first; /* names of the options of the short help, with blanks between; NULL = all */
    const struct app_group *const *groups; /* NULL-terminated */
    int max_rest;                          /* positional arguments it takes */
    size_t args_size;                      /* of its arguments, a struct that begins with struct app_args */
    int (*run)(const struct app_args *args);
};

/* A group named id with a heading and the options of an array. */
#define APP_GROUP(id, heading, table) \
    const struct app_group id = {.title = heading, .options = table, .n = (int)(sizeof table / sizeof *table)}

/* Parses argv[1..] (argv[0] is the command's name) into args, of cmd->args_size bytes. Prints its own message
 * and returns an exit code. The arguments are cleared in any case. */
int app_parse(struct app_args *args, const struct app_command *cmd, int argc, const char **argv);
/* Whether the option was left out, or was given with the value that it has anyway. */
bool app_option_is_default(const struct app_args *args, const struct app_option *o);
void app_args_clear(struct app_args *args, const struct app_command *cmd);
/* Prints the help of a command, wrapped at the width of the terminal. all: every option, not only those of cmd->first. */
void app_print_help(FILE *f, const struct app_command *cmd, bool all);

#endif
