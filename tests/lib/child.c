/* SPDX-License-Identifier: MIT */
#include "child.h"

#include <ggml-cpu.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t test_child(unsigned seconds)
{
    static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    const struct rlimit no_core = {0, 0};
    fflush(NULL);
    ggml_cpu_init(); /* or each child makes ggml's tables, a fifth of what a small model takes */
    const pid_t pid = fork();
    assert_cmp(pid, >=, 0);
    if (pid > 0)
        return pid;
    setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        signal(caught[i], SIG_DFL);
    alarm(seconds);
    return 0;
}

int test_child_status(pid_t child, const char *what)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("%s: the process ended: %s", what,
                 WTERMSIG(status) == SIGALRM ? "it took for ever" : strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status);
}
