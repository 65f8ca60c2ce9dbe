/* SPDX-License-Identifier: MIT */
/* H2O, VATP, CAKE, ZigZagKV, DynamicKV, SimLayerKV and DuoAttention against numbers worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"

static wnw_protected protected_of(const char *recipe, int32_t n, int32_t budget)
{
    wnw_policy *p = test_policy(recipe);
    const wnw_protected prot =
        wnw__policy_keep(p, &(wnw_keep_problem){.n = n, .budget = budget, .sized = true});
    wnw_policy_free(p);
    return prot;
}

static double stat_of(const char *recipe, const wnw_observation *obs)
{
    wnw_policy *p = test_policy(recipe);
    double stat = 0;
    assert_int_equal(
        p->part[WNW_PART_LAYER_BUDGET].head.gather->visit(p->opts[WNW_PART_LAYER_BUDGET], obs, &stat),
        WNW_OK);
    wnw_policy_free(p);
    return stat;
}

/* ---- Shared arithmetic ---- */

static void sharing_out(void **state)
{
    (void)state;
    int32_t got[4];
    wnw__share_out((const double[]){1, 2, 3, 4}, 4, 100, 1000, got);
    assert_ints(got, 10, 20, 30, 40);
    wnw__share_out((const double[]){1, 1, 1}, 3, 100, 1000, got); /* 33.3 each: the lower index first */
    assert_ints(got, 34, 33, 33);
    wnw__share_out((const double[]){1, 2, 2}, 3, 9, 1000, got); /* 1.8, 3.6, 3.6: .8 first, then a .6 */
    assert_ints(got, 2, 4, 3);
    wnw__share_out((const double[]){97, 1, 1, 1}, 4, 100, 40, got); /* 60 left for three */
    assert_ints(got, 40, 20, 20, 20);
    wnw__share_out((const double[]){0, 0, 0}, 3, 7, 100, got);
    assert_ints(got, 3, 2, 2);
    wnw__share_out((const double[]){5, 0, 0}, 3, 12, 6, got); /* only parts without a weight are left */
    assert_ints(got, 6, 3, 3);
    wnw__share_out((const double[]){1, 2}, 2, 100, 10, got);
    assert_ints(got, 10, 10);
    wnw__share_out_within((const double[]){10, 20, 30}, 3, 60, (const int32_t[]){100, 5, 100}, got);
    assert_int_equal(got[0] + 100 * got[1] + 10000 * got[2],
                     14 + 100 * 5 + 10000 * 41); /* 55 as 1 : 3; 13.75, 41.25 */
    wnw__share_out_within((const double[]){10, 20, 30}, 3, 60, (const int32_t[]){8, 5, 9}, got);
    assert_int_equal(got[0] + 100 * got[1] + 10000 * got[2], 8 + 100 * 5 + 10000 * 9); /* all are full */
    wnw__share_out((const double[]){1, 2}, 2, 0, 10, got);
    assert_ints(got, 0, 0);
}

/* ---- H2O, observed attention, VATP ---- */

/* One KV head, two query heads, a full causal matrix of 3 queries:
 *     head 0: 1 | .5 .5 | .2 .3 .5      sums 1.7 .8 .5
 *     head 1: 1 | .9 .1 | .6 .2 .2      sums 2.5 .3 .2   -> mean 2.1 .55 .35 */
static void h2o_scores(void **state)
{
    (void)state;
    const float sum[] = {1.7f, 0.8f, 0.5f, 2.5f, 0.3f, 0.2f};
    const int32_t n_entry[] = {3}, pos[] = {0, 1, 2};
    const wnw_observation obs = {
        .n_head = 2, .n_head_kv = 1, .n = 3, .n_past = 3, .n_entry = n_entry, .pos = pos, .attn_sum = sum};
    float got[3];
    run_scorer("h2o", &obs, got);
    assert_values(got, 1e-5, 2.1, 0.55, 0.35);
    run_scorer("observed_attention", &obs, got); /* / 3, / 2, / 1 */
    assert_values(got, 1e-5, 0.7, 0.275, 0.35);
}

/* After an earlier eviction the positions count, not the indices; heads differ in length. */
static void h2o_ragged(void **state)
{
    (void)state;
    const float sum[] = {4, 2, 9, 1, 3, 5};
    const int32_t n_entry[] = {2, 3}, pos[] = {2, 9, -1, 0, 5, 9};
    const wnw_observation obs = {
        .n_head = 2, .n_head_kv = 2, .n = 3, .n_past = 10, .n_entry = n_entry, .pos = pos, .attn_sum = sum};
    float got[6];
    run_scorer("observed_attention", &obs, got); /* seen by 8, 1 queries; 10, 5, 1 */
    assert_values(got, 1e-5, 0.5, 2);
    assert_values(got + 3, 1e-5, 0.1, 0.6, 5);
}

static void last_entries_are_protected(void **state)
{
    (void)state;
    assert_int_equal(protected_of("h2o", 1000, 101).n_last, 50);
    assert_int_equal(protected_of("h2o", 1000, 1).n_last, 0);
    assert_int_equal(protected_of("paper-pyramidkv-h2o", 1000, 64).n_last, 8);
    assert_int_equal(protected_of("observed_attention", 1000, 64).n_last, 0);
    assert_int_equal(protected_of("h2o:recent=60", 1000, 100).n_last, 100); /* 60 + 50, but 100 in all */
    /* a tenth of 1000, and of 200; 0.5 of 60 less 4 sinks; 0.25 of 12 is less than the sinks */
    assert_int_equal(protected_of("inputgate", 1000, 100).n_last, 100);
    assert_int_equal(protected_of("inputgate", 200, 100).n_last, 20);
    assert_int_equal(protected_of("inputgate:room=0.5", 1000, 60).n_last, 26);
    assert_int_equal(protected_of("inputgate:room=0.5,recent=8", 1000, 60).n_last, 8);
    assert_int_equal(protected_of("inputgate:room=0.25", 1000, 12).n_first, 4);
    assert_int_equal(protected_of("inputgate:room=0.25", 1000, 12).n_last, 0);
    /* 20 sinks; half of 100; half of 30 would leave no room for the sinks */
    assert_int_equal(protected_of("vatp", 1000, 100).n_first, 20);
    assert_int_equal(protected_of("vatp", 1000, 100).n_last, 50);
    assert_int_equal(protected_of("vatp", 1000, 30).n_last, 10);
    assert_int_equal(protected_of("vatp", 1000, 20).n_last, 0);
    assert_int_equal(protected_of("vatp-window", 1000, 100).n_last, 10);
}

/* Budget 4 of 10: 2 recent ones, and the 2 best of the rest, for any scores of the recent ones. */
static void h2o_keeps(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    wnw_report report = {WNW_INIT(wnw_report)};
    fake_init(&f, 2, 2, 2, 60, false);
    const wnw_size size = size_budget(20);
    plan = fake_planned(&f, "h2o", &size, &report);
    assert_string_equal(report.warning, "");
    assert_int_equal(fake_check_plan(plan, &f), 2 * 2 * 20);
    for (int32_t il = 0; il < 2; il++)
        for (int32_t ih = 0; ih < 2; ih++)
            for (int32_t p = 50; p < 60; p++)
                assert_true(fake_holds(plan, il, ih, p));
    wnw_plan_free(plan);
    plan = fake_planned(&f, "observed_attention", &size, NULL);
    int32_t n_recent = 0;
    for (int32_t p = 50; p < 60; p++)
        n_recent += fake_holds(plan, 0, 0, p);
    assert_cmp(n_recent, <, 10);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* d = 2: L1 norms 3, .5, 4. */
static void vatp_scores(void **state)
{
    (void)state;
    const float sum[] = {1.7f, 0.8f, 0.5f, 2.5f, 0.3f, 0.2f};
    float v[] = {1, -2, 0.5f, 0, -2, -2};
    const int32_t n_entry[] = {3}, pos[] = {0, 1, 2};
    /* Two query heads, two rows: the last 2 queries of the matrix above. */
    const float window[] = {0.5f, 0.5f, 0, 0.2f, 0.3f, 0.5f, 0.9f, 0.1f, 0, 0.6f, 0.2f, 0.2f};
    const wnw_observation obs = {.n_head = 2,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 3,
                                 .n_past = 3,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .attn_sum = sum,
                                 .window_attn = window,
                                 .n_window = 2,
                                 .values = row_values,
                                 .source = &(struct score_rows){.v = v}};
    float got[3];
    run_scorer("vatp", &obs, got); /* 2.1 x 3, .55 x .5, .35 x 4 */
    assert_values(got, 1e-5, 6.3, 0.275, 1.4);
    run_scorer("vatp-window", &obs, got); /* means over 2 queries and 2 heads: .55 .275 .175 */
    assert_values(got, 1e-5, 1.65, 0.1375, 0.7);
    run_scorer("vatp-window:window=1", &obs, got); /* .4 .25 .35 */
    assert_values(got, 1e-5, 1.2, 0.125, 1.4);
}

/* ---- CAKE ---- */

/* 5 tokens before a window of 2; one KV head with two query heads. */
static const float cake_window[2 * 2 * 7] = {
    0.4f, 0.1f, 0, 0, 0.2f, 0.3f, 0, 0.2f, 0.1f, 0, 0.1f, 0.2f, 0.2f,  0.2f,  /* head 0 */
    0.5f, 0,    0, 0, 0,    0.5f, 0, 0.5f, 0,    0, 0,    0,    0.25f, 0.25f, /* head 1 */
};
static const int32_t cake_n_entry[] = {7}, cake_pos[] = {0, 1, 2, 3, 4, 5, 6};
static const wnw_observation cake_obs = {.n_head = 2,
                                         .n_head_kv = 1,
                                         .n = 7,
                                         .n_past = 7,
                                         .n_entry = cake_n_entry,
                                         .pos = cake_pos,
                                         .window_attn = cake_window,
                                         .n_window = 2};

static void cake_scores(void **state)
{
    (void)state;
    /* head 0: means .3 .1 0 .05 .2; variances (divisor 1) .02 0 0 .005 0; gamma 10: I = .5 .1 0 .1 .2
     * head 1: I = .5 0 0 0 0.  avgpool5: head 0 (.6 .7 .9 .4 .3) / 5, head 1 (.5 .5 .5 0 0) / 5 */
    float got[7];
    run_scorer("cake:window=2,gamma=10", &cake_obs, got);
    assert_values(got, 1e-5, 0.11, 0.12, 0.14, 0.04, 0.03);
    run_scorer("cake:window=2,gamma=0", &cake_obs, got);
    /* head 0 (.4 .45 .65 .35 .25), head 1 as before */
    assert_values(got, 1e-5, 0.09, 0.095, 0.115, 0.035, 0.025);
}

static void cake_preference(void **state)
{
    (void)state;
    static const double seen[] = {0.4, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.5, 0.5};
    double h = 0;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        h -= seen[i] * log(seen[i]);
    const double v = 0.02 + 0.005;
    assert_near(stat_of("cake:window=2", &cake_obs), h * v, 1e-6);
    assert_near(stat_of("cake:window=2,tau1=2,tau2=0.5", &cake_obs), sqrt(h) * v * v, 1e-6);
    /* A window of other policies may be wider: only the last rows count. One row has no variance. */
    wnw_observation one = cake_obs;
    one.n_window = 1;
    assert_near(stat_of("cake:window=2", &one), 0, 0);
}

/* 99 entries over three layers with at most 40 each: trunc(60.1, 24.9, 14.0) = 60, 24, 13; 20 too
 * many go to the others: 40, 34, 23; 2 are missing: 40, 35, 24. */
static void cake_adjusts(void **state)
{
    (void)state;
    const double pref[] = {60.7, 25.2, 14.1};
    double work[3];
    const wnw_layer_problem p = {
        .n_layer = 3, .n = 48, .n_protected = 8, .budget = 41, .gathered = pref, .work = work};
    int32_t got[3];
    assert_int_equal(run_layer_budget("cake-oneshot", &p, got), 3 * 41);
    assert_ints(got, 48, 8 + 35, 8 + 24);
}

/* The same layers one after the other. m = 1: layer 0 alone has 99, cut to 40. m = 2: 60.7 : 25.2 of 99 =
 * 69, 29 -> 40, 58 -> 40 (over the cap, 1 missing, no room). m = 3: 40, 35, 24. */
static void cake_cascades(void **state)
{
    (void)state;
    const double pref[] = {60.7, 25.2, 14.1}, rising[] = {1, 1, 98};
    double work[3];
    wnw_layer_problem p = {
        .n_layer = 3, .n = 48, .n_protected = 8, .budget = 41, .gathered = pref, .work = work};
    int32_t got[3];
    assert_int_equal(run_layer_budget("cake", &p, got), 3 * 41);
    assert_ints(got, 48, 43, 32);
    /* A wide cap and a last layer that wants nearly everything. */
    p.n = 400;
    p.gathered = rising;
    assert_int_equal(run_layer_budget("cake", &p, got), 3 * 41);
    assert_ints(got, 9, 9, 105); /* .99 .99 97.02; 2 are missing */
    /* A last layer without any preference. */
    const double falling[] = {1, 9, 0};
    p.gathered = falling;
    p.n = 400;
    run_layer_budget("cake", &p, got);
    assert_ints(got, 8 + 10, 8 + 89, 8 + 0);
    /* Without any preference: equal parts. */
    const double none[] = {0, 0, 0};
    p.gathered = none;
    run_layer_budget("cake-oneshot", &p, got);
    assert_ints(got, 41, 41, 41);
    /* Prompts of up to B + w tokens stay whole in the authors' code. */
    p.n = 49;
    assert_int_equal(run_layer_budget("paper-compresskv-cake", &p, got), 3 * 49);
    p.n = 50;
    assert_int_equal(run_layer_budget("paper-compresskv-cake", &p, got), 3 * 41);
}

/* What a layer gave up early it does not get back. 80 entries, at most 37 each. m = 3: 1 : 9 : 9 is 4, 37,
 * 37, and 2 are missing: 6. m = 4: 1, 10, 10, 57; 20 too many go to the others: 8, 17, 16, 37; 2 are missing:
 * 9, 18, 16, 37. */
static void cake_never_gives_back(void **state)
{
    (void)state;
    const double pref[] = {1, 9, 9, 48};
    double work[4];
    const wnw_layer_problem p = {.n_layer = 4, .n = 37, .budget = 20, .gathered = pref, .work = work};
    int32_t got[4];
    assert_int_equal(run_layer_budget("cake-oneshot", &p, got), 80);
    assert_ints(got, 9, 18, 16, 37);
    run_layer_budget("cake", &p, got);
    assert_ints(got, 6, 18, 16, 37);
}

/* ---- ZigZagKV ---- */

/* One head per layer. Shares of 0.9: layer 0 [.5 .4 .1 0]: 2 entries; layer 1 [.25 x 4]: 4 entries; layer 2
 * [1 0 0 0]: 1. U = 2/7, 4/7, 1/7. Bavg 7, Bmin 1.4: 1.4 + 5.6 x 3 U = 6.2, 11, 3.8 */
static void zigzagkv_layers(void **state)
{
    (void)state;
    const float a[] = {0.1f, 0.5f, 0, 0.4f, 9}, b[] = {0.25f, 0.25f, 0.25f, 0.25f, 9}, c[] = {0, 0, 1, 0, 9};
    const float *const score[] = {a, b, c};
    const int32_t row[] = {5, 5, 5}, n_entry[] = {5, 5, 5};
    const wnw_protected prot[] = {{0, 1}, {0, 1}, {0, 1}}; /* the 9 is the window */
    double work[3];
    wnw_layer_problem p = {.n_layer = 3,
                           .n = 100,
                           .n_protected = 1,
                           .budget = 8,
                           .n_head_kv = 1,
                           .score = score,
                           .row = row,
                           .n_entry = n_entry,
                           .prot = prot,
                           .work = work};
    int32_t got[3];
    assert_int_equal(run_layer_budget("zigzagkv", &p, got), 3 * 8);
    assert_ints(got, 1 + 6, 1 + 11, 1 + 4);
    /* mass 0.5: 1, 2, 1 entries. U = 1/4, 1/2, 1/4: 1.4 + 16.8 U = 5.6, 9.8, 5.6 -> 9.8 is served first */
    run_layer_budget("zigzagkv:mass=0.5", &p, got);
    assert_ints(got, 1 + 6, 1 + 10, 1 + 5);
    run_layer_budget("zigzagkv:min_share=1", &p, got);
    assert_ints(got, 8, 8, 8);
    /* No layer is left with nothing to choose. */
    p.budget = 2;
    assert_int_equal(run_layer_budget("zigzagkv:min_share=0", &p, got), 3 * 2);
    assert_ints(got, 2, 2, 2);
    /* At most the 9 that are there: 24 x 2/7, 4/7, 1/7 = 7, 14, 3 -> 10, 9, 5 -> 9, 9, 6 */
    p.n = 10;
    p.budget = 9;
    assert_int_equal(run_layer_budget("zigzagkv:min_share=0", &p, got), 3 * 9);
    assert_ints(got, 10, 10, 7);
}

/* The mean over heads counts; scores below 0 are shifted. -3 -2 -1 0 -> 0 1 2 3: 3 of them hold 0.9 of 6. */
static void zigzagkv_heads(void **state)
{
    (void)state;
    const float a[] = {-3, -2, -1, 0, 1, 1, 1, 1}; /* 3 and 4 entries: 3.5 */
    const float b[] = {7, 0, 0, 0, 0, 0, 7, 0};    /* 1 and 1 */
    const float *const score[] = {a, b};
    const int32_t row[] = {4, 4}, n_entry[] = {4, 4, 4, 4};
    const wnw_protected prot[4] = {{0, 0}};
    double work[2];
    const wnw_layer_problem p = {.n_layer = 2,
                                 .n = 1000,
                                 .budget = 90,
                                 .n_head_kv = 2,
                                 .score = score,
                                 .row = row,
                                 .n_entry = n_entry,
                                 .prot = prot,
                                 .work = work};
    int32_t got[2];
    assert_int_equal(run_layer_budget("knorm+zigzagkv:min_share=0", &p, got),
                     180); /* 180 x 3.5 / 4.5, 180 / 4.5 */
    assert_ints(got, 140, 40);
}

/* ---- DynamicKV ---- */

/* 4 layers, 2 heads, C = 3 and 1 protected: 24 of 32 candidates. Layer 0 has 8 high scores, 1 has 8, 2 has 6
 * and 3 has 2 of them. */
struct dynamic {
    float score[4][2][5];
    const float *rows[4];
    int32_t row[4], n_entry[8];
    wnw_protected prot[8];
    double work[4];
    wnw_layer_problem p;
};

static void dynamic_init(struct dynamic *d, const int32_t n_high[4])
{
    memset(d, 0, sizeof *d);
    for (int32_t l = 0; l < 4; l++) {
        d->rows[l] = d->score[l][0];
        d->row[l] = 5;
        for (int32_t h = 0; h < 2; h++) {
            d->n_entry[2 * l + h] = 5;
            d->prot[2 * l + h] = (wnw_protected){.n_last = 1};
            for (int32_t i = 0; i < 4; i++)
                d->score[l][h][i] = h * 4 + i < n_high[l] ? 2.0f : 1.0f;
            d->score[l][h][4] = 100;
        }
    }
    d->p = (wnw_layer_problem){.n_layer = 4,
                               .n = 5,
                               .n_protected = 1,
                               .budget = 4,
                               .rounding = WNW_ROUND_EXACT,
                               .n_head_kv = 2,
                               .score = d->rows,
                               .row = d->row,
                               .n_entry = d->n_entry,
                               .prot = d->prot,
                               .work = d->work};
}

static void dynamickv_layers(void **state)
{
    (void)state;
    struct dynamic d;
    int32_t got[4];
    /* exact: 12 x 8/24, 8/24, 6/24, 2/24 = 4 4 3 1, at most 4 */
    dynamic_init(&d, (const int32_t[]){8, 8, 6, 2});
    assert_int_equal(run_layer_budget("dynamickv", &d.p, got), 4 * 4);
    assert_ints(got, 5, 5, 4, 2);
    /* r_max 1: at most 3, nothing left to compete for */
    assert_int_equal(run_layer_budget("dynamickv:r_max=1", &d.p, got), 4 * 4);
    assert_ints(got, 4, 4, 4, 4);
    /* cascade, one step at the end: c = floor(8 8 6 2 / 4) = 2 2 1 0, the last one + 24/4 - 5 = 1; n0 = 4: b
     * = trunc(4 x 2 2 1 1 / 6) = 1 1 0 0; r = 2/12; b = 6 6 0 0, the last one + 0: 4 4 0 0 */
    run_layer_budget("paper-compilerkv-dynamickv", &d.p, got);
    assert_ints(got, 5, 5, 1, 1);
    /* Equal scores: the lower layer first, so layer 3 has none of the 24. */
    dynamic_init(&d, (const int32_t[]){8, 8, 8, 8});
    assert_int_equal(run_layer_budget("dynamickv", &d.p, got), 4 * 4);
    assert_ints(got, 5, 5, 5, 1);
}

/* 40 candidates a head, one head, C = 4: n0 = 40. every=2: after layers 0, 1 (both all high: 8 of 8 best are
 * layer 0's by order) c = 4 0, b = 40 0, r = 40/16, b = 16 0. So layer 1 is empty in any case; after all
 * four layers the 16 best: all of layer 0. */
static void dynamickv_never_gives_back(void **state)
{
    (void)state;
    float high[40], low[40], top[40];
    const float *const rows[] = {high, low, top, top};
    const int32_t row[] = {40, 40, 40, 40}, n_entry[] = {40, 40, 40, 40};
    const wnw_protected prot[4] = {{0, 0}};
    double work[4];
    int32_t got[4];
    for (int32_t i = 0; i < 40; i++) {
        high[i] = i < 6 ? 5.0f : 0;
        low[i] = i < 2 ? 4.0f : 0;
        top[i] = i < 4 ? 9.0f : 0;
    }
    const wnw_layer_problem p = {.n_layer = 4,
                                 .n = 40,
                                 .budget = 4,
                                 .n_head_kv = 1,
                                 .score = rows,
                                 .row = row,
                                 .n_entry = n_entry,
                                 .prot = prot,
                                 .work = work};
    /* step 2 (8 best): 6 2 -> c = 3 1 -> b = 30 10 -> r = 40/16 -> 12 4 step 4 (16 best): 6 2 4 4 -> c = 1 0
     * 1 1, the last + 4 - 3 = 2 -> b = 10 0 10 20 -> r = 2.5 -> 4 0 4 8 */
    run_layer_budget("dynamickv:form=cascade,every=2", &p, got);
    assert_ints(got, 4, 0, 4, 8);
    assert_int_equal(run_layer_budget("dynamickv", &p, got), 16); /* 16 x 6 2 4 4 / 16 */
    assert_ints(got, 6, 2, 4, 4);
    /* every=3: steps at 3 and, because 4 is no multiple, at the last layer step 3 (12 best): 6 2 4 -> c = 2 0
     * 1 -> b = 26 0 13 -> r = 39/16 -> 10 0 5 + 1 */
    run_layer_budget("dynamickv:form=cascade,every=3", &p, got);
    assert_ints(got, 4, 0, 4, 8);
}

/* ---- SimLayerKV ---- */

/* The last of 2 rows; first 1, last 2 entries before the query's own. */
static void simlayerkv_mass(void **state)
{
    (void)state;
    const float window[] = {9, 9, 9, 9, 9, 9, 0.1f, 0.2f, 0.3f, 0.2f, 0.1f, 0.1f,  /* head 0: .1 + .2 + .1 */
                            9, 9, 9, 9, 9, 9, 0.5f, 0,    0,    0,    0.2f, 0.3f}; /* head 1: .5 + 0 + .2 */
    const int32_t n_entry[] = {6}, pos[] = {0, 1, 2, 3, 4, 5};
    const wnw_observation obs = {.n_head = 2,
                                 .n_head_kv = 1,
                                 .n = 6,
                                 .n_past = 6,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .window_attn = window,
                                 .n_window = 2};
    assert_near(stat_of("simlayerkv:first=1,last=2", &obs), (0.4 + 0.7) / 2, 1e-6);
    assert_near(stat_of("simlayerkv", &obs), (0.9 + 0.7) / 2, 1e-6); /* nothing is counted twice */
}

static void simlayerkv_layers(void **state)
{
    (void)state;
    const double mass[] = {0.5, 0.95, 0.9, 0.7};
    const int32_t n_entry[] = {100, 100, 100, 100};
    wnw_layer_problem p = {
        .n_layer = 4, .n = 100, .budget = 70, .n_head_kv = 1, .gathered = mass, .n_entry = n_entry};
    int32_t got[4];
    /* 120 entries have to go. A lazy layer keeps 4 + 15: 81 go, so two; 42 entries are left over: 21 each. */
    assert_int_equal(run_layer_budget("simlayerkv:last=16", &p, got), 280);
    assert_ints(got, 100, 40, 40, 100);
    p.budget = 75; /* 100 go, two layers, 62 left over */
    assert_int_equal(run_layer_budget("simlayerkv:last=16", &p, got), 300);
    assert_ints(got, 100, 50, 50, 100);
    p.budget = 10; /* less than a lazy layer keeps */
    assert_int_equal(run_layer_budget("simlayerkv:last=16", &p, got), 40);
    assert_ints(got, 10, 10, 10, 10);
    run_layer_budget("kvpress-simlayerkv:last=16", &p, got); /* > 0.9 alone */
    assert_ints(got, 100, 19, 100, 100);
    run_layer_budget("kvpress-simlayerkv:last=16,threshold=0.6", &p, got);
    assert_ints(got, 100, 19, 19, 19);
    run_layer_budget("kvpress-simlayerkv:last=95", &p,
                     got); /* 4 + 95 + 1 are there and no more: stays whole */
    assert_ints(got, 100, 100, 100, 100);
}

/* ---- DuoAttention ---- */

static int duo(const char *recipe, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    wnw_policy *policy_ = test_policy(recipe);
    const int rc = policy_->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(
        policy_->opts[WNW_PART_HEAD_BUDGET], p, n_keep, NULL, warning);
    wnw_policy_free(policy_);
    return rc;
}

static void duo_heads(void **state)
{
    (void)state;
    double alpha[] = {0.9, 0.1, 0, 0, 0.3, 0.8}; /* layers 0, 1, 2; layer 1 does not take part */
    struct wnw_profile profile = {
        .model = {.n_layer = 3, .n_head_kv = 2}, .head_alpha = alpha, .head_sink = 4, .head_recent = 16};
    const int32_t n_entry[] = {100, 100, 100, 100}, il[] = {0, 2};
    const wnw_protected prot[] = {{4, 0}, {4, 0}, {4, 0}, {4, 0}};
    wnw_layer_problem p = {.n_layer = 2,
                           .n = 100,
                           .budget = 70,
                           .mean = 70,
                           .il = il,
                           .n_head_kv = 2,
                           .n_entry = n_entry,
                           .prot = prot,
                           .profile = &profile};
    int32_t got[4];
    char warning[256] = "";
    /* 120 entries have to go, a streaming head keeps 20: two of them, .1 and .3; 40 are left over. */
    assert_int_equal(duo("duoattention", &p, got, warning), WNW_OK);
    assert_ints(got, 100, 40, 40, 100);
    assert_string_equal(warning, "");
    p.budget = 12;
    assert_int_equal(duo("duoattention", &p, got, warning), WNW_OK);
    assert_ints(got, 12, 12, 12, 12);
    /* kvpress: round(4 x 0.625) = round(2.5) = 2 heads; 0.875: round(3.5) = 4 */
    p.mean = 37.5;
    assert_int_equal(duo("kvpress-duoattention", &p, got, warning), WNW_OK);
    assert_ints(got, 100, 20, 20, 100);
    p.mean = 12.5;
    assert_int_equal(duo("kvpress-duoattention", &p, got, warning), WNW_OK);
    assert_ints(got, 20, 20, 20, 20);
    /* Options win over the profile; other sinks in the scorer are said. */
    assert_int_equal(duo("kvpress-duoattention:sinks=8,last=30", &p, got, warning), WNW_OK);
    assert_ints(got, 38, 38, 38, 38);
    assert_contains(warning, "sinks=8");
    profile.head_alpha = NULL;
    assert_int_equal(duo("duoattention", &p, got, warning), WNW_E_MISMATCH);
}

/* Through the driver, and refused without a profile. */
static void duo_plans(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    wnw_report report = {WNW_INIT(wnw_report)};
    fake_init(&f, 4, 2, 2, 120, false);
    const wnw_size size = size_budget(60);
    plan = fake_planned(&f, "duoattention:sinks=4", &size, &report);
    assert_int_equal(fake_check_plan(plan, &f), 8 * 60);
    int32_t n_whole = 0;
    for (int32_t i = 0; i < 8; i++) {
        n_whole += fake_kept(plan, i / 2, i % 2) == 120;
        for (int32_t p = 0; p < 4; p++)
            assert_true(fake_holds(plan, i / 2, i % 2, p));
        assert_true(fake_holds(plan, i / 2, i % 2, 119));
    }
    /* 480 of 960 have to go, 104 each */
    assert_int_equal(n_whole, 8 - 5);
    wnw_plan_free(plan);
    f.src.profile = NULL;
    assert_int_equal(fake_plan(&plan, &f, "duoattention:sinks=4", &size, &report), WNW_E_MISMATCH);
    fake_free(&f);
}

/* One pair that turns by theta, keys that are all the same vector before RoPE: at all positions
 * a_j follows cos((499 - j) theta + the angle between query and key). */
static void duo_from_the_prompt(void **state)
{
    (void)state;
    enum { N_KEY = 150 };
    const double theta = 0.01, between = 0.4, size = 3, scale = 0.5;
    float keys[N_KEY * 3], query[6] = {(float)size, 0, 0.5f, 0, 0, 0};
    int32_t pos[N_KEY];
    const int32_t n_entry[] = {N_KEY};
    const float angle = (float)theta;
    for (int32_t i = 0; i < N_KEY; i++) {
        pos[i] = i < 100 ? i : 3 * i; /* a gap, as after an eviction */
        keys[3 * i] = (float)(2 * cos(between + pos[i] * theta));
        keys[3 * i + 1] = (float)(2 * sin(between + pos[i] * theta));
        keys[3 * i + 2] = 7; /* does not turn, adds the same to all */
    }
    wnw_observation obs = {.n_head = 2,
                           .n_head_kv = 1,
                           .n_embd_head = 3,
                           .n = N_KEY,
                           .n_entry = n_entry,
                           .pos = pos,
                           .attn_scale = (float)scale,
                           .keys = row_keys,
                           .source = &(struct score_rows){.k = keys},
                           .query_mean = query,
                           .rope_theta = &angle,
                           .n_rot = 2};
    double sum = 0, far = 0, got = -1;
    for (int32_t j = 0; j < 500; j++) {
        const double a = exp(scale * size * 2 * cos((j - 499) * theta + between));
        sum += a;
        far += a * (500 - j) / 500;
    }
    for (int neox = 0; neox < 2; neox++) {
        obs.rope_neox = neox;
        wnw_policy *p = test_policy("duoattention-prompt");
        const wnw_gather *gather = p->part[WNW_PART_HEAD_BUDGET].head.gather;
        assert_int_equal(gather->visit(p->opts[WNW_PART_HEAD_BUDGET], &obs, &got), WNW_OK);
        /* The second head's mean query is 0: it looks everywhere alike, 250.5 / 500. */
        assert_near(got, (far / sum + 0.501) / 2, 1e-6);
        wnw_policy_free(p);
    }
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 3, 2, 2, 400, false);
    f.src.profile = NULL;
    const wnw_size half = size_budget(200);
    plan = fake_planned(&f, "duoattention-prompt:sinks=4,last=30", &half, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 6 * 200);
    int32_t n_whole = 0; /* 1200 of 2400 have to go, 366 each */
    for (int32_t i = 0; i < 6; i++)
        n_whole += fake_kept(plan, i / 2, i % 2) == 400;
    assert_int_equal(n_whole, 6 - 4);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* ---- PyramidKV and StreamingLLM as other comparisons run them ---- */

static void pyramid_factory(void **state)
{
    (void)state;
    wnw_layer_problem p = {.n_layer = 32, .n = 100000, .n_protected = 8, .budget = 128, .mean = 128};
    int32_t got[32];
    assert_int_equal(run_layer_budget("paper-compilerkv-pyramidkv", &p, got), 4272); /* as the paper's form */
    assert_int_equal(got[0], 242);
    assert_int_equal(got[31], 25);
    p.n = 240; /* S = 2 C: mx = 232, mn = 8 */
    run_layer_budget("paper-compilerkv-pyramidkv", &p, got);
    assert_int_equal(got[0], 240);
    p.n = 239;
    assert_int_equal(run_layer_budget("paper-compilerkv-pyramidkv", &p, got), 32 * 128);
    assert_int_equal(got[0], 128);
    p.n_layer = 1;
    p.n = 1000;
    assert_int_equal(run_layer_budget("paper-compilerkv-pyramidkv", &p, got), 128);
}

static void streaming_variants(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 1, 1, 1, 100, false);
    const wnw_size size = size_budget(40);
    plan = fake_planned(&f, "streaming_llm", &size, NULL);
    for (int32_t p = 0; p < 100; p++)
        assert_cmp(fake_holds(plan, 0, 0, p), ==, (p < 4 || p >= 64));
    wnw_plan_free(plan);
    plan = fake_planned(&f, "paper-compilerkv-streaming_llm", &size, NULL);
    for (int32_t p = 0; p < 100; p++)
        assert_cmp(fake_holds(plan, 0, 0, p), ==, (p < 8 || p >= 68));
    wnw_plan_free(plan);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_out),
        cmocka_unit_test(h2o_scores),
        cmocka_unit_test(h2o_ragged),
        cmocka_unit_test(last_entries_are_protected),
        cmocka_unit_test(h2o_keeps),
        cmocka_unit_test(vatp_scores),
        cmocka_unit_test(cake_scores),
        cmocka_unit_test(cake_preference),
        cmocka_unit_test(cake_adjusts),
        cmocka_unit_test(cake_cascades),
        cmocka_unit_test(cake_never_gives_back),
        cmocka_unit_test(zigzagkv_layers),
        cmocka_unit_test(zigzagkv_heads),
        cmocka_unit_test(dynamickv_layers),
        cmocka_unit_test(dynamickv_never_gives_back),
        cmocka_unit_test(simlayerkv_mass),
        cmocka_unit_test(simlayerkv_layers),
        cmocka_unit_test(duo_heads),
        cmocka_unit_test(duo_plans),
        cmocka_unit_test(duo_from_the_prompt),
        cmocka_unit_test(pyramid_factory),
        cmocka_unit_test(streaming_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
