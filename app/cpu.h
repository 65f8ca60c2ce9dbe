/* SPDX-License-Identifier: MIT */
/* What the system says of its CPU. */
#ifndef WNW_APP_CPU_H
#define WNW_APP_CPU_H

#include <stdbool.h>
#include <stddef.h>

/* The value of the first line of /proc/cpuinfo with this key, such as "model name", cut to size - 1 bytes.
 * Returns false, and sets "", where the system has no such line. */
bool app_cpu_value(char *out, size_t size, const char *key);
/* Its name; "unknown CPU" where the system does not say it. */
void app_cpu_name(char *out, size_t size);

#endif
