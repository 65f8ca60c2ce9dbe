/* SPDX-License-Identifier: MIT */
/* Text on its way to a terminal (app/shown.c): control characters are written as text, the rest stays, however it is cut into pieces. */
#include "app/shown.h"
#include "app/text.h"
#include "helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What comes out of a text in pieces of `each` bytes, for a terminal or not. The caller frees it. */
static char *shown(const char *text, size_t n, size_t each, bool terminal, size_t *n_out)
{
    char *out;
    FILE *f = open_memstream(&out, n_out);
    struct app_shown s = {.f = f, .terminal = terminal};
    assert_non_null(f);
    for (size_t i = 0; i < n; i += each)
        assert_true(app_shown_write(&s, text + i, n - i < each ? n - i : each));
    assert_true(app_shown_end(&s));
    assert_int_equal(fclose(f), 0);
    return out;
}

static void test_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n; /* 0: up to its NUL */
        const char *want;
    } cases[] = {
        {"", 0, ""},
        {"plain\tand\nlines\n", 0, "plain\tand\nlines\n"},
        {"\x1b[31mred\x1b[0m", 0, "\\x1b[31mred\\x1b[0m"},
        {"\x1b]0;title\a\x1b]52;c;Zm9v\x1b\\", 0, "\\x1b]0;title\\x07\\x1b]52;c;Zm9v\\x1b\\"},
        {"a\bb\vc\fd\x7f", 0, "a\\x08b\\x0bc\\x0cd\\x7f"},
        {"a\0b", 3, "a\\x00b"},
        {"\xc2\x9b"
         "31m\xc2\x80\xc2\x9f\xc2\xa0",
         0, "\\u009b31m\\u0080\\u009f\xc2\xa0"},
        {"\x9b"
         "31m\x80\x90",
         0, "\\x9b31m\\x80\\x90"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xba\xe2\x80\x8d \xd7\xa9", 0,
         "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xba\xe2\x80\x8d \xd7\xa9"},
        {"caf\xe9 th\xea", 0, "caf\\xe9 th\\xea"},
        {"\xe2\x80\xae"
         "evil\xe2\x80\xac\xe2\x81\xa6x\xe2\x81\xa9\xe2\x80\xaa",
         0, "\\u202eevil\\u202c\\u2066x\\u2069\\u202a"},
        {"\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x93\xe2\x81\xa0", 0,
         "\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x93\xe2\x81\xa0"},
        {"one\r\ntwo\r\n", 0, "one\ntwo\n"},
        {"one\rtwo\r\r\n\r", 0, "one\\x0dtwo\\x0d\n\\x0d"},
        {"\xc3", 0, "\\xc3"},
        {"\xe2\x82", 0, "\\xe2\\x82"},
        {"\xf0\x9f\x90", 0, "\\xf0\\x9f\\x90"},
        {"\xe2\x82\x1b\xe2\xc2\x9b", 0, "\\xe2\\x82\\x1b\\xe2\\u009b"},
        {"\xc0\xaf\xed\xa0\x80\xf5", 0, "\\xc0\\xaf\\xed\\xa0\\x80\\xf5"},
        {"\\x1b", 0, "\\x1b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = cases[i].n ? cases[i].n : strlen(cases[i].text);
        for (size_t each = 1; each <= 7; each++) {
            size_t n_out;
            char *out = shown(cases[i].text, n, each, true, &n_out);
            if (strcmp(out, cases[i].want) != 0)
                fail_msg("case %d in pieces of %d: '%s'", (int)i, (int)each, out);
            free(out);
            out = shown(cases[i].text, n, each, false, &n_out);
            assert_int_equal(n_out, n);
            assert_memory_equal(out, cases[i].text, n);
            free(out);
        }
    }
}

static void test_no_room(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        skip();
    setvbuf(full, NULL, _IONBF, 0);
    struct app_shown s = {.f = full, .terminal = true};
    assert_false(app_shown_write(&s, "\x1b", 1));
    assert_false(app_shown_write(&s, "a", 1));
    fclose(full);
}

static void test_names_and_messages(void **state)
{
    (void)state;
    char line[] = "a\x1b[2J\xc2\x9b\xe2\x80\xae"
                  "b\xe2\x80\x8f\n";
    app_hide_controls(line, true);
    assert_string_equal(line, "a?[2J??b\xe2\x80\x8f\n");
    /* Bytes that are no text: a terminal in Latin-1 obeys 0x80 to 0x9f. */
    char bytes[] = "\x9b[2J\xc3\x9b\xe9\xff\xe2\x82\x9d\xe2\x82\x90"
                   "b\xf0\x9f\x98\x80\xf0\x9f\x98";
    app_hide_controls(bytes, false);
    assert_string_equal(bytes, "?[2J\xc3\x9b\xe9\xff\xe2\x82\x9d\xe2\x82\x90"
                               "b\xf0\x9f\x98\x80\xf0??");
    assert_int_equal(app_control_code("\xc2\x9b", 2), 0x9b);
    assert_int_equal(app_control_code("\xe2\x81\xa6", 3), 0x2066);
    assert_int_equal(app_control_bytes("\xe2"), 0);
    assert_int_equal(app_control_bytes("\xe2\x80"), 0);
    assert_int_equal(app_control_bytes(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_names_and_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
