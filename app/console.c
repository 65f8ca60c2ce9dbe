/* SPDX-License-Identifier: MIT */
/* Messages and progress. Everything here goes to stderr; stdout belongs to answers and JSON. */
#include "app/console.h"

#include "app/process.h"
#include "app/text.h"
#include "winnow.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int app_exit_code(int status)
{
    switch (status) {
    case WNW_OK:
        return APP_OK;
    case WNW_E_NOMEM:
    case WNW_E_IO: /* the command refuses a file that cannot be opened before the library sees it */
    case WNW_E_BACKEND:
    case WNW_E_CANCELLED:
        return APP_FAILED;
    default:
        return APP_BAD_INPUT;
    }
}

int app_errno_code(int err)
{
    switch (err) {
    case ENOMEM:
    case EIO:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EINTR:
        return APP_FAILED;
    default:
        return APP_BAD_INPUT;
    }
}

/* Messages quote names from outside: a line break or control character in one must not break the line. */
__attribute__((format(printf, 1, 0))) static void print_line(const char *fmt, va_list ap)
{
    char line[2048];
    vsnprintf(line, sizeof line, fmt, ap);
    app_hide_controls(line, false);
    fprintf(stderr, "winnow: %s\n", line);
}

int app_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
    return code;
}

int app_fail_status(int status)
{
    const char *text = wnw_last_error();
    return app_fail(app_exit_code(status), "%s", *text ? text : wnw_strerror(status));
}

int app_status_code(int status)
{
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

void app_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
}

void app_note_lines(const char *label, const char *lines)
{
    while (lines && *lines) {
        const int len = (int)strcspn(lines, "\n");
        app_note("%s%.*s", label, len, lines);
        lines += len + (lines[len] == '\n');
    }
}

void app_print_line(const char *s)
{
    while (*s) {
        bool control;
        const size_t n = app_control_step(s, &control);
        if (control)
            putchar('?');
        else
            fwrite(s, 1, n, stdout);
        s += n;
    }
}

int app_stdout_failed(void)
{
    return app_fail(APP_FAILED, "writing to standard output failed: %s",
                    errno ? strerror(errno) : "a part of it was not written");
}

int app_finish_stdout(void)
{
    errno = 0;
    return fflush(stdout) != 0 || ferror(stdout) ? app_stdout_failed() : APP_OK;
}

void app_progress_start(struct app_progress *p, const char *label, const char *unit)
{
    const char *term = getenv("TERM");
    const bool erases = !term || strcmp(term, "dumb") != 0; /* a line that was printed */
    *p = (struct app_progress){.label = label,
                               .unit = unit,
                               .start_ms = app_now_ms(),
                               .terminal = erases && isatty(STDERR_FILENO) == 1};
}

bool app_progress_step(int32_t done, int32_t total, void *user)
{
    struct app_progress *p = user;
    const double now = app_now_ms();
    const double spent = now - p->start_ms;
    if (!p->terminal || done <= 0 || (p->shown && now - p->last_ms < 200))
        return true;
    const double rate = done / (spent * 1e-3 + 1e-9);
    const double left_s = (total - done) / rate;
    if (!p->shown && spent + left_s * 1e3 < 2000)
        return true;
    fprintf(stderr, "\r\033[K%s: %d of %d %s, %.1f %s/s, %.0f s left", p->label, done, total, p->unit, rate,
            p->unit, left_s);
    fflush(stderr);
    p->shown = true;
    p->last_ms = now;
    return true;
}

void app_progress_end(struct app_progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
