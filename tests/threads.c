/* SPDX-License-Identifier: MIT */
#include "threads.h"

#include "asserts.h"

#include <pthread.h>

static void *work(void *pool)
{
    wnw__parallel_work(pool);
    return NULL;
}

void test_gather(struct wnw__pool *pool)
{
    pthread_t threads[16];
    assert_in_range(pool->n_threads, 1, 16);
    for (int i = 1; i < pool->n_threads; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, pool), 0);
    wnw__parallel_work(pool);
    for (int i = 1; i < pool->n_threads; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}
