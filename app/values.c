/* SPDX-License-Identifier: MIT */
/* Strict reading of values from text. */
#include "app/values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t app_recipe_length(const char *list)
{
    size_t len = strcspn(list, ",");
    while (list[len] == ',') {
        const char *next = list + len + 1;
        if (next[strcspn(next, "=:+,")] != '=') /* the name of a recipe ends otherwise */
            break;
        len += 1 + strcspn(next, ",");
    }
    return len;
}

bool app_parse_int(int64_t *out, const char *text)
{
    char *end;
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    /* A number that does not fit becomes the nearest that does, which is out of range for every option. */
    const long long v = strtoll(text, &end, 10);
    if ((errno != 0 && errno != ERANGE) || *end != '\0')
        return false;
    *out = v;
    return true;
}

bool app_parse_real(double *out, const char *text)
{
    char *end;
    /* strtod would also take blanks, hexadecimal numbers, "nan" and "inf". */
    if (*text == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '+')
        return false;
    const double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool app_parse_bytes(int64_t *out, const char *text)
{
    static const char suffixes[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if ((errno != 0 && errno != ERANGE) || (*end && (!suffix || end[1])))
        return false;
    const int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    *out = v > INT64_MAX >> shift ? INT64_MAX : v << shift;
    return true;
}
