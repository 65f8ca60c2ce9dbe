/* SPDX-License-Identifier: MIT */
/* Long work that a signal asks to end. */
#include "app/stop.h"

#include <signal.h>
#include <stddef.h>

/* A signal handler can reach nothing else. */
static volatile sig_atomic_t asked;

static const int signals[] = {SIGINT, SIGTERM};

static void ask(int sig)
{
    asked = sig;
}

static void set_handler(void (*from)(int), void (*to)(int), int flags)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now, want = {.sa_flags = flags};
        want.sa_handler = to;
        sigemptyset(&want.sa_mask);
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == from)
            sigaction(signals[i], &want, NULL);
    }
}

void app_stop_watch(void)
{
    set_handler(SIG_DFL, ask, (int)SA_RESETHAND);
}

void app_stop_watch_each(void)
{
    set_handler(SIG_DFL, ask, 0);
}

void app_stop_unwatch(void)
{
    set_handler(ask, SIG_DFL, 0);
    asked = 0;
}

bool app_stop_asked(void)
{
    return asked != 0;
}

int app_stop_signal(void)
{
    return asked;
}

void app_stop_forget(void)
{
    asked = 0;
}
