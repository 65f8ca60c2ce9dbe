/* SPDX-License-Identifier: MIT */
#include "app/cpu.h"

#include <stdio.h>
#include <string.h>

/* The value after "key<tabs>: " of a line; NULL if the line has another key. */
static const char *value_of(char *line, const char *key)
{
    const size_t n = strlen(key);
    const char *colon = strchr(line, ':');
    line[strcspn(line, "\n")] = '\0';
    if (!colon || strncmp(line, key, n) != 0 || strspn(line + n, " \t") != (size_t)(colon - line) - n)
        return NULL;
    return colon + 1 + strspn(colon + 1, " ");
}

bool app_cpu_value(char *out, size_t size, const char *key)
{
    char line[8192];
    const char *value = NULL;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !value && fgets(line, sizeof line, f))
        value = value_of(line, key);
    if (f)
        fclose(f);
    snprintf(out, size, "%s", value ? value : "");
    return value != NULL;
}

void app_cpu_name(char *out, size_t size)
{
    if (!app_cpu_value(out, size, "model name"))
        snprintf(out, size, "unknown CPU");
}
