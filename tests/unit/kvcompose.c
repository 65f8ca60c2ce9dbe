/* SPDX-License-Identifier: MIT */
/* KVCompose and KVzip: scores, composite tokens, budgets over the whole model; numbers worked out by hand. */
#include "fake_source.h"
#include "plans.h"
#include "random.h"
#include "scoring.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"

/* ---- Scores ---- */

/* Two query heads share a KV head: the maximum over tokens is per query head, the mean comes after it. */
static void scores(void **state)
{
    (void)state;
    const float max[] = {0.6f, 0.1f, 0.2f, 0.5f}, sum[] = {1.0f, 0.4f, 0.6f, 0.8f};
    const float v[] = {3, 4, 0, 2}; /* norms 5 and 2 */
    const int32_t pos[] = {0, 1}, n_entry[] = {2};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 2,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 2,
                                 .n_past = 2,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .pass2_max = max,
                                 .pass2_sum = sum,
                                 .n_pass2 = 4,
                                 .values = row_values,
                                 .source = &(struct score_rows){.v = v}};
    float got[2];
    run_scorer("kvcompose", &obs, got); /* one KV head: twice S_grp */
    assert_values(got, 1e-6, 0.8f, 0.6f);
    run_scorer("kvcompose:cross_head=0", &obs, got);
    assert_values(got, 1e-6, 0.4f, 0.3f);
    run_scorer("kvcompose+group_max", &obs, got);
    assert_values(got, 1e-6, 0.6f, 0.5f);
    run_scorer("kvcompose:cross_head=0,agg_task=mean", &obs, got); /* (1 + 0.6) / 2 / 4 tokens */
    assert_values(got, 1e-6, 0.2f, 0.15f);
    run_scorer("kvcompose:cross_head=0,value_norm=1", &obs, got);
    assert_values(got, 1e-6, 2.0f, 0.6f);
    run_scorer("kvcompose:value_norm=1", &obs, got); /* the norm comes before the mean over heads */
    assert_values(got, 1e-6, 4.0f, 1.2f);
    run_scorer("kvzip", &obs, got);
    assert_values(got, 1e-6, 0.6f, 0.5f);
}

/* Heads that hold other tokens: the mean over the heads goes by position. */
static void scores_of_ragged_heads(void **state)
{
    (void)state;
    const float max[] = {0.4f, 0.2f, 0.8f, 0.6f, 9, 9};
    const int32_t pos[] = {0, 2, 3, 2, -1, -1}, n_entry[] = {3, 1};
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = 2,
                                 .n_head_kv = 2,
                                 .n_embd_head = 2,
                                 .n = 3,
                                 .n_past = 4,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .pass2_max = max,
                                 .pass2_sum = max,
                                 .n_pass2 = 1};
    float got[6];
    run_scorer("kvcompose", &obs, got);
    assert_values(got, 1e-6, 0.6f, 0.6f, 1.2f, 1.0f);
}

static void needs_and_phases(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        uint32_t flags;
        int32_t pass;
    } row[] = {
        {"kvcompose", WNW_NEED_SECOND_PASS, WNW_PASS_CONTEXT},
        {"kvcompose-unstructured", WNW_NEED_SECOND_PASS, WNW_PASS_CONTEXT},
        {"kvcompose-aware", WNW_NEED_SECOND_PASS, WNW_PASS_BOTH},
        {"kvcompose:task=question", WNW_NEED_SECOND_PASS, WNW_PASS_TASK},
        {"kvcompose:value_norm=1", WNW_NEED_SECOND_PASS | WNW_NEED_VALUES, WNW_PASS_CONTEXT},
        {"kvzip", WNW_NEED_SECOND_PASS, WNW_PASS_REPEAT},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        wnw_policy *p = test_policy(row[i].recipe);
        const wnw_needs needs = wnw_policy_needs(p);
        assert_int_equal(needs.flags, row[i].flags);
        assert_int_equal(needs.second_pass, row[i].pass);
        assert_true(wnw_policy_allows(p, WNW_PHASE_END, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_DECODE, NULL));
        wnw_policy_free(p);
    }
}

/* ---- The worked example: 2 layers, 2 heads, 4 entries ---- */

static const float example[2][2][4] = {
    {{0.50f, 0.10f, 0.05f, 0.20f}, {0.40f, 0.02f, 0.30f, 0.08f}},
    {{0.90f, 0.60f, 0.01f, 0.02f}, {0.03f, 0.70f, 0.04f, 0.05f}},
};
static const int32_t example_pos[] = {0, 1, 2, 3, 0, 1, 2, 3};
static const int32_t example_n[] = {4, 4};

static struct wnw__plan_layer example_layer(const struct wnw__plan_source *src, int32_t il)
{
    static const int64_t off[] = {0, 4};
    (void)src;
    (void)il;
    return (struct wnw__plan_layer){.n_entry = example_n, .pos = example_pos, .off = off};
}

static int example_observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                           const bool *heads, wnw_observation *obs)
{
    (void)src;
    (void)heads;
    assert_int_equal(needs->flags, WNW_NEED_SECOND_PASS);
    *obs = (wnw_observation){.il = il,
                             .n_layer = 2,
                             .n_head = 2,
                             .n_head_kv = 2,
                             .n_embd_head = 1,
                             .n = 4,
                             .n_past = 4,
                             .n_entry = example_n,
                             .pos = example_pos,
                             .pass2_max = example[il][0],
                             .pass2_sum = example[il][0],
                             .n_pass2 = 1};
    return WNW_OK;
}

static void assert_plan(const char *recipe, double ratio, const char *const want[4])
{
    const struct wnw__plan_source src = {.shape = {.n_layer = 2, .n_head = 2, .n_head_kv = 2, .d = 1},
                                         .n_past = 4,
                                         .entry_bytes = {.each = 8},
                                         .layer = example_layer,
                                         .observe = example_observe};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = ratio};
    wnw_policy *p = test_policy(recipe);
    wnw_plan *plan = NULL;
    if (wnw__plan_make(&plan, p, &size, &src, NULL) != WNW_OK)
        fail_msg("%s", wnw_last_error());
    for (int32_t i = 0; i < 4; i++) {
        char got[16] = "";
        const int32_t *pos;
        const int32_t n = wnw_plan_head(plan, i / 2, i % 2, &pos);
        for (int32_t k = 0; k < n; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%d", pos[k]);
        assert_string_equal(got, want[i]);
    }
    wnw_plan_free(plan);
    wnw_policy_free(p);
}

static void worked_example(void **state)
{
    (void)state;
    /* I: layer 0 .9 .4075 .2225 .12, layer 1 1.3575 .8725 .07 .05; the four best are two of each. */
    assert_plan("kvcompose", 0.5, (const char *const[]){"03", "02", "01", "01"});
    /* Five: .2225 is next. */
    assert_plan("kvcompose", 0.375, (const char *const[]){"023", "023", "01", "01"});
    /* Three: layer 0 loses its second. */
    assert_plan("kvcompose", 0.625, (const char *const[]){"0", "0", "01", "01"});
    /* The first layer's I becomes 1.3575 .8725 .2225 .12: of three, the tie at .8725 is its own. */
    assert_plan("kvcompose:layer0_max=1", 0.5, (const char *const[]){"03", "02", "01", "01"});
    assert_plan("kvcompose:layer0_max=1", 0.625, (const char *const[]){"03", "02", "0", "1"});
    /* The most demanding head: .95 .475 .225 .16 and 1.365 1.25 .065 .055. */
    assert_plan("kvcompose:agg_head=max", 0.625, (const char *const[]){"0", "0", "01", "01"});
    assert_plan("kvcompose:agg_head=max", 0.25, (const char *const[]){"0123", "0123", "01", "01"});
    /* One composite token in each layer. */
    assert_plan("kvcompose", 0.75, (const char *const[]){"0", "0", "0", "1"});
    /* Without the mean over heads: I .45 .25 ... and .8 .325 .03 .025. */
    assert_plan("kvcompose:min_tokens=0,cross_head=0", 0.75, (const char *const[]){"0", "0", "0", "1"});
    assert_plan("kvcompose:min_tokens=0,cross_head=0", 0.625, (const char *const[]){"0", "0", "01", "13"});
    /* Without layers: S sorted is 1.365 1.35 1.25 .95 .85 .495 .475 .34 .225 .22 ... */
    assert_plan("kvcompose-unstructured", 0.5, (const char *const[]){"03", "02", "01", "01"});
    assert_plan("kvcompose-unstructured", 0.625, (const char *const[]){"0", "0", "01", "01"});
    assert_plan("kvcompose-unstructured", 0.6875, (const char *const[]){"0", "0", "01", "1"});
    assert_plan("kvcompose-unstructured:min_tokens=0", 0.75, (const char *const[]){"0", "", "01", "1"});
    assert_plan("kvcompose-unstructured", 0.75, (const char *const[]){"0", "0", "0", "1"});
}

/* ---- Layer budgets on arrays ---- */

struct pool {
    int32_t n_layer, n_head_kv, n;
    float *score; /* [n_layer][n_head_kv][n] */
    const float **layer;
    int32_t *row, *n_entry, *n_keep;
    wnw_protected *prot;
    float *scratch;
};

static void *array(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);
    assert_non_null(p);
    return p;
}

/* Scores level (1 = all equal) or random. */
static void pool_init(struct pool *p, int32_t n_layer, int32_t n_head_kv, int32_t n, bool level)
{
    const int64_t n_row = (int64_t)n_layer * n_head_kv;
    *p = (struct pool){.n_layer = n_layer, .n_head_kv = n_head_kv, .n = n};
    p->score = array(n_row * n, sizeof *p->score);
    p->scratch = array(n_row * n, sizeof *p->scratch);
    p->layer = array(n_layer, sizeof *p->layer);
    p->row = array(n_layer, sizeof *p->row);
    p->n_entry = array(n_row, sizeof *p->n_entry);
    p->n_keep = array(n_row, sizeof *p->n_keep);
    p->prot = array(n_row, sizeof *p->prot);
    uint32_t seed = (uint32_t)(n_layer + 31 * n_head_kv + 977 * n);
    for (int64_t i = 0; i < n_row * n; i++)
        p->score[i] = level ? 1 : (float)(test_lcg(&seed) >> 12) / 4096; /* few values: ties */
    for (int32_t i = 0; i < n_layer; i++) {
        p->layer[i] = p->score + (int64_t)i * n_head_kv * n;
        p->row[i] = n;
    }
    for (int64_t i = 0; i < n_row; i++)
        p->n_entry[i] = n;
}

static void pool_free(struct pool *p)
{
    free(p->score);
    free(p->scratch);
    free(p->layer);
    free(p->row);
    free(p->n_entry);
    free(p->n_keep);
    free(p->prot);
}

static wnw_layer_problem problem_of(const struct pool *p, double ratio, wnw_rounding rounding)
{
    const double mean = p->n * (1 - ratio);
    return (wnw_layer_problem){.n_layer = p->n_layer,
                               .n = p->n,
                               .budget = wnw__round_count(mean, rounding),
                               .mean = mean,
                               .ratio = ratio,
                               .rounding = rounding,
                               .n_head = p->n_head_kv,
                               .n_head_kv = p->n_head_kv,
                               .score = p->layer,
                               .row = p->row,
                               .n_entry = p->n_entry,
                               .prot = p->prot,
                               .scratch = p->scratch};
}

/* Counts per layer to n_keep; returns their sum. */
static int64_t compose(const char *recipe, struct pool *p, double ratio, wnw_rounding rounding)
{
    const wnw_layer_problem problem = problem_of(p, ratio, rounding);
    return run_layer_budget(recipe, &problem, p->n_keep);
}

/* Counts per layer and head; returns their sum. */
static int64_t share(const char *recipe, struct pool *p, double ratio, wnw_rounding rounding)
{
    const wnw_layer_problem problem = problem_of(p, ratio, rounding);
    wnw_policy *pol = test_policy(recipe);
    char warning[256] = "";
    assert_int_equal(pol->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(
                         pol->opts[WNW_PART_HEAD_BUDGET], &problem, p->n_keep, p->scratch, warning),
                     WNW_OK);
    wnw_policy_free(pol);
    int64_t sum = 0;
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++)
        sum += p->n_keep[i];
    return sum;
}

/* Equal scores: layers are filled in order, and no layer falls below the floor. */
static void ties_fill_layers_in_order(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p, 4, 2, 10, true);
    assert_int_equal(compose("kvcompose:min_tokens=0", &p, 0.625, WNW_ROUND_EXACT), 15);
    assert_memory_equal(p.n_keep, ((const int32_t[]){10, 5, 0, 0}), 4 * sizeof(int32_t));
    assert_int_equal(compose("kvcompose:min_tokens=2", &p, 0.625, WNW_ROUND_EXACT), 15);
    assert_memory_equal(p.n_keep, ((const int32_t[]){9, 2, 2, 2}), 4 * sizeof(int32_t));
    assert_int_equal(compose("kvcompose:min_tokens=99", &p, 0.625, WNW_ROUND_EXACT), 15);
    assert_memory_equal(p.n_keep, ((const int32_t[]){6, 3, 3, 3}), 4 * sizeof(int32_t));
    assert_int_equal(share("kvzip:min_tokens=0", &p, 0.625, WNW_ROUND_EXACT), 30);
    assert_memory_equal(p.n_keep, ((const int32_t[]){10, 10, 10, 0, 0, 0, 0, 0}), 8 * sizeof(int32_t));
    assert_int_equal(share("kvzip:min_tokens=0,pool=layer", &p, 0.625, WNW_ROUND_EXACT), 28);
    assert_memory_equal(p.n_keep, ((const int32_t[]){7, 0, 7, 0, 7, 0, 7, 0}), 8 * sizeof(int32_t));
    assert_int_equal(share("kvzip:min_tokens=3", &p, 0.625, WNW_ROUND_EXACT), 30);
    assert_memory_equal(p.n_keep, ((const int32_t[]){9, 3, 3, 3, 3, 3, 3, 3}), 8 * sizeof(int32_t));
    pool_free(&p);
}

/* One head: composite tokens are entries, both forms agree. */
static void one_head_is_structured_and_not(void **state)
{
    (void)state;
    struct pool p;
    int32_t layers[5];
    pool_init(&p, 5, 1, 40, false);
    for (double r = 0.1; r < 0.99; r += 0.11) {
        compose("kvcompose", &p, r, WNW_ROUND_EXACT);
        memcpy(layers, p.n_keep, sizeof layers);
        share("kvcompose-unstructured", &p, r, WNW_ROUND_EXACT);
        assert_memory_equal(layers, p.n_keep, sizeof layers);
    }
    pool_free(&p);
}

/* floor((1 - r) L n) and floor((1 - r) L H n), for any shape; kvpress' truncation where it is asked for. */
static void totals_are_exact(void **state)
{
    (void)state;
    static const double ratios[] = {0.1, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.875, 0.9, 0.95};
    struct pool p;
    for (int32_t n_layer = 1; n_layer <= 7; n_layer += 2)
        for (int32_t n = 20; n < 400; n += 60)
            for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
                const double r = ratios[i];
                pool_init(&p, n_layer, 3, n, false);
                /* Ratios are multiples of 1 / 40. */
                const int64_t parts = (int64_t)(40 * (1 - r) + 0.5);
                assert_int_equal(compose("kvcompose", &p, r, WNW_ROUND_EXACT), parts * n_layer * n / 40);
                for (int32_t l = 0; l < n_layer; l++)
                    assert_in_range(p.n_keep[l], n * (1 - r) >= 1 ? 1 : 0, n);
                assert_int_equal(compose("kvpress-kvcompose", &p, r, WNW_ROUND_TRUNC),
                                 (int64_t)(n_layer * n * (1 - r)));
                for (int32_t l = 1; l < n_layer; l++)
                    assert_cmp(p.n_keep[l], <=, p.n_keep[0]);
                assert_int_equal(share("kvzip", &p, r, WNW_ROUND_EXACT), parts * n_layer * 3 * n / 40);
                assert_int_equal(share("kvpress-kvzip", &p, r, WNW_ROUND_TRUNC),
                                 n_layer * 3 * n - (int64_t)(n_layer * 3 * n * r));
                pool_free(&p);
            }
    /* 1000 (1 - 0.9) is 99.99... in binary, so is 5 times that; the number removed is not. */
    pool_init(&p, 5, 2, 1000, false);
    assert_int_equal(compose("kvcompose", &p, 0.9, WNW_ROUND_EXACT), 500);
    assert_int_equal(compose("kvcompose", &p, 0.9, WNW_ROUND_TRUNC), 499);
    assert_int_equal(share("kvzip", &p, 0.9, WNW_ROUND_TRUNC), 999);
    assert_int_equal(share("kvpress-kvzip", &p, 0.9, WNW_ROUND_TRUNC), 1000);
    pool_free(&p);
}

/* A count in place of a ratio: the mean over layers and heads is exactly this count. */
static void counts_are_exact(void **state)
{
    (void)state;
    struct pool p;
    char warning[256] = "";
    pool_init(&p, 3, 2, 50, false);
    wnw_layer_problem problem = problem_of(&p, 0, WNW_ROUND_EXACT);
    problem.budget = 7;
    problem.mean = 7;
    wnw_policy *pol = test_policy("kvcompose");
    pol->part[WNW_PART_LAYER_BUDGET].layer.allocate(pol->opts[WNW_PART_LAYER_BUDGET], &problem, p.n_keep,
                                                    warning);
    assert_int_equal(p.n_keep[0] + p.n_keep[1] + p.n_keep[2], 21);
    wnw_policy_free(pol);
    /* Other heads get what a short one leaves. */
    p.n_entry[0] = 4;
    pol = test_policy("kvzip");
    pol->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(pol->opts[WNW_PART_HEAD_BUDGET], &problem, p.n_keep,
                                                         p.scratch, warning);
    int32_t sum = 0;
    for (int32_t i = 0; i < 6; i++) {
        assert_in_range(p.n_keep[i], 1, p.n_entry[i]);
        sum += p.n_keep[i];
    }
    assert_int_equal(sum, 6 * 7);
    wnw_policy_free(pol);
    pool_free(&p);
}

/* ---- Through the driver ---- */

/* Other scorers too, with windows that stay, layers that are left alone and heads of different length. */
static void whole_plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {"kvcompose",
                                          "kvcompose-aware",
                                          "kvcompose-unstructured",
                                          "kvzip",
                                          "kvzip-uniform",
                                          "kvpress-kvcompose",
                                          "kvpress-kvzip",
                                          "snapkv:window=8+composite",
                                          "snapkv:window=8+composite:agg_head=max,min_tokens=12",
                                          "snapkv:window=8+global",
                                          "knorm+composite",
                                          "knorm+global:pool=layer",
                                          "kvcompose+adakv",
                                          "streaming_llm+global"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int ragged = 0; ragged < 2; ragged++) {
            struct fake f;
            fake_init(&f, 4, 3, 2, 61, ragged);
            fake_leave_alone(&f, 2);
            const wnw_size size = size_budget(20);
            wnw_report report = {WNW_INIT(wnw_report)};
            wnw_plan *plan = fake_planned(&f, recipes[i], &size, &report);
            const int64_t kept = fake_check_plan(plan, &f);
            if (ragged) {
                assert_cmp(kept, >, 0);
                assert_cmp(kept, <=, 3 * 3 * 20);
            } else if (kept != 3 * 3 * 20)
                fail_msg("%s keeps %lld entries", recipes[i], (long long)kept);
            for (int32_t il = 0; il < 4; il++)
                for (int32_t ih = 0; ih < 3; ih++)
                    for (int32_t p = 53; p < 61 && strncmp(recipes[i], "snapkv", 6) == 0 && !ragged; p++)
                        assert_true(fake_holds(plan, il, ih, p));
            assert_string_equal(report.warning, "");
            wnw_plan_free(plan);
            fake_free(&f);
        }
}

static void refused_combinations(void **state)
{
    (void)state;
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "kvcompose+global", NULL), WNW_E_ARG);
    assert_says("composite");
    assert_int_equal(wnw_policy_parse(&p, "lagkv+composite", NULL), WNW_E_ARG);
    assert_int_equal(wnw_policy_parse(&p, "lagkv+global", NULL), WNW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(scores_of_ragged_heads),
        cmocka_unit_test(needs_and_phases),
        cmocka_unit_test(worked_example),
        cmocka_unit_test(ties_fill_layers_in_order),
        cmocka_unit_test(one_head_is_structured_and_not),
        cmocka_unit_test(totals_are_exact),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(whole_plans),
        cmocka_unit_test(refused_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
