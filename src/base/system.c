/* SPDX-License-Identifier: MIT */
#include "base/system.h"
#include "winnow_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int32_t wnw_usable_cores(void)
{
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < INT32_MAX ? (int32_t)n : 1;
}

int64_t wnw__local_seconds(time_t at)
{
    struct tm tm;
    tzset(); /* localtime_r need not */
    return localtime_r(&at, &tm) ? (int64_t)at + tm.tm_gmtoff : (int64_t)at;
}

int wnw__open_file(int *fd, int64_t *size, const char *what, const char *path)
{
    struct stat st;
    *size = 0;
    /* Without O_NONBLOCK, open waits at a FIFO until another process writes to it; for regular files the flag
     * changes nothing. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return wnw__fail(errno == ENOMEM ? WNW_E_NOMEM : WNW_E_IO, "cannot open the %s '%.200s': %s", what,
                         path, strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = st.st_size;
        return WNW_OK;
    }
    close(*fd);
    *fd = -1;
    return wnw__fail(WNW_E_FORMAT, "the %s '%.200s' is not a regular file", what, path);
}

int wnw__open_stream(FILE **f, int64_t *size, const char *what, const char *path)
{
    int fd;
    *f = NULL;
    WNW_TRY(wnw__open_file(&fd, size, what, path));
    *f = fdopen(fd, "rb");
    if (*f)
        return WNW_OK;
    close(fd);
    return wnw__fail(WNW_E_NOMEM, "no memory to read the %s '%.200s'", what, path);
}

int wnw__read_at(int fd, void *to, size_t n, uint64_t at)
{
    for (uint8_t *next = to; n > 0;) {
        const ssize_t got = pread(fd, next, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return wnw__fail(WNW_E_IO, "it cannot be read: %s", strerror(errno));
        if (got == 0)
            return wnw__fail(WNW_E_FORMAT,
                             "it ends at byte %llu: somebody has cut it off since it was opened",
                             (unsigned long long)at);
        next += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return WNW_OK;
}

struct visit {
    int (*call)(void *);
    void *arg;
    int rc;
    char error[512]; /* a thread's sentence ends with the thread */
};

static void *visit(void *data)
{
    struct visit *v = data;
    v->rc = v->call(v->arg);
    snprintf(v->error, sizeof v->error, "%s", v->rc == WNW_OK ? "" : wnw_last_error());
    return NULL;
}

/* Starts the thread with all signals blocked, which it inherits. */
static int start(pthread_t *thread, void *stack, size_t bytes, struct visit *v)
{
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr) != 0)
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_attr_setstack(&attr, stack, bytes);
    if (rc == 0)
        rc = pthread_create(thread, &attr, visit, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int wnw__on_stack(size_t bytes, int (*call)(void *), void *arg)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), stack = (bytes + page - 1) / page * page;
    struct visit v = {.call = call, .arg = arg};
    pthread_t thread;
    /* A page that may not be touched comes first: an overflow ends the process and writes over nothing. */
    char *memory = mmap(NULL, stack + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return wnw__fail(WNW_E_NOMEM, "no address space for a stack of %zu bytes", stack);
    int rc = mprotect(memory, page, PROT_NONE);
    if (rc == 0)
        rc = start(&thread, memory + page, stack, &v);
    if (rc == 0)
        rc = pthread_join(thread, NULL);
    munmap(memory, stack + page);
    if (rc != 0)
        return wnw__fail(WNW_E_NOMEM, "no thread for a stack of %zu bytes", stack);
    return v.rc == WNW_OK ? WNW_OK : wnw__fail(v.rc, "%s", v.error);
}
