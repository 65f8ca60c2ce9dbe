/* SPDX-License-Identifier: MIT */
/*
 * The one team of threads of an engine. Its threads are ggml's; they compute graphs and run our own loops,
 * too. A loop is a graph of one operation. So it starts on threads that still wait for work after the last graph. No
 * second set of threads competes with them (decision 023).
 */
#ifndef WNW_TEAM_H
#define WNW_TEAM_H

#include "base/parallel.h"
#include "forward/thread_count.h"

#include <ggml-cpu.h>

struct wnw__team {
    struct wnw__pool pool;          /* runs loops; pool.n_threads holds for graphs, too */
    struct wnw__thread_count count; /* how many of them compute at present */
    /* The argument of ggml_graph_plan. If ggml was built with OpenMP, the threads are OpenMP's and belong to
     * the thread that computes the graph; otherwise they belong to this object. */
    struct ggml_threadpool *threads;

    struct ggml_context *ctx; /* of the loop's graph */
    void *arena;              /* memory of ctx */
    struct ggml_cgraph *loop;
    struct ggml_cplan plan;
};

/* n_threads is 1 to 512 and counts the caller's. If the system does not let all of them start, the team has
 * fewer, and the log says so. A team belongs to one thread at a time. E_NOMEM: nothing was made. */
int wnw__team_new(struct wnw__team **out, int32_t n_threads);
void wnw__team_free(struct wnw__team *team);

/* Computes a graph of n_row rows that was planned for the threads of the pool, on those or fewer. */
enum ggml_status wnw__team_compute(struct wnw__team *team, struct ggml_cgraph *graph, struct ggml_cplan *plan,
                                   int32_t n_row);

#endif
