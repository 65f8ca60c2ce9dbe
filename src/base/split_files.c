/* SPDX-License-Identifier: MIT */
#include "base/split_files.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 65535 /* files, as their key in GGUF can count */ };

void wnw__split_ending(char out[WNW_SPLIT_ENDING], int32_t i, int32_t n)
{
    snprintf(out, WNW_SPLIT_ENDING, "-%05d-of-%05d.gguf", (int)i + 1, (int)n);
}

size_t wnw__split_stem(const char *path, int32_t n)
{
    char ending[WNW_SPLIT_ENDING];
    wnw__split_ending(ending, 0, n);
    const size_t all = strlen(path), tail = strlen(ending);
    return all > tail && strcmp(path + all - tail, ending) == 0 ? all - tail : 0;
}

int32_t wnw__split_count(const char *path, size_t *stem)
{
    static const char first[] = "-00001-of-";
    enum { DIGITS = 5 };
    const size_t all = strlen(path), tail = sizeof first - 1 + DIGITS + strlen(".gguf");
    int32_t n = 0;
    *stem = 0;
    if (all <= tail || strncmp(path + all - tail, first, sizeof first - 1) != 0)
        return 1;
    const char *digits = path + all - tail + sizeof first - 1;
    for (int i = 0; i < DIGITS; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return 1;
        n = 10 * n + (digits[i] - '0');
    }
    *stem = n > 1 && n <= MOST ? wnw__split_stem(path, n) : 0;
    return *stem > 0 ? n : 1;
}
