/* SPDX-License-Identifier: MIT */
/* CriticalKV's selection: the two stages by hand, and against a transcription of the reference code. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "plans.h"

/* ---- Arrays as an observation ---- */

struct norms {
    const float *nu; /* [n_head_kv][n] */
    wnw_proj_norm asked;
};

static const float *proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    struct norms *s = obs->source;
    s->asked = kind;
    return s->nu;
}

static int32_t select_with(const wnw_policy *p, wnw_select_problem *problem, const float *nu, int32_t *keep)
{
    const wnw_selector *s = &p->part[WNW_PART_SELECTOR].selector;
    const void *opts = p->opts[WNW_PART_SELECTOR];
    struct norms norms = {.nu = nu};
    const int32_t row = problem->row ? problem->row : problem->n;
    const wnw_observation obs = {.n = row, .proj_norm = proj_norm, .source = &norms};
    problem->obs = &obs;
    float *scratch = malloc(((s->scratch ? s->scratch(opts, problem->n) : 0) + 1) * sizeof *scratch);
    assert_non_null(scratch);
    const int32_t n = s->select(opts, problem, keep, scratch);
    problem->obs = NULL;
    free(scratch);
    return n;
}

/* Runs the selector of snapkv+critical<options> on one head. */
static void assert_selects(const char *options, wnw_select_problem problem, const float *nu,
                           const int32_t *want)
{
    char recipe[128];
    int32_t keep[64];
    snprintf(recipe, sizeof recipe, "snapkv+critical%s", options);
    wnw_policy *p = test_policy(recipe);
    assert_int_equal(select_with(p, &problem, nu, keep), problem.n_keep);
    wnw_policy_free(p);
    for (int32_t i = 0; i < problem.n_keep; i++)
        if (keep[i] != want[i])
            fail_msg("critical%s: kept entry %d is %d, expected %d", options, i, keep[i], want[i]);
}

#define SELECTS(options, problem, nu, ...) \
    assert_selects(options, problem, nu, (const int32_t[]){__VA_ARGS__})

static const float attn8[] = {.40f, .20f, .12f, .10f, .08f, .05f, .03f, .02f};
static const float nu8[] = {1, 1, 2, .5f, 4, 6, 3, 8};

static void two_stages(void **state)
{
    (void)state;
    const wnw_select_problem four = {.score = attn8, .n = 8, .n_keep = 4};
    SELECTS(":sinks=0", four, nu8, 0, 1, 4, 5);
    /* b = 5: floor(2.5) by attention, three by product */
    const wnw_select_problem five = {.score = attn8, .n = 8, .n_keep = 5};
    SELECTS(":sinks=0", five, nu8, 0, 1, 2, 4, 5);
    SELECTS(":sinks=0,alpha=1", five, nu8, 0, 1, 2, 3, 4);
    /* products .4 .2 .24 .05 .32 .3 .09 .16 */
    SELECTS(":sinks=0,alpha=0,eps=0", four, nu8, 0, 2, 4, 5);
    /* A large eps leaves the norms alone to decide. */
    SELECTS(":sinks=0,eps=1", four, nu8, 0, 1, 5, 7);
    SELECTS(":sinks=0,eps=0,eps_rel=8", four, nu8, 0, 1, 5, 7);
    const wnw_select_problem all = {.score = attn8, .n = 8, .n_keep = 8};
    SELECTS(":sinks=0", all, nu8, 0, 1, 2, 3, 4, 5, 6, 7);
    const wnw_select_problem none = {.score = attn8, .n = 8, .n_keep = 0};
    SELECTS("", none, nu8, 0);
}

/* Protected and promised entries take the first places of stage 1. */
static void sure_entries(void **state)
{
    (void)state;
    wnw_select_problem p = {.score = attn8, .n = 8, .n_keep = 5, .prot = {0, 2}};
    /* floor(2.5) places: the window has both; then the best products of .4 .2 .24 .05 .32 .3 */
    SELECTS(":sinks=0", p, nu8, 0, 4, 5, 6, 7);
    p.prot.n_last = 1; /* one place is left for attention: entry 0; then .32 .3 .24 */
    SELECTS(":sinks=0", p, nu8, 0, 2, 4, 5, 7);
    p.n_safe = 3; /* the best three by attention stay although stage 1 has one place */
    SELECTS(":sinks=0", p, nu8, 0, 1, 2, 4, 7);
    p.prot = (wnw_protected){2, 2};
    p.n_safe = 0;
    SELECTS(":sinks=0", p, nu8, 0, 1, 4, 6, 7);
    /* The guard: sinks count as sure, as far as there is room after what is promised. */
    p = (wnw_select_problem){.score = nu8, .n = 8, .n_keep = 4};
    SELECTS("", p, nu8, 0, 1, 2, 3);
    SELECTS(":sinks=2", p, nu8, 0, 1, 5, 7);
    p.n_safe = 3; /* by the scores 8 6 4 */
    SELECTS("", p, nu8, 0, 4, 5, 7);
    p.n_safe = 4;
    SELECTS("", p, nu8, 4, 5, 6, 7);
}

static void ties_go_to_the_earlier(void **state)
{
    (void)state;
    const float same[] = {1, 1, 1, 1, 1, 1}, nu[] = {2, 2, 2, 3, 2, 2};
    const wnw_select_problem p = {.score = same, .n = 6, .n_keep = 4};
    SELECTS(":sinks=0", p, nu, 0, 1, 2, 3);
    const float nu2[] = {2, 2, 2, 2, 3, 2};
    SELECTS(":sinks=0", p, nu2, 0, 1, 2, 4);
    SELECTS(":sinks=0,alpha=0", p, nu2, 0, 1, 2, 4);
}

static void kind_of_norm(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        wnw_proj_norm kind;
    } rows[] = {{"criticalkv", WNW_PROJ_L2},
                {"paper-criticalkv", WNW_PROJ_L1},
                {"kvpress-criticalkv_snapkv", WNW_PROJ_L1},
                {"criticalkv:norm=sketch", WNW_PROJ_SKETCH}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].recipe);
        struct norms norms = {.nu = nu8};
        const wnw_observation obs = {.n = 8, .proj_norm = proj_norm, .source = &norms};
        const wnw_select_problem problem = {.score = attn8, .n = 8, .n_keep = 4, .obs = &obs};
        int32_t keep[8];
        float scratch[8];
        const wnw_selector *s = &p->part[WNW_PART_SELECTOR].selector;
        assert_int_equal(s->select(p->opts[WNW_PART_SELECTOR], &problem, keep, scratch), 4);
        assert_int_equal(norms.asked, rows[i].kind);
        assert_true(wnw_policy_needs(p).flags & WNW_NEED_PROJ_NORM);
        wnw_policy_free(p);
    }
}

static void recipes(void **state)
{
    (void)state;
    static const char *const good[] = {"snapkv+critical", "snapkv+adakv+critical",
                                       "tova+critical:norm=sketch", "snapkv+pyramid+critical",
                                       "criticalkv-adakv:alpha=0.3,alpha_safeguard=0.5"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        wnw_policy_free(test_policy(good[i]));
    static const char *const bad[] = {"lagkv+critical", "knorm+critical", "streaming_llm+critical",
                                      "cur+critical", "defensivekv+critical"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_policy *p;
        assert_int_equal(wnw_policy_parse(&p, bad[i], NULL), WNW_E_ARG);
        assert_says("its scores are not attention");
    }
}

/* ---- Against the reference code ---- */

/* CriticalAdaKVPress with its sentinels, in double: the largest number marks what is kept, the window's
 * scores are the maximum + 1 and compete like all others. Slow and literal on purpose. */
enum { H = 4, MAX_N = 300, W = 8 };

/* Sets the k largest of x[n] to DBL_MAX; what has it already counts. */
static void mark_top(double *x, int32_t n, int32_t k)
{
    static bool taken[H * MAX_N];
    memset(taken, 0, sizeof taken);
    for (; k > 0; k--) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || x[i] > x[best]))
                best = i;
        taken[best] = true;
    }
    for (int32_t i = 0; i < n; i++)
        x[i] = taken[i] ? DBL_MAX : x[i];
}

static void reference(const float *a, const float *nu, int32_t n, int32_t n_kept, bool ada, bool *kept)
{
    static double s[H * MAX_N], flat[H * MAX_N];
    int32_t b[H];
    double most = 0;
    for (int32_t i = 0; i < H * n; i++)
        most = i % n < n - W && a[i] > most ? a[i] : most;
    for (int32_t i = 0; i < H * n; i++)
        s[i] = i % n < n - W ? a[i] : most + 1;
    for (int32_t h = 0; h < H; h++)
        if (ada)
            mark_top(s + h * n, n, (int32_t)(n_kept * 0.2));
    memcpy(flat, s, sizeof flat);
    mark_top(flat, H * n, H * n_kept);
    for (int32_t h = 0; h < H; h++) {
        b[h] = 0;
        for (int32_t i = 0; i < n; i++)
            b[h] += flat[h * n + i] == DBL_MAX;
        if (!ada)
            b[h] = n_kept;
        mark_top(s + h * n, n, (int32_t)(b[h] * 0.5));
    }
    for (int32_t i = 0; i < H * n; i++)
        s[i] = s[i] == DBL_MAX ? DBL_MAX : (s[i] + 1e-4) * nu[i];
    for (int32_t h = 0; h < H; h++) {
        mark_top(s + h * n, n, b[h]);
        for (int32_t i = 0; i < n; i++)
            kept[h * n + i] = s[h * n + i] == DBL_MAX;
    }
}

static void equals_the_reference(void **state)
{
    (void)state;
    static float a[H * MAX_N], nu[H * MAX_N], scratch[H * MAX_N];
    static bool want[H * MAX_N];
    wnw_policy *policies[] = {test_policy("paper-criticalkv:window=8"),
                              test_policy("paper-criticalkv-adakv:window=8")};
    uint64_t seed = 3;
    for (int32_t trial = 0; trial < 200; trial++) {
        const double c[] = {0.3, 0.6, 0.8};
        const int32_t n = 120 + (int32_t)(seed >> 33) % 181, n_kept = (int32_t)(n * (1 - c[trial % 3]));
        const int32_t n_entry[H] = {n, n, n, n};
        const wnw_protected prot[H] = {{0, W}, {0, W}, {0, W}, {0, W}};
        for (int32_t i = 0; i < H * n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const float x = (float)(seed >> 40) / 16777216.0f, head = (float)(1 + i / n);
            a[i] = x * x * x * head / (float)n; /* heads of different concentration */
            nu[i] = 0.5f + (float)(seed >> 20 & 0xfffffu) / 524288.0f;
        }
        for (int32_t ada = 0; ada < 2; ada++) {
            const wnw_policy *p = policies[ada];
            int32_t n_keep[H], n_safe[H] = {0}, keep[MAX_N], sum = 0;
            const wnw_head_problem heads = {.n_head_kv = H,
                                            .n = n,
                                            .n_entry = n_entry,
                                            .score = a,
                                            .prot = prot,
                                            .budget = n_kept,
                                            .rounding = WNW_ROUND_TRUNC};
            p->part[WNW_PART_HEAD_BUDGET].heads.allocate(p->opts[WNW_PART_HEAD_BUDGET], &heads, n_keep,
                                                         n_safe, scratch);
            reference(a, nu, n, n_kept, ada, want);
            for (int32_t h = 0; h < H; h++) {
                wnw_select_problem problem = {.score = a + h * n,
                                              .n = n,
                                              .n_keep = n_keep[h],
                                              .prot = prot[h],
                                              .n_safe = n_safe[h],
                                              .ih = h,
                                              .row = n,
                                              .rounding = WNW_ROUND_TRUNC};
                assert_int_equal(select_with(p, &problem, nu, keep), n_keep[h]);
                int32_t m = 0;
                for (int32_t i = 0; i < n; i++) {
                    const bool ours = m < n_keep[h] && keep[m] == i;
                    m += ours;
                    if (ours != want[h * n + i])
                        fail_msg("trial %d, adakv %d, head %d of %d entries: entry %d", trial, ada, h, n, i);
                }
                sum += n_keep[h];
                assert_cmp(n_keep[h], >=, (ada ? (int32_t)(n_kept * 0.2) : n_kept));
                for (int32_t i = n - W; i < n; i++)
                    assert_true(want[h * n + i]); /* whole windows, on both sides */
            }
            assert_int_equal(sum, H * n_kept);
        }
    }
    wnw_policy_free(policies[0]);
    wnw_policy_free(policies[1]);
}

/* ---- Through the driver ---- */

static void plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {"snapkv:window=8+critical", "snapkv:window=8+adakv+critical",
                                          "snapkv:window=8+pyramid+critical", "tova+critical",
                                          "snapkv:window=8,agg=max+defensive+critical"};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 96, ragged);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
            const wnw_size size = size_budget(20);
            wnw_plan *plan = fake_planned(&f, recipes[i], &size, NULL);
            const int64_t n = fake_check_plan(plan, &f);
            /* Where heads differ in length, one may hold less than its layer's share. */
            if (n > 3 * 2 * 20 || n < 3 * 2 * (ragged ? 19 : 20))
                fail_msg("%s: %d entries", recipes[i], (int)n);
            wnw_plan_free(plan);
        }
        fake_free(&f);
    }
}

/* alpha = 1 without the guard is the base method. */
static void alpha_one_is_the_base(void **state)
{
    (void)state;
    static const char *const base[] = {"snapkv:window=8", "snapkv:window=8+adakv", "tova+pyramid"};
    struct fake f;
    fake_init(&f, 3, 2, 2, 96, true);
    for (size_t i = 0; i < 3; i++) {
        char recipe[96];
        const wnw_size size = size_ratio(0.6);
        wnw_plan *a, *b, *c;
        snprintf(recipe, sizeof recipe, "%s+critical:alpha=1,sinks=0", base[i]);
        a = fake_planned(&f, base[i], &size, NULL);
        b = fake_planned(&f, recipe, &size, NULL);
        snprintf(recipe, sizeof recipe, "%s+critical:alpha=0,sinks=0", base[i]);
        c = fake_planned(&f, recipe, &size, NULL);
        assert_same_plan(a, b);
        assert_other_plan(a, c);
        wnw_plan_free(a);
        wnw_plan_free(b);
        wnw_plan_free(c);
    }
    fake_free(&f);
}

static const float joint_nu[2 * 4] = {1, 1, 1, 5, /**/ 5, 1, 1, 1}; /* [n_head][n] */

static const float *joint_norms(const wnw_observation *obs, wnw_proj_norm kind)
{
    (void)obs;
    assert_int_equal(kind, WNW_PROJ_L2);
    return joint_nu;
}

static const float *mean_norms(const wnw_observation *obs, wnw_proj_norm kind)
{
    static const float mean[4] = {3, 1, 1, 3};
    (void)obs;
    (void)kind;
    return mean;
}

/* Two query heads: the first attends to 0, whose value only the second reads with a large norm, and the other
 * way round the second to 3 and the first. Means .25 .3 .2 .25 times 3 1 1 3; joint (.5 x 1 + 0 x 5) / 2 =
 * .25, then .3, .2, .25. */
static void joint_products(void **state)
{
    (void)state;
    static const float heads[2 * 4] = {.5f, .3f, .2f, 0, /**/ 0, .3f, .2f, .5f},
                                 mean[4] = {.25f, .3f, .2f, .25f};
    const wnw_observation obs = {
        .n = 4, .n_head = 2, .n_head_kv = 1, .proj_norm = mean_norms, .head_proj_norm = joint_norms};
    const wnw_select_problem problem = {.score = mean,
                                        .head_score = heads,
                                        .n = 4,
                                        .n_keep = 1,
                                        .n_head_kv = 1,
                                        .row = 4,
                                        .layer_score = mean,
                                        .obs = &obs};
    static const int32_t want[2] = {0, 1};
    for (int joint = 0; joint < 2; joint++) {
        wnw_policy *p = test_policy(joint ? "snapkv+critical:alpha=0,eps=0,sinks=0,gqa=joint"
                                          : "snapkv+critical:alpha=0,eps=0,sinks=0");
        int32_t keep[4];
        float scratch[4];
        const wnw_selector *s = &p->part[WNW_PART_SELECTOR].selector;
        assert_int_equal(s->select(p->opts[WNW_PART_SELECTOR], &problem, keep, scratch), 1);
        assert_int_equal(keep[0], want[joint]);
        wnw_policy_free(p);
    }
    /* Only where there are query heads, all of a group. */
    static const char *const bad[] = {"expected_attention+layer_mean+critical:gqa=joint",
                                      "snapkv+retrieval_heads:heads=all+critical:gqa=joint"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_policy *p = NULL;
        assert_int_equal(wnw_policy_parse(&p, bad[i], NULL), WNW_E_ARG);
        assert_says("every query head");
    }
}

/* Through the driver, layer by layer and with counts of the whole model: with one query head per KV head both
 * forms look at the same attention, and with more they differ. */
static void joint_plans(void **state)
{
    (void)state;
    static const char *const recipes[][2] = {
        {"snapkv:window=8+critical", "snapkv:window=8+critical:gqa=joint"},
        {"snapkv:window=8+adakv+critical", "snapkv:window=8+adakv+critical:gqa=joint"},
        {"snapkv:window=8+headkv+critical", "snapkv:window=8+headkv+critical:gqa=joint"},
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct fake f;
        wnw_plan *a, *b, *c;
        fake_init(&f, 3, 2, 3, 200, false);
        const wnw_size size = size_ratio(0.6);
        a = fake_planned(&f, recipes[i][0], &size, NULL);
        b = fake_planned(&f, recipes[i][1], &size, NULL);
        assert_int_equal(fake_check_plan(a, &f), fake_check_plan(b, &f));
        for (int32_t k = 0; k < 6; k++) /* norms change which, never how many */
            assert_int_equal(fake_kept(a, k / 2, k % 2), fake_kept(b, k / 2, k % 2));
        assert_other_plan(a, b);
        /* A last step on every row is the same as pooling every row. */
        char recipe[128];
        snprintf(recipe, sizeof recipe, "%s,alpha=0", recipes[i][1]);
        c = fake_planned(&f, recipe, &size, NULL);
        assert_other_plan(b, c);
        wnw_plan_free(a);
        wnw_plan_free(b);
        wnw_plan_free(c);
        fake_free(&f);
    }
}

/* Window and sinks may take all places that attention alone gives. Nothing else is wrong with such a size, so
 * that it works, and says so. */
static void nothing_left_for_stage_one(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        int64_t budget;
        bool warns;
    } rows[] = {
        /* floor(b / 2) against 32 + 4 */
        {"criticalkv", 73, true},        {"criticalkv", 74, false},
        {"criticalkv-adakv", 73, true},  {"paper-criticalkv", 65, true},    /* 32 and no sinks */
        {"paper-criticalkv", 66, false}, {"criticalkv:alpha=0", 40, false}, /* asked for */
        {"snapkv", 40, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake f;
        wnw_plan *plan;
        wnw_report r = {WNW_INIT(wnw_report)};
        fake_init(&f, 2, 2, 2, 200, false);
        const wnw_size size = size_budget(rows[i].budget);
        plan = fake_planned(&f, rows[i].recipe, &size, &r);
        if ((strstr(r.warning, "attention alone") != NULL) != rows[i].warns)
            fail_msg("%s, %d entries: warning '%s'", rows[i].recipe, (int)rows[i].budget, r.warning);
        wnw_plan_free(plan);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages),
        cmocka_unit_test(sure_entries),
        cmocka_unit_test(ties_go_to_the_earlier),
        cmocka_unit_test(kind_of_norm),
        cmocka_unit_test(recipes),
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(plans),
        cmocka_unit_test(alpha_one_is_the_base),
        cmocka_unit_test(joint_products),
        cmocka_unit_test(joint_plans),
        cmocka_unit_test(nothing_left_for_stage_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
