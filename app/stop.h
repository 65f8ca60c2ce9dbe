/* SPDX-License-Identifier: MIT */
/* Long work that a signal asks to end: it goes on to the next place where its results are whole. */
#ifndef WNW_APP_STOP_H
#define WNW_APP_STOP_H

#include <stdbool.h>

enum { APP_INTERRUPTED = 130 }; /* exit code of work that was ended by a signal; its results so far stay */

/* From now on SIGINT and SIGTERM set a flag, and a second one ends the process. A signal that the process
 * ignores stays ignored. */
void app_stop_watch(void);
/* The same, but no signal ends the process, however many come; reads from terminals are interrupted. */
void app_stop_watch_each(void);
/* Gives both signals their default actions back and forgets the flag. */
void app_stop_unwatch(void);
/* Whether a signal came. */
bool app_stop_asked(void);
/* The last one, 0 = none came. */
int app_stop_signal(void);
/* Forgets what came. */
void app_stop_forget(void);

#endif
