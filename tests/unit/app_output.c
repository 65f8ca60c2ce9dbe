/* SPDX-License-Identifier: MIT */
/* Output files of the command: what a signal, an early end and a failing write leave. */
#include "helpers.h"

#include "app/console.h"
#include "app/json.h"
#include "app/output.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder of its own with the file "old.json", which holds "old". */
struct place {
    char folder[64], path[96];
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    *state = p;
    strcpy(p->folder, "/tmp/winnow-output-XXXXXX");
    if (!mkdtemp(p->folder))
        return -1;
    snprintf(p->path, sizeof p->path, "%s/old.json", p->folder);
    FILE *f = fopen(p->path, "w");
    return f && fputs("old", f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    const int rc = unlink(p->path) == 0 && rmdir(p->folder) == 0 ? 0 : -1; /* rmdir: nothing else is there */
    free(p);
    return rc;
}

static int n_files(const struct place *p)
{
    int n = 0;
    DIR *dir = opendir(p->folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void assert_content(const struct place *p, const char *want)
{
    char got[32] = "";
    FILE *f = fopen(p->path, "r");
    assert_non_null(f);
    assert_non_null(fgets(got, sizeof got, f));
    fclose(f);
    assert_string_equal(got, want);
    assert_int_equal(n_files(p), 1);
}

/* Another process begins to write and gets the signal; returns how it ended. */
static int end_by(const struct place *p, int sig, bool ignored)
{
    const pid_t pid = fork();
    if (pid == 0) {
        struct app_out out;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(sig, ignored ? SIG_IGN : SIG_DFL);
        if (app_out_open(&out, p->path, NULL) != APP_OK || fputs("half", out.f) < 0 || fflush(out.f) != 0 ||
            n_files(p) != 2)
            _exit(99);
        raise(sig);
        _exit(app_out_commit(&out));
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void test_signal_removes_the_unfinished_file(void **state)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        const int status = end_by(*state, signals[i], false);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signals[i]);
        assert_content(*state, "old");
    }
}

/* What nohup does: the signal is ignored, and the file is finished. */
static void test_ignored_signals_stay_ignored(void **state)
{
    const int status = end_by(*state, SIGHUP, true);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), APP_OK);
    assert_content(*state, "half");
}

static void test_signals_are_given_back(void **state)
{
    struct place *p = *state;
    struct app_out out;
    struct sigaction before, during, after;
    sigaction(SIGTERM, NULL, &before);
    assert_int_equal(app_out_open(&out, p->path, NULL), APP_OK);
    sigaction(SIGTERM, NULL, &during);
    assert_true(during.sa_handler != before.sa_handler);
    fputs("new", out.f);
    assert_int_equal(app_out_commit(&out), APP_OK);
    sigaction(SIGTERM, NULL, &after);
    assert_true(after.sa_handler == before.sa_handler);
    assert_content(p, "new");
}

static void test_abort_leaves_what_was_there(void **state)
{
    struct place *p = *state;
    struct app_out out = {0};
    app_out_abort(&out); /* nothing is open */
    assert_int_equal(app_out_open(&out, p->path, NULL), APP_OK);
    fputs("new", out.f);
    app_out_abort(&out);
    assert_content(p, "old");
}

/* JSON that could not be made, for lack of memory, is no reason to write an empty file. */
static void test_no_json_no_file(void **state)
{
    struct place *p = *state;
    struct app_out out;
    assert_int_equal(app_out_open(&out, p->path, NULL), APP_OK);
    assert_int_equal(app_out_json(&out, NULL), APP_FAILED);
    assert_null(out.f);
    assert_content(p, "old");
    /* A loop cannot be written; json_dumpf says so after the first bytes, as it does without memory. */
    json_t *loop = json_array();
    json_t *inner = json_array();
    json_array_append(loop, inner);
    json_array_append(inner, loop);
    assert_int_equal(app_out_open(&out, p->path, NULL), APP_OK);
    assert_int_equal(app_out_json(&out, loop), APP_FAILED);
    assert_content(p, "old");
    json_array_clear(inner);
    json_decref(inner);
    json_decref(loop);
}

static void test_lists_are_whole_or_not_there(void **state)
{
    (void)state;
    json_t *list = json_array();
    assert_true(app_json_append(&list, json_integer(1)));
    assert_false(app_json_append(&list, NULL));
    assert_null(list);
    assert_false(app_json_append(&list, json_integer(2)));
    assert_int_equal(app_print_json(json_pack("{s:o}", "list", list)), APP_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_signal_removes_the_unfinished_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ignored_signals_stay_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_signals_are_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abort_leaves_what_was_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_json_no_file, set_up, tear_down),
        cmocka_unit_test(test_lists_are_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
