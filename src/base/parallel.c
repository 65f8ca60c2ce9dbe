/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>

void wnw__parallel_work(struct wnw__pool *pool)
{
    for (;;) {
        const int32_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->n)
            return;
        pool->fn(i, pool->user);
    }
}

void wnw__parallel(struct wnw__pool *pool, int32_t n, void (*fn)(int32_t i, void *user), void *user)
{
    if (!pool || pool->n_threads == 1 || n < 2) {
        for (int32_t i = 0; i < n; i++)
            fn(i, user);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->gather(pool);
}

/* A thread that ends when it gets the lock. */
static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

int wnw__parallel_startable(int32_t n, int32_t *out)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    *out = 0;
    if (n < 1)
        return WNW_OK;
    pthread_t *threads = malloc((size_t)n * sizeof *threads);
    if (!threads)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d threads", (int)n);
    pthread_mutex_lock(&lock); /* all exist at the same time */
    while (*out < n && pthread_create(&threads[*out], NULL, wait_for_lock, &lock) == 0)
        ++*out;
    pthread_mutex_unlock(&lock);
    for (int32_t i = 0; i < *out; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&lock);
    free(threads);
    return WNW_OK;
}
