/* SPDX-License-Identifier: MIT */
/* Files that are no files: a FIFO without a writer, devices, folders. The library says so and never waits. */
#include "helpers.h"

#include "peek_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/winnow-files-XXXXXX";
static char fifo[64], secret[64];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(secret, sizeof secret, "%s/secret", folder);
    FILE *f = fopen(secret, "w");
    return f && fclose(f) == 0 && chmod(secret, 0) == 0 && mkfifo(fifo, 0600) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(fifo);
    unlink(secret);
    return rmdir(folder);
}

static void assert_no_model(const char *path, int status, const char *part)
{
    wnw_model *m;
    alarm(20); /* a call that waits ends the test */
    assert_int_equal(wnw_model_open(&m, path, NULL), status);
    alarm(0);
    assert_null(m);
    assert_says(part);
}

static void test_models(void **state)
{
    (void)state;
    assert_no_model(fifo, WNW_E_FORMAT, "is not a regular file");
    assert_no_model("/dev/zero", WNW_E_FORMAT, "is not a regular file");
    assert_no_model("/dev/null", WNW_E_FORMAT, "is not a regular file");
    assert_no_model(folder, WNW_E_FORMAT, "is not a regular file");
    assert_no_model("/nonexistent/model.gguf", WNW_E_IO, "No such file");
    if (geteuid() != 0)
        assert_no_model(secret, WNW_E_IO, "Permission denied");
}

static void assert_no_profile(const char *path, int status, const char *part)
{
    wnw_profile *p;
    assert_int_equal(
        wnw__profile_new(
            &p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                             .fingerprint = "0123456789abcdef0123456789abcdef"}),
        WNW_OK);
    alarm(20);
    assert_int_equal(wnw_profile_add_file(p, path), status);
    alarm(0);
    assert_says(part);
    wnw_profile_free(p);
}

static void test_profiles(void **state)
{
    (void)state;
    assert_no_profile(fifo, WNW_E_FORMAT, "is not a regular file");
    assert_no_profile("/dev/zero", WNW_E_FORMAT, "is not a regular file");
    assert_no_profile(folder, WNW_E_FORMAT, "is not a regular file");
    assert_no_profile("/nonexistent/srh.json", WNW_E_IO, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_profiles),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
