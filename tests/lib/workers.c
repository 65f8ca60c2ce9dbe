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
    return pid;
}

int test_wrap_worker(pid_t worker, int port)
{
    char name[72];
    snprintf(name, sizeof name, "rpc:127.0.0.1:%d", port);
    for (int i = 0; i < 300; i++) {
        if (wnw_bridge_wrap(name) == WNW_OK)
            return 0;
        usleep(100000);
    }
    fprintf(stderr, "%s\n", wnw_last_error());
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
    return -1;
}
