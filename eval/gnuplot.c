/* SPDX-License-Identifier: MIT */
/* Charts by gnuplot. Script and output are files in memory, so that neither side can wait for the other. */
#include "eval/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static bool write_all(int fd, const char *s, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, s, len);
        if (n < 0 && errno != EINTR)
            return false;
        s += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

static bool read_all(struct app_text *out, int fd)
{
    char block[65536];
    ssize_t n = lseek(fd, 0, SEEK_SET) == 0 ? 1 : -1;
    while (n > 0) {
        n = read(fd, block, sizeof block);
        if (n > 0 && !app_text_add(out, block, (size_t)n))
            return false;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    return n == 0;
}

/* Starts the program; returns an errno value. */
static int start(pid_t *pid, int in, int out)
{
    char path[4096], name[] = "gnuplot", defaults[] = "-d", from[] = "-", locale[] = "LC_ALL=C";
    char *const argv[] = {name, defaults, from, NULL}, *const envp[] = {path, locale, NULL};
    posix_spawn_file_actions_t actions;
    const char *search = getenv("PATH");
    snprintf(path, sizeof path, "PATH=%s", search ? search : "/usr/bin:/bin");
    int err = posix_spawn_file_actions_init(&actions);
    if (err != 0)
        return err;
    err = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (err == 0)
        err = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (err == 0)
        err = posix_spawnp(pid, name, &actions, NULL, argv, envp);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

static enum eval_gnuplot_status run(struct app_text *out, int in_fd, int out_fd)
{
    pid_t pid;
    int status = 0;
    const size_t before = out->len;
    const int err = start(&pid, in_fd, out_fd);
    if (err != 0)
        return err == ENOENT || err == EACCES ? EVAL_GNUPLOT_MISSING : EVAL_GNUPLOT_FAILED;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
        ;
    if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return EVAL_GNUPLOT_MISSING; /* where the system finds out only after the fork */
    if (got != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return EVAL_GNUPLOT_FAILED;
    if (!read_all(out, out_fd))
        return EVAL_GNUPLOT_NO_MEMORY;
    return out->len > before ? EVAL_GNUPLOT_OK : EVAL_GNUPLOT_FAILED;
}

enum eval_gnuplot_status eval_gnuplot_run(struct app_text *out, const char *script, size_t len)
{
    const int in_fd = memfd_create("script", MFD_CLOEXEC), out_fd = memfd_create("chart", MFD_CLOEXEC);
    enum eval_gnuplot_status status = EVAL_GNUPLOT_FAILED;
    if (in_fd >= 0 && out_fd >= 0 && write_all(in_fd, script, len))
        status = run(out, in_fd, out_fd);
    if (in_fd >= 0)
        close(in_fd);
    if (out_fd >= 0)
        close(out_fd);
    return status;
}
