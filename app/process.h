/* SPDX-License-Identifier: MIT */
/* Time and memory of this process. */
#ifndef WNW_APP_PROCESS_H
#define WNW_APP_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

double app_now_ms(void);
/* Milliseconds of CPU time that all threads of this process have used. */
double app_cpu_ms(void);
/* Reads a size from /proc/self/status by its key, such as "VmRSS:"; false if the system does not report
 * it. */
bool app_proc_status(uint64_t *bytes, const char *key);
/* Peak resident size of this process in bytes. */
uint64_t app_peak_rss(void);

#endif
