/* SPDX-License-Identifier: MIT */
/* Failed assertions of ggml. */
#ifndef WNW_CLI_ABORT_H
#define WNW_CLI_ABORT_H

/* From now on a failed assertion of ggml is one line on stderr and exit code 1. */
void cli_catch_aborts(void);

#endif
