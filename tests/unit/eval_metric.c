/* SPDX-License-Identifier: MIT */
/* Metrics of the evaluation against the tables of their sources and what the benchmarks' packages computed. */
#include "asserts.h"

#include "app/console.h"
#include "eval/base/jsonl.h"
#include "eval/metrics/metric.h"
#include "eval/metrics/porter.h"

#include <string.h>

/* The score of a line of a file of cases, for NAME in "metric". */
static double score_case(const struct eval_metric *m, const json_t *o)
{
    const json_t *pred = json_object_get(o, "pred"), *refs = json_object_get(o, "refs");
    struct eval_case c;
    double score = -1.0;
    assert_true(
        eval_case_open(&c, json_string_value(pred), json_string_length(pred), json_object_get(o, "classes")));
    for (size_t i = 0; i < json_array_size(refs); i++) {
        const json_t *ref = json_array_get(refs, i);
        assert_true(eval_chars_append(&c.refs, &c.n_refs, json_string_value(ref), json_string_length(ref)));
    }
    assert_cmp(c.n_refs, >=, 1);
    assert_true(eval_metric_score(&score, m, &c));
    eval_case_clear(&c);
    return score;
}

/* Every line of the file; returns how many. used[i]: whether metric i had a case. */
static int check_file(const char *name, bool *used)
{
    char path[512];
    struct eval_jsonl j;
    json_t *o;
    int n = 0;
    snprintf(path, sizeof path, "%s/tests/%s", WNW_TEST_SOURCE_DIR, name);
    assert_int_equal(eval_jsonl_open(&j, path), APP_OK);
    while (eval_jsonl_next(&j, &o) == APP_OK && o) {
        const char *metric = json_string_value(json_object_get(o, "metric"));
        const struct eval_metric *m = eval_metric_find(metric);
        assert_non_null(m);
        const double want = json_number_value(json_object_get(o, "score"));
        const double tol = json_number_value(json_object_get(o, "tol"));
        const double got = score_case(m, o);
        if (!(got >= want - tol && got <= want + tol))
            fail_msg("%s line %lld: %s gives %.9g, not %.9g", name, (long long)j.number, metric, got, want);
        for (int32_t i = 0; eval_metric_get(i); i++)
            used[i] = used[i] || eval_metric_get(i) == m;
        json_decref(o);
        n++;
    }
    eval_jsonl_close(&j);
    return n;
}

static void test_tables(void **state)
{
    bool used[64] = {false};
    (void)state;
    assert_in_range(check_file("metrics/cases.jsonl", used), 80, 10000);
    assert_in_range(check_file("metrics/recorded.jsonl", used), 500, 10000);
    for (int32_t i = 0; eval_metric_get(i); i++)
        if (!used[i])
            fail_msg("no case for %s", eval_metric_get(i)->name);
}

static void test_names_are_distinct(void **state)
{
    (void)state;
    for (int32_t i = 0; eval_metric_get(i); i++) {
        assert_ptr_equal(eval_metric_find(eval_metric_get(i)->name), eval_metric_get(i));
        if (eval_metric_get(i)->alias)
            assert_ptr_equal(eval_metric_find(eval_metric_get(i)->alias), eval_metric_get(i));
    }
    assert_null(eval_metric_find("rouge"));
    assert_null(eval_metric_find(""));
}

static void test_stems(void **state)
{
    static const char *const words[][2] = {
        {"caresses", "caress"}, {"ponies", "poni"},      {"ties", "tie"},
        {"agreed", "agre"},     {"hopping", "hop"},      {"falling", "fall"},
        {"filing", "file"},     {"happy", "happi"},      {"enjoy", "enjoy"},
        {"skies", "sky"},       {"relational", "relat"}, {"conditional", "condit"},
        {"adoption", "adopt"},  {"controll", "control"}, {"sandwiches", "sandwich"},
        {"syzygy", "syzygi"}};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct eval_chars c, want;
        assert_true(eval_chars_from(&c, words[i][0], strlen(words[i][0])));
        assert_true(eval_chars_from(&want, words[i][1], strlen(words[i][1])));
        eval_porter_stem(&c);
        if (!eval_chars_equal(&c, &want))
            fail_msg("%s has a stem of %zu letters, not %s", words[i][0], c.n, words[i][1]);
        eval_chars_free(&c);
        eval_chars_free(&want);
    }
}

/* Any bytes: NUL, what is not UTF-8, runs of one letter, a megabyte; no metric fails or leaves 0 to 1. */
/* What Python's str.isalnum and str.lower say, in versions of Unicode old and new. */
static void test_characters(void **state)
{
    static const struct {
        uint32_t c, lower;
        bool alnum;
    } rows[] = {{'Z', 'z', true},          {'_', '_', false},          {0xc4, 0xe4, true}, /* A with dots */
                {0xb2, 0xb2, true},                                /* superscript two */
                {0xd7, 0xd7, false},                               /* times sign */
                {0x130, 0x130, true},                              /* I with a dot: two code points */
                {0x3a3, 0x3c3, true},      {0x2167, 0x2177, true}, /* Sigma, roman eight */
                {0x301, 0x301, false},     {0x4e2d, 0x4e2d, true},     {0x2028, 0x2028, false},
                {0x1f600, 0x1f600, false}, {0x10400, 0x10428, true}, /* a face, Deseret */
                {0xfffd, 0xfffd, false},   {0x10ffff, 0x10ffff, false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(eval_is_alnum(rows[i].c), rows[i].alnum);
        assert_int_equal(eval_lower(rows[i].c), rows[i].lower);
    }
}

static void test_odd_texts(void **state)
{
    enum { BIG = 1 << 16 };
    static char big[BIG];
    static const struct {
        const char *s;
        size_t n;
    } odd[] = {{"", 0},
               {"\0\0", 2},
               {"\xff\xfe.\xc3", 4},
               {". . .", 5},
               {"\n\n\n", 3},
               {"yyyyyyyyyyyyyy", 14},
               {"\xc4\xb0\xe2\x84\xaa \xf0\x9f\x98\x80", 10},
               {big, BIG}};
    (void)state;
    for (size_t i = 0; i < BIG; i++)
        big[i] = i % 7 == 0 ? ' ' : i % 1001 == 0 ? '.' : (char)('a' + i % 3);
    for (int32_t k = 0; eval_metric_get(k); k++)
        for (size_t a = 0; a < sizeof odd / sizeof *odd; a++)
            for (size_t b = 0; b + (odd[a].n == BIG) < sizeof odd / sizeof *odd; b++) {
                struct eval_chars pred, ref;
                double score = -1.0;
                assert_true(eval_chars_from(&pred, odd[a].s, odd[a].n));
                assert_true(eval_chars_from(&ref, odd[b].s, odd[b].n));
                const struct eval_case c = {pred, &ref, 1, &ref, 1};
                assert_true(eval_metric_score(&score, eval_metric_get(k), &c));
                if (!(score >= 0.0 && score <= 1.0))
                    fail_msg("%s of texts %zu and %zu: %g", eval_metric_get(k)->name, a, b, score);
                eval_chars_free(&pred);
                eval_chars_free(&ref);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables), cmocka_unit_test(test_names_are_distinct),
        cmocka_unit_test(test_stems), cmocka_unit_test(test_characters), cmocka_unit_test(test_odd_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
