/* SPDX-License-Identifier: MIT */
#include "app/limits.h"

#include "app/process.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_SIZE = 4096 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t minus(uint64_t limit, uint64_t used)
{
    if (limit == APP_NO_LIMIT)
        return limit;
    if (limit > used)
        return limit - used;
    return 0;
}

/* The first line of a file, without its end. False if there is none. */
static bool first_line(char *out, size_t size, const char *path)
{
    FILE *f = fopen(path, "r");
    const bool good = f && fgets(out, (int)size, f);
    if (f)
        fclose(f);
    if (good)
        out[strcspn(out, "\n")] = '\0';
    return good;
}

/* The number after `key` in a file whose lines are "key number". APP_NO_LIMIT if there is none. */
static uint64_t number_after(const char *path, const char *key)
{
    char line[256];
    uint64_t value = APP_NO_LIMIT;
    const size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    while (f && value == APP_NO_LIMIT && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNu64, &value) != 1)
            value = APP_NO_LIMIT;
    if (f)
        fclose(f);
    return value;
}

/* A file that holds one number. "max", and the number near 2^63 with which version 1 says it, are no limit. */
static uint64_t number_in(const char *folder, const char *name)
{
    char path[PATH_SIZE], line[64];
    uint64_t value;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_SIZE ||
        !first_line(line, sizeof line, path) || sscanf(line, "%" SCNu64, &value) != 1 ||
        value >= (uint64_t)1 << 62)
        return APP_NO_LIMIT;
    return value;
}

/* Names of a version's files. */
struct group_files {
    const char *limit, *used, *inactive;
};

/* The limits on memory of one group. Pages of files that are not in use are counted as used, and can be had. */
static void add_memory(struct app_limits *out, const char *folder, const struct group_files *files)
{
    char path[PATH_SIZE];
    const uint64_t limit = number_in(folder, files->limit);
    uint64_t used = number_in(folder, files->used), inactive = APP_NO_LIMIT;
    if (limit == APP_NO_LIMIT)
        return;
    if (snprintf(path, sizeof path, "%s/memory.stat", folder) < PATH_SIZE)
        inactive = number_after(path, files->inactive);
    used = used == APP_NO_LIMIT ? 0 : used;
    used = minus(used, inactive == APP_NO_LIMIT ? 0 : inactive);
    out->group = least(out->group, limit);
    out->group_room = least(out->group_room, minus(limit, used));
}

static void add_quota(struct app_limits *out, double quota, double period)
{
    const double cores = quota > 0 && period > 0 ? quota / period : 0;
    if (cores > 0 && (out->cores == 0 || cores < out->cores))
        out->cores = cores;
}

static void add_cores(struct app_limits *out, const char *folder)
{
    char path[PATH_SIZE], line[64];
    double quota, period;
    const uint64_t old = number_in(folder, "cpu.cfs_quota_us"); /* -1 is no limit, and beyond any number */
    if (old != APP_NO_LIMIT)
        add_quota(out, (double)old, (double)number_in(folder, "cpu.cfs_period_us"));
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) < PATH_SIZE &&
        first_line(line, sizeof line, path) && sscanf(line, "%lf %lf", &quota, &period) == 2)
        add_quota(out, quota, period);
}

/* A group and all above it limit what is in it. In a container, groups above its own are not shown, or the path is
 * that outside of it and does not exist; then what is found on the way up holds. */
static void add_groups(struct app_limits *out, const char *mount, char *group, bool version_2)
{
    static const struct group_files old = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file "},
                                    now = {"memory.max", "memory.current", "inactive_file "};
    for (bool more = true; more;) {
        char folder[PATH_SIZE];
        if (snprintf(folder, sizeof folder, "%s%s", mount, group) < PATH_SIZE) {
            add_memory(out, folder, version_2 ? &now : &old);
            add_cores(out, folder);
        }
        char *slash = strrchr(group, '/');
        more = slash != NULL;
        if (slash)
            *slash = '\0';
    }
}

/* One line of /proc/self/cgroup, "number:controllers:/path"; version 2 has number 0 and no controllers. */
static void add_line(struct app_limits *out, const char *root, char *line)
{
    char mount[PATH_SIZE];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    line[strcspn(line, "\n")] = '\0';
    if (!group)
        return;
    *group++ = '\0';
    controllers++;
    if (*controllers)
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controllers);
    else
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    add_groups(out, mount, group, !*controllers);
}

static void read_groups(struct app_limits *out, const char *root)
{
    char path[PATH_SIZE], line[PATH_SIZE];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        add_line(out, root, line);
    if (f)
        fclose(f);
}

static uint64_t limit_of(int resource)
{
    struct rlimit limit;
    return getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
               ? APP_NO_LIMIT
               : (uint64_t)limit.rlim_cur;
}

static uint64_t kib(const char *path, const char *key)
{
    const uint64_t value = number_after(path, key);
    return value == APP_NO_LIMIT ? value : value * 1024;
}

static void read_machine(struct app_limits *out, const char *root)
{
    char path[PATH_SIZE], line[64];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    out->total = kib(path, "MemTotal:");
    out->available = kib(path, "MemAvailable:");
    const uint64_t limit = kib(path, "CommitLimit:"), committed = kib(path, "Committed_AS:");
    snprintf(path, sizeof path, "%s/proc/sys/vm/overcommit_memory", root);
    out->overcommit = first_line(line, sizeof line, path) ? atoi(line) : -1;
    if (out->overcommit == 2 && committed != APP_NO_LIMIT)
        out->commit_room = minus(limit, committed);
}

void app_limits_read(struct app_limits *out, const char *root)
{
    uint64_t mapped;
    *out =
        (struct app_limits){.group = APP_NO_LIMIT, .group_room = APP_NO_LIMIT, .commit_room = APP_NO_LIMIT};
    read_machine(out, root);
    read_groups(out, root);
    out->addresses = limit_of(RLIMIT_AS);
    out->data = limit_of(RLIMIT_DATA);
    (void)app_proc_status(&mapped, "VmSize:"); /* 0 where the system does not say it */
    out->address_room = minus(out->addresses, mapped);
    out->room = least(least(out->available, out->group_room), least(out->address_room, out->commit_room));
    out->room = least(out->room, out->data);
}
