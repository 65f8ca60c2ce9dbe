/* SPDX-License-Identifier: MIT */
/*
 * The one team of threads of an engine: ggml's, which computes graphs and runs our own loops, too. A loop is a graph of
 * one operation, so that it starts on threads that are still waiting for work after the last graph, and no second set of
 * threads competes with them (decision 023).
 */
#ifndef WNW_TEAM_H
#define WNW_TEAM_H

#include "base/parallel.h"

#include <ggml-cpu.h>

struct wnw__team {
    struct wnw__pool pool; /* for loops; pool.n_threads also for graphs */
    /* For ggml_graph_plan. Where ggml was built with OpenMP, the threads are OpenMP's and belong to the thread that
     * computes the graph; else they are this object's. */
    struct ggml_threadpool *threads;

    struct ggml_context *ctx; /* of the loop's graph */
    void *arena;
    struct ggml_cgraph *loop;
    struct ggml_cplan plan;
};

/* n_threads of 1 to 512, the caller's included; fewer where the system does not let so many start, which the log says.
 * Belongs to one thread at a time. E_NOMEM. */
int wnw__team_new(struct wnw__team **out, int32_t n_threads);
void wnw__team_free(struct wnw__team *team);

#endif
