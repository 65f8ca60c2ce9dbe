/* SPDX-License-Identifier: MIT */
/* The perturbation study on numbers worked out by hand, its records, and its texts with a toy tokenizer. */
#include "asserts.h"
#include "files.h"

#include "perturb/numbers.h"
#include "perturb/record.h"
#include "perturb/texts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Means and shares ---- */

enum { N_LAYER = 2, N_HEAD = 2, N_UNITS = N_LAYER * N_HEAD, N_TEXTS = 3 };

static void open_small(struct perturb_numbers *p)
{
    *p = (struct perturb_numbers){
        .n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = 1, .n_policies = 2, .n_sizes = 2};
    assert_true(perturb_numbers_open(p) && perturb_numbers_reserve(p, N_TEXTS));
    assert_int_equal(perturb_level_units(p, PERTURB_HEADS), 4);
    assert_int_equal(perturb_level_units(p, PERTURB_GROUPS), 2);
    assert_int_equal(perturb_level_units(p, PERTURB_STATES), 2);
}

/* Size 1: the base changes every head by 2; the other policy lowers heads 0 and 3, leaves the mean of head 1, and raises
 * head 2. */
static void a_policy_beside_the_base(void **state)
{
    static const double other[N_TEXTS][N_UNITS] = {{1, 3, 5, 1}, {1, 3, 5, 2}, {1, 0, 5, 2}};
    struct perturb_numbers p;
    struct perturb_beside_base b;
    (void)state;
    open_small(&p);
    p.n_texts = N_TEXTS;
    for (int32_t i = 0; i < N_TEXTS; i++)
        for (int32_t u = 0; u < N_UNITS; u++) {
            perturb_changes(&p, PERTURB_HEADS, 1, 0, i)[u] = 2;
            perturb_changes(&p, PERTURB_HEADS, 1, 1, i)[u] = other[i][u];
        }
    assert_true(perturb_beside(&b, &p, PERTURB_HEADS, 1, 1, 42));
    assert_int_equal(b.n, 4);
    assert_int_equal(b.n_lower, 2);
    assert_near(b.base, 2, 1e-12);
    assert_near(b.other, (1 + 2 + 5 + 5.0 / 3) / 4, 1e-12);
    assert_near(b.geo_base, 2, 1e-12);
    assert_near(b.geo_other, pow(1 * 2 * 5 * 5.0 / 3, 0.25), 1e-12);
    assert_true(isnan(b.over.lower.lo)); /* three texts say too little */
    assert_near(perturb_mean(&p, PERTURB_HEADS, 1, 1, 3), 5.0 / 3, 1e-12);
    /* The second layer slides: its heads do not count, its state does. */
    p.sliding[1] = true;
    assert_true(perturb_beside(&b, &p, PERTURB_HEADS, 1, 1, 42));
    assert_int_equal(b.n, 2);
    assert_int_equal(b.n_lower, 1);
    assert_near(b.other, 1.5, 1e-12);
    assert_true(perturb_beside(&b, &p, PERTURB_STATES, 1, 1, 42));
    assert_int_equal(b.n, 2);
    assert_int_equal(b.n_lower, 0);
    perturb_numbers_clear(&p);
}

/* Texts stay where they are while room for more is made. */
static void room_grows(void **state)
{
    struct perturb_numbers p;
    (void)state;
    open_small(&p);
    for (int32_t i = 0; i < 50; i++) {
        assert_true(perturb_numbers_reserve(&p, i + 1));
        assert_cmp(p.cap_texts, >, i);
        assert_near(perturb_changes(&p, PERTURB_STATES, 1, 1, i)[1], 0, 0);
        perturb_changes(&p, PERTURB_STATES, 1, 1, i)[1] = i + 1;
        perturb_changes(&p, PERTURB_HEADS, 0, 1, i)[3] = i + 2;
        perturb_bounds(&p, PERTURB_B_THETA_HAT, 1, i)[3] = i + 3;
        perturb_first(&p, 1, 0, i)[0] = i + 4;
    }
    for (int32_t i = 0; i < 50; i++) {
        assert_near(perturb_changes(&p, PERTURB_STATES, 1, 1, i)[1], i + 1, 0);
        assert_near(perturb_changes(&p, PERTURB_HEADS, 0, 1, i)[3], i + 2, 0);
        assert_near(perturb_bounds(&p, PERTURB_B_THETA_HAT, 1, i)[3], i + 3, 0);
        assert_near(perturb_first(&p, 1, 0, i)[0], i + 4, 0);
    }
    perturb_numbers_clear(&p);
}

static void intervals_of_drawn_texts(void **state)
{
    double base[7][2], other[7][2];
    struct perturb_over over;
    struct eval_random r = eval_random_seed(1);
    struct perturb_pairs p = {.base = &base[0][0], .other = &other[0][0], .n_texts = 7, .n_units = 2};
    (void)state;
    for (int i = 0; i < 7; i++) {
        base[i][0] = 2;
        other[i][0] = 1;
        base[i][1] = 8;
        other[i][1] = 16;
    }
    /* All texts are alike: one unit of two is halved, the other doubled; 17 in place of 10. */
    assert_true(perturb_intervals(&over, &p, &r));
    assert_near(over.lower.lo, 0.5, 0);
    assert_near(over.lower.hi, 0.5, 0);
    assert_near(over.change.lo, 0.7, 1e-12);
    assert_near(over.change.hi, 0.7, 1e-12);
    assert_near(over.geometric.lo, 0, 1e-12);
    assert_near(over.geometric.hi, 0, 1e-12);
    /* The second unit is lower, and less in the mean, wherever this text is drawn: two of three times. Without it the change is what it was. */
    base[3][1] = 800;
    assert_true(perturb_intervals(&over, &p, &r));
    assert_near(over.lower.lo, 0.5, 0);
    assert_near(over.lower.hi, 1, 0);
    assert_near(over.change.hi, 0.7, 1e-12);
    assert_cmp(over.change.lo, <, -0.8);
    assert_near(over.geometric.hi, 0, 1e-12);
    /* A unit that nothing changes has no geometric mean, and counts otherwise. */
    for (int i = 0; i < 7; i++)
        other[i][0] = 0;
    assert_true(perturb_intervals(&over, &p, &r));
    assert_near(over.geometric.hi, 1, 1e-12);
    assert_near(over.change.hi, 0.6, 1e-12);
    p.n_texts = 5; /* too few */
    assert_true(perturb_intervals(&over, &p, &r));
    assert_true(isnan(over.lower.lo) && isnan(over.change.hi) && isnan(over.geometric.lo));
}

/* Two texts: the assumption holds in heads 1, 2, 3 of the first and in none of the second but head 2. */
static void bounds_where_they_hold(void **state)
{
    static const double sigma[2][N_UNITS] = {{0.5, 0.6, 0.9, 0.51}, {0.1, 0.4, 0.8, 0.5}};
    struct perturb_numbers p;
    (void)state;
    open_small(&p);
    p.n_texts = 2;
    for (int32_t i = 0; i < 2; i++)
        for (int32_t u = 0; u < N_UNITS; u++) {
            perturb_bounds(&p, PERTURB_B_SIGMA, 0, i)[u] = sigma[i][u];
            perturb_bounds(&p, PERTURB_B_THETA_HAT, 0, i)[u] = 10 * i + u;
        }
    const struct perturb_tightness t = perturb_tightness(&p, 0);
    assert_near(t.holds, 4.0 / 8, 1e-12);
    assert_near(t.holds_behind_0, 3.0 / 4, 1e-12);
    assert_near(t.mean[PERTURB_B_SIGMA], (0.6 + 0.9 + 0.51 + 0.8) / 4, 1e-12);
    assert_near(t.mean[PERTURB_B_THETA_HAT], (1 + 2 + 3 + 12) / 4.0, 1e-12);
    assert_true(isnan(perturb_tightness(&p, 1).mean[PERTURB_B_CHANGE]));
    perturb_numbers_clear(&p);
}

/* One text; heads 0 to 2 have a first stage with 0.5, 0.6 and 0.95 of the attention, head 3 none. */
static void strata_of_the_first_stage(void **state)
{
    static const double first[N_UNITS] = {0.5, 0.6, 0.95, NAN}, base[N_UNITS] = {4, 3, 2, 1},
                        other[N_UNITS] = {8, 1, 0, 9};
    struct perturb_numbers p;
    (void)state;
    open_small(&p);
    p.n_texts = 2;
    for (int32_t i = 0; i < 2; i++)
        for (int32_t u = 0; u < N_UNITS; u++) {
            perturb_first(&p, 0, 1, i)[u] = first[u];
            perturb_changes(&p, PERTURB_HEADS, 0, 0, i)[u] = base[u];
            perturb_changes(&p, PERTURB_HEADS, 0, 1, i)[u] = other[u] * (i + 1);
        }
    const struct perturb_stage t = perturb_stage(&p, 0, 1);
    assert_int_equal(t.n, 6);
    assert_near(t.holds, 4.0 / 6, 1e-12);    /* 0.5 is not more than half */
    assert_near(t.holds_behind_0, 1, 1e-12); /* head 2 alone is in layer 1 */
    assert_int_equal(t.of[0].n, 2);
    assert_near(t.of[0].base, 4, 1e-12);
    assert_near(t.of[0].other, 12, 1e-12);
    assert_near(t.of[0].ratio, sqrt(2 * 4), 1e-12);
    assert_int_equal(t.of[0].n_lower, 0);
    assert_int_equal(t.of[1].n_lower, 2);
    assert_near(t.of[1].ratio, sqrt(1.0 / 3 * 2 / 3), 1e-12);
    assert_int_equal(t.of[2].n, 0);
    assert_true(isnan(t.of[2].ratio));
    assert_int_equal(t.of[3].n_lower, 2);
    assert_true(isnan(t.of[3].ratio)); /* 0 has no logarithm */
    perturb_numbers_clear(&p);
}

/* ---- Records ---- */

static json_t *numbers(int first, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(first + i));
    return list;
}

/* Changes of config c begin at 100 c, bounds of size s at 1000 s. */
static json_t *record(void)
{
    json_t *changes = json_array(), *bounds = json_array();
    for (int c = 0; c < 4; c++)
        json_array_append_new(changes,
                              json_pack("{s:f, s:o, s:o, s:o, s:o}", "kept", 0.25 * c, "heads",
                                        numbers(100 * c, 4), "groups", numbers(100 * c + 10, 2), "layers",
                                        numbers(100 * c + 20, 2), "states", numbers(100 * c + 30, 2)));
    json_object_set_new(json_array_get(changes, 3), "first_stage",
                        json_pack("[f,f,f,f]", 0.1, 0.2, 0.5, 0.9));
    for (int s = 0; s < 2; s++) {
        json_t *o = json_object();
        for (int k = 0; k < PERTURB_N_BOUNDS; k++)
            json_object_set_new(o, perturb_bound_name((enum perturb_bound)k), numbers(1000 * s + 10 * k, 4));
        json_array_append_new(bounds, o);
    }
    return json_pack("{s:o, s:o}", "changes", changes, "bounds", bounds);
}

static void records_are_read(void **state)
{
    struct perturb_numbers p;
    json_t *good = record(), *bad = record();
    (void)state;
    open_small(&p);
    assert_true(perturb_record_add(&p, good));
    assert_int_equal(p.n_texts, 1);
    /* Configs come policy by policy: number 3 is size 1 of policy 1, number 2 its size 0. */
    assert_near(perturb_changes(&p, PERTURB_HEADS, 1, 1, 0)[2], 302, 0);
    assert_near(perturb_changes(&p, PERTURB_STATES, 0, 1, 0)[1], 231, 0);
    assert_near(perturb_changes(&p, PERTURB_GROUPS, 1, 0, 0)[0], 110, 0);
    assert_near(perturb_bounds(&p, PERTURB_B_THETA_HAT, 1, 0)[3], 1023, 0);
    assert_near(p.kept[1 * 2 + 1], 0.75, 0);
    assert_near(perturb_first(&p, 1, 1, 0)[2], 0.5, 0);
    assert_true(isnan(perturb_first(&p, 1, 0, 0)[0])); /* records of the base, and older ones, have none */
    /* A list that is too short, a text in place of a number, and no changes at all. */
    json_t *first = json_array_get(json_object_get(bad, "changes"), 0);
    json_array_remove(json_object_get(first, "heads"), 0);
    assert_false(perturb_record_add(&p, bad));
    json_array_append_new(json_object_get(first, "heads"), json_string("x"));
    assert_false(perturb_record_add(&p, bad));
    json_object_del(bad, "changes");
    assert_false(perturb_record_add(&p, bad));
    assert_int_equal(p.n_texts, 1);
    assert_near(p.kept[1 * 2 + 1], 0.75, 0); /* the refused input left no trace */
    json_decref(good);
    json_decref(bad);
    perturb_numbers_clear(&p);
}

/* ---- Texts ---- */

/* One token per byte. */
static int encode(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n)
{
    (void)t;
    *ids = malloc((len + 1) * sizeof **ids);
    for (size_t i = 0; *ids && i < len; i++)
        (*ids)[i] = (unsigned char)text[i];
    *n = (int32_t)len;
    return *ids ? 0 : 1;
}

static const struct eval_tokenizer bytes = {.encode = encode, .bos = -1};

/* Whether text a holds, somewhere, the n tokens of b from `at` on. */
static bool holds(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n)
{
    for (int32_t i = 0; i + n <= n_a; i++)
        if (memcmp(a + i, b, (size_t)n * sizeof *a) == 0)
            return true;
    return false;
}

static void pieces_come_first(void **state)
{
    char path[] = "/tmp/winnow-texts-XXXXXX", text[1300];
    enum { N = 5, LENGTH = 600 };
    struct perturb_texts t, again;
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    test_file_of(path, text, sizeof text);
    assert_int_equal(perturb_texts_make(&t, &bytes, path, N, LENGTH, 42), 0);
    assert_int_equal(t.n, N);
    assert_int_equal(t.n_of_file, 2); /* 1300 bytes are two pieces of 600 */
    for (int32_t i = 0; i < N; i++)
        assert_int_equal(t.of_file[i], i < 2);
    for (int32_t i = 0; i < LENGTH; i++)
        assert_int_equal(t.ids[1][i], text[LENGTH + i]);
    for (int32_t i = 0; i < N; i++) /* no 60 bytes of a generated text occur in another */
        for (int32_t k = 0; k < N && !t.of_file[i]; k++)
            assert_false(i != k && holds(t.ids[k], LENGTH, t.ids[i] + LENGTH / 2, 60));
    /* Fewer texts are the first of them. */
    assert_int_equal(perturb_texts_make(&again, &bytes, path, 2, LENGTH, 42), 0);
    assert_memory_equal(again.ids[1], t.ids[1], LENGTH * sizeof(int32_t));
    perturb_texts_clear(&again);
    perturb_texts_clear(&t);
    assert_int_equal(perturb_texts_make(&t, &bytes, path, 2, 1301, 42), 2); /* the file has fewer */
    perturb_texts_clear(&t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_policy_beside_the_base), cmocka_unit_test(intervals_of_drawn_texts),
        cmocka_unit_test(bounds_where_they_hold),   cmocka_unit_test(strata_of_the_first_stage),
        cmocka_unit_test(records_are_read),         cmocka_unit_test(room_grows),
        cmocka_unit_test(pieces_come_first),
    };
    return cmocka_run_group_tests_name("perturbation study", tests, NULL, NULL);
}
