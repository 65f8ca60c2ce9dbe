/* SPDX-License-Identifier: MIT */
/* Conservative Q-learning and the bandit above it, on problems small enough to be worked by hand. */
#include <math.h>
#include <string.h>

#include "asserts.h"
#include "peek_calibrate.h"
#include "random.h"

/* ---- The solver ---- */

/* The largest element of the gradient of the objective as the header states it, for a log of all actions. */
static double steepest(const struct wnw__cql_state *s, double weight, const double *q)
{
    double sum = 0, all = 0, most = 0;
    for (int a = 0; a < s->n_action; a++) {
        sum += (double)s->n[a];
        all += exp(q[a]);
    }
    for (int a = 0; a < s->n_action; a++)
        most = fmax(most, fabs((double)s->n[a] / sum * (q[a] - s->mean[a]) +
                               weight * (exp(q[a]) / all - 1.0 / s->n_action)));
    return most;
}

struct solved {
    const char *name;
    double weight;
    struct wnw__cql_state s;
    double q[4];
};

static void solves(void **state)
{
    const struct solved *row = *state;
    double q[4];
    assert_true(wnw__cql_solve(&row->s, row->weight, q));
    for (int a = 0; a < row->s.n_action; a++) {
        if (row->s.n[a] == 0) /* never tried: no value can be trusted */
            assert_cmp(q[a], ==, -INFINITY);
        else
            assert_near(q[a], row->q[a], 5e-7);
    }
}

/* Two actions: equal means are a minimum as they are, because softmax is 1/2 then. With means 0 and 1, p = (.9, .1) and weight
 * 0.5, the stationary equations are 0.9 q_0 = 0.5 (1/2 - sm_0): q_0 = 0.057781, sm_0 = 0.395994. */
static const struct solved solved[] = {
    {"no weight: the means", 0, {3, {5, 2, 1}, {0.3, -0.5, 1}}, {0.3, -0.5, 1}},
    {"one action", 0.5, {1, {3}, {0.25}}, {0.25}},
    {"a rare one is not held against it", 0.5, {2, {9, 1}, {0, 0}}, {0, 0}},
    {"a rare one is drawn to the others", 0.5, {2, {9, 1}, {0, 1}}, {0.057781, 0.479968}},
    {"the best mean stays the best", 0.5, {3, {7, 2, 1}, {0.3, -0.5, 1}}, {0.287164, -0.204055, 0.497961}},
    {"one never tried", 0.5, {3, {9, 0, 1}, {0, 7, 1}}, {0.057781, 0, 0.479968}},
};

static void no_log_no_value(void **state)
{
    (void)state;
    double q[2] = {5, 5};
    assert_false(wnw__cql_solve(&(struct wnw__cql_state){2, {0, 0}, {1, 2}}, 0.5, q));
    assert_cmp(q[0], ==, -INFINITY);
    assert_cmp(q[1], ==, -INFINITY);
}

/* The objective is convex, so that the place without a gradient is the minimum; the p-weighted errors sum to 0 there. */
static void ends_in_the_minimum(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int k = 0; k < 40; k++) {
        struct wnw__cql_state s = {.n_action = 2 + k % 6};
        int64_t sum = 0;
        double q[7], balance = 0;
        for (int a = 0; a < s.n_action; a++) {
            sum += s.n[a] = k % 4 == 0 ? 1 + 400 * (a == 0) : 10 + (int64_t)(test_uniform(&seed) * 20);
            s.mean[a] = 2 * test_normal(&seed);
        }
        const double weight = k % 3 == 0 ? 2 : 0.5;
        assert_true(wnw__cql_solve(&s, weight, q));
        assert_cmp(steepest(&s, weight, q), <, 2e-9);
        for (int a = 0; a < s.n_action; a++)
            balance += (double)s.n[a] / (double)sum * (q[a] - s.mean[a]);
        assert_near(balance, 0, 1e-8);
    }
}

/* Where every action was tried equally often, the values have the order of the means. */
static void equal_counts_keep_the_order(void **state)
{
    (void)state;
    uint32_t seed = 11;
    for (int k = 0; k < 50; k++) {
        struct wnw__cql_state s = {.n_action = 5, .n = {4, 4, 4, 4, 4}};
        double q[5];
        for (int a = 0; a < 5; a++)
            s.mean[a] = test_normal(&seed);
        assert_true(wnw__cql_solve(&s, 0.1 + k * 0.2, q));
        for (int a = 0; a < 5; a++)
            for (int b = 0; b < 5; b++)
                if (s.mean[a] > s.mean[b])
                    assert_cmp(q[a], >, q[b]);
    }
}

/* ---- The bandit ---- */

static const double weights[3] = {0.85, 1, 1.15};
static const struct wnw__bandit_rule head_rule = {
    .value = weights, .conservatism = 0.5, .guard = 1, .guard_n = 8, .tie = WNW_TIE_NEUTRAL};

/* One slot in one cell: every prompt tries each action twice, and rewards[a] is what it earns. */
static void add_prompt(struct wnw__bandit *b, const double *rewards, double offset)
{
    static int32_t cell[1] = {0};
    static uint8_t action[6] = {0, 1, 2, 2, 1, 0};
    double reward[6];
    for (int k = 0; k < 6; k++)
        reward[k] = rewards[action[k]] + offset;
    wnw__bandit_add(b, &(struct wnw__bandit_trials){6, 1, cell, action, reward, NULL});
}

static void rewards_are_centred(void **state)
{
    (void)state;
    struct wnw__bandit b;
    assert_ok(wnw__bandit_init(&b, 1, 3, 1));
    add_prompt(&b, (const double[]){-1, 0, 2}, 100); /* mean 1/3 */
    add_prompt(&b, (const double[]){-3, 0, 0}, -7);  /* mean -1 */
    assert_near(wnw__bandit_mean(&b, 0, 0), ((-1 - 1 / 3.0) + (-3 + 1)) / 2, 1e-12);
    assert_near(wnw__bandit_mean(&b, 0, 2), ((2 - 1 / 3.0) + 1) / 2, 1e-12);
    assert_near(wnw__bandit_slope(&b, 0), 3, 1e-12);
    /* Mean 0; squares: 2 (16/9 + 1/9 + 25/9) and 2 (4 + 1 + 1), over 12 rewards. */
    assert_near(wnw__bandit_sigma(&b), sqrt((2 * 42 / 9.0 + 12) / 12), 1e-12);
    assert_int_equal(b.of[2].n, 4);
    assert_int_equal(b.of[2].n_pair, 2);
    wnw__bandit_free(&b);
}

struct choice {
    const char *name;
    int n_prompt;
    double odd[3], even[3]; /* rewards of the actions in every second prompt */
    int32_t want;
};

static void chooses(void **state)
{
    const struct choice *row = *state;
    struct wnw__bandit b;
    assert_ok(wnw__bandit_init(&b, 1, 3, 1));
    for (int i = 0; i < row->n_prompt; i++)
        add_prompt(&b, i % 2 ? row->odd : row->even, i);
    assert_int_equal(wnw__bandit_best(&b, &head_rule, 0, 1), row->want);
    wnw__bandit_free(&b);
}

static const struct choice choices[] = {
    {"no prompts", 0, {0}, {0}, -1},
    {"all alike: the neutral one", 8, {0, 0, 0}, {0, 0, 0}, 1},
    {"the largest is clearly better", 8, {0, 0, 1}, {0, 0, 1.5}, 2},
    {"better on the mean, by less than an error", 8, {0, 0, 3}, {0, 0, -2.5}, 1},
    {"too few rewards", 3, {0, 0, 1}, {0, 0, 1.5}, 1},
    {"worse either way", 8, {-1, 0, -1}, {-1, 0, -1}, 1},
    {"as good as another: nearer to 1, then lower", 8, {1, 0, 1}, {1, 0, 1}, 0},
};

/* Two slots at once: each cell is credited with what its own slot did; a penalty is the slot's own. */
static void slots_and_penalties(void **state)
{
    (void)state;
    static int32_t cell[2] = {2, 0};
    static uint8_t action[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    static double reward[4] = {0, 1, 10, 11}; /* slot 0 earns 10, slot 1 earns 1 */
    static double penalty[4][2] = {{0, 0}, {0, 5}, {0, 0}, {0, 5}};
    struct wnw__bandit b;
    assert_ok(wnw__bandit_init(&b, 3, 2, 0));
    wnw__bandit_add(&b, &(struct wnw__bandit_trials){4, 2, cell, &action[0][0], reward, &penalty[0][0]});
    assert_near(wnw__bandit_slope(&b, 2), 10, 1e-12);
    assert_near(wnw__bandit_slope(&b, 0), 1 - 5, 1e-12);
    assert_near(wnw__bandit_slope(&b, 1), 0, 0);
    assert_int_equal(b.of[1 * 2].n, 0);
    wnw__bandit_free(&b);
}

/* Cells that are taken as one have the rewards of all: five in each are too few for the guard, ten are enough. What one loses by
 * an action, another may gain. */
static void cells_join(void **state)
{
    (void)state;
    static int32_t cell[4] = {0, 1, 2, 3};
    static uint8_t action[2][4] = {{0, 0, 0, 1}, {1, 1, 1, 0}};
    static double reward[2] = {0, 2}; /* cells 0 to 2 gain 2 by action 1, cell 3 by action 0 */
    struct wnw__bandit_rule rule = head_rule;
    struct wnw__bandit b;
    static const double mean[8] = {5, 0, 5};
    assert_ok(wnw__bandit_init(&b, 4, 2, 0));
    for (int i = 0; i < 5; i++)
        wnw__bandit_add(&b, &(struct wnw__bandit_trials){2, 4, cell, &action[0][0], reward, NULL});
    assert_int_equal(b.n_prompt[2], 5);
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 1), 0);
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 2), 1);
    assert_int_equal(wnw__bandit_best(&b, &rule, 2, 2), 0);
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 4), 1);
    rule.mean = mean; /* of single cells */
    rule.guard_n = 1;
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 1), 0);
    assert_int_equal(wnw__bandit_best(&b, &rule, 1, 1), 0);
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 2), 1);
    wnw__bandit_free(&b);
}

/* Lowest of equals where the rule says so. */
static void lowest_of_equals(void **state)
{
    (void)state;
    static int32_t cell[1] = {0};
    static uint8_t action[3] = {0, 1, 2};
    static double reward[3] = {1, 0, 1};
    struct wnw__bandit_rule rule = head_rule;
    struct wnw__bandit b;
    rule.tie = WNW_TIE_LOW;
    assert_ok(wnw__bandit_init(&b, 1, 3, 1));
    for (int i = 0; i < 9; i++)
        wnw__bandit_add(&b, &(struct wnw__bandit_trials){3, 1, cell, action, reward, NULL});
    assert_int_equal(wnw__bandit_best(&b, &rule, 0, 1), 0);
    wnw__bandit_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_log_no_value),
        cmocka_unit_test(ends_in_the_minimum),
        cmocka_unit_test(equal_counts_keep_the_order),
        cmocka_unit_test(rewards_are_centred),
        cmocka_unit_test(slots_and_penalties),
        cmocka_unit_test(cells_join),
        cmocka_unit_test(lowest_of_equals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(solves, solved) + run_rows(chooses, choices);
}
