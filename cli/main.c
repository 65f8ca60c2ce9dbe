/* SPDX-License-Identifier: MIT */
/* winnow: the process. */
#include "app/console.h"
#include "cli/abort.h"
#include "cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* The next file that is opened, a model or an output, would get the number of a closed standard descriptor.
 * Messages would then be written into that file. So /dev/null is opened in its place, for the opposite
 * direction, and using the descriptor fails. */
static bool hold_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!hold_descriptors())
        return APP_FAILED;
    /* With SIGXFSZ ignored, a write beyond a limit on file sizes fails, which is reported and cleaned up. */
    signal(SIGXFSZ, SIG_IGN);
    cli_catch_aborts();
    return cli_program(argc, argv, NULL);
}
