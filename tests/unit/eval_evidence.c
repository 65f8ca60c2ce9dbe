/* SPDX-License-Identifier: MIT */
/* Whether evidence is among the entries that stay for any score. cli_eval_needles tests its place among tokens. */
#include "asserts.h"

#include "eval/tasks/evidence.h"

static void all_of_it_must_stay(void **state)
{
    struct eval_token_span span[2] = {{10, 14}, {90, 95}}; /* of 100 tokens */
    const struct eval_evidence one = {.span = span, .n = 1}, two = {.span = span, .n = 2};
    (void)state;
    assert_false(eval_evidence_within(&one, 0, 0, 100));
    assert_false(eval_evidence_within(&one, 13, 0, 100));
    assert_true(eval_evidence_within(&one, 14, 0, 100));
    assert_false(eval_evidence_within(&one, 0, 89, 100));
    assert_true(eval_evidence_within(&one, 0, 90, 100));
    assert_false(eval_evidence_within(&two, 14, 9, 100));
    assert_true(eval_evidence_within(&two, 14, 10, 100));
    assert_false(eval_evidence_within(&two, 94, 0, 100));
    assert_true(eval_evidence_within(&two, 95, 0, 100));
    /* First and last entries that meet in the middle of it. */
    assert_false(eval_evidence_within(&one, 12, 87, 100));
    assert_true(eval_evidence_within(&one, 12, 88, 100));
    /* Everything stays. */
    assert_true(eval_evidence_within(&two, 100, 0, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_of_it_must_stay)};
    return cmocka_run_group_tests_name("evidence", tests, NULL, NULL);
}
