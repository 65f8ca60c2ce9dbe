/* SPDX-License-Identifier: MIT */
/* Which tokens of a slot are compressed next, and to what (serve/turns.c). */
#include "serve/turns.h"
#include "helpers.h"

enum { NOT = false, YES = true };

/* A part as it is expected; from == to: there is none. */
struct part {
    int32_t from, to;
    int64_t budget; /* of a budget; else 0 */
    bool fallback;
};

static const struct row {
    const char *what;
    int32_t n_header, n, n_judged, at_prompt;
    bool compressed, keeps_previous, all_queries;
    int64_t budget; /* 0: a ratio */
    struct part part[2];
} rows[] = {
    {"a first prompt", 10, 1010, 0, 10, NOT, NOT, NOT, 300, {{10, 1010, 300, NOT}}},
    {"a header alone", 10, 10, 0, 10, NOT, NOT, NOT, 300, {{0}}},
    {"less than a header", 10, 4, 0, 0, NOT, NOT, YES, 300, {{0}}},
    {"a second prompt, all of it again", 10, 1500, 1010, 1100, YES, NOT, NOT, 300, {{10, 1500, 300, NOT}}},
    {"a second prompt, earlier turns are kept",
     10,
     1500,
     1010,
     1100,
     YES,
     YES,
     NOT,
     0,
     {{1010, 1500, 0, NOT}}},
    {"earlier turns are kept that nothing compressed",
     10,
     1500,
     0,
     1100,
     NOT,
     YES,
     NOT,
     0,
     {{10, 1500, 0, NOT}}},
    {"earlier turns are kept, and the header has grown over them",
     1200,
     1500,
     1010,
     1300,
     YES,
     YES,
     NOT,
     0,
     {{1200, 1500, 0, NOT}}},
    {"all was compressed before", 10, 1010, 1010, 10, YES, YES, NOT, 0, {{0}}},
    {"a slot that was cut after it was compressed", 10, 900, 1010, 10, YES, YES, NOT, 0, {{0}}},
    {"every query: a first prompt", 10, 1010, 0, 10, NOT, NOT, YES, 300, {{10, 1010, 300, NOT}}},
    {"every query: a prompt that began in the header",
     10,
     1010,
     0,
     0,
     NOT,
     NOT,
     YES,
     300,
     {{10, 1010, 300, NOT}}},
    /* 1000 tokens. The last prompt has 250, so a quarter of the budget is its. */
    {"every query: a budget is divided",
     10,
     1010,
     500,
     760,
     YES,
     NOT,
     YES,
     400,
     {{10, 760, 300, YES}, {760, 1010, 100, NOT}}},
    {"every query: a budget of one",
     10,
     1010,
     500,
     760,
     YES,
     NOT,
     YES,
     1,
     {{10, 760, 1, YES}, {760, 1010, 1, NOT}}},
    /* An empty first part takes a budget of 1, and what is left is the prompt's. */
    {"every query: a short prompt is the fallback's",
     10,
     1010,
     500,
     883,
     YES,
     NOT,
     YES,
     400,
     {{10, 1010, 400, YES}}},
    {"every query: the shortest prompt by the rule",
     10,
     1010,
     500,
     882,
     YES,
     NOT,
     YES,
     400,
     {{10, 882, 348, YES}, {882, 1010, 52, NOT}}},
    {"every query, a ratio: what was compressed stays",
     10,
     1010,
     500,
     760,
     YES,
     NOT,
     YES,
     0,
     {{500, 760, 0, YES}, {760, 1010, 0, NOT}}},
    {"every query, a ratio: the last prompt alone is new",
     10,
     1010,
     760,
     760,
     YES,
     NOT,
     YES,
     0,
     {{760, 1010, 0, NOT}}},
    {"every query, a ratio: nothing was compressed",
     10,
     1010,
     0,
     760,
     NOT,
     NOT,
     YES,
     0,
     {{10, 760, 0, YES}, {760, 1010, 0, NOT}}},
    {"every query, earlier turns are kept", 10, 1010, 500, 760, YES, YES, YES, 0, {{760, 1010, 0, NOT}}},
    {"every query, earlier turns are kept, a short prompt", 10, 1010, 500, 950, YES, YES, YES, 0, {{0}}},
};

#include "turns_logged.h"

static struct serve_turns turns_of(const struct row *row)
{
    struct serve_turns t = {.n_header = row->n_header,
                            .n = row->n,
                            .n_judged = row->n_judged,
                            .at_prompt = row->at_prompt,
                            .compressed = row->compressed,
                            .keeps_previous = row->keeps_previous,
                            .all_queries = row->all_queries,
                            .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.75}};
    if (row->budget > 0)
        t.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = row->budget};
    return t;
}

static void parts_are_those_of_the_row(void **state)
{
    const struct row *row = *state;
    const struct serve_turns t = turns_of(row);
    struct serve_turns_part out[2];
    const int32_t n = serve_turns_parts(out, &t);
    assert_int_equal(n, (row->part[0].to > row->part[0].from) + (row->part[1].to > row->part[1].from));
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(out[i].from, row->part[i].from);
        assert_int_equal(out[i].to, row->part[i].to);
        assert_int_equal(out[i].fallback, row->part[i].fallback);
        assert_int_equal(out[i].size.kind, t.size.kind);
        if (t.size.kind == WNW_SIZE_BUDGET)
            assert_int_equal(out[i].size.budget, row->part[i].budget);
        else
            assert_near(out[i].size.ratio, 0.75, 0);
    }
}

static void logged_requests_are_answered_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof logged / sizeof *logged; i++) {
        void *row = (void *)(uintptr_t)&logged[i];
        parts_are_those_of_the_row(&row);
    }
}

/* Every history of a few numbers: parts ascend, hold no header, and budgets do not grow. */
static void parts_are_apart(void **state)
{
    (void)state;
    static const int32_t at[] = {0, 1, 127, 128, 129, 500, 900};
    enum { N = sizeof at / sizeof *at };
    for (int k = 0; k < N * N * N * N * 8; k++) {
        const struct row row = {.n_header = at[k / 8 % N],
                                .n = at[k / 8 / N % N],
                                .n_judged = at[k / 8 / N / N % N],
                                .at_prompt = at[k / 8 / N / N / N % N],
                                .compressed = at[k / 8 / N / N % N] > 0,
                                .keeps_previous = k & 1,
                                .all_queries = k & 2,
                                .budget = k & 4 ? 200 : 0};
        const struct serve_turns t = turns_of(&row);
        struct serve_turns_part out[2];
        const int32_t n = serve_turns_parts(out, &t);
        int32_t from = t.n_header;
        int64_t budget = 0;
        assert_in_range(n, 0, 2);
        for (int32_t i = 0; i < n; i++) {
            assert_true(out[i].from >= from && out[i].from < out[i].to && out[i].to <= t.n);
            from = out[i].to;
            budget += out[i].size.budget;
        }
        assert_true(n == 0 || from == t.n || t.keeps_previous);
        if (row.budget > 0)
            assert_true(budget <= row.budget + 1);
    }
}

static void first_new(void **state)
{
    (void)state;
    struct serve_turns t = {.n_header = 10, .n = 1000, .n_judged = 400, .at_prompt = 300};
    assert_int_equal(serve_turns_first_new(&t), 300); /* n_judged is of nothing */
    t.compressed = true;
    assert_int_equal(serve_turns_first_new(&t), 400);
    t.at_prompt = 600;
    assert_int_equal(serve_turns_first_new(&t), 600);
    t.n_header = 700;
    assert_int_equal(serve_turns_first_new(&t), 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logged_requests_are_answered_alike),
        cmocka_unit_test(parts_are_apart),
        cmocka_unit_test(first_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(parts_are_those_of_the_row, rows);
}
