/* SPDX-License-Identifier: MIT */
#include "workers.h"

#include "winnow_bridge.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int test_free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
                       getsockname(fd, (struct sockaddr *)&at, &size) == 0;
    close(fd);
    return bound ? ntohs(at.sin_port) : -1;
}

/* Whether somebody accepts at the port. */
static bool listens(int port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool accepted = fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return accepted;
}

pid_t test_worker(int port)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        wnw_bridge_worker(address, "CPU", 1);
        fprintf(stderr, "%s\n", wnw_last_error());
        _exit(1);
    }
    for (int i = 0; pid > 0 && i < 300; i++) {
        if (listens(port))
            return pid;
        usleep(100000);
    }
    test_end_worker(pid);
    return -1;
}

void test_end_worker(pid_t worker)
{
    if (worker <= 0)
        return;
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
}

int test_wrap_worker(pid_t worker, int port)
{
    char name[72];
    snprintf(name, sizeof name, "rpc:127.0.0.1:%d", port);
    if (worker > 0 && wnw_bridge_wrap(name) == WNW_OK)
        return 0;
    fprintf(stderr, "%s\n", wnw_last_error());
    test_end_worker(worker);
    return -1;
}
