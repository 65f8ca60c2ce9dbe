/* SPDX-License-Identifier: MIT */
/* Time and memory of this process. */
#include "app/process.h"

#include "base/system.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

double app_now_ms(void)
{
    return wnw__now_ms();
}

double app_cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool app_proc_status(uint64_t *bytes, const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &kib) == 1;
    if (f)
        fclose(f);
    *bytes = found ? (uint64_t)kib * 1024 : 0;
    return found;
}

uint64_t app_peak_rss(void)
{
    /* exec sets VmHWM back to zero; ru_maxrss may still hold the size of the program that started this
     * one. */
    uint64_t bytes;
    struct rusage ru;
    if (app_proc_status(&bytes, "VmHWM:"))
        return bytes;
    return getrusage(RUSAGE_SELF, &ru) == 0 ? (uint64_t)ru.ru_maxrss * 1024 : 0;
}
