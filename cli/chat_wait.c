/* SPDX-License-Identifier: MIT */
/* Waiting for input that a signal can end. */
#include "cli/chat_line.h"

#include "app/stop.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* A signal can come just before the wait for input begins, or to another thread, and would not end it. So the wait ends by
 * itself now and then. */
bool cli_line_wait(void)
{
    enum { MOST_MS = 200 };
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!app_stop_asked()) {
        const int n = poll(&in, 1, MOST_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* reading says what is wrong */
    }
    return false;
}
