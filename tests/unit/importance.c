/* SPDX-License-Identifier: MIT */
/* Importance of heads by hand: HeadKV's sum over the largest attentions, and what a streaming head misses. */
#include "asserts.h"
#include "peek_calibrate.h"

static const float row[] = {0.3f, 0.05f, 0.2f, 0.1f, 0.05f, 0.25f, 0.05f};
enum { N = sizeof row / sizeof *row };

struct span_row {
    const char *name;
    struct wnw__answer_span span;
    double want;
};

static const struct span_row spans[] = {
    /* The two largest are 0 and 5; entry 2 is the third. */
    {"one of two", {5, 2}, 0.25 / 2},
    {"none of two", {2, 2}, 0},
    /* The three largest are 0, 5, 2. */
    {"one of three", {2, 3}, 0.2 / 3},
    {"the largest", {0, 1}, 0.3},
    /* The five largest are 0, 5, 2, 3 and the first 0.05, entry 1: of equal ones the earlier. */
    {"equal ones", {1, 5}, (0.05 + 0.2 + 0.1 + 0.25) / 5},
    {"all", {0, N}, 1.0 / N},
    {"a span that ends after the row", {6, 3}, 0},
};

static void importance(void **state)
{
    const struct span_row *r = *state;
    assert_near(wnw__importance(row, N, r->span), r->want, 1e-7);
}

struct far_row {
    const char *name;
    int32_t sink, recent;
    double want;
};

static const struct far_row fars[] = {
    {"the middle", 1, 2, 0.4},    {"all", 0, 0, 1},
    {"nothing between", 3, 4, 0}, {"fewer entries", 16, 16, 0},
    {"the end alone", 0, 6, 0.3}, {"the start alone", 6, 0, 0.05},
};

static void far_share(void **state)
{
    const struct far_row *r = *state;
    assert_near(wnw__far_share(row, N, r->sink, r->recent), r->want, 1e-7);
}

/* Rows need not sum to 1, and may be empty. */
static void odd_rows(void **state)
{
    (void)state;
    const float doubled[] = {0.5f, 1, 0.5f}, nothing[] = {0, 0};
    assert_near(wnw__far_share(doubled, 3, 1, 1), 0.5, 1e-7);
    assert_near(wnw__far_share(nothing, 2, 0, 0), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_rows)};
    return cmocka_run_group_tests_name("importance", tests, NULL, NULL) + run_rows(importance, spans) +
           run_rows(far_share, fars);
}
