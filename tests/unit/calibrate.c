/* SPDX-License-Identifier: MIT */
/* The units in the journal of a calibration, and the text of their numbers. */
#include "asserts.h"
#include "files.h"
#include "peek_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Numbers ---- */

struct text_row {
    const char *name, *value, *text;
    bool rows;
};

static void text_of_a_value(void **state)
{
    const struct text_row *row = *state;
    char *text;
    size_t len;
    json_t *v = json_loads(row->value, JSON_DECODE_ANY, NULL);
    assert_ok(wnw__json_text(&text, &len, v, row->rows));
    assert_string_equal(text, row->text);
    assert_int_equal(len, strlen(text));
    free(text);
    json_decref(v);
}

static const struct text_row text_rows[] = {
    {"few digits", "[0.1, 1e300, 2.5]", "[0.1,1e+300,2.5]", false},
    {"seventeen digits", "[0.1000000000000000055511151231257827, 0.30000000000000004]",
     "[0.1,0.30000000000000004]", false},
    {"a whole real number stays real", "[1.0, 1, -0.0]", "[1.0,1,-0.0]", false},
    {"order of keys", "{\"b\": 1, \"a\": [true, null, \"\\n\"]}", "{\"b\":1,\"a\":[true,null,\"\\n\"]}",
     false},
    {"rows", "{\"b\": [1, 2], \"a\": [[1], [2]]}", "{\n\"b\":[1,2],\n\"a\":[\n[1],\n[2]]\n}", true},
};

static void floats_read_back_equal(void **state)
{
    (void)state;
    const float x[] = {0.1f, 1.0f / 3, 1e-42f, 3.4028235e38f, -0.0f, 16777217.0f, 7.0f};
    enum { N = sizeof x / sizeof *x };
    float back[N];
    char *text;
    size_t len;
    json_t *o = json_pack("{s:o}", "x", wnw__json_f32s(x, N)), *again;
    assert_ok(wnw__json_text(&text, &len, o, false));
    assert_contains(text, "[0.1,0.33333334,");
    assert_ok(wnw__json_parse(&again, text, len));
    assert_true(wnw__json_get_f32s(again, "x", back, N));
    assert_memory_equal(back, x, sizeof x);
    assert_false(wnw__json_get_f32s(again, "x", back, N - 1));
    assert_false(wnw__json_get_f32s(again, "y", back, N));
    json_decref(o);
    json_decref(again);
    free(text);
}

static void no_number_is_no_value(void **state)
{
    (void)state;
    const double x[] = {1, NAN};
    assert_null(wnw__json_f64s(x, 2));
    assert_null(wnw__json_f32(INFINITY));
}

/* ---- Units in a journal ---- */

static char path[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(path, "/tmp/winnow-journal-XXXXXX");
    test_file_new(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static struct wnw__journal *opened(void)
{
    struct wnw__journal *j;
    json_t *header = json_pack("{s:s, s:s}", "format", "winnow-journal-1", "kind", "srh");
    assert_ok(wnw__journal_open(&j, path, &(struct wnw__journal_params){.header = header}));
    json_decref(header);
    return j;
}

static void add(struct wnw__journal *j, const char *unit, double x)
{
    json_t *v = json_pack("[f]", x);
    assert_ok(wnw__calibrate_add(j, unit, v));
    json_decref(v);
}

static void expect(struct wnw__journal *j, const char *unit, double x)
{
    json_t *v;
    assert_ok(wnw__calibrate_next(j, unit, &v));
    assert_non_null(v);
    assert_true(json_number_value(json_array_get(v, 0)) == x);
    json_decref(v);
}

static void expect_end(struct wnw__journal *j, const char *unit)
{
    json_t *v;
    assert_ok(wnw__calibrate_next(j, unit, &v));
    assert_null(v);
}

/* Two units, as a run that was ended leaves them. */
static void write_two(void)
{
    struct wnw__journal *j = opened();
    expect_end(j, "a");
    add(j, "a", 1.0 / 3);
    add(j, "b", 2);
    wnw__journal_close(j);
}

static void append(const char *text)
{
    FILE *f = fopen(path, "a");
    fputs(text, f);
    fclose(f);
}

static void replace(const char *text)
{
    assert_int_equal(truncate(path, 0), 0);
    append(text);
}

/* The two results are read, a third is added, and all three are there the next time. */
static void goes_on_with(double third)
{
    struct wnw__journal *j = opened();
    expect(j, "a", 1.0 / 3);
    expect(j, "b", 2);
    expect_end(j, "c");
    add(j, "c", third);
    wnw__journal_close(j);
    j = opened();
    expect(j, "a", 1.0 / 3);
    expect(j, "b", 2);
    expect(j, "c", third);
    expect_end(j, "d");
    wnw__journal_close(j);
}

static void goes_on(void **state)
{
    (void)state;
    write_two();
    goes_on_with(3);
}

static void a_torn_line_is_dropped(void **state)
{
    (void)state;
    write_two();
    append("{\"unit\":\"c\",\"result\":[3");
    goes_on_with(4);
}

static void damage_is_found(void **state)
{
    (void)state;
    static const char *const lines[] = {"nonsense\n", "{\"unit\":\"x\",\"result\":[1]}\n",
                                        "{\"unit\":\"c\"}\n", "\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        json_t *v;
        replace("");
        write_two();
        append(lines[i]);
        struct wnw__journal *j = opened();
        expect(j, "a", 1.0 / 3);
        expect(j, "b", 2);
        assert_error(wnw__calibrate_next(j, "c", &v), WNW_E_FORMAT);
        assert_null(v);
        assert_says("line 4");
        wnw__journal_close(j);
    }
}

int main(void)
{
    const struct CMUnitTest numbers[] = {
        cmocka_unit_test(floats_read_back_equal),
        cmocka_unit_test(no_number_is_no_value),
    };
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest journal[] = {
        WITH_FILE(goes_on),
        WITH_FILE(a_torn_line_is_dropped),
        WITH_FILE(damage_is_found),
    };
    int failed = run_rows(text_of_a_value, text_rows);
    failed += cmocka_run_group_tests(numbers, NULL, NULL);
    return failed + cmocka_run_group_tests(journal, NULL, NULL);
}
