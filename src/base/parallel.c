/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_THREADS = 64 };

struct job {
    void (*fn)(int32_t, void *);
    void *user;
    int32_t n;
    atomic_int next;
};

static void *work(void *arg)
{
    struct job *job = arg;
    for (int32_t i = atomic_fetch_add(&job->next, 1); i < job->n; i = atomic_fetch_add(&job->next, 1))
        job->fn(i, job->user);
    return NULL;
}

void wnw__parallel(int32_t n_threads, int32_t n, void (*fn)(int32_t i, void *user), void *user)
{
    struct job job = {.fn = fn, .user = user, .n = n};
    pthread_t threads[MAX_THREADS];
    int32_t n_started = 0;
    atomic_init(&job.next, 0);
    n_threads = n_threads < n ? n_threads : n;
    while (n_started < n_threads - 1 && n_started < MAX_THREADS) {
        /* Too few threads is slower, not wrong. */
        if (pthread_create(&threads[n_started], NULL, work, &job) != 0)
            break;
        n_started++;
    }
    work(&job);
    for (int32_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
}
