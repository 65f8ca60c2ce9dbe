/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include "base/strings.h"

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

/* ---- Structs that begin with their size ---- */

static uint32_t size_of(const void *theirs)
{
    uint32_t size;
    memcpy(&size, theirs, sizeof size);
    return size;
}

int wnw__sized_check(const void *theirs, size_t size, size_t align, const char *type)
{
    if (!theirs)
        return WNW_OK;
    const uint32_t given = size_of(theirs);
    if (given == 0)
        return wnw__fail(WNW_E_ARG,
                         "struct_size of %s is 0; begin it with WNW_INIT(%s), or with its default function",
                         type, type);
    if (given > size)
        return wnw__fail(WNW_E_ARG,
                         "struct_size of %s is %u and this library, %s, knows %zu bytes; set it with "
                         "WNW_INIT(%s), or use the library that the program was compiled for",
                         type, (unsigned)given, wnw_version(), size, type);
    if (given < sizeof given || given % align != 0)
        return wnw__fail(WNW_E_ARG, "struct_size of %s is %u, which no version had; set it with WNW_INIT(%s)",
                         type, (unsigned)given, type);
    return WNW_OK;
}

int wnw__sized_take(void *own, const void *theirs, size_t size, size_t align, const char *type)
{
    WNW_TRY(wnw__sized_check(theirs, size, align, type));
    if (theirs)
        memcpy((char *)own + sizeof(uint32_t), (const char *)theirs + sizeof(uint32_t),
               size_of(theirs) - sizeof(uint32_t));
    return WNW_OK;
}

void wnw__sized_give(void *theirs, const void *own)
{
    if (theirs)
        memcpy((char *)theirs + sizeof(uint32_t), (const char *)own + sizeof(uint32_t),
               size_of(theirs) - sizeof(uint32_t));
}
