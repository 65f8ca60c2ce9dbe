/* SPDX-License-Identifier: MIT */
#ifndef WNW_CLI_PROGRAM_H
#define WNW_CLI_PROGRAM_H

#include "winnow_method.h"

/* What `winnow` does with its arguments. registry: parts that recipes may name without a plugin; plugins add to it; NULL = none. Returns the
 * exit code. */
int cli_program(int argc, char **argv, wnw_registry *registry);

#endif
