/* SPDX-License-Identifier: MIT */
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>

void wnw__locale_begin(struct wnw__locale *l)
{
    /* The C locale is built into the C library, so that no file is read. Without it the thread keeps its own. */
    l->plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    l->before = l->plain ? uselocale(l->plain) : (locale_t)0;
}

void wnw__locale_end(struct wnw__locale *l)
{
    if (!l->plain)
        return;
    uselocale(l->before);
    freelocale(l->plain);
}

double wnw__to_double(const char *text, char **end)
{
    struct wnw__locale l;
    wnw__locale_begin(&l);
    const double v = strtod(text, end);
    wnw__locale_end(&l);
    return v;
}

int wnw__vformat(char *out, size_t size, const char *fmt, va_list ap)
{
    struct wnw__locale l;
    wnw__locale_begin(&l);
    const int n = vsnprintf(out, size, fmt, ap);
    wnw__locale_end(&l);
    return n;
}

int wnw__format(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = wnw__vformat(out, size, fmt, ap);
    va_end(ap);
    return n;
}
