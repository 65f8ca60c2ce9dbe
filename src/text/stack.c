/* SPDX-License-Identifier: MIT */
#include "text/stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

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
