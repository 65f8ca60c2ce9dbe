/* SPDX-License-Identifier: MIT */
#ifndef WNW_PYTHON_ENTRY_H
#define WNW_PYTHON_ENTRY_H

#include "winnow_method.h"

/* Runs the command with these arguments, argv[0] included, as a process of its own would: what it prints goes to the process' standard
 * descriptors. Only one call may run at a time. registry: parts that recipes may name; NULL = none. Returns the exit code. */
WNW_API int wnw_python_command(int argc, char **argv, wnw_registry *registry);

#endif
