/* SPDX-License-Identifier: MIT */
/* Limits on memory and cores, from made-up files of the system. */
#include "asserts.h"

#include "app/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char root_template[] = "/tmp/winnow-limits-XXXXXX";

static int set_up(void **state)
{
    char *root = strdup(root_template);
    *state = root;
    return root && mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", (char *)*state);
    const int rc = system(command);
    free(*state);
    return rc;
}

/* Writes ROOT/path and makes the folders above it. */
static void write_file(const char *root, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void nothing_is_known(void **state)
{
    struct app_limits l;
    app_limits_read(&l, *state);
    assert_true(l.total == APP_NO_LIMIT && l.available == APP_NO_LIMIT && l.group == APP_NO_LIMIT);
    assert_int_equal(l.overcommit, -1);
    assert_true(l.cores == 0);
}

static void machine(void **state)
{
    struct app_limits l;
    write_file(*state, "proc/meminfo",
               "MemTotal: 4096 kB\nMemAvailable:   2 kB\nCommitLimit: 9 kB\nCommitted_AS: 8 kB\n");
    write_file(*state, "proc/sys/vm/overcommit_memory", "1\n");
    app_limits_read(&l, *state);
    assert_int_equal(l.total, 4096 * 1024);
    assert_int_equal(l.available, 2 * 1024);
    assert_int_equal(l.room, 2 * 1024);
    assert_int_equal(l.overcommit, 1);
    assert_true(l.commit_room == APP_NO_LIMIT);
    write_file(*state, "proc/sys/vm/overcommit_memory", "2\n");
    app_limits_read(&l, *state);
    assert_int_equal(l.commit_room, 1024);
    assert_int_equal(l.room, 1024);
}

/* The least limit of a group and those above it; pages of files that are not in use can be had. */
static void groups_of_version_2(void **state)
{
    struct app_limits l;
    write_file(*state, "proc/self/cgroup", "0::/a/b\n");
    write_file(*state, "sys/fs/cgroup/a/b/memory.max", "max\n");
    write_file(*state, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    write_file(*state, "sys/fs/cgroup/a/memory.max", "1000\n");
    write_file(*state, "sys/fs/cgroup/a/memory.current", "900\n");
    write_file(*state, "sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300\n");
    write_file(*state, "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    app_limits_read(&l, *state);
    assert_int_equal(l.group, 1000);
    assert_int_equal(l.group_room, 400);
    assert_int_equal(l.room, 400);
    assert_true(l.cores == 1.5);
}

/* The path is that outside of a container; what is on the way up holds. */
static void groups_of_version_1(void **state)
{
    struct app_limits l;
    write_file(*state, "proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/x/y\n0::/\n");
    write_file(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
    write_file(*state, "sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
    write_file(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    app_limits_read(&l, *state);
    assert_int_equal(l.group, 5000);
    assert_int_equal(l.group_room, 0);
    assert_true(l.cores == 0);
    write_file(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    app_limits_read(&l, *state);
    assert_true(l.group == APP_NO_LIMIT);
    assert_true(l.cores == 3);
}

static void the_system_itself(void **state)
{
    struct app_limits l;
    (void)state;
    app_limits_read(&l, "");
    assert_cmp(l.total, >, 0);
    assert_cmp(l.room, <=, l.available);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_of_version_2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_of_version_1, set_up, tear_down),
        cmocka_unit_test(the_system_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
