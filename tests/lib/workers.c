/* SPDX-License-Identifier: MIT */
#include "workers.h"

#include "winnow_bridge.h"

#include <arpa/inet.h>
#include <ggml-backend.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
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

/* ggml's own server, as its program has it. */
static void serve_plain(const char *address)
{
    ggml_backend_dev_t cpu = ggml_backend_dev_by_name("CPU");
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    void *found = rpc ? ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_start_server") : NULL;
    void (*serve)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *);
    memcpy(&serve, &found, sizeof serve);
    if (serve && cpu)
        serve(address, NULL, 1, 1, &cpu);
}

enum { MOST_FILES = 1024 };

static pid_t start(int port, bool plain)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd = STDERR_FILENO + 1; fd < MOST_FILES; fd++)
            close(fd); /* connections of this process would not end as long as it has them */
        if (plain)
            serve_plain(address);
        else
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

pid_t test_worker(int port)
{
    return start(port, false);
}

pid_t test_plain_worker(int port)
{
    return start(port, true);
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
