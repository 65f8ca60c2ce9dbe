/* SPDX-License-Identifier: MIT */
/* Which tokens a sample repeats, by hand and in general. */
#include "asserts.h"
#include "random.h"
#include "winnow_method.h"

#include <string.h>

static const wnw_sample_size usual = {.least = 32, .most = 256, .every = 32, .place = 32};

static const struct row {
    const char *name;
    wnw_sample_size size;
    int32_t from, to, n;
    wnw_sample_place place[4];
} rows[] = {
    /* 1000 / 32 is less than 32: one place, after (1000 - 32) / 2 tokens. */
    {"one place", {.least = 32, .most = 256, .every = 32, .place = 32}, 20, 1020, 1, {{496, 504, 536}}},
    /* 4096 / 32 = 128 in four slices of 1024. */
    {"four places",
     {.least = 32, .most = 256, .every = 32, .place = 32},
     0,
     4096,
     4,
     {{488, 496, 528}, {1512, 1520, 1552}, {2536, 2544, 2576}, {3560, 3568, 3600}}},
    /* 70 in two places of 35, of slices of 1130. */
    {"no whole places",
     {.least = 32, .most = 256, .every = 32, .place = 32},
     0,
     2260,
     2,
     {{539, 547, 582}, {1669, 1677, 1712}}},
    {"as many as are asked for",
     {.least = 10, .most = 8, .every = 0, .place = 32},
     0,
     100,
     1,
     {{37, 45, 55}}},
    /* Slices of 50 have no room for 33 and 8 before and after. */
    {"slices too short", {.least = 66, .most = 66, .every = 0, .place = 33}, 0, 90, 1, {{4, 12, 78}}},
    {"what leads takes half", {.least = 32, .most = 256, .every = 32, .place = 32}, 5, 25, 1, {{5, 10, 20}}},
    {"one token", {.least = 32, .most = 256, .every = 32, .place = 32}, 7, 8, 1, {{7, 7, 8}}},
    {"nothing is asked for", {.least = 0, .most = 256, .every = 0, .place = 32}, 0, 100, 0, {{0}}},
    {"all there can be",
     {.least = INT32_MAX, .most = INT32_MAX, .every = 1, .place = INT32_MAX},
     0,
     INT32_MAX,
     1,
     {{0, 8, INT32_MAX - 8}}},
    {"before the text", {.least = 32, .most = 256, .every = 32, .place = 32}, -1, 100, 0, {{0}}},
    {"none", {.least = 32, .most = 256, .every = 32, .place = 32}, 7, 7, 0, {{0}}},
};

static void by_hand(void **state)
{
    const struct row *row = *state;
    wnw_sample_place place[WNW_SAMPLE_PLACES];
    assert_int_equal(wnw_sample_places(&row->size, row->from, row->to, place), row->n);
    for (int32_t i = 0; i < row->n; i++) {
        assert_int_equal(place[i].lead, row->place[i].lead);
        assert_int_equal(place[i].from, row->place[i].from);
        assert_int_equal(place[i].to, row->place[i].to);
    }
}

/* Places are in order, within the text and after the tokens that lead to them; for any size. */
static void in_general(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int trial = 0; trial < 20000; trial++) {
        const wnw_sample_size size = {.least = 1 + (int32_t)(test_random(&seed) % 200),
                                      .most = (int32_t)(test_random(&seed) % 400),
                                      .every = (int32_t)(test_random(&seed) % 40),
                                      .place = 1 + (int32_t)(test_random(&seed) % 60)};
        const int32_t from = (int32_t)(test_random(&seed) % 100),
                      n = 1 + (int32_t)(test_random(&seed) % (trial % 2 ? 100 : 9000));
        wnw_sample_place place[WNW_SAMPLE_PLACES];
        const int32_t k = wnw_sample_places(&size, from, from + n, place);
        int32_t at = from, sampled = 0, fed = 0, least = INT32_MAX, most = 0;
        assert_in_range(k, 1, WNW_SAMPLE_PLACES);
        for (int32_t i = 0; i < k; i++) {
            const int32_t has = place[i].to - place[i].from;
            assert_cmp(place[i].lead, >=, at);
            assert_cmp(place[i].from, >=, place[i].lead);
            assert_cmp(place[i].from - place[i].lead, <=, WNW_SAMPLE_HINT);
            assert_cmp(has, >, 0);
            assert_true(k == 1 || place[i].from - place[i].lead == WNW_SAMPLE_HINT);
            assert_true(k == 1 || has >= size.place);
            at = place[i].to;
            sampled += has;
            fed += place[i].to - place[i].lead;
            least = has < least ? has : least;
            most = has > most ? has : most;
        }
        assert_cmp(at, <=, from + n);
        assert_cmp(most - least, <=, 1);
        assert_cmp(sampled, <=,
                   size.least > size.most ? size.least
                   : size.most > n        ? size.least + n
                                          : size.most);
        assert_int_equal(wnw_sample_fed(&size, n), fed);
    }
}

/* What fits into a context with its sample does so when it is shorter. */
static void grows_with_the_text(void **state)
{
    (void)state;
    int32_t last = 0;
    for (int32_t n = 1; n < 20000; n++) {
        const int32_t fed = wnw_sample_fed(&usual, n);
        assert_cmp(fed, >=, last);
        last = fed;
    }
    assert_int_equal(last, 256 + 8 * WNW_SAMPLE_HINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_general),
        cmocka_unit_test(grows_with_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(by_hand, rows);
}
