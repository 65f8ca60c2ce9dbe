/* SPDX-License-Identifier: MIT */
/* Teams of threads: every piece of a loop once, on as many threads as were asked for, between graphs or not. */
#include "helpers.h"
#include "peek_arrays.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void count(int32_t i, void *user)
{
    ((int *)user)[i]++; /* not atomic: nobody else may have the same i */
}

static void every_piece_once(void **state)
{
    (void)state;
    static const int32_t n_threads[] = {1, 2, 3, 7}, n[] = {0, 1, 2, 5, 1000};
    for (size_t t = 0; t < 4; t++) {
        struct wnw__team *team;
        assert_ok(wnw__team_new(&team, n_threads[t]));
        assert_int_equal(team->pool.n_threads, n_threads[t]);
        for (int round = 0; round < 20; round++)
            for (size_t k = 0; k < 5; k++) {
                int done[1001] = {0};
                wnw__parallel(&team->pool, n[k], count, done);
                for (int32_t i = 0; i < 1001; i++)
                    assert_int_equal(done[i], i < n[k]);
            }
        wnw__team_free(team);
    }
    wnw__team_free(NULL);
}

static void no_pool_is_the_callers_thread(void **state)
{
    (void)state;
    int done[5] = {0};
    wnw__parallel(NULL, 5, count, done);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(done[i], 1);
}

/* Ends when n threads are in it at the same time. */
struct meeting {
    atomic_int here;
    int32_t n;
};

static void meet(int32_t i, void *user)
{
    struct meeting *m = user;
    (void)i;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < m->n)
        sched_yield();
}

/* 70 pieces that wait for each other come to an end only if 70 threads work on them. */
static void as_many_as_asked_for(void **state)
{
    (void)state;
    static const int32_t n_threads[] = {2, 70};
    for (size_t t = 0; t < 2; t++) {
        struct wnw__team *team;
        struct meeting m = {.n = n_threads[t]};
        atomic_init(&m.here, 0);
        assert_ok(wnw__team_new(&team, n_threads[t]));
        wnw__parallel(&team->pool, m.n, meet, &m);
        assert_int_equal(atomic_load(&m.here), m.n);
        wnw__team_free(team);
    }
}

static void double_it(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const float *x = dst->src[0]->data;
    float *y = dst->data;
    (void)user;
    for (int64_t i = ith; i < dst->ne[0]; i += nth)
        y[i] = 2.0f * x[i];
}

/* What a session does: a graph, a loop, a graph, ... on the same threads. */
static void loops_between_graphs(void **state)
{
    enum { N = 100 };
    (void)state;
    struct wnw__team *team;
    assert_ok(wnw__team_new(&team, 3));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)1 << 20});
    assert_non_null(ctx);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *y =
        ggml_custom_4d(ctx, GGML_TYPE_F32, N, 1, 1, 1, &x, 1, double_it, GGML_N_TASKS_MAX, NULL);
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    ggml_build_forward_expand(gf, y);
    struct ggml_cplan plan = ggml_graph_plan(gf, team->pool.n_threads, team->threads);
    for (int round = 0; round < 50; round++) {
        int done[N] = {0};
        for (int i = 0; i < N; i++)
            ((float *)x->data)[i] = (float)(i + round);
        assert_int_equal(ggml_graph_compute(gf, &plan), GGML_STATUS_SUCCESS);
        wnw__parallel(&team->pool, N, count, done);
        for (int i = 0; i < N; i++) {
            assert_int_equal(done[i], 1);
            assert_float_equal(((float *)y->data)[i], 2.0f * (float)(i + round), 0.0f);
        }
    }
    ggml_free(ctx);
    wnw__team_free(team);
}

static void threads_can_be_tried(void **state)
{
    (void)state;
    int32_t n = -1;
    assert_ok(wnw__parallel_startable(0, &n));
    assert_int_equal(n, 0);
    assert_ok(wnw__parallel_startable(9, &n));
    assert_int_equal(n, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_once),     cmocka_unit_test(no_pool_is_the_callers_thread),
        cmocka_unit_test(as_many_as_asked_for), cmocka_unit_test(loops_between_graphs),
        cmocka_unit_test(threads_can_be_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
