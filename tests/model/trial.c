/* SPDX-License-Identifier: MIT */
/* Trials of CompilerKV's tables keep the entries that the method keeps with such a table, and cost what a session
 * with that plan costs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "peek_calibrate.h"

enum { N = 200, NEXT = 9, WINDOW = 16, BUDGET = 56 };

static struct test_model model;
static struct wnw__trial_prompt prompt;
static wnw_engine *engine;

static struct wnw__trial_text text_of(void)
{
    return (struct wnw__trial_text){.tokens = model.tokens, .n_prompt = N, .n_next = NEXT};
}

static int set_up(void **state)
{
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 2, .attn = WNW_ATTN_F32};
    (void)state;
    test_open_tiny(&model, "llama", N + NEXT, 5);
    const struct wnw__trial_text text = text_of();
    assert_ok(wnw_engine_new(&engine, model.m, &params));
    assert_ok(wnw__trial_read(&prompt, engine, NULL, &text, WINDOW));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wnw__trial_free(&prompt);
    wnw_engine_free(engine);
    test_close(&model);
    return 0;
}

/* ---- Against the method ---- */

/* Drawn weights of groups and thresholds of layers, the same for the trial and for the profile. */
struct table {
    float *group, *weight; /* [n_layer][n_head_kv], [n_layer][n_head] */
    double *tau;           /* [n_layer] */
    float *cells;          /* [n_layer] the same for the profile */
    wnw_profile *profile;
};

static void make_table(struct table *t)
{
    static const float weights[3] = {0.85f, 1, 1.15f};
    static const double taus[4] = {0.5, 0.8, 1, 2};
    const int32_t L = model.info.n_layer, H = model.info.n_head, G = model.info.n_head_kv;
    uint32_t seed = 3;
    t->group = calloc((size_t)(L * G), sizeof *t->group);
    t->weight = calloc((size_t)(L * H), sizeof *t->weight);
    t->tau = calloc((size_t)L, sizeof *t->tau);
    t->cells = calloc((size_t)L, sizeof *t->cells);
    assert_non_null(t->group);
    assert_non_null(t->weight);
    assert_non_null(t->tau);
    assert_non_null(t->cells);
    for (int32_t il = 0; il < L; il++) {
        t->tau[il] = taus[test_lcg(&seed) >> 20 & 3];
        t->cells[il] = (float)t->tau[il];
        for (int32_t ih = 0; ih < G; ih++) {
            t->group[il * G + ih] = weights[(test_lcg(&seed) >> 16) % 3];
            for (int32_t h = ih * (H / G); h < (ih + 1) * (H / G); h++)
                t->weight[il * H + h] = t->group[il * G + ih];
        }
    }
    assert_ok(wnw_profile_new(&t->profile, model.m));
    t->profile->kinds = 1u << WNW_PROFILE_COMPILER;
    t->profile->compiler = (struct wnw__compiler_table){.n_layer = L,
                                                        .budget = BUDGET,
                                                        .window = WINDOW,
                                                        .n_sink = -1,
                                                        .pool = -1,
                                                        .utility = -1,
                                                        .alpha_scope = -1,
                                                        .score_norm = -1,
                                                        .gate = -1,
                                                        .entropy_norm = -1,
                                                        .n_entropy = 1,
                                                        .n_ppl = 1,
                                                        .weight = t->weight,
                                                        .tau = t->cells};
}

static void free_table(struct table *t)
{
    free(t->group);
    free(t->tau);
    wnw_profile_free(t->profile); /* frees weight and cells */
}

struct mode {
    const char *name, *recipe;
    int64_t budget;
    bool tau;
    double floor;
    bool negative; /* weights down to -0.5, and of one layer all */
};

static const struct mode modes[] = {
    {"strict", "compilerkv:window=16+gate:window=16,mode=strict", BUDGET, false, 0.25, false},
    {"elastic", "compilerkv:window=16+gate:window=16,mode=elastic", BUDGET, true, 0.25, false},
    {"no floor", "compilerkv:window=16+gate:window=16,mode=elastic,floor=0", BUDGET, true, 0, false},
    {"negative weights", "compilerkv:window=16+gate:window=16,mode=elastic", BUDGET, true, 0.25, true},
    {"a budget below the window", "compilerkv:window=16+gate:window=16,mode=strict", 14, false, 0.25, false},
};

static void plans_are_those_of_the_method(void **state)
{
    const struct mode *mode = *state;
    struct table t;
    wnw_plan *ours, *theirs;
    wnw_session *s = test_session_new(model.m, &(struct test_session){.attn = WNW_ATTN_F32, .n_threads = 1});
    wnw_policy *policy = test_policy(mode->recipe);
    const wnw_size size = size_budget(mode->budget);
    make_table(&t);
    for (int32_t i = 0; mode->negative && i < model.info.n_layer * model.info.n_head; i++) {
        const int32_t il = i / model.info.n_head, group = model.info.n_head / model.info.n_head_kv;
        const int32_t ih = i % model.info.n_head / group;
        t.weight[i] = il == 0 ? -0.5f : ih % 2 ? -0.25f : t.weight[i];
        t.group[il * model.info.n_head_kv + ih] = t.weight[i];
    }
    t.profile->compiler.budget = (int32_t)mode->budget;
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .profile = t.profile,
                      .more =
                          &(wnw_run_more){WNW_INIT(wnw_run_more),
                                          .policies = (const wnw_policy *const *)&policy, .n_policies = 1}}));
    test_prefill(s, model.tokens, N);
    assert_ok(wnw_session_plan(s, policy, &size, &theirs, NULL));
    const struct wnw__trial_choice choice = {.budget = (int32_t)mode->budget,
                                             .weight = t.group,
                                             .tau = mode->tau ? t.tau : NULL,
                                             .floor = mode->floor};
    assert_ok(wnw__trial_plan(&ours, &prompt, &choice, NULL));
    assert_same_plan(ours, theirs);
    double sum = 0;
    const int32_t *unused;
    int32_t count[64];
    assert_cmp(prompt.n_il, <=, 64);
    const double kept = wnw__trial_count(&prompt, &choice, count);
    for (int32_t i = 0; i < prompt.n_il; i++)
        sum += wnw_plan_head(ours, prompt.il[i], 0, &unused);
    assert_near(kept, sum / prompt.n_il, 1e-9);
    wnw_plan_free(ours);
    wnw_plan_free(theirs);
    wnw_policy_free(policy);
    wnw_session_free(s);
    free_table(&t);
}

/* ---- Costs ---- */

static void costs_are_those_of_a_session(void **state)
{
    (void)state;
    struct table t;
    wnw_plan *plan;
    double full, again, kept, want = 0;
    make_table(&t);
    const struct wnw__trial_choice choice = {.budget = BUDGET, .weight = t.group, .tau = t.tau};
    assert_ok(wnw__trial_plan(&plan, &prompt, &choice, NULL));
    assert_ok(wnw__trial_run(&full, &prompt, NULL));
    assert_ok(wnw__trial_run(&kept, &prompt, plan));
    assert_ok(wnw__trial_run(&again, &prompt, plan)); /* a trial leaves no trace */
    assert_cmp(again, ==, kept);
    assert_cmp(full, !=, kept);
    /* Token by token in a session of its own, where they are multiplied in float32. */
    wnw_session *s = test_session_new(model.m, &(struct test_session){.attn = WNW_ATTN_F32, .n_threads = 1});
    test_prefill(s, model.tokens, N);
    assert_ok(wnw_session_apply(s, plan, NULL));
    for (int i = 0; i < NEXT; i++) {
        want += wnw__nll_of(wnw_session_logits(s), model.info.n_vocab, model.tokens[N + i]) / NEXT;
        assert_ok(wnw_session_decode(s, model.tokens[N + i]));
    }
    assert_near(kept, want, test_rounding(1e-3, 8) * want);
    wnw_session_free(s);
    wnw_plan_free(plan);
    free_table(&t);
}

static void counts_are_reported(void **state)
{
    (void)state;
    struct table t;
    wnw_plan *plan;
    int32_t above[64];
    make_table(&t);
    for (int32_t il = 0; il < model.info.n_layer; il++)
        t.tau[il] = 0; /* everything clears it */
    const struct wnw__trial_choice choice = {.budget = BUDGET, .weight = t.group, .tau = t.tau};
    assert_cmp(model.info.n_layer, <=, 64);
    assert_ok(wnw__trial_plan(&plan, &prompt, &choice, above));
    assert_int_equal(wnw__trial_n_free(N, WINDOW, BUDGET), BUDGET - WINDOW);
    for (int32_t il = 0; il < model.info.n_layer; il++)
        assert_int_equal(above[il], N - WINDOW);
    wnw_plan_free(plan);
    free_table(&t);
}

static void risk_is_a_number(void **state)
{
    (void)state;
    assert_cmp(prompt.entropy, >, 0);
    assert_cmp(prompt.entropy, <, log(N));
    assert_cmp(prompt.ppl, >, 1);
    double sum = 0;
    for (int32_t t = 0; t < N; t++)
        sum += (double)prompt.alpha[t];
    assert_near(sum, WINDOW, 1e-3 * WINDOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_those_of_a_session),
        cmocka_unit_test(counts_are_reported),
        cmocka_unit_test(risk_is_a_number),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down) +
           run_rows_with(plans_are_those_of_the_method, modes, set_up, tear_down);
}
