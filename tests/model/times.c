/* SPDX-License-Identifier: MIT */
/* The times of a report are measured one by one and add up to the time of the call, in every phase, by a clock that work
 * moves. */
#include "helpers.h"

#include <stdlib.h>

#include "peek_session.h"
#include "ticks.h"

enum { N = 900 };

static const struct row {
    const char *name, *recipe;
    wnw_phase phase;
    bool second_pass;
} rows[] = {
    {"no policy", NULL, WNW_PHASE_END, false},
    {"end, full", "full", WNW_PHASE_END, false},
    {"end, scores", "knorm+adakv", WNW_PHASE_END, false},
    {"end, window", "snapkv", WNW_PHASE_END, false},
    {"end, blocks", "lagkv", WNW_PHASE_END, false},
    {"end, new positions", "snapkv+rerotate", WNW_PHASE_END, false},
    {"end, second pass", "kvzip", WNW_PHASE_END, true},
    {"end, merged values", "knorm+merge", WNW_PHASE_END, false},
    {"layer, full", "full", WNW_PHASE_LAYER, false},
    {"layer, scores", "knorm+adakv", WNW_PHASE_LAYER, false},
    {"layer, window", "snapkv", WNW_PHASE_LAYER, false},
    {"layer, blocks", "lagkv", WNW_PHASE_LAYER, false},
    {"layer, new positions", "snapkv+rerotate", WNW_PHASE_LAYER, false},
    {"chunk, full", "full", WNW_PHASE_CHUNK, false},
    {"chunk, scores", "knorm+adakv", WNW_PHASE_CHUNK, false},
    {"chunk, window", "snapkv", WNW_PHASE_CHUNK, false},
    {"chunk, blocks", "lagkv", WNW_PHASE_CHUNK, false},
    {"chunk, new positions", "snapkv+rerotate", WNW_PHASE_CHUNK, false},
};

static struct test_model model;

/* That many pieces of work and no other one, except looks at the clock. */
#define assert_takes(ms, n_work)                        \
    do {                                                \
        assert_cmp(ms, >=, TEST_WORK * (n_work));       \
        assert_cmp(ms, <, TEST_WORK * (n_work) + 1000); \
    } while (0)

static void adds_up(void **state)
{
    const struct row *row = *state;
    wnw_session *s = test_session_new(model.m, &(struct test_session){.n_ctx = 1024, .n_threads = 1});
    wnw_policy *p = row->recipe ? test_policy(row->recipe) : NULL;
    wnw_report r = wnw_report_default();
    const wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5), .phase = row->phase};
    const bool full = !p || wnw_policy_is_full(p);
    if (p)
        assert_ok(wnw_session_begin(s, &rules));
    const struct test_work before = test_work_done();
    const double start = wnw__now_ms();
    assert_ok(wnw_session_read(s, model.tokens, N, &r));
    const double total = wnw__now_ms() - start;
    const struct test_work after = test_work_done();
    const int n_graph = after.graph - before.graph, n_score = after.score - before.score,
              n_select = after.select - before.select, n_rewrite = after.rewrite - before.rewrite;
    assert_takes(total, n_graph + n_score + n_select + n_rewrite);
    assert_takes(r.read_ms + r.observe_ms + r.compact_ms, n_graph + n_rewrite);
    assert_takes(r.score_ms, n_score);
    assert_takes(r.select_ms, n_select);
    assert_cmp(r.compact_ms, >=, TEST_WORK * n_rewrite);
    assert_cmp(r.read_ms, >=, TEST_WORK);
    if (full) {
        assert_int_equal(n_score + n_select, 0);
    } else {
        assert_cmp(n_score, >, 0);
        assert_cmp(n_select, >, 0);
        assert_cmp(n_rewrite, >, 0);
        assert_cmp(r.observe_ms, >, 0);
    }
    if (row->second_pass) /* it feeds the prompt a second time */
        assert_cmp(r.observe_ms, >=, r.read_ms / 2);
    wnw_session_free(s);
    wnw_policy_free(p);
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &model, "llama", N, 3);
}

int main(void)
{
    return run_rows_with(adds_up, rows, set_up, test_tear_down);
}
