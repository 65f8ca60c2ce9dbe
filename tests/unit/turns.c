/* SPDX-License-Identifier: MIT */
/* Which tokens of a timeline are compressed next, and to what (src/plan/turns.c). */
#include "peek_plan.h"

#include "helpers.h"
#include "winnow_tools.h"

#include <math.h>

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

/* Who asks: a sequence on devices whose prompt has ended, one between chunks, or a session between chunks. */
enum asker { PROMPT, CHUNK, SESSION };

#define BUDGET(x)                              \
    {                                          \
        .kind = WNW_SIZE_BUDGET, .budget = (x) \
    }
#define RATIO(x)                             \
    {                                        \
        .kind = WNW_SIZE_RATIO, .ratio = (x) \
    }
#define BYTES(x)                             \
    {                                        \
        .kind = WNW_SIZE_BYTES, .bytes = (x) \
    }
#define OWN_SIZE              \
    {                         \
        .kind = WNW_SIZE_NONE \
    }

enum { NOTHING = -1 };

/* One part up to n, or NOTHING. */
static const struct timeline {
    const char *what;
    enum asker by;
    int32_t n_prefix, n, n_judged;
    double slack;
    bool is_last;
    wnw_size asked;
    int32_t from;
    wnw_size size;
} timelines[] = {
    {"a budget counts the header", PROMPT, 20, 1020, 0, 0, YES, BUDGET(300), 20, BUDGET(280)},
    {"a budget below the header", PROMPT, 20, 1020, 0, 0, YES, BUDGET(20), 20, BUDGET(1)},
    {"no header", PROMPT, 0, 1000, 0, 0, YES, BUDGET(300), 0, BUDGET(300)},
    /* 510 - 20 of 1000, and a little. */
    {"a ratio counts the header", PROMPT, 20, 1020, 0, 0, YES, RATIO(0.5), 20, RATIO(1 - 0.490000001)},
    {"a ratio below the header", PROMPT, 400, 500, 0, 0, YES, RATIO(0.9), 400, RATIO(1 - 0.01000001)},
    {"a ratio of everything", PROMPT, 20, 120, 0, 0, YES, RATIO(0), 20, RATIO(0)},
    {"a ratio without a header", PROMPT, 0, 1000, 0, 0, YES, RATIO(0.3), 0, RATIO(0.3)},
    {"bytes count what the policy sees", PROMPT, 20, 1020, 0, 0, YES, BYTES(4096), 20, BYTES(4096)},
    {"the policy's own size", PROMPT, 20, 1020, 0, 0, YES, OWN_SIZE, 20, OWN_SIZE},
    {"nothing but a header", PROMPT, 20, 20, 0, 0, YES, BUDGET(5), 0, BUDGET(5)},
    {"a ratio is of what is new", PROMPT, 20, 1500, 1020, 0, YES, RATIO(0.5), 1020, RATIO(0.5)},
    {"a ratio of nothing new", PROMPT, 20, 1020, 1020, 0, YES, RATIO(0.5), NOTHING, OWN_SIZE},
    {"a header that was judged alone", PROMPT, 20, 1020, 20, 0, YES, RATIO(0.5), 20, RATIO(1 - 0.490000001)},
    {"a budget is of all again", PROMPT, 20, 1500, 1020, 0, YES, BUDGET(300), 20, BUDGET(280)},
    {"bytes are of all again", PROMPT, 20, 1500, 1020, 0, YES, BYTES(4096), 20, BYTES(4096)},
    {"a ratio of a chunk is a budget", CHUNK, 20, 512, 0, 1, NOT, RATIO(0.75), 20, BUDGET(108)},
    {"of all chunks that were read", CHUNK, 20, 1024, 512, 1, YES, RATIO(0.75), 20, BUDGET(236)},
    {"a ratio of a chunk leaves one", CHUNK, 20, 30, 0, 1, NOT, RATIO(0.99), 20, BUDGET(1)},
    {"a ratio of a chunk, with slack", CHUNK, 20, 512, 0, 1.5, NOT, RATIO(0.75), 20, BUDGET(172)},
    {"a budget with slack, rounded up", CHUNK, 20, 512, 0, 1.5, NOT, BUDGET(333), 20, BUDGET(480)},
    {"the last chunk", CHUNK, 20, 512, 0, 1.5, YES, BUDGET(333), 20, BUDGET(313)},
    {"a slack below 1", CHUNK, 20, 512, 0, 0.5, NOT, BUDGET(333), 20, BUDGET(313)},
    {"bytes with slack", CHUNK, 20, 512, 0, 1.5, NOT, BYTES(1001), 20, BYTES(1501)},
    {"a budget of all numbers", CHUNK, 0, 512, 0, 8, NOT, BUDGET(INT32_MAX), 0, BUDGET(INT32_MAX)},
    {"a chunk inside the header", CHUNK, 512, 512, 0, 1.5, NOT, BUDGET(333), NOTHING, OWN_SIZE},
    {"a session's budget, rounded down", SESSION, 0, 512, 0, 1.5, NOT, BUDGET(333), 0, BUDGET(499)},
    {"a session's ratio", SESSION, 0, 512, 0, 2, NOT, RATIO(0.75), 0, RATIO(0.5)},
    {"a session's ratio holds all", SESSION, 0, 512, 0, 8, NOT, RATIO(0.75), 0, RATIO(0)},
    {"a session's bytes", SESSION, 0, 512, 0, 1.5, NOT, BYTES(1001), 0, BYTES(1501)},
    {"a session's last chunk", SESSION, 0, 512, 0, 2, YES, RATIO(0.75), 0, RATIO(0.75)},
};

#include "turns_logged.h"

static wnw_turns turns_of(const struct row *row)
{
    wnw_turns t = {WNW_INIT(wnw_turns),
                   .n_header = row->n_header,
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
    const wnw_turns t = turns_of(row);
    wnw_turns_part out[2];
    const int32_t n = wnw_turns_parts(out, &t);
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
        const wnw_turns t = turns_of(&row);
        wnw_turns_part out[2];
        const int32_t n = wnw_turns_parts(out, &t);
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

/* 1000 tokens with a header of 100, which the size counts, and half kept: 500 - 100 of 900 entries stay. */
static wnw_turns half_of_1000(wnw_turns_ratio ratio, int32_t n_judged)
{
    return (wnw_turns){WNW_INIT(wnw_turns), .n_header = 100,
                       .n = 1000,           .n_judged = n_judged,
                       .at_prompt = 700,    .compressed = true,
                       .ratio = ratio,      .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5},
                       .n_counted = 100};
}

static void ratios_after_judged_tokens(void **state)
{
    (void)state;
    const double of_rest = 1 - (400 + 1e-6) / 900;
    wnw_turns_part out[2];
    wnw_turns t = half_of_1000(WNW_TURNS_OF_ALL, 50);
    t.keeps_previous = true; /* the header has what was judged: a ratio counts it */
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].from, 100);
    assert_near(out[0].size.ratio, of_rest, 1e-12);
    t.n_judged = 600; /* the part's own */
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].from, 600);
    assert_near(out[0].size.ratio, 0.5, 0);
    t.slack = 1.5; /* a half of it more */
    t.more_follows = true;
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_near(out[0].size.ratio, 0.25, 1e-12);
    t = half_of_1000(WNW_TURNS_OF_READ, 600);
    t.keeps_previous = true;
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].size.kind, WNW_SIZE_BUDGET);
    assert_int_equal(out[0].size.budget, 400);
    t = half_of_1000(WNW_TURNS_OF_ALL, 500);
    t.all_queries = true; /* both parts follow what was judged */
    assert_int_equal(wnw_turns_parts(out, &t), 2);
    assert_near(out[0].size.ratio, 0.5, 0);
    assert_near(out[1].size.ratio, 0.5, 0);
    t.keeps_previous = true;
    t.n_judged = 900; /* some of the last prompt was judged */
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].from, 900);
}

static void bad_numbers_have_no_part(void **state)
{
    (void)state;
    const wnw_turns good = half_of_1000(WNW_TURNS_OF_ALL, 0);
    wnw_turns_part out[2];
    assert_int_equal(wnw_turns_parts(out, &good), 1);
    for (int k = 0; k < 10; k++) {
        wnw_turns t = good;
        int32_t *const counts[] = {&t.n_header, &t.n, &t.n_judged, &t.at_prompt, &t.n_counted, &t.n_least};
        double *const reals[] = {&t.size.ratio, &t.slack};
        if (k < 6)
            *counts[k] = -1;
        else
            *reals[k % 2] = k < 8 ? NAN : INFINITY;
        assert_int_equal(wnw_turns_parts(out, &t), 0);
    }
    wnw_turns t = good;
    t.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = -1};
    assert_int_equal(wnw_turns_parts(out, &t), 0);
    assert_int_equal(wnw_turns_parts(NULL, &good), 0);
    assert_int_equal(wnw_turns_parts(out, NULL), 0);
}

static wnw_turns turns_of_timeline(const struct timeline *row)
{
    wnw_turns t = {WNW_INIT(wnw_turns),
                   .n_header = row->n_prefix,
                   .n = row->n,
                   .n_judged = row->n_judged,
                   .compressed = row->n_judged > row->n_prefix,
                   .slack = row->slack,
                   .more_follows = !row->is_last,
                   .size = row->asked};
    if (row->by == SESSION)
        return t;
    if (row->by == PROMPT && t.n_header >= t.n)
        t.n_header = 0;
    t.n_counted = t.n_header;
    t.n_least = 1;
    t.ratio = row->by == CHUNK ? WNW_TURNS_OF_READ : WNW_TURNS_OF_ALL;
    t.rounds_up = row->by == CHUNK;
    t.keeps_previous = row->by == PROMPT && row->asked.kind == WNW_SIZE_RATIO;
    return t;
}

static void assert_size(const wnw_size *got, const wnw_size *want)
{
    assert_int_equal(got->kind, want->kind);
    if (got->kind == WNW_SIZE_BUDGET)
        assert_int_equal(got->budget, want->budget);
    if (got->kind == WNW_SIZE_RATIO)
        assert_near(got->ratio, want->ratio, 1e-12);
    if (got->kind == WNW_SIZE_BYTES)
        assert_int_equal(got->bytes, want->bytes);
}

static void a_timeline_has_the_part_of_the_row(void **state)
{
    const struct timeline *row = *state;
    const wnw_turns t = turns_of_timeline(row);
    wnw_turns_part out[2];
    const int32_t n = wnw_turns_parts(out, &t);
    assert_int_equal(n, row->from != NOTHING);
    if (n == 0)
        return;
    assert_int_equal(out[0].from, row->from);
    assert_int_equal(out[0].to, row->n);
    assert_false(out[0].fallback);
    assert_size(&out[0].size, &row->size);
    if (row->by == SESSION) {
        const wnw_size size = wnw__turns_size(&t);
        assert_size(&size, &row->size);
    }
}

static void logged_timelines_are_answered_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof logged_timelines / sizeof *logged_timelines; i++) {
        void *row = (void *)(uintptr_t)&logged_timelines[i];
        a_timeline_has_the_part_of_the_row(&row);
    }
}

/* A slot's budget counts the header but for a document, and leaves some; a ratio is of what follows. */
static void sizes_of_slots(void **state)
{
    (void)state;
    wnw_turns t = {WNW_INIT(wnw_turns), .n_header = 100, .n = 1100,
                   .size = BUDGET(300), .n_counted = 40, .n_least = 32};
    wnw_turns_part out[2];
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].size.budget, 260);
    t.size.budget = 50;
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_int_equal(out[0].size.budget, 32);
    t.size = (wnw_size)RATIO(0.75);
    assert_int_equal(wnw_turns_parts(out, &t), 1);
    assert_near(out[0].size.ratio, 0.75, 0);
    t.size = (wnw_size)BUDGET(INT64_MAX); /* it is divided without an overflow */
    t.n_counted = 0;
    t.at_prompt = 600;
    t.all_queries = true;
    assert_int_equal(wnw_turns_parts(out, &t), 2);
    assert_true(out[0].size.budget > INT64_MAX / 2 - 2 && out[1].size.budget > INT64_MAX / 2 - 2);
}

static void is_due(void **state)
{
    (void)state;
    enum { ENOUGH = WNW_TURNS_LEAST_NEW };
    assert_false(wnw_turns_is_due(ENOUGH - 1, 0, true));
    assert_true(wnw_turns_is_due(ENOUGH, 0, true));
    assert_true(wnw_turns_is_due(ENOUGH, 512, true)); /* the end of a prompt in chunks */
    assert_false(wnw_turns_is_due(511, 512, false));
    assert_true(wnw_turns_is_due(512, 512, false));
    assert_false(wnw_turns_is_due(INT32_MAX, 0, false));
}

static void first_new(void **state)
{
    (void)state;
    wnw_turns t = {WNW_INIT(wnw_turns), .n_header = 10, .n = 1000, .n_judged = 400, .at_prompt = 300};
    assert_int_equal(wnw_turns_first_new(&t), 300); /* n_judged is of nothing */
    t.compressed = true;
    assert_int_equal(wnw_turns_first_new(&t), 400);
    t.at_prompt = 600;
    assert_int_equal(wnw_turns_first_new(&t), 600);
    t.n_header = 700;
    assert_int_equal(wnw_turns_first_new(&t), 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logged_requests_are_answered_alike),
        cmocka_unit_test(logged_timelines_are_answered_alike),
        cmocka_unit_test(parts_are_apart),
        cmocka_unit_test(ratios_after_judged_tokens),
        cmocka_unit_test(bad_numbers_have_no_part),
        cmocka_unit_test(sizes_of_slots),
        cmocka_unit_test(is_due),
        cmocka_unit_test(first_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(parts_are_those_of_the_row, rows) +
           run_rows(a_timeline_has_the_part_of_the_row, timelines);
}
