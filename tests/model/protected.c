/* SPDX-License-Identifier: MIT */
/* Reports of plans and of reading under rules say how many first and last entries of every head stay for any score. */
#include "helpers.h"

enum { N_READ = 32 };

static const struct expected {
    const char *policy;
    double ratio;
    int32_t first, last;
} cases[] = {
    {"snapkv:window=8", 0.5, 0, 8},
    {"snapkv:window=8", 0.9, 0, 2}, /* of 3 entries that stay, one is chosen */
    {"adakv:window=8", 0.5, 0, 8},
    {"criticalkv:window=8", 0.5, 0, 8},
    {"streaming_llm:sinks=3", 0.5, 3, 0},
    {"h2o", 0.5, 0, 8}, /* half of 16 */
    {"lagkv:sink=4,lag=8", 0.25, 4,
     12},                      /* two blocks are thinned; the third and 4 more wait for the next one */
    {"knorm", 0.0, N_READ, 0}, /* nothing goes */
    {"full", 0.5, N_READ, 0},
};

/* Fails unless positions pos[n] of a head begin with the given number of first tokens, and end with the last ones. */
static void check_ends(const int32_t *pos, int32_t n, int32_t first, int32_t last)
{
    for (int32_t i = 0; i < first; i++)
        assert_int_equal(pos[i], i);
    for (int32_t i = 1; i <= last; i++)
        assert_int_equal(pos[n - i], N_READ - i);
}

static void check(const struct test_model *fx, const struct expected *x)
{
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = 64, .n_threads = 1});
    wnw_policy *p = test_policy(x->policy);
    const wnw_policy *one[1] = {p};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = x->ratio};
    wnw_report report = wnw_report_default();
    wnw_plan *plan;
    assert_ok(test_observe(s, one, 1));
    assert_ok(wnw_session_prefill(s, fx->tokens, N_READ, NULL, NULL));
    assert_ok(wnw_session_plan(s, p, &size, &plan, &report));
    if (report.protected_first != x->first || report.protected_last != x->last)
        fail_msg("%s at %g: first %d, last %d; expected %d and %d", x->policy, x->ratio,
                 (int)report.protected_first, (int)report.protected_last, (int)x->first, (int)x->last);
    /* What the report says is what the plan does. */
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const int32_t *pos;
            const int32_t n = wnw_plan_head(plan, il, ih, &pos);
            check_ends(pos, n, x->first, x->last);
        }
    wnw_plan_free(plan);
    wnw_policy_free(p);
    wnw_session_free(s);
}

static void reports_say_what_is_protected(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(*state, &cases[i]);
}

/* ---- Twice ---- */

/* A quality drops its share of what has come since the last compression, by whichever policy that was; a size takes from all. */
static void a_quality_judges_once(void **state)
{
    enum { HALF = N_READ / 2 };
    static const char quality[] = "replay:sinks=2+quality:dropped=0.3";
    const struct test_model *fx = *state;
    const wnw_size none = {.kind = WNW_SIZE_NONE}, small = size_budget(8);
    wnw_policy *p = test_policy(quality), *other = test_policy("knorm");
    const wnw_policy *both[] = {p, other};
    for (int k = 0; k < 2; k++) {
        wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = 64, .n_threads = 1});
        wnw_report report = wnw_report_default();
        wnw_plan *plan;
        assert_ok(test_observe(s, both, 2));
        assert_ok(wnw_session_prefill(s, fx->tokens, HALF, NULL, NULL));
        assert_ok(wnw_session_plan(s, k ? other : p, k ? &small : &none, &plan, &report));
        const int32_t once = test_plan_below(plan, HALF);
        wnw_plan_free(plan);
        assert_ok(wnw_session_compress(s, k ? other : p, k ? &small : &none, NULL));
        assert_ok(wnw_session_prefill(s, fx->tokens + HALF, N_READ - HALF, NULL, NULL));
        assert_ok(wnw_session_plan(s, p, &none, &plan, &report));
        assert_int_equal(test_plan_below(plan, HALF), once);
        assert_cmp(report.kept_mean, <,
                   (double)once / (fx->info.n_layer * fx->info.n_head_kv) + N_READ - HALF);
        wnw_plan_free(plan);
        assert_ok(wnw_session_plan(s, p, &small, &plan, &report));
        assert_cmp(report.kept_mean, <=, 8);
        wnw_plan_free(plan);
        wnw_session_free(s);
    }
    wnw_policy_free(other);
    wnw_policy_free(p);
}

/* ---- Under rules ---- */

static const struct read_case {
    const char *policy;
    wnw_phase phase;
    int32_t chunk; /* 0: the policy's own */
    double ratio;
    int32_t first, last;
} reads[] = {
    {"snapkv:window=8", WNW_PHASE_END, 0, 0.5, 0, 8},
    {"snapkv:window=8", WNW_PHASE_LAYER, 0, 0.5, 0, 8},
    {"snapkv:window=8", WNW_PHASE_CHUNK, 16, 0.25, 0, 8},
    {"streaming_llm:sinks=3", WNW_PHASE_CHUNK, 16, 0.5, 3, 0},
    {"lagkv:sink=4,lag=8", WNW_PHASE_END, 0, 0.25, 4, 12},
    {"lagkv:sink=4,lag=8", WNW_PHASE_LAYER, 0, 0.25, 4, 12},
    /* 20 tokens, of whose two blocks one is thinned; 8 more, which thin the next; 4 that complete no block. */
    {"lagkv:sink=4,lag=8", WNW_PHASE_CHUNK, 0, 0.25, 4, 12},
    /* 10 tokens, 10 that complete two blocks, 10 that complete the third, and 2. */
    {"lagkv:sink=4,lag=8", WNW_PHASE_CHUNK, 10, 0.25, 4, 12},
    /* A chunk of 2, whose window holds 2 entries of the chunk before: those were in its window, too. */
    {"snapkv:window=4", WNW_PHASE_CHUNK, 30, 0.5, 0, 4},
    {"knorm", WNW_PHASE_CHUNK, 16, 0.0, N_READ, 0},
    {"full", WNW_PHASE_END, 0, 0.5, N_READ, 0},
};

static void read_under(const struct test_model *fx, const struct read_case *x)
{
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = 64, .n_threads = 1});
    wnw_policy *p = test_policy(x->policy);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .phase = x->phase, .chunk = x->chunk,
                         .size = {.kind = WNW_SIZE_RATIO, .ratio = x->ratio}};
    wnw_report report = wnw_report_default();
    wnw_model_info info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx->m, &info));
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, fx->tokens, N_READ, &report));
    if (report.protected_first != x->first || report.protected_last != x->last)
        fail_msg("%s in phase %d, chunk %d: first %d, last %d; expected %d and %d", x->policy, (int)x->phase,
                 (int)x->chunk, (int)report.protected_first, (int)report.protected_last, (int)x->first,
                 (int)x->last);
    /* They are there. */
    for (int32_t i = 0; i < info.n_layer * info.n_head_kv; i++) {
        const int32_t il = i / info.n_head_kv, ih = i % info.n_head_kv;
        check_ends(wnw_cache_positions(s, il, ih), wnw_cache_n(s, il, ih), x->first, x->last);
    }
    wnw_policy_free(p);
    wnw_session_free(s);
}

static void so_do_reports_of_reading(void **state)
{
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        read_under(*state, &reads[i]);
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up(state, &fx, "tiny/tiny-llama.gguf", N_READ, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reports_say_what_is_protected),
                                       cmocka_unit_test(a_quality_judges_once),
                                       cmocka_unit_test(so_do_reports_of_reading)};
    return cmocka_run_group_tests_name("protected entries", tests, set_up, test_tear_down);
}
