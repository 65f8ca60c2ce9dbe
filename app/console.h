/* SPDX-License-Identifier: MIT */
/* Exit codes, messages and progress. Messages go to stderr; stdout belongs to answers and JSON. */
#ifndef WNW_APP_CONSOLE_H
#define WNW_APP_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

enum app_exit { APP_OK = 0, APP_FAILED = 1, APP_BAD_INPUT = 2 };

/* Exit code for a library status. */
int app_exit_code(int status);
/* Exit code for a file that cannot be used: bad input, unless the system lacks something. */
int app_errno_code(int err);
/* Prints "winnow: sentence" as one line on stderr and returns `code`. */
int app_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with the library's sentence; the code follows from the status. */
int app_fail_status(int status);
/* APP_OK for WNW_OK, else as app_fail_status(). */
int app_status_code(int status);
/* Prints a remark as one line on stderr. */
void app_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints each line of `lines` (NULL = none) as a remark that begins with `label`. */
void app_note_lines(const char *label, const char *lines);

/* Writes text from a file to stdout, with ? for line breaks and control characters, which a terminal would obey. */
void app_print_line(const char *s);
/* Says why writing to standard output failed, by errno, and returns APP_FAILED. */
int app_stdout_failed(void);
/* Flushes stdout. Returns APP_FAILED if anything written there was lost. */
int app_finish_stdout(void);
/* One progress line on stderr: appears when stderr is a terminal that can erase it and the work takes longer than 2 s. */
struct app_progress {
    const char *label, *unit;
    double start_ms, last_ms;
    bool terminal, shown;
};
void app_progress_start(struct app_progress *p, const char *label, const char *unit);
/* Has the type of the progress callback of a session; user is a struct app_progress. Always returns true. */
bool app_progress_step(int32_t done, int32_t total, void *user);
void app_progress_end(struct app_progress *p);

#endif
