/* SPDX-License-Identifier: MIT */
/* A quality in place of a size: counts by hand, whole plans against the scores, what is refused. */
#include "asserts.h"
#include "fake_source.h"
#include "scoring.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two heads of one layer, 2.0 in all:
 *     head 0:  .9 .1 .05 .3      head 1:  .02 .4 .03 .2
 * A share of .06 may take .12: .02, .03 and .05 go, and .1 would be too much; .15 may take .3: .1 goes too, .2 does not. */
static const float plain[] = {0.9f, 0.1f, 0.05f, 0.3f, 0.02f, 0.4f, 0.03f, 0.2f};

struct problem {
    wnw_layer_problem p;
    wnw_policy *policy;
    int32_t n_keep[2];
    char warning[256];
};

static int allocate(struct problem *x, const char *recipe, const float *score, const wnw_profile *profile)
{
    static const int32_t n_entry[] = {4, 4}, row[] = {4}, il[] = {0};
    static const wnw_protected none[2];
    const float *scores[] = {score};
    float scratch[8];
    assert_ok(wnw_policy_parse(&x->policy, recipe, NULL));
    const wnw_head_budget *h = &x->policy->part[WNW_PART_HEAD_BUDGET].heads;
    x->p = (wnw_layer_problem){.n_layer = 1,
                               .n = 4,
                               .budget = x->p.budget > 0 ? x->p.budget : 4,
                               .mean = x->p.budget > 0 ? x->p.budget : 4,
                               .il = il,
                               .n_layer_model = 1,
                               .n_head = 2,
                               .n_head_kv = 2,
                               .profile = profile,
                               .score = scores,
                               .row = row,
                               .n_entry = n_entry,
                               .prot = x->p.prot ? x->p.prot : none,
                               .scorer = x->policy->part[WNW_PART_SCORER].head.name,
                               .n_past = 4};
    x->warning[0] = '\0';
    const int rc =
        h->allocate_model(x->policy->opts[WNW_PART_HEAD_BUDGET], &x->p, x->n_keep, scratch, x->warning);
    wnw_policy_free(x->policy);
    return rc;
}

static void by_hand(void **state)
{
    (void)state;
    struct problem x = {0};
    float logs[8];
    assert_ok(allocate(&x, "replay+quality:dropped=0.06", plain, NULL));
    assert_ints(x.n_keep, 3, 2);
    assert_ok(allocate(&x, "replay+quality:dropped=0.15", plain, NULL));
    assert_ints(x.n_keep, 2, 2);
    for (int i = 0; i < 8; i++)
        logs[i] = logf(plain[i]);
    assert_ok(allocate(&x, "kvgate+quality:dropped=0.15", logs, NULL));
    assert_ints(x.n_keep, 2, 2);
    assert_ok(allocate(&x, "inputgate+quality:dropped=0.15", logs, NULL));
    assert_ints(x.n_keep, 2, 2);
    const wnw_profile fast = {.inputs.form = WNW_INPUT_ATTENTION}; /* whose scores are no logarithms */
    assert_ok(allocate(&x, "inputgate+quality:dropped=0.15", plain, &fast));
    assert_ints(x.n_keep, 2, 2);
    /* A size is a ceiling, .9 and .4; what is protected stays and does not count. */
    x.p.budget = 1;
    assert_ok(allocate(&x, "replay+quality:dropped=0.06", plain, NULL));
    assert_ints(x.n_keep, 1, 1);
    const wnw_protected prot[] = {
        {1, 0}, {1, 0}}; /* .9 and .02: of 1.08 a share of .15 is .162, which is .03 and .05 */
    x = (struct problem){.p.prot = prot};
    assert_ok(allocate(&x, "replay+quality:dropped=0.15", plain, NULL));
    assert_ints(x.n_keep, 3, 3);
    /* Where a head has nothing to speak of it keeps its best entry. */
    const float lopsided[] = {0.9f, 0.8f, 0.7f, 0.6f, 0.001f, 0.002f, 0.001f, 0.001f};
    x = (struct problem){0};
    assert_ok(allocate(&x, "replay+quality:dropped=0.1", lopsided, NULL));
    assert_ints(x.n_keep, 4, 1);
}

static void by_profile(void **state)
{
    (void)state;
    double dropped[] = {0.06, 0.15}, loss[] = {0.05, 0.3};
    wnw_profile p = {
        .n_quality = 2, .quality_dropped = dropped, .quality_loss = {[WNW_QUALITY_REPLAY] = loss}};
    struct problem x = {0};
    assert_ok(allocate(&x, "replay+quality:q=0.9", plain, &p));
    assert_ints(x.n_keep, 3, 2);
    assert_string_equal(x.warning, "");
    assert_ok(allocate(&x, "replay+quality:q=0.7", plain, &p));
    assert_ints(x.n_keep, 2, 2);
    assert_ok(allocate(&x, "replay+quality:q=0.99", plain, &p)); /* more than was measured */
    assert_ints(x.n_keep, 4, 4);
    assert_contains(x.warning, "all entries stay");
    assert_error(allocate(&x, "kvgate+quality:q=0.9", plain, &p), WNW_E_MISMATCH);
    assert_says("scores of kvgate");
    assert_says("profile of kind gate at hand");
    assert_error(allocate(&x, "inputgate+quality:q=0.9", plain, &p), WNW_E_MISMATCH);
    assert_says("profile of kind inputgate at hand");
    assert_error(allocate(&x, "replay+quality:q=0.9", plain, NULL), WNW_E_MISMATCH);
}

/* Losses that were measured with other gates say nothing of these. */
static void other_gates(void **state)
{
    (void)state;
    double dropped[] = {0.06, 0.15}, loss[] = {0.05, 0.3};
    float logs[8], weight[2 * WNW_GATE_SCALARS] = {1}, bias[2] = {0.5f, 0.25f};
    wnw_profile p = {.model = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .d = 4},
                     .kinds = 1u << WNW_PROFILE_GATE | 1u << WNW_PROFILE_QUALITY,
                     .n_gate_feature = WNW_GATE_SCALARS,
                     .gate_weight = weight,
                     .gate_bias = bias,
                     .n_quality = 2,
                     .quality_dropped = dropped,
                     .quality_loss = {[WNW_QUALITY_KVGATE] = loss, [WNW_QUALITY_REPLAY] = loss}};
    struct problem x = {0};
    for (int i = 0; i < 8; i++)
        logs[i] = logf(plain[i]);
    assert_ok(allocate(&x, "kvgate+quality:q=0.9", logs, &p)); /* nothing says which gates they were */
    p.quality_of[WNW_QUALITY_KVGATE] = wnw__profile_hash(&p, 1u << WNW_PROFILE_GATE);
    assert_ok(allocate(&x, "kvgate+quality:q=0.9", logs, &p));
    assert_ints(x.n_keep, 3, 2);
    bias[1] = 0.75f;
    assert_error(allocate(&x, "kvgate+quality:q=0.9", logs, &p), WNW_E_MISMATCH);
    assert_says("another profile of kind gate");
    assert_ok(allocate(&x, "kvgate+quality:dropped=0.06", logs, &p));
    assert_ok(allocate(&x, "replay+quality:q=0.9", plain, &p));
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
    } cases[] = {{"replay+quality:q=0", "q is 0"},
                 {"replay+quality:q=1", "q is 1"},
                 {"replay+quality:q=1.5", "1.5"},
                 {"replay+quality:q=-0.1", "-0.1"},
                 {"snapkv+quality", "replay, kvgate and inputgate"},
                 {"keydiff+quality:dropped=0.1", "second reading"},
                 {"replay+pyramid+quality", "pyramid"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_policy *p;
        assert_error(wnw_policy_parse(&p, cases[i].recipe, NULL), WNW_E_ARG);
        assert_says(cases[i].says);
    }
    wnw_policy *p;
    assert_ok(wnw_policy_parse(&p, "kvgate+quality", NULL));
    assert_true(wnw_policy_has_own_size(p));
    for (int phase = WNW_PHASE_LAYER; phase <= WNW_PHASE_DECODE; phase++)
        assert_false(wnw_policy_allows(p, (wnw_phase)phase, NULL));
    wnw_policy_free(p);
}

/* Whole plans without a size: what goes scores no more than what stays, its sum is within the share, and the next lowest
 * score would not be. */
static void plans(void **state)
{
    (void)state;
    static struct fake f;
    static float score[FAKE_MAX_HEAD * 512];
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    fake_init(&f, 3, 2, 2, 150, false);
    for (int round = 0; round < 4; round++) {
        const double share = 0.05 + 0.2 * round;
        char recipe[64];
        wnw_plan *plan;
        wnw_report report = wnw_report_default();
        double all = 0, gone = 0, highest = 0, lowest = INFINITY;
        snprintf(recipe, sizeof recipe, "replay+quality:dropped=%g", share);
        f.seed = (uint32_t)(100 + round);
        assert_ok(fake_plan(&plan, &f, recipe, &none, &report));
        fake_check_plan(plan, &f);
        for (int32_t il = 0; il < 3; il++) {
            wnw_observation obs;
            wnw_policy *p;
            assert_ok(wnw_policy_parse(&p, "replay", NULL));
            const wnw_needs needs = wnw_policy_needs(p);
            wnw_policy_free(p);
            assert_ok(f.src.observe(&f.src, il, &needs, NULL, &obs));
            run_scorer("replay", &obs, score);
            for (int32_t ih = 0; ih < 2; ih++)
                for (int32_t i = (int32_t)(f.src.n_prefix > 0 ? f.src.n_prefix : 4); i < obs.n_entry[ih];
                     i++) {
                    const double s = (double)score[ih * obs.n + i];
                    all += s;
                    if (fake_holds(plan, il, ih, obs.pos[ih * obs.n + i])) {
                        lowest = s < lowest ? s : lowest;
                    } else {
                        gone += s;
                        highest = s > highest ? s : highest;
                    }
                }
        }
        assert_cmp(gone, >, 0);
        assert_cmp(gone, <=, share * all * (1 + 1e-9));
        assert_cmp(gone + lowest, >, share * all * (1 - 1e-9));
        assert_cmp(highest, <=, lowest);
        wnw_plan_free(plan);
    }
    fake_free(&f);
}

/* A size that all entries fit into takes nothing from what goes without one. */
static void a_size_is_a_ceiling(void **state)
{
    (void)state;
    static struct fake f;
    const wnw_size none = {.kind = WNW_SIZE_NONE},
                   ample[] = {size_budget(149), size_budget(150), size_budget(5000), size_ratio(0)};
    fake_init(&f, 3, 2, 2, 150, false);
    wnw_plan *want = fake_planned(&f, "replay+quality:dropped=0.3", &none, NULL);
    assert_cmp(fake_check_plan(want, &f), <, fake_entries(&f));
    for (size_t i = 0; i < sizeof ample / sizeof *ample; i++) {
        wnw_plan *got = fake_planned(&f, "replay+quality:dropped=0.3", &ample[i], NULL);
        assert_same_plan(got, want);
        wnw_plan_free(got);
    }
    wnw_plan_free(want);
    fake_free(&f);
}

/* Number of entries at positions below `end`. */
static int32_t there(const struct fake *f, int32_t end)
{
    int32_t n = 0;
    for (int32_t il = 0; il < 3; il++) {
        const struct wnw__plan_layer l = f->src.layer(&f->src, il);
        for (int32_t ih = 0; ih < 2; ih++)
            for (int32_t i = 0; i < l.n_entry[ih] && l.pos[l.off[ih] + i] < end; i++)
                n++;
    }
    return n;
}

/* What the last compression has left is judged no more: else every turn would drop a share of what is left. A size that not
 * all fits into takes from it all the same. */
static void once(void **state)
{
    (void)state;
    static const char recipe[] = "replay+quality:dropped=0.3";
    static struct fake f;
    const wnw_size none = {.kind = WNW_SIZE_NONE}, ample = size_budget(150), small = size_budget(60);
    fake_init(&f, 3, 2, 2, 150, false);
    wnw_plan *plan = fake_planned(&f, recipe, &none, NULL);
    assert_cmp(test_plan_below(plan, 100), <, there(&f, 100));
    wnw_plan_free(plan);
    for (int k = 0; k < 2; k++) {
        f.src.n_judged = 100;
        plan = fake_planned(&f, recipe, k ? &ample : &none, NULL);
        assert_cmp(fake_check_plan(plan, &f), <, fake_entries(&f));
        assert_int_equal(test_plan_below(plan, 100), there(&f, 100));
        wnw_plan_free(plan);
        f.src.n_judged = f.src.n_past; /* nothing has come since */
        plan = fake_planned(&f, recipe, k ? &ample : &none, NULL);
        assert_int_equal(fake_check_plan(plan, &f), fake_entries(&f));
        wnw_plan_free(plan);
    }
    plan = fake_planned(&f, recipe, &small, NULL);
    assert_cmp(fake_check_plan(plan, &f), <=, 3 * 2 * 60);
    wnw_plan_free(plan);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand), cmocka_unit_test(by_profile), cmocka_unit_test(other_gates),
        cmocka_unit_test(refused), cmocka_unit_test(plans),      cmocka_unit_test(a_size_is_a_ceiling),
        cmocka_unit_test(once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
