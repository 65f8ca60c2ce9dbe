/* SPDX-License-Identifier: MIT */
/* Strict reading of values from text, and the known word nearest to a mistyped one. */
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

static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    const size_t na = strlen(a), nb = strlen(b);
    int row[MAX + 1];
    if (na > MAX || nb > MAX)
        return MAX;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            const int swap = diagonal + (a[i - 1] != b[j - 1]);
            const int gap = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = swap < gap ? swap : gap;
        }
    }
    return row[nb];
}

const char *app_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 3 + 1;
    for (int i = 0; words[i]; i++) {
        const int d = edit_distance(word, words[i]);
        if (d < best_distance || (d == best_distance && !best)) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}
