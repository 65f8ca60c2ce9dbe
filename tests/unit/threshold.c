/* SPDX-License-Identifier: MIT */
/* A threshold in place of a size: counts by hand, whole plans against the scores, sizes as ceilings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "scoring.h"

/* Head 0 protects its first and its last entry, head 1 its last two; tau = 0.5, which the first 0.5 reaches.
 *     head 0:  [9] 0.5 0.4 0.7 [0]      -> 2 protected + 2
 *     head 1:   0.1 0.9 0.6 [0] [0]     -> 2 protected + 2
 * A ceiling of 3 each leaves 6 - 4 = 2 of the candidates 0.5 0.7 | 0.9 0.6: 0.9 and 0.7. */
static void counts(void **state)
{
    (void)state;
    const float score[] = {9, 0.5f, 0.4f, 0.7f, 0, 0.1f, 0.9f, 0.6f, 0, 0};
    const int32_t n_entry[] = {5, 5};
    const wnw_protected prot[] = {{1, 1}, {0, 2}};
    wnw_head_problem p = {
        .n_head_kv = 2, .n = 5, .n_entry = n_entry, .score = score, .prot = prot, .budget = 5};
    wnw_policy *policy;
    int32_t got[2], safe[2] = {0};
    float scratch[10];
    policy = test_policy("knorm+threshold:tau=0.5");
    const wnw_head_budget *h = &policy->part[WNW_PART_HEAD_BUDGET].heads;
    h->allocate(policy->opts[WNW_PART_HEAD_BUDGET], &p, got, safe, scratch);
    assert_int_equal(got[0], 4);
    assert_int_equal(got[1], 4);
    p.budget = 3;
    h->allocate(policy->opts[WNW_PART_HEAD_BUDGET], &p, got, safe, scratch);
    assert_int_equal(got[0], 3);
    assert_int_equal(got[1], 3);
    p.budget = 2; /* what is protected, and nothing else */
    h->allocate(policy->opts[WNW_PART_HEAD_BUDGET], &p, got, safe, scratch);
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 2);
    /* Its window: all of it without a size, at most a quarter of a size; never less than the scorer's. */
    wnw_protected w = {3, 0};
    h->part.keep(policy->opts[WNW_PART_HEAD_BUDGET], &(wnw_keep_problem){.n = 500, .budget = 500}, &w);
    assert_int_equal(w.n_first, 3);
    assert_int_equal(w.n_last, 128);
    w.n_last = 30;
    h->part.keep(policy->opts[WNW_PART_HEAD_BUDGET],
                 &(wnw_keep_problem){.n = 500, .budget = 100, .sized = true}, &w);
    assert_int_equal(w.n_last, 30);
    h->part.keep(policy->opts[WNW_PART_HEAD_BUDGET],
                 &(wnw_keep_problem){.n = 500, .budget = 160, .sized = true}, &w);
    assert_int_equal(w.n_last, 40);
    wnw_policy_free(policy);
}

/* Every head keeps its sinks, its window and what scores tau or more. */
static void check_against_scores(struct fake *f, const char *recipe, const char *scorer, float tau,
                                 int32_t sinks, int32_t window)
{
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    wnw_plan *plan;
    wnw_policy *policy;
    static float score[FAKE_MAX_HEAD * 512];
    int64_t kept = 0;
    policy = test_policy(scorer);
    const wnw_needs needs = wnw_policy_needs(policy);
    wnw_policy_free(policy);
    plan = fake_planned(f, recipe, &none, NULL);
    for (int32_t il = 0; il < f->src.shape.n_layer; il++) {
        wnw_observation obs;
        assert_int_equal(f->src.observe(&f->src, il, &needs, NULL, &obs), WNW_OK);
        run_scorer(scorer, &obs, score);
        for (int32_t ih = 0; ih < obs.n_head_kv; ih++)
            for (int32_t i = 0, n = obs.n_entry[ih]; i < n; i++) {
                const bool stays = i < sinks || i >= n - window || score[ih * obs.n + i] >= tau;
                kept += stays;
                if (fake_holds(plan, il, ih, obs.pos[ih * obs.n + i]) != stays)
                    fail_msg("%s: layer %d head %d entry %d of %d, score %g", recipe, il, ih, i, n,
                             (double)score[ih * obs.n + i]);
            }
    }
    assert_cmp(kept, >, fake_entries(f) / 10);
    assert_cmp(kept, <, fake_entries(f) * 9 / 10);
    wnw_plan_free(plan);
}

static void plans(void **state)
{
    (void)state;
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 200, ragged);
        check_against_scores(&f, "keydiff+threshold:tau=0,window=5", "keydiff", 0, 0, 5);
        check_against_scores(&f, "keydiff+threshold:tau=-0.2,window=0", "keydiff", -0.2f, 0, 0);
        check_against_scores(&f, "cur:sinks=7+threshold:tau=0.05,window=16", "cur:sinks=7", 0.05f, 7, 16);
        fake_free(&f);
    }
}

/* Without a size there is nothing to divide between layers, by any part. */
static void no_layer_budget(void **state)
{
    (void)state;
    static const char *const budgets[] = {"+pyramid", "+composite", "+dynamickv", "+cake_layers"};
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    struct fake f;
    wnw_plan *want, *got;
    fake_init(&f, 4, 2, 2, 150, false);
    want = fake_planned(&f, "keydiff+threshold:window=5", &none, NULL);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        char recipe[96];
        snprintf(recipe, sizeof recipe, "keydiff+threshold:window=5%s", budgets[i]);
        got = fake_planned(&f, recipe, &none, NULL);
        assert_same_plan(got, want);
        wnw_plan_free(got);
    }
    wnw_plan_free(want);
    fake_free(&f);
}

/* With a size that bites it is AdaKV without a safeguard; with one that does not, the threshold alone. */
static void a_size_is_a_ceiling(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *a, *b, *own;
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    const wnw_size ample[] = {size_budget(140), size_budget(149), size_budget(150), size_budget(5000),
                              size_ratio(0)};
    fake_init(&f, 3, 3, 2, 150, false);
    for (int64_t n = 1; n < 150; n += 37) {
        const wnw_size size = size_budget(n);
        a = fake_planned(&f, "keydiff+threshold:tau=-1e30,window=0", &size, NULL);
        b = fake_planned(&f, "keydiff+adakv:alpha_safeguard=0", &size, NULL);
        assert_same_plan(a, b);
        wnw_plan_free(a);
        wnw_plan_free(b);
    }
    own = fake_planned(&f, "keydiff+threshold:window=0", &none, NULL);
    for (size_t i = 0; i < sizeof ample / sizeof *ample;
         i++) { /* one that all entries fit into is no other */
        a = fake_planned(&f, "keydiff+threshold:window=0", &ample[i], NULL);
        assert_same_plan(a, own);
        wnw_plan_free(a);
    }
    assert_cmp(fake_check_plan(own, &f), <, 3 * 3 * 140);
    wnw_plan_free(own);
    fake_free(&f);
}

static void corners(void **state)
{
    (void)state;
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    struct fake f;
    wnw_plan *plan;
    wnw_policy *p;
    const char *reason;
    fake_init(&f, 2, 2, 1, 20, false);
    /* A text that fits the window stays whole; a threshold that nothing reaches leaves the window, or
     * nothing. */
    plan = fake_planned(&f, "keydiff+threshold:tau=2", &none, NULL);
    assert_int_equal(fake_check_plan(plan, &f), fake_entries(&f));
    wnw_plan_free(plan);
    plan = fake_planned(&f, "keydiff+threshold:tau=2,window=3", &none, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 2 * 2 * 3);
    wnw_plan_free(plan);
    plan = fake_planned(&f, "keydiff+threshold:tau=2,window=0", &none, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 0);
    wnw_plan_free(plan);
    fake_free(&f);

    p = test_policy("dms");
    assert_true(wnw_policy_has_own_size(p));
    assert_string_equal(wnw__policy_layout(p), "ragged");
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE; phase++)
        assert_true(wnw_policy_allows(p, (wnw_phase)phase, &reason));
    wnw_policy_free(p);
    assert_int_equal(wnw_policy_parse(&p, "dms+rerotate", NULL), WNW_E_ARG);
    assert_int_equal(wnw_policy_parse(&p, "lagkv+threshold", NULL), WNW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),          cmocka_unit_test(plans),
        cmocka_unit_test(no_layer_budget), cmocka_unit_test(a_size_is_a_ceiling),
        cmocka_unit_test(corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
