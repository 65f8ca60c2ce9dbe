/* SPDX-License-Identifier: MIT */
#include "cli/chat_line.h"

#include "app/console.h"
#include "app/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cli_line {
    bool terminal;
    struct cli_edit *edit; /* NULL = plain lines */
    struct cli_history *history;
    char *line; /* of getline, owned */
    size_t cap;
};

static void remember(const char *line, void *user)
{
    cli_edit_remember(user, line);
}

int cli_line_open(struct cli_line **out, bool terminal, bool history)
{
    struct cli_line *l = *out = calloc(1, sizeof *l);
    if (!l)
        return app_fail(APP_FAILED, "out of memory");
    l->terminal = terminal;
    const int rc = terminal ? cli_edit_open(&l->edit) : APP_OK;
    if (terminal && !l->edit)
        setvbuf(stdin, NULL, _IONBF, 0); /* so that what can be read is known */
    if (rc == APP_OK && l->edit && history)
        cli_history_open(&l->history, remember, l->edit);
    return rc;
}

void cli_line_close(struct cli_line *l)
{
    if (!l)
        return;
    cli_history_close(l->history);
    cli_edit_close(l->edit);
    free(l->line);
    free(l);
}

/* A line from anything else than a terminal that can be edited on; a signal ends the wait for it. */
static enum cli_line_got read_plain(struct cli_line *l, const char *prompt, const char **line, size_t *n)
{
    if (l->terminal) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    errno = 0;
    const ssize_t got = l->terminal && !cli_line_wait() ? -1 : getline(&l->line, &l->cap, stdin);
    if (got >= 0) {
        *line = l->line;
        *n = (size_t)got;
        return CLI_LINE_TEXT;
    }
    const int err = errno;
    const bool ended = feof(stdin);
    clearerr(stdin);
    if (l->terminal && app_stop_asked())
        return app_stop_signal() == SIGTERM ? CLI_LINE_END : CLI_LINE_CLEARED;
    if (ended)
        return CLI_LINE_END;
    app_fail(APP_FAILED, "reading a line failed: %s", err ? strerror(err) : "unknown error");
    return CLI_LINE_FAILED;
}

static enum cli_line_got read_one(struct cli_line *l, const char *prompt, const char **line, size_t *n)
{
    if (app_stop_signal() != SIGTERM)
        app_stop_forget();
    const enum cli_line_got got =
        l->edit ? cli_edit_read(l->edit, prompt, line, n) : read_plain(l, prompt, line, n);
    if (l->terminal && got != CLI_LINE_TEXT && got != CLI_LINE_FAILED)
        fputs("\n", stderr); /* what comes next begins a line */
    return got;
}

/* Adds a line without its end to the text; *more: the next one belongs to it. */
static bool add(struct app_text *text, const char *line, size_t n, bool *more)
{
    const bool ended = n > 0 && line[n - 1] == '\n';
    n -= ended;
    n -= n > 0 && line[n - 1] == '\r';
    *more = n > 0 && line[n - 1] == '\\';
    n -= *more;
    return app_text_add(text, line, n) && (!*more || app_text_add(text, "\n", 1));
}

static void keep(struct cli_line *l, const char *line, size_t n)
{
    char *copy = l->edit ? strndup(line, n) : NULL;
    if (!copy)
        return;
    copy[strcspn(copy, "\r\n")] = '\0';
    if (*copy) {
        cli_edit_remember(l->edit, copy);
        cli_history_add(l->history, copy);
    }
    free(copy);
}

enum cli_line_got cli_line_read(struct cli_line *l, struct app_text *text)
{
    enum cli_line_got got = CLI_LINE_TEXT;
    bool more = true, begun = false;
    *text = (struct app_text){0};
    while (got == CLI_LINE_TEXT && more) {
        const char *line;
        size_t n;
        got = read_one(l, begun ? ". " : "> ", &line, &n);
        if (got == CLI_LINE_END && begun)
            return CLI_LINE_TEXT; /* the end comes again */
        if (got == CLI_LINE_TEXT && !add(text, line, n, &more)) {
            app_fail(APP_FAILED, "out of memory for a line");
            got = CLI_LINE_FAILED;
        }
        if (got == CLI_LINE_TEXT)
            keep(l, line, n);
        begun = true;
    }
    if (got != CLI_LINE_TEXT) {
        free(text->s);
        *text = (struct app_text){0};
    }
    return got;
}
