/* SPDX-License-Identifier: MIT */
/* Ctrl-C while long work goes on that can be taken up again. */
#ifndef WNW_APP_INTERRUPT_H
#define WNW_APP_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT and SIGTERM are only noted, once; a second one ends the process as usual. A signal that
 * the process ignores stays ignored. */
void app_interrupt_watch(void);
/* Whether one has come. */
bool app_interrupted(void);

#endif
