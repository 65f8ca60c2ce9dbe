/* SPDX-License-Identifier: MIT */
/* All sub-commands in one list, and finding one by its name. */
#ifndef WNW_CLI_FIND_H
#define WNW_CLI_FIND_H

#include "app/options.h"

/* Sub-command number i of all families, NULL after the last. */
const struct app_command *cli_command(int i);
/* Whether the command's name has two words and `first` is the first one. */
bool cli_is_of(const struct app_command *c, const char *first);
/* Finds a command by its name, which is the first *n_words of the arguments; second may be NULL. Returns NULL, with
 * one line on stderr, if there is no such command. */
const struct app_command *cli_find_command(const char *name, const char *second, int *n_words);

#endif
