/* SPDX-License-Identifier: MIT */
/* Numbers in text have a point, regardless of the host program's locale: recipes, profiles and messages read
 * the same everywhere. Only the calling thread's locale is changed, and set back. */
#ifndef WNW_BASE_NUMBER_H
#define WNW_BASE_NUMBER_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>

/* The thread's own locale while another is in use. */
struct wnw__locale {
    locale_t plain, before;
};
/* From here to wnw__locale_end the calling thread reads and writes as in the C locale. */
void wnw__locale_begin(struct wnw__locale *l);
void wnw__locale_end(struct wnw__locale *l);

/* strtod, snprintf and vsnprintf in the C locale. */
double wnw__to_double(const char *text, char **end);
int wnw__format(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int wnw__vformat(char *out, size_t size, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

#endif
