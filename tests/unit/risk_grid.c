/* SPDX-License-Identifier: MIT */
/* The grid of CompilerKV's thresholds: edges of bins, which prompts are tried, cells with few or no rewards. */
#include <math.h>
#include <string.h>

#include "asserts.h"
#include "peek_calibrate.h"

/* The first elements of got are these. */
#define assert_doubles(got, tolerance, ...)                          \
    do {                                                             \
        const double want_[] = {__VA_ARGS__};                        \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++) \
            assert_near((got)[i_], want_[i_], tolerance);            \
    } while (0)

/* ---- Bins ---- */

static void edges_are_quantiles(void **state)
{
    (void)state;
    double x[] = {5, 1, 4, 2, 3}, edge[4];
    wnw__risk_edges(x, 5, 4, edge); /* positions 1, 2, 3 of the sorted numbers */
    assert_doubles(edge, 0, 2, 3, 4);
    double y[] = {10, 20};
    wnw__risk_edges(y, 2, 5, edge); /* positions 0.2 .. 0.8 */
    assert_doubles(edge, 1e-6, 12, 14, 16, 18);
    double z[] = {4, 1, 3, 2};
    assert_near(wnw__risk_median(z, 4), 2.5, 0);
}

static void equal_edges_are_parted(void **state)
{
    (void)state;
    double x[] = {7, 7, 7, 7}, edge[4];
    wnw__risk_edges(x, 4, 5, edge);
    for (int i = 1; i < 4; i++) {
        assert_cmp((float)edge[i], >, (float)edge[i - 1]);
        assert_cmp(edge[i] - edge[i - 1], <, 2e-5);
        assert_cmp((double)(float)edge[i], ==, edge[i]);
    }
}

static void each_cell_keeps_its_share(void **state)
{
    (void)state;
    int32_t cell[40], kept[3] = {0};
    bool keep[40], again[40], other[40];
    for (int i = 0; i < 40; i++)
        cell[i] = i < 30 ? 0 : i < 38 ? 1 : 2;
    assert_ok(wnw__risk_stratify(cell, 40, 3, 5, 42, keep));
    for (int i = 0; i < 40; i++)
        kept[cell[i]] += keep[i];
    assert_ints(kept, 5, 5, 2);
    assert_ok(wnw__risk_stratify(cell, 40, 3, 5, 42, again));
    assert_memory_equal(keep, again, sizeof keep);
    assert_ok(wnw__risk_stratify(cell, 40, 3, 5, 43, other));
    assert_true(memcmp(keep, other, sizeof keep) != 0);
}

/* ---- Shrinkage ---- */

/* One reward of one action in a cell, not centred. */
static void credit(struct wnw__bandit *b, int32_t cell, int32_t action, double reward)
{
    b->of[cell * b->n_action + action].n++;
    b->of[cell * b->n_action + action].sum += reward;
}

static void few_rewards_lean_on_parents(void **state)
{
    (void)state;
    const struct wnw__risk_grid g = {2, 5, 1};
    struct wnw__bandit b;
    double mean[10 * 2];
    assert_ok(wnw__bandit_init(&b, 10, 2, 0));
    /* Layer 0: cell 0 earns 4 twice, cell 1 earns 1, cell 4 (another four of bins) earns 7. Layer 1: 0. */
    credit(&b, 0, 0, 4);
    credit(&b, 0, 0, 4);
    credit(&b, 1, 0, 1);
    credit(&b, 4, 0, 7);
    credit(&b, 5, 0, 0);
    wnw__risk_shrink(&g, &b, 8, mean);
    const double root = 16 / 5.0, layer = (16 + 8 * root) / 12, ppl = (16 + 8 * layer) / 12,
                 four = (9 + 8 * ppl) / 11, last = (7 + 8 * ppl) / 9;
    assert_near(mean[0 * 2], (8 + 8 * four) / 10, 1e-12);
    assert_near(mean[1 * 2], (1 + 8 * four) / 9, 1e-12);
    assert_near(mean[2 * 2], four, 1e-12); /* nothing of its own */
    assert_near(mean[4 * 2], (7 + 8 * last) / 9, 1e-12);
    assert_near(mean[0 * 2 + 1], 0, 0); /* nobody tried the action */
    wnw__risk_shrink(&g, &b, 0, mean);  /* no parents: the means themselves, where there are any */
    assert_near(mean[0 * 2], 4, 1e-12);
    wnw__bandit_free(&b);
}

/* ---- Thin cells ---- */

/* One prompt in cells (il, e): it tries both actions five times in each layer; the first earns 0, the second as much as said
 * for its layer, and some noise, so that the error of a mean is not 0. */
static void add_prompt(struct wnw__bandit *b, const struct wnw__risk_grid *g, int32_t e, const double *second,
                       int i)
{
    int32_t cell[2];
    uint8_t action[20];
    double reward[10], penalty[20];
    for (int32_t il = 0; il < 2; il++)
        cell[il] = wnw__risk_cell(g, il, e, 0);
    for (int k = 0; k < 10; k++) {
        reward[k] = 0;
        for (int32_t il = 0; il < 2; il++) {
            action[k * 2 + il] = (uint8_t)(k % 2);
            penalty[k * 2 + il] = k % 2 ? -second[il] - 0.01 * (i % 3) : 0;
        }
    }
    wnw__bandit_add(b, &(struct wnw__bandit_trials){10, 2, cell, action, reward, penalty});
}

static void thin_cells_take_their_layers(void **state)
{
    (void)state;
    /* Two layers, four bins: bin 0 has five prompts, bin 1 one, bin 2 three, bin 3 none. In layer 0 the second action is
     * better in bin 0 alone, by more than it loses elsewhere; in layer 1 nowhere. */
    const struct wnw__risk_grid g = {2, 4, 1};
    static const double values[2] = {1, 0.5}, good[2] = {2, -1}, bad[2] = {-1, -1};
    struct wnw__bandit_rule rule = {
        .value = values, .conservatism = 0.5, .guard = 1, .guard_n = 8, .tie = WNW_TIE_LOW};
    struct wnw__bandit b;
    double mean[8 * 2];
    int32_t choice[8];
    uint8_t from[8];
    assert_ok(wnw__bandit_init(&b, 8, 2, 0));
    for (int i = 0; i < 5; i++)
        add_prompt(&b, &g, 0, good, i);
    add_prompt(&b, &g, 1, bad, 0);
    for (int i = 0; i < 3; i++)
        add_prompt(&b, &g, 2, bad, i);
    wnw__risk_shrink(&g, &b, 8, mean);
    rule.mean = mean;
    wnw__risk_choose(&g, &b, &rule, 3, choice, from);
    /* The layer as a whole: (5 x 2 - 4 x 1) / 9 > 0. Bin 2 has three prompts and chose for itself. */
    assert_ints(choice, 1, 1, 0, 1, 0, 0, 0, 0);
    for (int c = 0; c < 8; c++)
        assert_int_equal(from[c], c % 4 == 1 || c % 4 == 3 ? WNW_FROM_LAYER : WNW_FROM_CELL);
    /* One prompt is enough: bin 1 keeps the neutral action, because one prompt cannot pass the guard. */
    wnw__risk_choose(&g, &b, &rule, 1, choice, from);
    assert_ints(choice, 1, 0, 0, 1, 0, 0, 0, 0);
    assert_int_equal(from[1], WNW_FROM_CELL);
    assert_int_equal(from[3], WNW_FROM_LAYER);
    /* No layer has ten prompts: all cells take the choice of everything, (6 - 9) / 18 < 0. */
    wnw__risk_choose(&g, &b, &rule, 10, choice, from);
    assert_ints(choice, 0, 0, 0, 0, 0, 0, 0, 0);
    for (int c = 0; c < 8; c++)
        assert_int_equal(from[c], WNW_FROM_ALL);
    wnw__bandit_free(&b);
    /* Nothing was tried at all. */
    assert_ok(wnw__bandit_init(&b, 8, 2, 0));
    wnw__risk_choose(&g, &b, &rule, 1, choice, from);
    assert_ints(choice, 0, 0, 0, 0, 0, 0, 0, 0);
    assert_int_equal(from[0], WNW_FROM_ALL);
    wnw__bandit_free(&b);
}

/* ---- Options ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_are_quantiles),          cmocka_unit_test(equal_edges_are_parted),
        cmocka_unit_test(each_cell_keeps_its_share),    cmocka_unit_test(few_rewards_lean_on_parents),
        cmocka_unit_test(thin_cells_take_their_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
