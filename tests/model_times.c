/* SPDX-License-Identifier: MIT */
/* The times of a report are measured one by one and add up to the time of the call, in every phase. */
#include "helpers.h"

#include <stdlib.h>

#include "peek_session.h"

enum { N = 900, MAX_TRIES = 8 };

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

/* Share of the call's time that the report accounts for. */
static double share(const struct row *row)
{
    wnw_session *s = test_session_new(model.m, &(struct test_session){.n_ctx = 1024, .n_threads = 1});
    wnw_policy *p = row->recipe ? test_policy(row->recipe) : NULL;
    wnw_report r = wnw_report_default();
    const wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .size = size_ratio(0.5), .phase = row->phase};
    const bool full = !p || wnw_policy_is_full(p);
    if (p)
        assert_ok(wnw_session_begin(s, &rules));
    const double start = wnw__now_ms();
    assert_ok(wnw_session_read(s, model.tokens, N, &r));
    const double total = wnw__now_ms() - start;
    const double sum = r.read_ms + r.observe_ms + r.score_ms + r.select_ms + r.compact_ms;
    assert_cmp(sum, <=, total);
    assert_cmp(r.read_ms, >, 0);
    if (!full) {
        assert_cmp(r.observe_ms, >, 0);
        assert_cmp(r.score_ms, >, 0);
        assert_cmp(r.select_ms, >, 0);
        assert_cmp(r.compact_ms, >, 0);
    }
    if (row->second_pass) /* it feeds the prompt a second time */
        assert_cmp(r.observe_ms, >, r.read_ms / 4);
    wnw_session_free(s);
    wnw_policy_free(p);
    return sum / total;
}

/* What is missing is missing every time; a pause between two measurements, when another process runs, is not. */
static void adds_up(void **state)
{
    double best = 0;
    for (int i = 0; i < MAX_TRIES && best < 0.99; i++) {
        const double now = share(*state);
        best = now > best ? now : best;
    }
    assert_cmp(best, >=, 0.99);
}

static int set_up(void **state)
{
    (void)state;
    test_open_tiny(&model, "llama", N, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_close(&model);
    return 0;
}

int main(void)
{
    return run_rows_with(adds_up, rows, set_up, tear_down);
}
