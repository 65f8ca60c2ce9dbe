/* SPDX-License-Identifier: MIT */
/*
 * Running independent pieces of work on a team of threads. Loops only know this interface; forward/team.h
 * starts the threads and decides how they wait for the next loop.
 */
#ifndef WNW_BASE_PARALLEL_H
#define WNW_BASE_PARALLEL_H

#include <stdatomic.h>
#include <stdint.h>

/* A team and its current loop. One thread at a time may use it. Functions that a loop calls may not use it. */
struct wnw__pool {
    int32_t n_threads; /* the caller's included, at least 1 */
    /* Has the threads of the team, the caller's included, call wnw__parallel_work once each, and returns when
     * all have. They see what the caller wrote before, and the caller then sees what they wrote. Fewer than
     * n_threads may take part; the caller's thread alone is enough. */
    void (*gather)(struct wnw__pool *pool);

    void (*fn)(int32_t i, void *user);
    void *user;
    int32_t n;
    atomic_int next; /* the next i that no thread has taken */
};

/* Calls fn(i, user) once for every i in 0..n-1, on as many threads as the pool has, the caller's included;
 * returns when all are done. Which thread takes which i is left open. pool may be NULL: the caller's thread
 * alone. */
void wnw__parallel(struct wnw__pool *pool, int32_t n, void (*fn)(int32_t i, void *user), void *user);

/* For teams: takes work of the current loop until none is left. */
void wnw__parallel_work(struct wnw__pool *pool);

/* Tries how many threads can be started next to the caller's, at most n, and ends them again: *out is 0 .. n.
 * It is called before libraries that end the process where a thread cannot be started. Like wnw__memory_check
 * it is no promise. E_NOMEM: memory for the trial is missing. */
int wnw__parallel_startable(int32_t n, int32_t *out);

#endif
