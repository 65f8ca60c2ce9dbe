/* SPDX-License-Identifier: MIT */
/* Strict reading of values from text. */
#ifndef WNW_APP_VALUES_H
#define WNW_APP_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the first recipe of a list whose items are separated by commas. An item key=value belongs to the
 * recipe before it. */
size_t app_recipe_length(const char *list);

/* Reads a number strictly: it is the whole string, without blanks. An integer beyond 64 bits becomes
 * INT64_MIN or INT64_MAX, so that it is refused for its size and not for its form. */
bool app_parse_int(int64_t *out, const char *text);
bool app_parse_real(double *out, const char *text);
/* A number of bytes with an optional suffix K, M or G (powers of 1024). */
bool app_parse_bytes(int64_t *out, const char *text);

/* An option, and whether it was given. */
struct app_given {
    bool given;
    const char *name;
};
/* The name of the first of n options that was given; NULL: none was. */
static inline const char *app_first_of(const struct app_given *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].given)
            return rows[i].name;
    return NULL;
}
/* The same of rows {given, name}, ... */
#define APP_FIRST_GIVEN(...)                              \
    app_first_of((const struct app_given[]){__VA_ARGS__}, \
                 sizeof((const struct app_given[]){__VA_ARGS__}) / sizeof(struct app_given))

#endif
