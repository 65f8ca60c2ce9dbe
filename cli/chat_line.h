/* SPDX-License-Identifier: MIT */
/* Lines of the user: from a terminal that can be edited on (chat_edit.c), from another terminal or from a pipe. */
#ifndef WNW_CLI_CHAT_LINE_H
#define WNW_CLI_CHAT_LINE_H

#include "app/text.h"

enum cli_line_got {
    CLI_LINE_TEXT,
    CLI_LINE_END,     /* there is no more */
    CLI_LINE_CLEARED, /* Ctrl-C: what was typed is gone */
    CLI_LINE_FAILED   /* reading failed, or memory ran out; the message is printed */
};

struct cli_line;

/* terminal: somebody types. history: lines are remembered, in a file too. Returns an exit code. */
int cli_line_open(struct cli_line **out, bool terminal, bool history);
void cli_line_close(struct cli_line *l);
/* Reads a line into *text, without its end, which is released with free(text->s). A line whose last character is a backslash
 * goes on with the next one. */
enum cli_line_got cli_line_read(struct cli_line *l, struct app_text *text);

/* ---- Waiting (chat_wait.c) ---- */

/* Waits for something to be read; false: a signal came (app_stop_*). */
bool cli_line_wait(void);

/* ---- Editing (chat_edit.c; chat_edit_absent.c where libedit is missing) ---- */

struct cli_edit;

/* What lines are edited with, "libedit 2.11"; NULL: this build cannot. */
const char *cli_edit_name(void);
/* *out is NULL where this terminal, or this build, cannot. Returns an exit code. */
int cli_edit_open(struct cli_edit **out);
void cli_edit_close(struct cli_edit *e);
/* *line is borrowed until the next call, with its line break. */
enum cli_line_got cli_edit_read(struct cli_edit *e, const char *prompt, const char **line, size_t *n);
/* Puts a line into what the arrow keys go back to. */
void cli_edit_remember(struct cli_edit *e, const char *line);

/* ---- Lines of earlier conversations (chat_history.c) ---- */

struct cli_history;

/* *out is NULL where there is no place for the file, which is noted, or no folder for it. Each line of the file, oldest first,
 * is given to `each`. */
void cli_history_open(struct cli_history **out, void (*each)(const char *line, void *user), void *user);
/* Adds a line. */
void cli_history_add(struct cli_history *h, const char *line);
void cli_history_close(struct cli_history *h);

#endif
