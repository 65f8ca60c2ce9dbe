/* SPDX-License-Identifier: MIT */
#include "ticks.h"

#include <stdatomic.h>
#include <time.h>

#include <ggml-cpu.h>

#include "peek_session.h"

static atomic_llong clock_ms;
static struct test_work done;

struct test_work test_work_done(void)
{
    return done;
}

static void work(int *kind)
{
    ++*kind;
    atomic_fetch_add(&clock_ms, (long long)TEST_WORK);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    const long long now = atomic_fetch_add(&clock_ms, 1) + 1;
    *ts = (struct timespec){.tv_sec = now / 1000, .tv_nsec = now % 1000 * 1000000};
    return 0;
}

/* ggml, which is a shared library, has its own clock. */
__typeof__(ggml_graph_compute) __real_ggml_graph_compute, __wrap_ggml_graph_compute;
enum ggml_status __wrap_ggml_graph_compute(struct ggml_cgraph *graph, struct ggml_cplan *plan)
{
    work(&done.graph);
    return __real_ggml_graph_compute(graph, plan);
}

__typeof__(wnw__draft_score) __real_wnw__draft_score, __wrap_wnw__draft_score;
int __wrap_wnw__draft_score(struct wnw__draft *j, const wnw_observation *obs, struct wnw__scored_layer *out)
{
    work(&done.score);
    return __real_wnw__draft_score(j, obs, out);
}

__typeof__(wnw__draft_select_layer) __real_wnw__draft_select_layer, __wrap_wnw__draft_select_layer;
int __wrap_wnw__draft_select_layer(struct wnw__draft *j, const struct wnw__scored_layer *l,
                                   const wnw_observation *obs)
{
    work(&done.select);
    return __real_wnw__draft_select_layer(j, l, obs);
}

__typeof__(wnw__rewrite_layer) __real_wnw__rewrite_layer, __wrap_wnw__rewrite_layer;
int __wrap_wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept,
                              int32_t room)
{
    work(&done.rewrite);
    return __real_wnw__rewrite_layer(c, il, kept, room);
}
