/* SPDX-License-Identifier: MIT */
/* LAQ++'s scores by hand: the window's attention, and that of queries of tokens to come. */
#include "asserts.h"
#include "fake_source.h"
#include "scoring.h"

#include <math.h>
#include <string.h>

enum { N = 4, N_HEAD = 2, D = 2 };

/* One KV head with two query heads, four entries, a window of one query. */
static const float key[N][D] = {{1, 0}, {0, 1}, {0, 0}, {1, 1}};
static const float attn[N_HEAD][N] = {{0.4f, 0.3f, 0.2f, 0.1f}, {0.1f, 0.2f, 0.3f, 0.4f}};
static const int32_t n_entry = N, pos[N] = {0, 1, 2, 3};

static wnw_observation observation(const struct score_rows *rows, const float *queries, int32_t n_lookahead)
{
    return (wnw_observation){.n_layer = 1,
                             .n_head = N_HEAD,
                             .n_head_kv = 1,
                             .n_embd_head = D,
                             .n = N,
                             .n_past = N,
                             .n_entry = &n_entry,
                             .pos = pos,
                             .attn_scale = 1,
                             .n_window = 1,
                             .window_attn = attn[0],
                             .keys = row_keys,
                             .lookahead_queries = queries,
                             .n_lookahead = n_lookahead,
                             .source = (void *)(uintptr_t)rows};
}

/* With q = (log 2, 0) the keys have weights 2 1 1 2 of 6, with q = (0, log 3) 1 3 1 3 of 8; their means with the window's rows
 * are
 *     head 0:  .366667 .233333 .183333 .216667
 *     head 1:  .1125   .2875   .2125   .3875
 * A second token whose query is 0 gives every entry a quarter. */
static void by_hand(void **state)
{
    (void)state;
    const struct score_rows rows = {.k = key[0]};
    const float q[2][N_HEAD][D] = {{{logf(2), 0}, {0, logf(3)}}, {{0, 0}, {0, 0}}};
    wnw_observation obs = observation(&rows, q[0][0], 1);
    float score[N_HEAD * N];
    assert_ok(try_scores("laq:window=1,kernel=1", &obs, score));
    assert_values(score, 1e-6, 0.366667, 0.233333, 0.183333, 0.216667, 0.1125, 0.2875, 0.2125, 0.3875);
    /* Pooled, the window's own entry by itself. */
    assert_ok(try_scores("laq:window=1,kernel=3", &obs, score));
    assert_values(score, 1e-6, 0.366667, 0.366667, 0.233333, 0.216667, 0.2875, 0.2875, 0.2875, 0.3875);
    /* The mean over the two heads. */
    run_scorer("laq:window=1,kernel=1", &obs, score);
    assert_values(score, 1e-6, 0.239583, 0.260417, 0.197917, 0.302083);
    obs = observation(&rows, q[0][0], 2);
    assert_ok(try_scores("laq:window=1,kernel=1,tokens=2", &obs, score));
    assert_values(score, 1e-6, 0.327778, 0.238889, 0.205556, 0.227778, 0.158333, 0.275, 0.225, 0.341667);
}

/* Where nothing follows it is SnapKV with its window. */
static void no_tokens(void **state)
{
    (void)state;
    const struct score_rows rows = {.k = key[0]};
    const wnw_observation obs = observation(&rows, NULL, 0);
    float score[N_HEAD * N], want[N_HEAD * N];
    assert_ok(try_scores("laq:window=1,kernel=3", &obs, score));
    assert_ok(try_scores("snapkv:window=1,kernel=3", &obs, want));
    assert_floats_near(score, want, N_HEAD * N, 0);
}

/* Whole plans: a size has an effect on what the copy generates, and a source without copies is refused. */
static void plans(void **state)
{
    (void)state;
    static struct fake f;
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 40};
    wnw_plan *plan = NULL;
    fake_init(&f, 2, 2, 2, 200, false);
    plan = fake_planned(&f, "laq", &size, NULL);
    assert_cmp(fake_check_plan(plan, &f), ==, 2 * 2 * 40);
    for (int32_t i = 192; i < 200; i++)
        assert_true(fake_holds(plan, 0, 0, i)); /* the window of 8 */
    wnw_plan_free(plan);
    f.src.look_ahead = NULL;
    assert_error(fake_plan(&plan, &f, "laq", &size, NULL), WNW_E_NOT_OBSERVED);
    assert_says("copy of the cache");
    fake_free(&f);
}

static void phases(void **state)
{
    (void)state;
    wnw_policy *p;
    const char *reason;
    p = test_policy("laq");
    assert_true(wnw_policy_allows(p, WNW_PHASE_END, NULL));
    for (int phase = WNW_PHASE_LAYER; phase <= WNW_PHASE_DECODE; phase++)
        assert_false(wnw_policy_allows(p, (wnw_phase)phase, &reason));
    assert_contains(reason, "follows the whole prompt");
    const wnw_needs needs = wnw_policy_needs(p);
    assert_int_equal(needs.lookahead, 8);
    assert_int_equal(needs.window, 32); /* the copy's SnapKV */
    wnw_policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(no_tokens),
        cmocka_unit_test(plans),
        cmocka_unit_test(phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
