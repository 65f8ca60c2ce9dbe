/* SPDX-License-Identifier: MIT */
/* Digests of files that are kept in a folder: they are found again for the same file in the same state, and for no other. */
#include "files.h"
#include "peek_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of a test's own, and a file that nobody has changed for a while. */
struct place {
    char top[64], folder[96], path[4096];
    struct wnw__file_state state;
};

static const uint64_t digest[2] = {0x0123456789abcdef, 0xfedcba9876543210};

static void make(struct place *p)
{
    *p = (struct place){.top = "/tmp/winnow-digests-XXXXXX"};
    assert_non_null(mkdtemp(p->top));
    snprintf(p->folder, sizeof p->folder, "%s/cache/digests", p->top);
    assert_non_null(realpath("/bin/sh", p->path));
    const int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    assert_cmp(fd, >=, 0);
    p->state = wnw__file_state_of(fd);
    p->state.tells = true; /* also where the tests' machine has a file system that does not */
    close(fd);
}

static void clear(struct place *p)
{
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -r %s", p->top, p->top);
    assert_int_equal(system(command), 0);
}

static bool found(const struct place *p, const struct wnw__file_state *state)
{
    uint64_t out[2] = {0};
    const bool is = wnw__digest_find(out, p->folder, state);
    if (is)
        assert_memory_equal(out, digest, sizeof out);
    return is;
}

/* The one file of the folder; false where there is none. */
static bool entry_of(const struct place *p, char path[256])
{
    DIR *dir = opendir(p->folder);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            snprintf(path, 256, "%s/%.100s", p->folder, e->d_name);
            n++;
        }
    if (dir)
        closedir(dir);
    assert_cmp(n, <=, 1);
    return n == 1;
}

static void kept_and_found(void **state)
{
    (void)state;
    struct place p;
    char entry[256];
    make(&p);
    assert_false(found(&p, &p.state));
    wnw__digest_keep(p.folder, p.path, &p.state, digest);
    assert_true(found(&p, &p.state));
    wnw__digest_keep(p.folder, p.path, &p.state, digest); /* once more */
    assert_true(found(&p, &p.state));
    assert_true(entry_of(&p, entry));
    uint64_t out[2];
    assert_false(wnw__digest_find(out, NULL, &p.state));
    wnw__digest_keep(NULL, p.path, &p.state, digest);
    clear(&p);
}

/* Any difference in its state makes it another file. */
static void another_state(void **state)
{
    (void)state;
    struct place p;
    make(&p);
    wnw__digest_keep(p.folder, p.path, &p.state, digest);
    struct wnw__file_state s = p.state;
    s.dev++;
    assert_false(found(&p, &s));
    s = p.state;
    s.ino++;
    assert_false(found(&p, &s));
    s = p.state;
    s.size++;
    assert_false(found(&p, &s));
    for (int i = 0; i < 2; i++) {
        s = p.state;
        s.modified[i]++;
        assert_false(found(&p, &s));
        s = p.state;
        s.changed[i]++;
        assert_false(found(&p, &s));
    }
    s = p.state;
    s.tells = false;
    assert_false(found(&p, &s));
    assert_true(found(&p, &p.state));
    clear(&p);
}

static void keep_nothing(const char *folder, const char *path, const struct wnw__file_state *s)
{
    uint64_t out[2];
    struct wnw__file_state asked = *s;
    wnw__digest_keep(folder, path, s, digest);
    asked.tells = true;
    assert_false(wnw__digest_find(out, folder, &asked));
}

/* A file that changed while it was read, one that is gone, one that was written just now, and one whose changes do not show. */
static void what_is_not_kept(void **state)
{
    (void)state;
    struct place p;
    char fresh[128];
    make(&p);
    struct wnw__file_state s = p.state;
    s.changed[1] ^= 1;
    keep_nothing(p.folder, p.path, &s);
    s = p.state;
    s.size++;
    keep_nothing(p.folder, p.path, &s);
    keep_nothing(p.folder, "/nonexistent", &p.state);
    s = p.state;
    s.tells = false;
    keep_nothing(p.folder, p.path, &s);
    snprintf(fresh, sizeof fresh, "%s/fresh", p.top);
    const int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_cmp(fd, >=, 0);
    assert_int_equal(write(fd, "x", 1), 1);
    s = wnw__file_state_of(fd);
    s.tells = true;
    keep_nothing(p.folder, fresh, &s);
    /* An old time of modification does not make it old. */
    assert_int_equal(futimens(fd, (const struct timespec[]){{.tv_sec = 1000}, {.tv_sec = 1000}}), 0);
    s = wnw__file_state_of(fd);
    s.tells = true;
    assert_int_equal(s.modified[0], 1000);
    keep_nothing(p.folder, fresh, &s);
    close(fd);
    clear(&p);
}

static void write_entry(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Entries with any byte changed, cut off or followed by others are passed over, and are written again. */
static void damaged_entries(void **state)
{
    (void)state;
    struct place p;
    char entry[256], text[1024];
    make(&p);
    wnw__digest_keep(p.folder, p.path, &p.state, digest);
    assert_true(entry_of(&p, entry));
    FILE *f = fopen(entry, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_in_range(n, 50, 400);
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 1;
        write_entry(entry, text, n);
        assert_false(found(&p, &p.state));
        text[i] ^= 1;
        write_entry(entry, text, i);
        assert_false(found(&p, &p.state));
    }
    write_entry(entry, text, n);
    assert_true(found(&p, &p.state));
    memset(text + n, 'x', sizeof text - n);
    write_entry(entry, text, n + 1);
    assert_false(found(&p, &p.state));
    write_entry(entry, text, sizeof text);
    assert_false(found(&p, &p.state));
    wnw__digest_keep(p.folder, p.path, &p.state, digest);
    assert_true(found(&p, &p.state));
    /* A pipe is not waited for. */
    unlink(entry);
    assert_int_equal(mkfifo(entry, 0600), 0);
    assert_false(found(&p, &p.state));
    wnw__digest_keep(p.folder, p.path, &p.state, digest);
    clear(&p);
}

static void folders_that_cannot_be_written(void **state)
{
    (void)state;
    struct place p;
    char folder[160];
    make(&p);
    snprintf(folder, sizeof folder, "%s/file", p.top);
    write_entry(folder, "x", 1);
    keep_nothing(folder, p.path, &p.state);
    snprintf(folder, sizeof folder, "%s/a/b/c/d", p.top); /* more than the last two are missing */
    keep_nothing(folder, p.path, &p.state);
    keep_nothing("/proc/digests", p.path, &p.state);
    keep_nothing("", p.path, &p.state);
    clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_and_found),
        cmocka_unit_test(another_state),
        cmocka_unit_test(what_is_not_kept),
        cmocka_unit_test(damaged_entries),
        cmocka_unit_test(folders_that_cannot_be_written),
    };
    return cmocka_run_group_tests_name("digests of files", tests, NULL, NULL);
}
