/* SPDX-License-Identifier: MIT */
/* Options of the command where memory runs out, and numbers at the ends of their range. */
#include "helpers.h"

#include "app/args.h"
#include "app/console.h"
#include "app/values.h"

#include <popt.h>
#include <stdlib.h>
#include <string.h>

/* Put in place of popt's by the linker: popt gives NULL where it could not copy the argument. */
char *__wrap_poptGetOptArg(poptContext con); /* NOLINT */
char *__real_poptGetOptArg(poptContext con); /* NOLINT */
static bool popt_has_no_memory;

char *__wrap_poptGetOptArg(poptContext con)
{
    char *text = __real_poptGetOptArg(con);
    if (!popt_has_no_memory)
        return text;
    free(text);
    return NULL;
}

static const struct app_group *const groups[] = {&app_group_model, &app_group_input, &app_group_policy,
                                                 &app_group_common, NULL};
static const struct app_command command = {.name = "test",
                                           .about = "",
                                           .usage = "",
                                           .notes = "",
                                           .groups = groups,
                                           .args_size = sizeof(struct app_args)};

static int parse(struct app_args *args, const char *option, const char *value)
{
    const char *argv[] = {"winnow", option, value, NULL};
    const int rc = app_parse(args, &command, 3, argv);
    return rc;
}

/* An argument that got lost must not be read as an empty one: `-p TEXT` would run without a question. */
static void test_no_memory_is_no_empty_argument(void **state)
{
    (void)state;
    struct app_args args;
    assert_int_equal(parse(&args, "-p", "text"), APP_OK);
    assert_string_equal(args.question, "text");
    app_args_clear(&args, &command);
    assert_int_equal(parse(&args, "-p", ""), APP_OK);
    assert_string_equal(args.question, "");
    app_args_clear(&args, &command);
    popt_has_no_memory = true;
    assert_int_equal(parse(&args, "-p", "text"), APP_FAILED);
    app_args_clear(&args, &command);
    assert_int_equal(parse(&args, "--budget", "5"), APP_FAILED);
    app_args_clear(&args, &command);
    popt_has_no_memory = false;
}

/* The option of this name. */
static const struct app_option *option(const char *name)
{
    for (int g = 0; groups[g]; g++)
        for (int i = 0; i < groups[g]->n; i++)
            if (groups[g]->options[i].name && strcmp(groups[g]->options[i].name, name) == 0)
                return &groups[g]->options[i];
    fail_msg("there is no option %s", name);
    return NULL;
}

/* Options of every type differ from their defaults where they were given other values, and only then. */
static void test_defaults(void **state)
{
    (void)state;
    static const char *const given[][2] = {{"--kv-type", "q8_0"}, {"--system", ""},     {"--budget", "5"},
                                           {"--ratio", "0.25"},   {"--kv-bytes", "3K"}, {"--raw", NULL}};
    struct app_args args;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const char *argv[] = {"winnow", given[i][0], given[i][1], NULL};
        assert_int_equal(app_parse(&args, &command, given[i][1] ? 3 : 2, argv), APP_OK);
        for (size_t k = 0; k < sizeof given / sizeof *given; k++)
            assert_int_equal(app_option_is_default(&args, option(given[k][0] + 2)), k != i);
        app_args_clear(&args, &command);
    }
    assert_int_equal(parse(&args, "--kv-type", "f16"), APP_OK);
    assert_true(app_option_is_default(&args, option("kv-type")));
    app_args_clear(&args, &command);
}

static void test_whole_numbers_saturate(void **state)
{
    (void)state;
    int64_t v;
    assert_true(app_parse_int(&v, "9223372036854775807"));
    assert_cmp(v, ==, INT64_MAX);
    assert_true(app_parse_int(&v, "9223372036854775808"));
    assert_cmp(v, ==, INT64_MAX);
    assert_true(app_parse_int(&v, "-9223372036854775809"));
    assert_cmp(v, ==, INT64_MIN);
    assert_false(app_parse_int(&v, "+5"));
    assert_false(app_parse_int(&v, "-"));
    assert_false(app_parse_int(&v, "5 "));
}

static void test_bytes_saturate(void **state)
{
    (void)state;
    int64_t v;
    assert_true(app_parse_bytes(&v, "3K"));
    assert_cmp(v, ==, 3072);
    assert_true(app_parse_bytes(&v, "2M"));
    assert_cmp(v, ==, 2097152);
    assert_true(app_parse_bytes(&v, "8589934591G"));
    assert_cmp(v, ==, INT64_C(8589934591) << 30);
    assert_true(app_parse_bytes(&v, "8589934592G"));
    assert_cmp(v, ==, INT64_MAX); /* 2^63 */
    assert_true(app_parse_bytes(&v, "99999999999999999999999999999999999999"));
    assert_cmp(v, ==, INT64_MAX);
    assert_false(app_parse_bytes(&v, "1T"));
    assert_false(app_parse_bytes(&v, "1KB"));
    assert_false(app_parse_bytes(&v, "K"));
    assert_false(app_parse_bytes(&v, "-1"));
    assert_false(app_parse_bytes(&v, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory_is_no_empty_argument),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_whole_numbers_saturate),
        cmocka_unit_test(test_bytes_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
