/* SPDX-License-Identifier: MIT */
/* ggml ends the process: the command says so in one line, ends with 1 and leaves no unfinished file. */
#include "helpers.h"

#include "app/console.h"
#include "app/output.h"
#include "cli/abort.h"

#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void one_line(void **state)
{
    (void)state;
    char folder[] = "/tmp/winnow-abort-XXXXXX", text[1024], path[64];
    int ends[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.json", folder);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_cmp(pid, >=, 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        struct app_out out;
        const struct app_inputs inputs = {0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        cli_catch_aborts();
        if (app_out_open(&out, path, &inputs) != APP_OK)
            _exit(9);
        ggml_abort("ggml.c", 7, "GGML_ASSERT(%s) failed", "a == b");
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], text, sizeof text - 1);
    assert_cmp(got, >, 0);
    text[got] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), APP_FAILED);
    assert_contains(text, "GGML_ASSERT(a == b) failed");
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_int_equal(rmdir(folder), 0); /* empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
