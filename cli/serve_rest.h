/* SPDX-License-Identifier: MIT */
/* What follows `--` of `winnow serve`: options of llama.cpp's server. */
#ifndef WNW_CLI_SERVE_REST_H
#define WNW_CLI_SERVE_REST_H

#include "cli/args.h"

/* Refuses options that are winnow's to set, that do not go with documents, or that have a number which the server does not survive; and
 * variables of the environment that are like them. *has_key becomes true where one names keys. Returns an exit code. */
int cli_serve_rest_check(const struct cli_args *args, bool *has_key);
/* Refuses what changes the model where its caches are stored or were. Returns an exit code. */
int cli_serve_rest_check_model(const struct cli_args *args, bool stored);

#endif
