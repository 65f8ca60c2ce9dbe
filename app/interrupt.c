/* SPDX-License-Identifier: MIT */
#include "app/interrupt.h"

#include <signal.h>

static volatile sig_atomic_t came;

static void note(int sig)
{
    (void)sig;
    came = 1;
}

void app_interrupt_watch(void)
{
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        struct sigaction now, want = {.sa_flags = (int)SA_RESETHAND};
        want.sa_handler = note;
        sigemptyset(&want.sa_mask);
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(signals[i], &want, NULL);
    }
}

bool app_interrupted(void)
{
    return came != 0;
}
