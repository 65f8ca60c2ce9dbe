/* SPDX-License-Identifier: MIT */
/* Editing a line with libedit (decision 086). */
#include "cli/chat_line.h"

#include "app/console.h"
#include "app/stop.h"
#include "base/strings.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { MOST_LINES = 1000 };

struct cli_edit {
    EditLine *el;
    History *history;
    HistEvent event;
    char prompt[8];
    bool begun; /* a character of this line was read */
    bool kept;  /* a byte was read that begins the next character */
    char next;  /* that byte */
};

static struct cli_edit *edit_of(EditLine *el)
{
    struct cli_edit *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return e;
}

/* Whether the next character was typed before the line began. */
static bool was_typed_ahead(struct cli_edit *e)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    const bool first = !e->begun;
    e->begun = true;
    return first && poll(&in, 1, 0) > 0;
}

/* Reads a byte, or takes the one that was kept. As read. */
static ssize_t next_byte(struct cli_edit *e, char *byte)
{
    if (e->kept) {
        e->kept = false;
        *byte = e->next;
        return 1;
    }
    return cli_line_wait() ? read(STDIN_FILENO, byte, 1) : -1;
}

/* Decodes bytes into characters and ends the line at a signal; libedit by itself would go on reading.
 *
 * While no line is edited (an answer is printed, or libedit has not yet written its prompt), the terminal takes Ctrl-D as the end of
 * input. It delivers that as a zero byte once lines are edited again.
 *
 * A byte that does not continue a character begins the next one, such as Enter after a letter of Latin-1. */
static int next_character(EditLine *el, wchar_t *out)
{
    enum { CTRL_D = 4 };
    struct cli_edit *e = edit_of(el);
    const bool ahead = was_typed_ahead(e);
    char bytes[8];
    size_t n = 0, len;
    for (;;) {
        const ssize_t got = next_byte(e, bytes + n);
        if (got < 0 && errno == EINTR && !app_stop_asked())
            continue; /* another signal, as that of a window's size */
        if (got <= 0)
            return (int)got;
        const enum wnw__utf8 is = wnw__utf8_scan(bytes, ++n, &len);
        if (is == WNW_UTF8_OPEN && n < sizeof bytes - 1)
            continue;
        e->kept = is != WNW_UTF8_WHOLE && n > 1;
        e->next = bytes[n - 1];
        bytes[n] = '\0';
        *out = L'?';
        if (ahead && n == 1 && bytes[0] == '\0')
            *out = CTRL_D;
        else if (is == WNW_UTF8_WHOLE)
            (void)mbrtowc(out, bytes, n, &(mbstate_t){0});
        return 1;
    }
}

static char *prompt_of(EditLine *el)
{
    return edit_of(el)->prompt;
}

/* libedit takes characters as the locale says; ours are UTF-8. */
static bool set_locale(void)
{
    return (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) ||
           setlocale(LC_CTYPE, "C.UTF-8");
}

static bool can_edit(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

const char *cli_edit_name(void)
{
#define TEXT(x)  #x
#define VALUE(x) TEXT(x)
    return "libedit " VALUE(LIBEDIT_MAJOR) "." VALUE(LIBEDIT_MINOR);
}

int cli_edit_open(struct cli_edit **out)
{
    *out = NULL;
    if (!can_edit() || !set_locale())
        return APP_OK;
    struct cli_edit *e = calloc(1, sizeof *e);
    if (!e)
        return app_fail(APP_FAILED, "out of memory");
    e->el = el_init("winnow", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->el || !e->history) {
        cli_edit_close(e);
        return APP_OK; /* plain lines do */
    }
    history(e->history, &e->event, H_SETSIZE, MOST_LINES);
    history(e->history, &e->event, H_SETUNIQUE, 1);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_HIST, history, e->history);
    el_set(e->el, EL_GETCFN, next_character);
    el_source(e->el, NULL); /* the user's ~/.editrc */
    *out = e;
    return APP_OK;
}

void cli_edit_close(struct cli_edit *e)
{
    if (!e)
        return;
    if (e->history)
        history_end(e->history);
    if (e->el)
        el_end(e->el);
    free(e);
}

enum cli_line_got cli_edit_read(struct cli_edit *e, const char *prompt, const char **line, size_t *n)
{
    int count = 0;
    e->begun = false;
    snprintf(e->prompt, sizeof e->prompt, "%s", prompt);
    el_resize(e->el);
    *line = el_gets(e->el, &count);
    *n = *line && count > 0 ? (size_t)count : 0;
    if (*n > 0)
        return CLI_LINE_TEXT;
    return app_stop_signal() == SIGINT ? CLI_LINE_CLEARED : CLI_LINE_END;
}

void cli_edit_remember(struct cli_edit *e, const char *line)
{
    if (e)
        history(e->history, &e->event, H_ENTER, line);
}
