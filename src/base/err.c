/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include "base/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[512];

static wnw_log_fn log_fn;
static void *log_user;

const char *wnw_version(void)
{
    return WNW_VERSION_STRING;
}

const char *wnw_strerror(int status)
{
    switch (status) {
#define WNW_X(name, value, text) \
    case (value):                \
        return text;
        WNW_STATUS_MAP(WNW_X)
#undef WNW_X
    default:
        return "unknown status";
    }
}

const char *wnw_last_error(void)
{
    return error_text;
}

int wnw__fail(int code, const char *fmt, ...)
{
    /* An argument may point into the old text, so the new one is formatted next to it first. */
    char text[sizeof error_text];
    va_list ap;
    va_start(ap, fmt);
    wnw__vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(error_text, sizeof error_text, "%s", text);
    return code;
}

void wnw__warn(char *warning, const char *fmt, ...)
{
    const size_t used = strlen(warning);
    size_t at = used;
    if (used > 0 && used + 3 < WNW_WARNING_SIZE) {
        memcpy(warning + used, "; ", 3);
        at += 2;
    }
    va_list ap;
    va_start(ap, fmt);
    wnw__vformat(warning + at, WNW_WARNING_SIZE - at, fmt, ap);
    va_end(ap);
}

void wnw_set_log(wnw_log_fn fn, void *user)
{
    log_fn = fn;
    log_user = user;
}

void wnw__log(wnw_log_level level, const char *fmt, ...)
{
    if (!log_fn)
        return;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    wnw__vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    log_fn(level, text, log_user);
}
