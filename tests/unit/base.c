/* SPDX-License-Identifier: MIT */
/* What everything uses: nearest names, hashes of lists, orders, against values worked by hand. */
#include "asserts.h"

#include <stdlib.h>
#include <string.h>

#include "peek_arrays.h"

/* The date of a template is that of the user's clock, also for a time that was noted before. */
static void test_local_seconds(void **state)
{
    static const struct {
        const char *zone;
        int64_t more;
    } cases[] = {{"UTC0", 0}, {"XXX-5:30", 19800}, {"XXX8", -28800}};
    const char *zone = getenv("TZ");
    char *before = zone ? strdup(zone) : NULL;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("TZ", cases[i].zone, 1);
        assert_int_equal(wnw__local_seconds(1721952000), 1721952000 + cases[i].more);
        assert_int_equal(wnw__local_seconds(0), cases[i].more);
    }
    if (before)
        setenv("TZ", before, 1);
    else
        unsetenv("TZ");
    free(before);
}

static void test_split_names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int32_t n;
        size_t stem;
    } cases[] = {{"a-00001-of-00003.gguf", 3, 1},
                 {"d/a-00001-of-00002.gguf-00001-of-65535.gguf", 65535, 23},
                 {"a-00001-of-00001.gguf", 1, 0},
                 {"a-00001-of-00000.gguf", 1, 0},
                 {"a-00001-of-65536.gguf", 1, 0},
                 {"a-00002-of-00003.gguf", 1, 0},
                 {"a-00001-of-3.gguf", 1, 0},
                 {"a-00001-of-+0003.gguf", 1, 0},
                 {"a-00001-of- 0003.gguf", 1, 0},
                 {"a-00001-of-00003.gguf ", 1, 0},
                 {"a-00001-of-00003.GGUF", 1, 0},
                 {"-00001-of-00003.gguf", 1, 0},
                 {"a.gguf", 1, 0},
                 {"", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t stem = 9;
        assert_int_equal(wnw__split_count(cases[i].path, &stem), cases[i].n);
        assert_int_equal(stem, cases[i].stem);
        if (cases[i].n > 1)
            assert_int_equal(wnw__split_stem(cases[i].path, cases[i].n), cases[i].stem);
        assert_int_equal(wnw__split_stem(cases[i].path, cases[i].n + 1), 0);
    }
    char ending[WNW_SPLIT_ENDING];
    wnw__split_ending(ending, 1, 3);
    assert_string_equal(ending, "-00002-of-00003.gguf");
    wnw__split_ending(ending, INT32_MAX - 1, INT32_MAX);
    assert_string_equal(ending, "-2147483647-of-2147483647.gguf");
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "plan", "bench", "methods", "calibrate", NULL};
    /* Two letters of a short word may be wrong; two that changed places are two. */
    assert_string_equal(wnw__nearest("rnu", names), "run");
    assert_string_equal(wnw__nearest("bnch", names), "bench");
    assert_null(wnw__nearest("stove", names));
    /* A third of a longer word: 3 of 9 letters, not 4. */
    assert_string_equal(wnw__nearest("calxxxate", names), "calibrate");
    assert_null(wnw__nearest("calxxxxte", names));
    /* The third is rounded up: 3 of 8 letters. */
    static const char *const plural[] = {"policies", NULL};
    assert_string_equal(wnw__nearest("policy", plural), "policies");
    /* No letter of a short name is right, although only two are wrong. */
    static const char *const shortest[] = {"ab", NULL};
    assert_null(wnw__nearest("cd", shortest));
    /* The first of names that are equally near. */
    static const char *const alike[] = {"layer", "later", NULL};
    assert_string_equal(wnw__nearest("laxer", alike), "layer");
    assert_null(wnw__nearest("", alike));
}

static void test_hashes(void **state)
{
    (void)state;
    assert_cmp(wnw__hash_of("", 0), ==, UINT64_C(0xcbf29ce484222325));
    assert_cmp(wnw__hash_of("foobar", 6), ==, UINT64_C(0x85944171f73967e8));
    assert_cmp(wnw__hash(wnw__hash_of("foo", 3), "bar", 3), ==, wnw__hash_of("foobar", 6));
    /* In a list the borders of pieces count. */
    const uint64_t two = wnw__hash_join(wnw__hash_join(WNW_HASH_START, "foo", 3), "bar", 3);
    const uint64_t other = wnw__hash_join(wnw__hash_join(WNW_HASH_START, "fo", 2), "obar", 4);
    assert_cmp(two, !=, other);
    assert_cmp(wnw__hash_join(0, "a", 1), ==, UINT64_C(0xaf63dc4c8601ec8c));
    assert_cmp(wnw__hash_join(1, "a", 1), ==, UINT64_C(0xaf63dd4c8601ed3f));
}

static void test_orders(void **state)
{
    (void)state;
    double f64[] = {2, -1, 0.5};
    int32_t i32[][2] = {{3, 10}, {INT32_MIN, 11}, {INT32_MAX, 12}};
    uint64_t u64[] = {UINT64_MAX, 1, UINT64_C(1) << 63};
    size_t sizes[] = {SIZE_MAX, 0, 7};
    qsort(f64, 3, sizeof *f64, wnw__ascending_f64);
    qsort(i32, 3, sizeof *i32, wnw__ascending_i32);
    qsort(u64, 3, sizeof *u64, wnw__ascending_u64);
    qsort(sizes, 3, sizeof *sizes, wnw__ascending_size);
    assert_true(f64[0] == -1 && f64[1] == 0.5 && f64[2] == 2);
    assert_true(i32[0][1] == 11 && i32[1][1] == 10 && i32[2][1] == 12);
    assert_true(u64[0] == 1 && u64[1] == UINT64_C(1) << 63 && u64[2] == UINT64_MAX);
    assert_true(sizes[0] == 0 && sizes[1] == 7 && sizes[2] == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_seconds), cmocka_unit_test(test_split_names),
        cmocka_unit_test(test_nearest),       cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
