/* SPDX-License-Identifier: MIT */
/* Retrieval scores, spans, ranks and word recall on examples computed by hand. */
#include "asserts.h"
#include "peek_calibrate.h"

#include <string.h>

/* ---- Scores ---- */

/* One head; the answer is at positions 4 .. 6, tokens 7, 9, 7. Three steps produce 9, 7, 3; attention on the answer
 * is 0.2, 0.5, 0.4, and the largest attention is at positions 5, 6, 4. */
enum { N = 9, STEPS = 3 };
static const int32_t prompt[N] = {1, 2, 3, 4, 7, 9, 7, 5, 6};
static const struct wnw__answer_span span = {4, 3};
static const int32_t produced[STEPS] = {9, 7, 3};
static const float rows[STEPS][N] = {
    {0.12f, 0.12f, 0.12f, 0.12f, 0.02f, 0.16f, 0.02f, 0.16f, 0.16f},
    {0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.15f, 0.25f, 0.05f, 0.05f},
    {0.1f, 0.1f, 0.1f, 0.1f, 0.3f, 0.05f, 0.05f, 0.1f, 0.1f},
};

struct score_row {
    const char *name;
    struct wnw__retrieval_rule rule;
    double semantic, traditional;
};

static const struct score_row score_rows[] = {
    {"each produced token once", {.top = 1}, 0.2 + 0.5, 2.0 / 3},
    {"as often as the answer has it", {.top = 1, .multiplicity = true}, 0.2 + 2 * 0.5, 2.0 / 3},
    {"copied tokens count once", {.top = 1, .distinct = true}, 0.2 + 0.5, 2.0 / 3},
};

static struct wnw__retrieval_step step_of(const float *row, struct wnw__answer_span at, int32_t token,
                                          bool *copied)
{
    return (struct wnw__retrieval_step){
        .row = row, .n_row = N, .prompt = prompt, .span = at, .token = token, .copied = copied};
}

static void scores(void **state)
{
    const struct score_row *row = *state;
    struct wnw__retrieval r = {0};
    bool copied[3] = {false};
    for (int t = 0; t < STEPS; t++) {
        const struct wnw__retrieval_step step = step_of(rows[t], span, produced[t], copied);
        wnw__retrieval_add(&r, &row->rule, &step);
    }
    assert_near(r.semantic, row->semantic, 1e-6);
    assert_near(r.traditional, row->traditional, 1e-12);
}

/* The same hit three times: more than 1 in all, as the released code counts; at most 1 with distinct. */
static void copying_again(void **state)
{
    (void)state;
    struct wnw__retrieval plain = {0}, once = {0};
    bool copied[3] = {false};
    const struct wnw__retrieval_step step = step_of(rows[1], span, 7, copied);
    for (int t = 0; t < 4; t++) {
        wnw__retrieval_add(&plain, &(struct wnw__retrieval_rule){.top = 1}, &step);
        wnw__retrieval_add(&once, &(struct wnw__retrieval_rule){.top = 1, .distinct = true}, &step);
    }
    assert_near(plain.traditional, 4.0 / 3, 1e-12);
    assert_near(once.traditional, 1.0 / 3, 1e-12);
}

/* In rows[0] positions 5, 7 and 8 have the same attention: the earliest is the largest. */
static void equal_attention(void **state)
{
    (void)state;
    struct wnw__retrieval r = {0};
    bool copied[3] = {false};
    const struct wnw__retrieval_rule rule = {.top = 1};
    const struct wnw__retrieval_step step = step_of(rows[0], span, 9, copied);
    wnw__retrieval_add(&r, &rule, &step);
    assert_near(r.traditional, 1.0 / 3, 1e-12);
    const struct wnw__answer_span behind = {7, 2};
    r = (struct wnw__retrieval){0};
    const struct wnw__retrieval_step other = step_of(rows[0], behind, 5, copied);
    wnw__retrieval_add(&r, &rule, &other);
    assert_near(r.traditional, 0, 0);
}

/* 7 is produced; the largest attention of rows[2] is at 4, of rows[0] at 5, 7, 8, then 0 to 3. */
static void more_than_the_largest(void **state)
{
    (void)state;
    const float row[N] = {0, 0, 0, 0.3f, 0.1f, 0.4f, 0.2f, 0, 0};
    const double want[] = {0, 0, 1.0 / 3, 1.0 / 3};
    const struct wnw__retrieval_step step = step_of(row, span, 7, NULL);
    for (int top = 1; top <= 4; top++) {
        struct wnw__retrieval r = {0};
        wnw__retrieval_add(&r, &(struct wnw__retrieval_rule){.top = top}, &step);
        assert_near(r.traditional, want[top - 1], 1e-12);
    }
}

/* ---- The span ---- */

struct span_row {
    const char *name;
    int32_t prompt[16], n;
    int32_t answer[12], m;
    int32_t first; /* -1: not found */
};

static const struct span_row span_rows[] = {
    {"exact", {1, 2, 3, 4, 5}, 5, {3, 4}, 2, 2},
    {"the first of two", {3, 4, 3, 4}, 4, {3, 4}, 2, 0},
    {"exact before a window of the same set", {4, 3, 1, 3, 4}, 5, {3, 4}, 2, 3},
    {"the whole prompt", {3, 4}, 2, {3, 4}, 2, 0},
    {"longer than the prompt", {3, 4}, 2, {3, 4, 5}, 3, -1},
    {"no answer", {3, 4}, 2, {0}, 0, -1},
    {"ten of eleven tokens",
     {50, 51, 90, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 52},
     14,
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
     11,
     2},
    {"nine of ten are not more than 0.9",
     {90, 2, 3, 4, 5, 6, 7, 8, 9, 10, 52},
     11,
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
     10,
     -1},
    {"the whole set in another order", {8, 4, 3, 9}, 4, {3, 4}, 2, 1},
};

static void spans(void **state)
{
    const struct span_row *row = *state;
    struct wnw__answer_span found;
    const bool there = wnw__span_find(&found, row->prompt, row->n, row->answer, row->m);
    assert_int_equal(there ? found.first : -1, row->first);
    assert_int_equal(found.n, there ? row->m : 0);
}

/* ---- Ranks ---- */

static void ranks(void **state)
{
    (void)state;
    int32_t rank[5];
    wnw__rank_heads((const double[]){0.1, 0.5, 0.1, 0.9, 0.5}, 5, rank);
    assert_ints(rank, 3, 1, 4, 0, 2);
}

/* The best of a are 3, then 1 (before 4, which is equal); those of b 1, 0, 3. */
static void best_in_common(void **state)
{
    (void)state;
    const double a[] = {0.1, 0.5, 0.1, 0.9, 0.5}, b[] = {0.6, 0.7, 0, 0.3, 0.2};
    assert_near(wnw__top_overlap(a, b, 5, 1), 0, 0);
    assert_near(wnw__top_overlap(a, b, 5, 2), 0.5, 0);
    assert_near(wnw__top_overlap(a, b, 5, 3), 2.0 / 3, 1e-12);
    assert_near(wnw__top_overlap(a, b, 5, 4), 1, 0); /* 3, 1, 4, 0 and 1, 0, 3, 4 */
    assert_near(wnw__top_overlap(a, a, 5, 3), 1, 0);
}

/* ---- Words ---- */

struct recall_row {
    const char *name, *reference, *response;
    double recall;
};

static const struct recall_row recall_rows[] = {
    {"all", "forty-one nets", "It took Forty-One fishing NETS.", 1},
    {"none", "a bell", "the clock", 0},
    {"twice there, once here", "the bell of the moon", "the moon", 0.4},
    {"once there, twice here", "the bell", "the the", 0.5},
    {"no words", "...", "anything", 0},
    {"no response", "a bell", "", 0},
    {"letters beyond ASCII", "caf\xc3\xa9 noir", "CAF\xc3\xa9!", 0.5},
};

static void recall(void **state)
{
    const struct recall_row *row = *state;
    assert_near(wnw__word_recall(row->reference, row->response), row->recall, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copying_again),         cmocka_unit_test(equal_attention),
        cmocka_unit_test(more_than_the_largest), cmocka_unit_test(ranks),
        cmocka_unit_test(best_in_common),
    };
    int failed = run_rows(scores, score_rows);
    failed += run_rows(spans, span_rows);
    failed += run_rows(recall, recall_rows);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
