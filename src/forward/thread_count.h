/* SPDX-License-Identifier: MIT */
/*
 * How many threads compute while other programs take cores. Threads of a graph wait for each other after every
 * operation, so that all of them wait when another program has one core: two threads on two cores, one of
 * which is taken, decode at a quarter of their speed, one thread at two thirds (decision 037).
 *
 * Threads that are sent off their core against their will are a sign of it. Then fewer threads are tried, and kept if
 * graphs are faster; from time to time more are tried again. Nothing here computes or asks for the time, and
 * results of our operations do not depend on the number of threads (decision 004).
 */
#ifndef WNW_THREAD_COUNT_H
#define WNW_THREAD_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Belongs to one thread at a time. */
struct wnw__thread_count {
    bool fixed;       /* always n_max: for operations whose results depend on the number of threads */
    int32_t n_max, n; /* threads at most, and at present when nothing is tried */
    int32_t trial;    /* threads that are being tried, or 0 */
    int32_t rows;     /* rows of the graphs in the sample */

    double ms; /* the sample: time, graphs, switches */
    int32_t n_graph;
    int64_t switches;

    double usual; /* milliseconds of a graph with n threads */
    struct wnw__thread_count_way {
        int32_t step;    /* how many threads fewer or more the next trial has */
        double at, wait; /* when it may be, milliseconds of the clock; the wait after trials in vain */
    } fewer, more;
};

/* Begins with n_max threads. */
struct wnw__thread_count wnw__thread_count_new(int32_t n_max);

/* The number of threads for the next graph, 1 .. n_max. */
static inline int32_t wnw__thread_count_now(const struct wnw__thread_count *c)
{
    return c->trial ? c->trial : c->n;
}

/* A graph of `rows` rows took `ms` on the current number of threads until the time `now`, both in milliseconds. The
 * last argument is how often threads were sent off their cores meanwhile. */
void wnw__thread_count_note(struct wnw__thread_count *c, int32_t rows, double ms, double now,
                            int64_t switches);

#endif
