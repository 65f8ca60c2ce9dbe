/* SPDX-License-Identifier: MIT */
/* The number of threads while other programs take cores, on simulated machines with a simulated clock. */
#include "helpers.h"
#include "peek_arrays.h"

#include <string.h>

/* A machine whose threads all wait where one of them has lost its core. */
struct machine {
    int32_t cores, busy; /* of the cores, those that other programs take */
    double slowed;       /* how much slower a graph is when threads share cores with other programs */
    double noise;        /* switches per millisecond that happen anyhow */
    double now, due;     /* milliseconds; switches that have not been told, less than one */
};

/* Computes graphs for so long and returns how many used each number of threads. */
static void run(struct machine *m, struct wnw__thread_count *c, int32_t rows, double for_ms, int32_t used[17])
{
    memset(used, 0, 17 * sizeof *used);
    for (const double end = m->now + for_ms; m->now < end;) {
        const int32_t n = wnw__thread_count_now(c);
        assert_in_range(n, 1, c->n_max);
        const bool crowded = n + m->busy > m->cores;
        const double ms = (crowded ? m->slowed : 1.0) * rows * 20.0 / n;
        m->now += ms;
        m->due += ms * (m->noise + (crowded ? 0.2 : 0.0));
        const int64_t switches = (int64_t)m->due;
        m->due -= (double)switches;
        wnw__thread_count_note(c, rows, ms, m->now, switches);
        used[n]++;
    }
}

static void a_quiet_machine_keeps_all_threads(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .slowed = 4, .noise = 0.04};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    run(&m, &c, 1, 60000, used);
    assert_int_equal(used[1], 0);
    assert_cmp(used[2], >, 5000);
}

static void a_busy_core_takes_a_thread_and_gives_it_back(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .busy = 1, .slowed = 4, .noise = 0.04};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    run(&m, &c, 1, 1000, used);
    assert_int_equal(c.n, 1);
    run(&m, &c, 1, 60000, used); /* now and then two threads are tried in vain */
    assert_cmp(used[2], >, 0);
    assert_cmp(used[2] * 50, <, used[1]);
    m.busy = 0;
    run(&m, &c, 1, 9000, used);
    assert_int_equal(c.n, 2);
    run(&m, &c, 1, 60000, used);
    assert_int_equal(used[1], 0);
}

/* Pieces of a prompt take so long that one of them is a sample. */
static void a_busy_core_while_a_prompt_is_read(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .busy = 1, .slowed = 3};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    run(&m, &c, 50, 10000, used);
    assert_int_equal(c.n, 1);
    assert_cmp(used[2], <, 4);
}

/* Switches alone are no reason: where fewer threads are slower they are tried ever more rarely. */
static void fewer_threads_that_do_not_help(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .busy = 1, .slowed = 1.5};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    run(&m, &c, 1, 60000, used);
    assert_int_equal(c.n, 2);
    assert_cmp(used[1], >, 0);
    assert_cmp(used[1] * 50, <, used[2]);
}

static void many_cores(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 16, .busy = 5, .slowed = 4, .noise = 0.04};
    struct wnw__thread_count c = wnw__thread_count_new(16);
    run(&m, &c, 4, 5000, used);
    assert_int_equal(c.n, 11);
    m.busy = 1;
    run(&m, &c, 4, 30000, used);
    assert_int_equal(c.n, 15);
    m.busy = 0;
    run(&m, &c, 4, 30000, used);
    assert_int_equal(c.n, 16);
}

/* What is tried with graphs of one kind is not judged by another kind. */
static void other_graphs_end_a_trial(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .busy = 1, .slowed = 4};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    while (c.trial == 0)
        run(&m, &c, 1, 1, used);
    assert_int_equal(wnw__thread_count_now(&c), 1);
    run(&m, &c, 2, 1, used);
    assert_int_equal(c.trial, 0);
    assert_int_equal(c.n, 2);
}

static void one_thread_is_all(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 1, .busy = 1, .slowed = 2};
    struct wnw__thread_count c = wnw__thread_count_new(1);
    run(&m, &c, 1, 5000, used);
    assert_int_equal(wnw__thread_count_now(&c), 1);
}

static void a_fixed_number_stays(void **state)
{
    (void)state;
    int32_t used[17];
    struct machine m = {.cores = 2, .busy = 1, .slowed = 4};
    struct wnw__thread_count c = wnw__thread_count_new(2);
    c.fixed = true;
    run(&m, &c, 1, 5000, used);
    assert_int_equal(used[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_keeps_all_threads),
        cmocka_unit_test(a_busy_core_takes_a_thread_and_gives_it_back),
        cmocka_unit_test(a_busy_core_while_a_prompt_is_read),
        cmocka_unit_test(fewer_threads_that_do_not_help),
        cmocka_unit_test(many_cores),
        cmocka_unit_test(other_graphs_end_a_trial),
        cmocka_unit_test(one_thread_is_all),
        cmocka_unit_test(a_fixed_number_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
