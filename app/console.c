/* SPDX-License-Identifier: MIT */
/* Messages, progress and clocks. Everything here goes to stderr; stdout belongs to answers and JSON. */
#include "app/app.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int cli_exit_code(int status)
{
    switch (status) {
    case WNW_OK:
        return CLI_OK;
    case WNW_E_NOMEM:
    case WNW_E_IO: /* files that cannot be opened are refused before the library sees them */
    case WNW_E_BACKEND:
    case WNW_E_CANCELLED:
        return CLI_FAILED;
    default:
        return CLI_BAD_INPUT;
    }
}

int cli_errno_code(int err)
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
        return CLI_FAILED;
    default:
        return CLI_BAD_INPUT;
    }
}

/* Messages quote names from outside: a line break or control character in one must not break the line. */
__attribute__((format(printf, 1, 0))) static void print_line(const char *fmt, va_list ap)
{
    char line[2048];
    vsnprintf(line, sizeof line, fmt, ap);
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    fprintf(stderr, "winnow: %s\n", line);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
    return code;
}

int cli_fail_status(int status)
{
    const char *text = wnw_last_error();
    return cli_fail(cli_exit_code(status), "%s", *text ? text : wnw_strerror(status));
}

void cli_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
}

int cli_stdout_failed(void)
{
    return cli_fail(CLI_FAILED, "writing to standard output failed: %s",
                    errno ? strerror(errno) : "unknown error");
}

int cli_finish_stdout(void)
{
    errno = 0;
    return fflush(stdout) != 0 || ferror(stdout) ? cli_stdout_failed() : CLI_OK;
}

bool cli_json_append(json_t **list, json_t *item)
{
    /* Takes the item over in any case, NULL is refused. */
    if (json_array_append_new(*list, item) == 0)
        return true;
    json_decref(*list);
    *list = NULL;
    return false;
}

json_t *cli_json_text(const char *s)
{
    struct cli_text text = {0};
    const bool whole = cli_text_add_utf8(&text, s, strlen(s)) && cli_text_add(&text, "", 0);
    json_t *o = whole ? json_stringn(text.s, text.len) : NULL;
    free(text.s);
    return o;
}

json_t *cli_json_ids(const int32_t *ids, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n && cli_json_append(&list, json_integer(ids[i])); i++)
        ;
    return list;
}

int cli_print_json(json_t *o)
{
    if (!o)
        return cli_fail(CLI_FAILED, "out of memory for the JSON object");
    errno = 0;
    const bool whole = json_dumpf(o, stdout, JSON_REAL_PRECISION(10)) == 0;
    json_decref(o);
    putchar('\n');
    const int rc = cli_finish_stdout();
    return rc == CLI_OK && !whole ? cli_fail(CLI_FAILED, "out of memory for the JSON object") : rc;
}

double cli_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool cli_proc_status(uint64_t *bytes, const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &kib) == 1;
    if (f)
        fclose(f);
    *bytes = found ? (uint64_t)kib * 1024 : 0;
    return found;
}

uint64_t cli_peak_rss(void)
{
    /* VmHWM starts anew with exec; ru_maxrss may still hold the size of the program that started us. */
    uint64_t bytes;
    struct rusage ru;
    if (cli_proc_status(&bytes, "VmHWM:"))
        return bytes;
    return getrusage(RUSAGE_SELF, &ru) == 0 ? (uint64_t)ru.ru_maxrss * 1024 : 0;
}

void cli_progress_start(struct cli_progress *p, const char *label, const char *unit)
{
    *p = (struct cli_progress){
        .label = label, .unit = unit, .start_ms = cli_now_ms(), .terminal = isatty(STDERR_FILENO) == 1};
}

bool cli_progress_step(int32_t done, int32_t total, void *user)
{
    struct cli_progress *p = user;
    const double now = cli_now_ms();
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

void cli_progress_end(struct cli_progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
