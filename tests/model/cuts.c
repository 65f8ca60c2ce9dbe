/* SPDX-License-Identifier: MIT */
/* The comparison of kept entries itself (cuts.h): it accepts what rounding changes, and refuses what a fault would change. */
#include "cuts.h"
#include "helpers.h"

#include <stdlib.h>

enum { N = 140, BUDGET = 60 };

static struct test_model model;

/* A plan of a session. */
struct planned {
    const char *recipe;
    int32_t budget;
    wnw_attn attn;
    int32_t n_ubatch;
};

static void plan(void *user, bool other)
{
    const struct planned *p = user;
    const wnw_size size = size_budget(p->budget);
    wnw_policy *policy = test_policy(p->recipe);
    wnw_plan *plan;
    wnw_session *s = test_session_read(model.m,
                                       &(struct test_session){.kv_type = WNW_KV_F32,
                                                              .attn = other ? WNW_ATTN_GGML : p->attn,
                                                              .n_ctx = N,
                                                              .n_threads = 1,
                                                              .n_ubatch = other ? 37 : p->n_ubatch},
                                       policy, model.tokens, N);
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    wnw_plan_free(plan);
    wnw_session_free(s);
    wnw_policy_free(policy);
}

static struct test_cuts *kept_by(const struct planned *p)
{
    struct planned copy = *p;
    struct test_cuts *c = test_cuts_note();
    plan(&copy, false);
    test_cuts_stop();
    return c;
}

/* The kept entries alone, as a file names them. Head ih is called (ih + turn) modulo the number of heads. */
static struct test_cuts *without_scores(const struct test_cuts *c, int32_t turn)
{
    struct test_cuts *out = test_cuts_new(model.info.n_layer, model.info.n_head_kv, N);
    int32_t *entries = malloc(N * sizeof *entries);
    assert_non_null(entries);
    for (int32_t k = 0; k < model.info.n_layer; k++)
        for (int32_t ih = 0; ih < model.info.n_head_kv; ih++)
            for (int32_t i = test_cuts_head(c, k, ih, entries) - 1; i >= 0; i--)
                test_cuts_keep(out, k, (ih + turn) % model.info.n_head_kv, entries[i]);
    free(entries);
    return out;
}

/* Whether what `there` keeps is what the recipe keeps here; `alone`: the kept entries of `there` alone are known. */
static bool near(const char *recipe, const struct planned *there, bool alone, int32_t turn)
{
    struct planned here = {recipe, BUDGET, WNW_ATTN_OWN, 0};
    struct test_cuts *kept = kept_by(there), *entries = alone ? without_scores(kept, turn) : NULL;
    const bool is = test_keeps_near(recipe, &(struct test_keeper){plan, &here}, entries ? entries : kept);
    test_cuts_free(entries);
    test_cuts_free(kept);
    return is;
}

/* Recipes whose counts follow from scores in all ways, or not at all. `alone`: entries alone say what the scores must be. */
static const struct {
    const char *recipe;
    bool alone;
} recipes[] = {{"snapkv:window=16", true},  {"h2o", true},
               {"keydiff", true},           {"snapkv:window=16+adakv", true},
               {"paper-adakv", false},      {"criticalkv", true},
               {"criticalkv-adakv", true},  {"paper-criticalkv-adakv", true},
               {"zigzagkv", false},         {"defensivekv", false},
               {"layer-defensivekv", false}};

static void rounding_is_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int alone = 0; alone <= recipes[i].alone; alone++) {
            const struct planned there = {recipes[i].recipe, BUDGET, alone ? WNW_ATTN_F32 : WNW_ATTN_GGML,
                                          alone ? 41 : 29};
            assert_true(near(recipes[i].recipe, &there, alone, 0));
        }
}

/* What another program might do otherwise. */
static const struct {
    const char *recipe, *fault;
    int32_t budget;
    bool alone; /* entries alone show it, too */
} faults[] = {
    {"snapkv:window=16", "snapkv:window=17", BUDGET, true},
    {"snapkv:window=16", "snapkv:window=16,kernel=9", BUDGET, true},
    {"snapkv:window=16", "snapkv:window=16", BUDGET + 1, true},
    {"snapkv:window=16+adakv", "snapkv:window=16", BUDGET, false},
    {"h2o", "h2o", BUDGET - 1, true},
    {"paper-adakv", "snapkv:pool_after=1+adakv:mode=floor", BUDGET - 1, false},
    {"paper-adakv", "snapkv:pool_after=1+adakv", BUDGET, false},
    {"criticalkv", "snapkv+critical:alpha=0.9", BUDGET, true},
    {"criticalkv-adakv", "criticalkv", BUDGET, false},
    {"criticalkv-adakv", "criticalkv-adakv", BUDGET + 1, true},
    {"zigzagkv", "snapkv:window=8+zigzagkv:mass=0.5", BUDGET, false},
    {"zigzagkv", "snapkv:window=8", BUDGET, false},
    {"defensivekv", "defensivekv:mass=0.5+adakv:alpha_safeguard=0", BUDGET, false},
    {"defensivekv", "defensivekv:window=31+adakv:alpha_safeguard=0", BUDGET, false},
    {"defensivekv", "layer-defensivekv", BUDGET, false},
};

static void faults_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int alone = 0; alone <= faults[i].alone; alone++) {
            const struct planned there = {faults[i].fault, faults[i].budget, WNW_ATTN_OWN, 0};
            if (near(faults[i].recipe, &there, alone, 0))
                fail_msg("%s with %d entries is taken for %s with %d", faults[i].fault, faults[i].budget,
                         faults[i].recipe, BUDGET);
        }
}

static void swapped_heads_are_refused(void **state)
{
    static const char *const swapped[] = {"snapkv:window=16+adakv", "criticalkv-adakv"};
    (void)state;
    for (size_t i = 0; i < sizeof swapped / sizeof *swapped; i++) {
        const struct planned there = {swapped[i], BUDGET, WNW_ATTN_OWN, 0};
        assert_false(near(swapped[i], &there, true, 1));
    }
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &model, "llama", N, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounding_is_accepted),
                                       cmocka_unit_test(faults_are_refused),
                                       cmocka_unit_test(swapped_heads_are_refused)};
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
