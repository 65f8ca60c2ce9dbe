/* SPDX-License-Identifier: MIT */
/* Charts by gnuplot, which runs as a child process. */
#ifndef WNW_EVAL_GNUPLOT_H
#define WNW_EVAL_GNUPLOT_H

#include "app/text.h"

enum eval_gnuplot_status {
    EVAL_GNUPLOT_OK,
    EVAL_GNUPLOT_MISSING, /* there is no such program */
    EVAL_GNUPLOT_FAILED,  /* it ended with an error, or wrote nothing */
    EVAL_GNUPLOT_NO_MEMORY
};

/* Runs a script, whose output goes to standard output, and adds that to *out. The program reads no start-up file and
 * gets no environment but PATH. A script must not contain text from outside: gnuplot would run commands in it. */
enum eval_gnuplot_status eval_gnuplot_run(struct app_text *out, const char *script, size_t len);

#endif
