/* SPDX-License-Identifier: MIT */
/* Growing text and UTF-8. */
#ifndef WNW_APP_TEXT_H
#define WNW_APP_TEXT_H

#include "winnow.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* A growing byte string, NUL-terminated. */
struct app_text {
    char *s;
    size_t len, cap;
};
bool app_text_add(struct app_text *t, const char *s, size_t len);
/* Add formatted text. */
bool app_text_put(struct app_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool app_text_vput(struct app_text *t, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Makes room for len bytes in all. */
bool app_text_reserve(struct app_text *t, size_t len);
/* Adds s with every invalid UTF-8 sequence replaced by U+FFFD. */
bool app_text_add_utf8(struct app_text *t, const char *s, size_t len);
/* Does the same to the whole of t in place. */
bool app_text_repair(struct app_text *t);
/* And counts them; *first becomes the byte at which the first one was. */
bool app_text_repair_counted(struct app_text *t, size_t *n_bad, size_t *first);

/* Bytes of the control character that a text begins with; 0: it begins with none. They are those that terminals obey: of ASCII, in UTF-8 of
 * U+0080 to U+009F, and those that turn the direction of writing, by which a text can look like another one (U+202A to U+202E, U+2066 to
 * U+2069). */
size_t app_control_bytes(const char *s);
/* The number of a control character of n bytes, 1 to 3. */
unsigned app_control_code(const char *s, size_t n);
/* Bytes of the next character of a text that is not at its end, and whether it is a control character. A byte that is no text in UTF-8 is one
 * if a terminal in Latin-1 obeys it. */
size_t app_control_step(const char *s, bool *control);
/* Puts '?' in the place of control characters; line breaks stay where `lines`. */
void app_hide_controls(char *s, bool lines);

/* A log sink of the library that adds each warning as one line to user, a struct app_text. */
void app_note_warning(wnw_log_level level, const char *text, void *user);

#endif
