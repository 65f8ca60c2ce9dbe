/* SPDX-License-Identifier: MIT */
/* Head budgets from shares: counting the best entries, comparing budgets, and the budget itself, by hand and in
 * general. */
#include "asserts.h"
#include "fake_source.h"
#include "peek_calibrate.h"
#include "peek_plan.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting ---- */

static void counts_by_hand(void **state)
{
    (void)state;
    const float score[3][4] = {{9, 1, 2, 7}, {8, 7, 0, 0}, {3, 4, 5, 6}};
    const int64_t best[] = {12, 6, 4, 3, 0};
    int32_t count[5 * 3];
    assert_ok(wnw__share_count(count, score[0], 3, 4, best, 5));
    /* In order: 9, 8, 7 of row 0, 7 of row 1, 6, 5, ...: of the two 7 that of the lower row comes first. */
    assert_memory_equal(count, ((const int32_t[]){4, 4, 4, 2, 2, 2, 2, 2, 0, 2, 1, 0, 0, 0, 0}),
                        sizeof count);
}

/* Against counting, for every entry, those before it. */
static void counts_by_rank(void **state)
{
    (void)state;
    enum { ROWS = 5, N = 23, ALL = ROWS * N };
    uint64_t seed = 5;
    for (int trial = 0; trial < 40; trial++) {
        float score[ALL];
        int64_t best[3];
        int32_t count[3 * ROWS], want[3 * ROWS] = {0};
        for (int i = 0; i < ALL; i++)
            score[i] = (float)(test_random(&seed) % (trial % 2 ? 9 : 100000));
        best[0] = (int64_t)(test_random(&seed) % (ALL + 1));
        best[1] = best[0] / 2;
        best[2] = best[1] / 3;
        for (int i = 0; i < ALL; i++) {
            int64_t before = 0;
            for (int k = 0; k < ALL; k++)
                before += score[k] > score[i] || (score[k] >= score[i] && k < i);
            for (int s = 0; s < 3; s++)
                want[s * ROWS + i / N] += before < best[s];
        }
        assert_ok(wnw__share_count(count, score, ROWS, N, best, 3));
        assert_memory_equal(count, want, sizeof want);
    }
}

static void overlaps_by_hand(void **state)
{
    (void)state;
    const double a[] = {1, 3, 0}, b[] = {4, 2, 2}, none[] = {0, 0, 0}, far[] = {0, 0, 7};
    assert_near(wnw__share_overlap(a, b, 3), 0.25 + 0.25, 1e-15);
    assert_near(wnw__share_overlap(b, a, 3), 0.5, 1e-15);
    assert_near(wnw__share_overlap(a, a, 3), 1, 1e-15);
    assert_near(wnw__share_overlap(a, (const double[]){10, 30, 0}, 3), 1, 1e-15); /* sums do not matter */
    assert_near(wnw__share_overlap(a, far, 3), 0, 1e-15);
    assert_near(wnw__share_overlap(none, none, 3), 1, 1e-15);
    assert_near(wnw__share_overlap(none, a, 3), 0, 1e-15);
}

/* ---- The budget ---- */

enum { ROW = 4 };

struct problem {
    wnw_layer_problem p;
    struct wnw_profile profile;
    double size[2];
    float share[2 * 3 * 2]; /* of three layers; the first takes no part */
    int32_t il[2], n_entry[ROW];
    wnw_protected prot[ROW];
    char warning[256];
};

static void make(struct problem *q, int32_t n, int32_t budget, const float first[ROW],
                 const float second[ROW])
{
    *q = (struct problem){.size = {0.5, 0.25}, .il = {1, 2}};
    for (int32_t r = 0; r < 2; r++)
        q->share[r] = q->share[6 + r] = 1;
    for (int32_t r = 0; r < ROW; r++) {
        q->share[2 + r] = first[r];
        q->share[8 + r] = second[r];
        q->n_entry[r] = n;
    }
    q->profile = (struct wnw_profile){
        .model = {.n_layer = 3, .n_head_kv = 2}, .n_best = 2, .best_size = q->size, .best_share = q->share};
    q->p = (wnw_layer_problem){.n_layer = 2,
                               .n = n,
                               .budget = budget,
                               .mean = budget,
                               .il = q->il,
                               .n_layer_model = 3,
                               .n_head = 4,
                               .n_head_kv = 2,
                               .profile = &q->profile,
                               .n_entry = q->n_entry,
                               .prot = q->prot,
                               .n_past = n};
}

static int run_as(const char *recipe, struct problem *q, int32_t *n_keep)
{
    wnw_policy *policy;
    float scratch[2 * ROW];
    policy = test_policy(recipe);
    const int rc = policy->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(
        policy->opts[WNW_PART_HEAD_BUDGET], &q->p, n_keep, scratch, q->warning);
    wnw_policy_free(policy);
    return rc;
}

static int run(struct problem *q, int32_t *n_keep)
{
    return run_as("random+shares", q, n_keep);
}

static const float at_half[ROW] = {1, 0.6f, 0.3f, 0.1f}, at_quarter[ROW] = {0.7f, 0.2f, 0.1f, 0};

static const struct budget_row {
    const char *name;
    int32_t n, budget, n_first, n_last;
    int32_t want[ROW];
} budget_rows[] = {
    {"a measured size", 100, 50, 0, 0, {100, 60, 30, 10}},
    {"the smallest measured size", 100, 25, 0, 0, {70, 20, 10, 0}},
    /* Shares are linear in log f, so their mean is too. A mean of 0.375 is halfway between those of 0.5 and 0.25, at f =
     * sqrt(1/8): 85, 40, 20, 5. */
    {"between two", 100, 37, 0, 0, {85, 39, 19, 5}},
    /* A mean of 0.75 is halfway between 0.5 and 1: shares 1, 0.8, 0.65, 0.55. */
    {"above the largest", 100, 75, 0, 0, {100, 80, 65, 55}},
    {"everything", 10, 10, 0, 0, {10, 10, 10, 10}},
    /* 4 + 1 protected, 95 others: of 100 x 50 entries 45 are others on average; a mean share of 45 / 95 = 0.473684 is
     * (0.5 - 0.473684) / 0.25 = 0.105263 of the way to 0.25: 0.968421, 0.557895, 0.278947, 0.089474 of 95 and 5. */
    {"protected entries", 100, 50, 4, 1, {97, 58, 32, 13}},
    /* 20 of 100 for the others: a mean share of 0.2 / 0.95 = 0.210526 is below 0.25: proportional, 0.842105 of what 0.25
     * has. 95 x 0.842105 x (0.7, 0.2, 0.1, 0) = 56, 16, 8, 0. */
    {"protected entries push the rest below what was measured", 100, 25, 5, 0, {61, 21, 13, 5}},
};

static void budget_by_hand(void **state)
{
    const struct budget_row *row = *state;
    struct problem q;
    int32_t got[ROW];
    make(&q, row->n, row->budget, at_half, at_quarter);
    for (int32_t r = 0; r < ROW; r++)
        q.prot[r] = (wnw_protected){.n_first = row->n_first, .n_last = row->n_last};
    assert_ok(run(&q, got));
    assert_int_equal(got[0] + got[1] + got[2] + got[3], ROW * row->budget);
    for (int32_t r = 0; r < ROW; r++)
        assert_in_range(got[r] - row->want[r] + 1, 0, 2); /* rounding: +-1 where shares are no whole number */
    if (row->budget != 37)
        assert_memory_equal(got, row->want, sizeof got);
    assert_string_equal(q.warning, "");
}

/* Where all heads have the same share, all keep the same. */
static void uniform_shares_are_equal(void **state)
{
    (void)state;
    static const float half[ROW] = {0.5f, 0.5f, 0.5f, 0.5f}, quarter[ROW] = {0.25f, 0.25f, 0.25f, 0.25f};
    for (int32_t budget = 25; budget <= 100; budget++) {
        struct problem q;
        int32_t got[ROW];
        make(&q, 100, budget, half, quarter);
        assert_ok(run(&q, got));
        for (int32_t r = 0; r < ROW; r++)
            assert_int_equal(got[r], budget);
    }
}

/* A cache that was cut to a size is as the same size wants it, for any lengths of its heads; and with new
 * tokens the heads keep the proportions that a whole text of that length would have. */
static void compressing_again(void **state)
{
    (void)state;
    struct problem q;
    int32_t got[ROW], again[ROW];
    make(&q, 1000, 300, at_half, at_quarter);
    assert_ok(run(&q, got));
    memcpy(q.n_entry, got, sizeof got);
    q.p.n = got[0];
    q.p.ratio = 0;
    assert_ok(run(&q, again));
    assert_memory_equal(got, again, sizeof got);
    /* 100 more tokens in every head, of 1100: the size of 300 has its counts of 1100. */
    struct problem fresh;
    int32_t want[ROW];
    make(&fresh, 1100, 300, at_half, at_quarter);
    assert_ok(run(&fresh, want));
    for (int32_t r = 0; r < ROW; r++)
        q.n_entry[r] = got[r] + 100;
    q.p.n = q.n_entry[0];
    q.p.n_past = 1100;
    assert_ok(run(&q, again));
    assert_memory_equal(again, want, sizeof want);
}

static void refuses(void **state)
{
    (void)state;
    struct problem q;
    int32_t got[ROW];
    make(&q, 100, 24, at_half, at_quarter);
    assert_error(run(&q, got), WNW_E_RANGE);
    assert_says("measured down to 25 % of the entries, and the size leaves 24 %");
    q.n_entry[3] =
        50; /* a cache that was compressed before: no refusal, and the proportions of the smallest size */
    q.p.n = 100;
    assert_ok(run(&q, got));
    assert_int_equal(got[0] + got[1] + got[2] + got[3], 96);
    assert_int_equal(got[3], 0);
    q.profile.model.n_layer = 2;
    assert_error(run(&q, got), WNW_E_MISMATCH);
    q.p.profile = NULL;
    assert_error(run(&q, got), WNW_E_MISMATCH);
    assert_says("kind shares");
}

/* The control gives the same counts to other heads: four counts have 24 orders, and 200 seeds find all. */
static void counts_go_to_other_heads(void **state)
{
    (void)state;
    static const int32_t counts[ROW] = {100, 60, 30, 10};
    bool found[1 << 2 * ROW] = {false};
    int32_t n_found = 0;
    for (int32_t seed = 0; seed < 200; seed++) {
        char recipe[64];
        struct problem q;
        int32_t got[ROW], again[ROW];
        snprintf(recipe, sizeof recipe, "random+random_shares:seed=%d", (int)seed);
        make(&q, 100, 50, at_half, at_quarter);
        assert_ok(run_as(recipe, &q, got));
        assert_ok(run_as(recipe, &q, again));
        assert_memory_equal(got, again, sizeof got);
        int32_t order = 0, n_there = 0; /* two bits for the head of each count */
        for (int32_t k = 0; k < ROW; k++)
            for (int32_t r = 0; r < ROW; r++)
                if (got[r] == counts[k]) {
                    order |= r << 2 * k;
                    n_there++;
                }
        assert_int_equal(n_there, ROW);
        n_found += !found[order];
        found[order] = true;
    }
    assert_int_equal(n_found, 24);
}

/* For any shares and lengths, a plan is exact, and the first and last entries stay. */
static void plans_are_exact(void **state)
{
    (void)state;
    for (int32_t budget = 6; budget <= 60; budget += 7) {
        struct fake f;
        wnw_plan *plan;
        const wnw_size size = size_budget(budget);
        fake_init(&f, 3, 2, 2, 61, false);
        plan = fake_planned(&f, "knorm+shares", &size, NULL);
        assert_int_equal(fake_check_plan(plan, &f), budget * 6);
        for (int32_t il = 0; il < 3; il++)
            for (int32_t ih = 0; ih < 2; ih++) {
                assert_true(fake_holds(plan, il, ih, 60));
                for (int32_t pos = 0; pos < 4; pos++)
                    assert_true(fake_holds(plan, il, ih, pos));
            }
        wnw_plan_free(plan);
        fake_free(&f);
    }
}

/* The header takes the place of the sinks where it is known. */
static void the_header_stays(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    const wnw_size size = size_budget(20);
    fake_init(&f, 2, 2, 2, 61, false);
    f.src.n_prefix = 9;
    plan = fake_planned(&f, "knorm+shares", &size, NULL);
    for (int32_t il = 0; il < 2; il++)
        for (int32_t ih = 0; ih < 2; ih++)
            for (int32_t pos = 0; pos < 9; pos++)
                assert_true(fake_holds(plan, il, ih, pos));
    wnw_plan_free(plan);
    fake_free(&f);
}

/* As many last entries stay as fit with the first ones into their share of a size; the newest in any case. */
static void the_last_stay_where_there_is_room(void **state)
{
    (void)state;
    static const struct {
        struct wnw__look_opts opts;
        int32_t n_prefix, n_last;
        bool unsized;
    } rows[] = {
        {{.header = 1, .sinks = 4, .last = 7, .room = 1}, 0, 7, false},
        {{.header = 1, .sinks = 4, .last = 7, .room = 0.5}, 0, 6, false}, /* 10 of 20, less 4 */
        {{.header = 1, .sinks = 4, .last = 5, .room = 0.5}, 0, 5, false},
        {{.header = 1, .sinks = 4, .last = 7, .room = 0.5}, 8, 2, false},
        {{.header = 0, .sinks = 4, .last = 7, .room = 0.5}, 8, 6, false},
        {{.header = 1, .sinks = 4, .last = 7, .room = 0.5}, 12, 1, false},
        {{.header = 1, .sinks = 4, .last = 7, .room = 0}, 0, 1, false},
        {{.header = 1, .sinks = 4, .last = 0, .room = 0}, 0, 0, false},
        {{.header = 1, .sinks = 4, .last = 7, .room = 0.5}, 0, 7, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wnw_keep_problem p = {.n = 61,
                                    .budget = 20,
                                    .sized = !rows[i].unsized,
                                    .n_prefix = rows[i].n_prefix,
                                    .n_here = rows[i].n_prefix};
        wnw_protected by_others = {.n_last = 3}, alone = {0};
        wnw__look_keep(&rows[i].opts, &p, &alone);
        wnw__look_keep(&rows[i].opts, &p, &by_others);
        assert_int_equal(alone.n_last, rows[i].n_last);
        assert_int_equal(alone.n_first, rows[i].n_prefix && rows[i].opts.header ? rows[i].n_prefix : 4);
        assert_int_equal(by_others.n_last, rows[i].n_last > 3 ? rows[i].n_last : 3);
    }
}

/* Head budgets that look at no scores have their counts before any layer is observed, and observe no layer that is
 * kept whole. */
static void counts_come_first(void **state)
{
    (void)state;
    static const char *const recipes[] = {"knorm+shares", "knorm+lukv", "knorm+headkv",
                                          "streaming_llm+duo:sinks=4,last=8"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct fake f;
        wnw_plan *plan;
        wnw_policy *policy;
        const wnw_size size = size_budget(30);
        const char *reason;
        fake_init(&f, 3, 2, 2, 61, false);
        plan = fake_planned(&f, recipes[i], &size, NULL);
        int whole = 0;
        for (int32_t il = 0; il < 3; il++) {
            const int32_t *pos;
            whole += wnw_plan_head(plan, il, 0, &pos) == 61 && wnw_plan_head(plan, il, 1, &pos) == 61;
        }
        assert_int_equal(f.n_observed, 3 - whole);
        policy = test_policy(recipes[i]);
        assert_true(wnw_policy_allows(policy, WNW_PHASE_LAYER, &reason));
        wnw_policy_free(policy);
        wnw_plan_free(plan);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_by_hand),           cmocka_unit_test(counts_by_rank),
        cmocka_unit_test(overlaps_by_hand),         cmocka_unit_test(uniform_shares_are_equal),
        cmocka_unit_test(compressing_again),        cmocka_unit_test(refuses),
        cmocka_unit_test(counts_go_to_other_heads), cmocka_unit_test(plans_are_exact),
        cmocka_unit_test(the_header_stays),         cmocka_unit_test(the_last_stay_where_there_is_room),
        cmocka_unit_test(counts_come_first),
    };
    return run_rows(budget_by_hand, budget_rows) + cmocka_run_group_tests(tests, NULL, NULL);
}
