/* SPDX-License-Identifier: MIT */
/*
 * Another program makes a mapped file shorter: the system then sends SIGBUS to the thread that reads a page that is gone. There is nothing to
 * go back to, but the process can say why it ends. (The library installs no handler: signals belong to the program.)
 */
#include "app/cut.h"

#include "app/output.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { FAILED = 1 };

/*
 * It interrupts a read of memory, never a lock or a buffer of stdio of this thread; the line is written without them. Threads that compute
 * together meet the missing pages together: the first one writes the line, the others wait for it to end the process.
 */
static void last_words(int number, siginfo_t *info, void *context)
{
    static const char line[] =
        "winnow: a file was cut off while it was in use: the model, or a stored document; have other "
        "programs write a new file and rename it\n";
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* memory that failed, or an address that is none */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    while (atomic_flag_test_and_set(&ending))
        pause();
    const ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
    app_out_discard();
    _exit(FAILED);
}

void app_catch_cuts(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = last_words;
    /* The handler stays: with SA_RESETHAND the signal of a second thread would end the process before the line is out. */
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
