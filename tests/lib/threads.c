/* SPDX-License-Identifier: MIT */
#include "threads.h"

#include "asserts.h"

#include <pthread.h>

struct thread {
    pthread_t id;
    void (*work)(void *user, int ith, int nth);
    void *user;
    int ith, nth;
};

static void *run(void *of)
{
    const struct thread *t = of;
    t->work(t->user, t->ith, t->nth);
    return NULL;
}

void test_on_threads(int nth, void (*work)(void *user, int ith, int nth), void *user)
{
    struct thread t[16];
    assert_in_range(nth, 1, 16);
    for (int i = 0; i < nth; i++) {
        t[i] = (struct thread){.work = work, .user = user, .ith = i, .nth = nth};
        assert_int_equal(pthread_create(&t[i].id, NULL, run, &t[i]), 0);
    }
    for (int i = 0; i < nth; i++)
        assert_int_equal(pthread_join(t[i].id, NULL), 0);
}

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
