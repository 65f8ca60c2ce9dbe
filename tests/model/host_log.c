/* SPDX-License-Identifier: MIT */
/* Log callbacks of ggml and libllama belong to the program: one that it has set stays. */
#include "files.h"
#include "helpers.h"

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    ++*(int *)user;
}

static void count_more(enum ggml_log_level level, const char *text, void *user)
{
    count(level, text, user);
}

static void open_and_close(void)
{
    wnw_model_free(test_model_open("tiny/chat/gemma3.gguf"));
}

/* libllama tells ggml's callback as its own; that messages of libllama arrive shows the rest. */
static void expect(ggml_log_callback want, void *want_user)
{
    ggml_log_callback fn;
    void *user;
    ggml_log_get(&fn, &user);
    assert_true(fn == want);
    assert_ptr_equal(user, want_user);
}

static void host_callbacks_stay(void **state)
{
    (void)state;
    int n = 0, n_ggml = 0;
    llama_log_set(count, &n);
    open_and_close();
    expect(count, &n);
    const int n_first = n;
    assert_cmp(n_first, >, 0); /* libllama has something to say about every vocabulary */
    open_and_close();
    expect(count, &n);
    assert_cmp(n, >, n_first);
    /* Another one for ggml. */
    ggml_log_set(count_more, &n_ggml);
    const int n_second = n;
    open_and_close();
    expect(count_more, &n_ggml);
    assert_cmp(n, >, n_second);
    llama_log_set(NULL, NULL);
}

static void keep_line(wnw_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    ++*(int *)user;
}

/* Where the program has none, nothing is printed and our own sink gets the messages. */
static void quiet_otherwise(void **state)
{
    (void)state;
    struct test_stderr err;
    char said[1024];
    int n = 0;
    llama_log_set(NULL, NULL);
    test_stderr_begin(&err);
    open_and_close();
    wnw_set_log(keep_line, &n);
    open_and_close();
    wnw_set_log(NULL, NULL);
    test_stderr_end(&err, said, sizeof said);
    assert_string_equal(said, "");
    assert_cmp(n, >, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_callbacks_stay),
                                       cmocka_unit_test(quiet_otherwise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
