/* SPDX-License-Identifier: MIT */
/* Journals: what a process that was killed has left, what another one has open, and disks that are full. */
#include "asserts.h"
#include "child.h"
#include "peek_calibrate.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[96], lock[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/winnow-journal-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/journal", dir);
    snprintf(lock, sizeof lock, "%s/lock", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(lock);
    return rmdir(dir);
}

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void assert_file(const char *name, const char *text)
{
    char back[512] = "";
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_cmp(fread(back, 1, sizeof back - 1, f), <, sizeof back - 1);
    fclose(f);
    assert_string_equal(back, text);
}

/* ---- A journal with a header, without one, with a lock of its own ---- */

static json_t *header(int seed)
{
    return json_pack("{s:s, s:s, s:{s:i, s:f}}", "format", "winnow-journal-1", "kind", "srh", "settings",
                     "seed", seed, "share", 0.1);
}

#define HEADER "{\"format\":\"winnow-journal-1\",\"kind\":\"srh\",\"settings\":{\"seed\":1,\"share\":0.1}}\n"

static struct wnw__journal *opened(int seed)
{
    struct wnw__journal *j;
    json_t *h = header(seed);
    assert_ok(wnw__journal_open(&j, path, &(struct wnw__journal_params){.header = h}));
    json_decref(h);
    return j;
}

static void refused(int seed, int code, const char *says)
{
    struct wnw__journal *j;
    json_t *h = header(seed);
    assert_error(wnw__journal_open(&j, path, &(struct wnw__journal_params){.header = h}), code);
    assert_null(j);
    assert_says(says);
    json_decref(h);
}

static struct wnw__journal *opened_bare(const char *lock_path)
{
    struct wnw__journal *j;
    assert_ok(wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = lock_path, .sync_ms = 1e4}));
    return j;
}

static void add(struct wnw__journal *j, const char *text)
{
    assert_ok(wnw__journal_add(j, text, strlen(text)));
}

/* The next line is the array [x]. */
static void expect(struct wnw__journal *j, int x)
{
    json_t *v;
    assert_ok(wnw__journal_next(j, &v));
    assert_non_null(v);
    assert_int_equal(json_integer_value(json_array_get(v, 0)), x);
    json_decref(v);
}

static void expect_end(struct wnw__journal *j)
{
    json_t *v;
    for (int i = 0; i < 2; i++) {
        assert_ok(wnw__journal_next(j, &v));
        assert_null(v);
    }
}

/* ---- Ends ---- */

struct end_row {
    const char *name, *file; /* what a process has left; NULL = no file */
    int n_line;              /* [0], [1], .. */
    const char *then;        /* after [7] was added */
};

static void ends(void **state)
{
    const struct end_row *row = *state;
    unlink(path);
    if (row->file)
        write_file(row->file);
    struct wnw__journal *j = opened_bare(NULL);
    for (int i = 0; i < row->n_line; i++)
        expect(j, i);
    expect_end(j);
    add(j, "[7]");
    wnw__journal_close(j);
    assert_file(path, row->then);
}

static const struct end_row end_rows[] = {
    {"no file", NULL, 0, "[7]\n"},
    {"an empty file", "", 0, "[7]\n"},
    {"whole lines", "[0]\n[1]\n", 2, "[0]\n[1]\n[7]\n"},
    {"half a line", "[0]\n[1", 1, "[0]\n[7]\n"},
    {"a line without its end", "[0]\n[1]", 1, "[0]\n[7]\n"},
    {"half of the first line", "[", 0, "[7]\n"},
    {"longer than the line in its place", "[0]\n[1,2,3,4,5,6,7,8", 1, "[0]\n[7]\n"},
};

static void ends_with_header(void **state)
{
    const struct end_row *row = *state;
    unlink(path);
    if (row->file)
        write_file(row->file);
    struct wnw__journal *j = opened(1);
    for (int i = 0; i < row->n_line; i++)
        expect(j, i);
    expect_end(j);
    add(j, "[7]");
    wnw__journal_close(j);
    assert_file(path, row->then);
}

static const struct end_row header_rows[] = {
    {"no file", NULL, 0, HEADER "[7]\n"},
    {"an empty file", "", 0, HEADER "[7]\n"},
    {"half of the header", "{\"format\":\"winn", 0, HEADER "[7]\n"},
    {"the header alone", HEADER, 0, HEADER "[7]\n"},
    {"half a line", HEADER "[0]\n[1", 1, HEADER "[0]\n[7]\n"},
};

/* ---- Headers ---- */

static void another_setting_is_named(void **state)
{
    (void)state;
    wnw__journal_close(opened(1));
    refused(2, WNW_E_MISMATCH, "another seed: 1, and now it is 2");
    write_file("{\"format\":\"winnow-journal-1\",\"kind\":\"srh\",\"settings\":{\"seed\":1,\"share\":0.1},"
               "\"more\":2}\n");
    refused(1, WNW_E_MISMATCH, "another more: 2, and now it is nothing");
    write_file("{\"format\":\"winnow-journal-1\",\"settings\":{\"seed\":1,\"share\":0.1}}\n");
    refused(1, WNW_E_MISMATCH, "another kind: nothing, and now it is \"srh\"");
}

/* Somebody's file is not overwritten, with or without a line break in it. */
static void other_files_are_left_alone(void **state)
{
    (void)state;
    static const char *const contents[] = {
        "my diary",          "my diary\n", "{}\n", "[1]\n", "{\"format\":\"winnow-journal-9\"}\n",
        "{\"format\":\"winX"};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        write_file(contents[i]);
        refused(1, WNW_E_FORMAT, "is not a journal that this version");
        assert_file(path, contents[i]);
    }
}

/* ---- Damage ---- */

static void damage_is_found(void **state)
{
    (void)state;
    static const char *const lines[] = {"nonsense\n", "\n", "[1] [2]\n", "{\"a\":1,\"a\":2}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[256];
        json_t *v;
        snprintf(text, sizeof text, HEADER "[0]\n%s[1]\n", lines[i]);
        write_file(text);
        struct wnw__journal *j = opened(1);
        expect(j, 0);
        assert_error(wnw__journal_next(j, &v), WNW_E_FORMAT);
        assert_null(v);
        assert_says("line 3 of the journal");
        assert_says("is not JSON; remove the file");
        assert_false(wnw__journal_take_back(j)); /* another line follows */
        wnw__journal_close(j);
        assert_file(path, text);
    }
}

/* A reader that can do without its last line has the next one take its place. */
static void the_last_line_is_taken_back(void **state)
{
    (void)state;
    json_t *v;
    write_file("[0]\n[1]\nnonsense\n");
    struct wnw__journal *j = opened_bare(NULL);
    expect(j, 0);
    assert_false(wnw__journal_take_back(j));
    expect(j, 1);
    assert_error(wnw__journal_next(j, &v), WNW_E_FORMAT);
    assert_true(wnw__journal_take_back(j));
    expect_end(j);
    assert_error(wnw__journal_damaged(j, "is odd"), WNW_E_FORMAT);
    assert_says("line 2 of the journal");
    assert_says("is odd");
    add(j, "[2]");
    add(j, "[3]");
    wnw__journal_close(j);
    assert_file(path, "[0]\n[1]\n[2]\n[3]\n");
    write_file("[0]\nnonsense\n[");
    j = opened_bare(NULL);
    expect(j, 0);
    assert_error(wnw__journal_next(j, &v), WNW_E_FORMAT);
    assert_false(wnw__journal_take_back(j)); /* half a line follows */
    wnw__journal_close(j);
}

/* ---- One process at a time ---- */

static void one_at_a_time(void **state)
{
    (void)state;
    struct wnw__journal *j = opened(1);
    refused(1, WNW_E_ARG, "another process is writing");
    wnw__journal_close(j);
    wnw__journal_close(opened(1));
}

/* Another process has the journal open until `hold` is closed; it does not close it itself. */
static pid_t hold_open(int *hold)
{
    int ready[2], end[2];
    char c;
    assert_int_equal(pipe(ready) | pipe(end), 0);
    const pid_t child = test_child(30);
    if (child == 0) {
        struct wnw__journal *j;
        close(end[1]);
        const int rc = wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = lock});
        const bool good =
            rc == WNW_OK && wnw__journal_add(j, "[0]", 3) == WNW_OK && write(ready[1], "x", 1) == 1;
        _exit(good && read(end[0], &c, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    close(end[0]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    *hold = end[1];
    return child;
}

static void another_process_is_named(void **state)
{
    (void)state;
    struct wnw__journal *j;
    int hold;
    char says[64];
    const pid_t child = hold_open(&hold);
    snprintf(says, sizeof says, "process %ld is writing the journal", (long)child);
    assert_error(wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = lock}), WNW_E_ARG);
    assert_null(j);
    assert_says(says);
    close(hold);
    assert_int_equal(test_child_status(child, "a writer"), 0);
    /* Its end has given the lock back, and its line and number are there. */
    j = opened_bare(lock);
    assert_true(wnw__journal_was_left(j));
    expect(j, 0);
    expect_end(j);
    wnw__journal_close(j);
    assert_file(lock, "");
    j = opened_bare(lock);
    assert_false(wnw__journal_was_left(j));
    wnw__journal_close(j);
}

/* ---- Files that cannot be written ---- */

static void what_is_no_file(void **state)
{
    (void)state;
    static const struct {
        const char *path, *says;
        int code;
    } rows[] = {{"/dev/full", "'/dev/full' is not a journal", WNW_E_FORMAT},
                {"/dev/null", "'/dev/null' is not a journal", WNW_E_FORMAT},
                {"/tmp", "opening the journal '/tmp' failed", WNW_E_IO},
                {"/nowhere/at/all", "opening the journal '/nowhere/at/all' failed", WNW_E_IO}};
    struct wnw__journal *j;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_error(wnw__journal_open(&j, rows[i].path, &(struct wnw__journal_params){0}), rows[i].code);
        assert_null(j);
        assert_says(rows[i].says);
    }
    assert_error(wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = "/nowhere/lock"}),
                 WNW_E_IO);
    assert_says("opening the lock '/nowhere/lock' failed");
    assert_error(wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = "/dev/full"}),
                 WNW_E_FORMAT);
    assert_says("the lock '/dev/full' is not a regular file");
    assert_int_equal(access(path, F_OK), -1); /* a journal without its lock is not begun */
}

/* A lock says that work was left only where some had begun. */
static void a_journal_that_is_not_opened_leaves_nothing(void **state)
{
    (void)state;
    struct wnw__journal *j;
    unlink(path);
    unlink(lock);
    assert_error(wnw__journal_open(&j, "/nowhere/at/all", &(struct wnw__journal_params){.lock = lock}),
                 WNW_E_IO);
    assert_file(lock, "");
    FILE *f = fopen(lock, "w"); /* of a process that was killed */
    assert_non_null(f);
    assert_cmp(fputs("1\n", f), >=, 0);
    assert_int_equal(fclose(f), 0);
    assert_error(wnw__journal_open(&j, "/nowhere/at/all", &(struct wnw__journal_params){.lock = lock}),
                 WNW_E_IO);
    j = opened_bare(lock);
    assert_true(wnw__journal_was_left(j));
    wnw__journal_close(j);
    unlink(lock);
    assert_int_equal(mkfifo(lock, 0600), 0);
    assert_error(wnw__journal_open(&j, path, &(struct wnw__journal_params){.lock = lock}), WNW_E_FORMAT);
    assert_says("is not a regular file");
    unlink(lock);
}

/* A file that may not grow refuses a write as a full disk does: some of the line is written, and the rest is not. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct rlimit own;
    struct wnw__journal *j = opened_bare(NULL);
    add(j, "[0]");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &own), 0);
    void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){6, own.rlim_max}), 0);
    const int rc = wnw__journal_add(j, "[1111111111]", 12);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &own), 0);
    signal(SIGXFSZ, before);
    assert_int_equal(rc, WNW_E_IO);
    assert_says("writing the journal");
    assert_file(path, "[0]\n");
    add(j, "[1]"); /* once there is room again */
    wnw__journal_close(j);
    assert_file(path, "[0]\n[1]\n");
}

/* Root may write everywhere, so the process that tries is nobody's. */
static void a_file_that_may_not_be_written(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    write_file("[0]\n");
    assert_int_equal(chmod(path, 0444) | chmod(dir, 0755), 0);
    const pid_t child = test_child(30);
    if (child == 0) {
        struct wnw__journal *j;
        if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
            _exit(77);
        const int rc = wnw__journal_open(&j, path, &(struct wnw__journal_params){0});
        _exit(rc == WNW_E_IO && !j && strstr(wnw_last_error(), "Permission denied") ? 0 : 1);
    }
    const int status = test_child_status(child, "a reader");
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
    assert_file(path, "[0]\n");
}

int main(void)
{
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_FILE(another_setting_is_named),
        WITH_FILE(other_files_are_left_alone),
        WITH_FILE(damage_is_found),
        WITH_FILE(the_last_line_is_taken_back),
        WITH_FILE(one_at_a_time),
        WITH_FILE(another_process_is_named),
        WITH_FILE(what_is_no_file),
        WITH_FILE(a_journal_that_is_not_opened_leaves_nothing),
        WITH_FILE(a_full_disk_leaves_whole_lines),
        WITH_FILE(a_file_that_may_not_be_written),
    };
    int failed = run_rows_with(ends, end_rows, set_up, tear_down);
    failed += run_rows_with(ends_with_header, header_rows, set_up, tear_down);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
