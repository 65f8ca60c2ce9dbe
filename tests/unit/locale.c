/* SPDX-License-Identifier: MIT */
/* A host program whose locale writes 0,5: recipes, canonical strings, profiles and messages keep their point,
 * and the program keeps its locale. */
#include "helpers.h"
#include "winnow_method.h"

#include "peek_plan.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A locale as German is in this respect, made here: no machine needs to have one. */
static const char source[] =
    "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
static char folder[] = "/tmp/winnow-locale-XXXXXX";
static bool made;

static void make_locale(void)
{
    char path[64], command[256];
    if (!mkdtemp(folder))
        return;
    snprintf(path, sizeof path, "%s/source", folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0)
        return;
    /* It warns of the categories that the source does not have, and makes them like the C locale's. */
    snprintf(command, sizeof command, "localedef -c -i %s/source %s/xx_XX >/dev/null 2>&1", folder, folder);
    if (system(command) == -1)
        return;
    setenv("LOCPATH", folder, 1);
    made = setlocale(LC_ALL, "xx_XX") != NULL;
    setlocale(LC_ALL, "C");
}

/* Whether the calling thread writes a comma now. */
static bool writes_comma(void)
{
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    return strcmp(text, "0,5") == 0;
}

static int use_comma(void **state)
{
    (void)state;
    if (!made) {
        print_message("skipped: localedef cannot make a locale here\n");
        return 0;
    }
    return setlocale(LC_ALL, "xx_XX") && writes_comma() ? 0 : -1;
}

static int use_point(void **state)
{
    (void)state;
    return setlocale(LC_ALL, "C") ? 0 : -1;
}

/* Options with fractions: read, written out in full, and read again. */
static void check_recipe(const char *recipe, const char *part_of_it)
{
    wnw_policy *p, *again;
    p = test_policy(recipe);
    assert_contains(wnw_policy_string(p), part_of_it);
    again = test_policy(wnw_policy_string(p));
    assert_string_equal(wnw_policy_string(again), wnw_policy_string(p));
    wnw_policy_free(p);
    wnw_policy_free(again);
}

static void test_recipes(void **state)
{
    (void)state;
    if (!made)
        skip();
    check_recipe("snapkv+adakv:alpha_safeguard=0.3", "alpha_safeguard=0.3");
    check_recipe("random:seed=7", "seed=7");
    assert_true(writes_comma());
}

static void test_all_presets_in_full(void **state)
{
    (void)state;
    if (!made)
        skip();
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int32_t n = 0;
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strcmp(info.kind, "preset") == 0) {
            check_recipe(info.name, "");
            n++;
        }
    assert_cmp(n, >, 50);
    assert_true(writes_comma());
}

static void test_comma_is_no_point(void **state)
{
    (void)state;
    wnw_policy *p;
    if (!made)
        skip();
    assert_int_equal(wnw_policy_parse(&p, "snapkv+adakv:alpha_safeguard=2.5", NULL), WNW_E_ARG);
    assert_says("\"2.5\"; give a number from 0 to 1");
    assert_int_equal(wnw_policy_parse(&p, "expected_attention:epsilon=-0.25", NULL), WNW_E_ARG);
    assert_lacks(wnw_last_error(), "0,25");
    assert_true(writes_comma());
}

/* Shares 0.25 and 0.75 of two layers; the message of a bad one has a point as well. */
static int add_layers(wnw_profile *p, const char *first, const char *second)
{
    char path[64];
    snprintf(path, sizeof path, "%s/layers.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"format\": \"winnow-profile-1\", \"kind\": \"layers\", \"model\": {\"fingerprint\": "
            "\"0123456789abcdef0123456789abcdef\", \"n_layer\": 2, \"n_head\": 4, \"n_head_kv\": 2, "
            "\"n_embd_head\": 2}, "
            "\"settings\": {}, \"results\": {\"avg_score\": [%s, %s]}}",
            first, second);
    assert_int_equal(fclose(f), 0);
    const int rc = wnw_profile_add_file(p, path);
    unlink(path);
    return rc;
}

static void test_profiles(void **state)
{
    (void)state;
    wnw_profile *p;
    if (!made)
        skip();
    assert_int_equal(
        wnw__profile_new(
            &p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                             .fingerprint = "0123456789abcdef0123456789abcdef"}),
        WNW_OK);
    assert_int_equal(add_layers(p, "0.25", "7.5e-1"), WNW_OK);
    assert_cmp(p->layer_share[0], ==, 0.25);
    assert_cmp(p->layer_share[1], ==, 0.75);
    assert_int_equal(add_layers(p, "0.25", "-0.5"), WNW_E_FORMAT);
    assert_says("avg_score[1] is -0.5; it must be 0 to 1e+30");
    assert_true(writes_comma());
    wnw_profile_free(p);
}

/* A thread may have a locale of its own, which the others do not see. */
struct with_locale {
    locale_t own;
    bool good;
};

static void *in_thread(void *user)
{
    struct with_locale *w = user;
    wnw_policy *p = NULL;
    uselocale(w->own);
    w->good = writes_comma() && wnw_policy_parse(&p, "snapkv+adakv:alpha_safeguard=0.3", NULL) == WNW_OK &&
              strstr(wnw_policy_string(p), "alpha_safeguard=0.3") && uselocale((locale_t)0) == w->own &&
              writes_comma();
    wnw_policy_free(p);
    uselocale(LC_GLOBAL_LOCALE);
    return NULL;
}

static void test_threads_with_a_locale_of_their_own(void **state)
{
    (void)state;
    pthread_t thread;
    if (!made)
        skip();
    assert_non_null(setlocale(LC_ALL, "xx_XX"));
    struct with_locale w = {.own = duplocale(LC_GLOBAL_LOCALE)};
    setlocale(LC_ALL, "C");
    assert_false(writes_comma());
    assert_int_equal(pthread_create(&thread, NULL, in_thread, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(w.good);
    assert_false(writes_comma());
    freelocale(w.own);
}

int main(void)
{
    char command[64];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_recipes, use_comma, use_point),
        cmocka_unit_test_setup_teardown(test_all_presets_in_full, use_comma, use_point),
        cmocka_unit_test_setup_teardown(test_comma_is_no_point, use_comma, use_point),
        cmocka_unit_test_setup_teardown(test_profiles, use_comma, use_point),
        cmocka_unit_test(test_threads_with_a_locale_of_their_own),
    };
    make_locale();
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? rc : 1;
}
