/* SPDX-License-Identifier: MIT */
/* Failed assertions of ggml, and mapped files that are cut off (app/cut.h). */
#ifndef WNW_CLI_ABORT_H
#define WNW_CLI_ABORT_H

/* From now on either is one line on stderr and exit code 1. */
void cli_catch_aborts(void);

#endif
