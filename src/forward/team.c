/* SPDX-License-Identifier: MIT */
#include "forward/team.h"

#include "base/err.h"
#include "base/memory.h"
#include "base/system.h"

#include <stdlib.h>
#include <sys/resource.h>

/* A bound on the bytes that ggml uses per thread: its state with a mask of cores. */
enum { PER_THREAD = 2 * GGML_MAX_N_THREADS };

static void loop_node(struct ggml_tensor *dst, int ith, int nth, void *pool)
{
    (void)dst;
    (void)ith;
    (void)nth;
    wnw__parallel_work(pool);
}

static void gather(struct wnw__pool *pool)
{
    struct wnw__team *team = (struct wnw__team *)pool; /* pool is the team's first member */
    team->plan.n_threads = wnw__thread_count_now(&team->count);
    if (ggml_graph_compute(team->loop, &team->plan) != GGML_STATUS_SUCCESS)
        wnw__parallel_work(pool);
}

static int make_loop(struct wnw__team *team)
{
    enum { N_NODES = 1 };
    const size_t size = 4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(N_NODES, false);
    team->arena = malloc(size);
    if (!team->arena)
        return wnw__fail(WNW_E_NOMEM, "no memory for a team of threads");
    WNW_TRY(wnw__memory_check(WNW_MEMORY_SMALL, "a graph"));
    team->ctx = ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = team->arena});
    if (!team->ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory for a team of threads");
    team->loop = ggml_new_graph_custom(team->ctx, N_NODES, false);
    ggml_build_forward_expand(team->loop, ggml_custom_4d(team->ctx, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0,
                                                         loop_node, GGML_N_TASKS_MAX, &team->pool));
    team->plan = ggml_graph_plan(team->loop, team->pool.n_threads, team->threads);
    return WNW_OK;
}

static int start(struct wnw__team *team, int32_t n_threads)
{
    int32_t n_beside = 0;
    WNW_TRY(wnw__parallel_startable(n_threads - 1, &n_beside));
    if (n_beside < n_threads - 1)
        wnw__log(WNW_LOG_WARN, "the system lets %d threads start, not %d: going on with so many",
                 (int)n_beside + 1, (int)n_threads);
    team->pool = (struct wnw__pool){.n_threads = n_beside + 1, .gather = gather};
    team->count = wnw__thread_count_new(team->pool.n_threads);
    atomic_init(&team->pool.next, 0);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(team->pool.n_threads);
    WNW_TRY(
        wnw__memory_check((size_t)team->pool.n_threads * PER_THREAD + WNW_MEMORY_SMALL, "a team of threads"));
    team->threads = ggml_threadpool_new(&params);
    if (!team->threads)
        return wnw__fail(WNW_E_NOMEM, "no memory for a team of %d threads", (int)team->pool.n_threads);
    return make_loop(team);
}

int wnw__team_new(struct wnw__team **out, int32_t n_threads)
{
    struct wnw__team *team = calloc(1, sizeof *team);
    *out = NULL;
    if (!team)
        return wnw__fail(WNW_E_NOMEM, "no memory for a team of %d threads", (int)n_threads);
    const int rc = start(team, n_threads);
    if (rc != WNW_OK) {
        wnw__team_free(team);
        return rc;
    }
    *out = team;
    return WNW_OK;
}

void wnw__team_free(struct wnw__team *team)
{
    if (!team)
        return;
    ggml_free(team->ctx);
    free(team->arena);
    if (team->threads)
        ggml_threadpool_free(team->threads);
    free(team);
}

/* How many times a thread of this process was sent off its core while it wanted to go on. */
static int64_t switches(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (int64_t)use.ru_nivcsw : 0;
}

enum ggml_status wnw__team_compute(struct wnw__team *team, struct ggml_cgraph *graph, struct ggml_cplan *plan,
                                   int32_t n_row)
{
    const int64_t before = switches();
    const double start = wnw__now_ms();
    plan->n_threads = wnw__thread_count_now(&team->count);
    const enum ggml_status rc = ggml_graph_compute(graph, plan);
    const double now = wnw__now_ms();
    wnw__thread_count_note(&team->count, n_row, now - start, now, switches() - before);
    return rc;
}
