/* SPDX-License-Identifier: MIT */
/*
 * A model in ever less address space, allocations inside ggml and libllama included: opened and used, or
 * E_NOMEM; neither "damaged" nor the end of the process. Every attempt runs in a process of its own. The
 * sanitizers need address space themselves, so nothing is tried under them.
 */
#include "child.h"
#include "helpers.h"
#include "peek_prompt.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum {
    N_PROMPT = 96,
    N_DECODE = 4,
    OUTCOME_OTHER = 64,
    STEP_KIB = 96,
    MOST_KIB = 64 << 10,
    TIME_LIMIT_S = 30
};

/* A life of a model and a session; a status. */
static int attempt(const char *path, const char *recipe)
{
    int32_t tokens[N_PROMPT + N_DECODE];
    wnw_model *m = NULL;
    wnw_session *s = NULL;
    wnw_policy *p = NULL;
    wnw_session_params params = wnw_session_default_params();
    params.n_threads = 1;
    params.n_ctx = 256;
    params.n_ubatch = 64;
    for (int32_t i = 0; i < N_PROMPT + N_DECODE; i++)
        tokens[i] = i * 7 % 250;
    int rc = wnw_model_open(&m, path, NULL);
    if (rc == WNW_OK)
        rc = wnw_session_new(&s, m, &params);
    if (rc == WNW_OK)
        rc = wnw_policy_parse(&p, recipe, NULL);
    if (rc == WNW_OK)
        rc = test_observe(s, (const wnw_policy *const *)&p, 1);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, tokens, N_PROMPT, NULL, NULL);
    if (rc == WNW_OK)
        rc = wnw_session_compress(s, p, NULL, NULL);
    for (int32_t i = 0; rc == WNW_OK && i < N_DECODE; i++)
        rc = wnw_session_decode(s, tokens[N_PROMPT + i]);
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_model_free(m);
    return rc;
}

/* A prompt whose template keeps 45 MB of lists and texts, within its bounds; a status. */
static int attempt_prompt(const char *path, const char *jinja)
{
    wnw_model *m = NULL;
    wnw_prompt *prompt = NULL;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .question = "q", .jinja = jinja};
    int rc = wnw_model_open(&m, path, NULL);
    if (rc == WNW_OK)
        rc = wnw_prompt_build(&prompt, m, &params);
    wnw_prompt_free(prompt);
    wnw_model_free(m);
    return rc;
}

static size_t used_kib(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    fclose(f);
    return pages * ((size_t)sysconf(_SC_PAGESIZE) / 1024);
}

/* With so much address space beyond what the process has already. */
static int attempt_within(size_t kib, int (*try)(const char *path, const char *how), const char *path,
                          const char *how)
{
    const size_t all = (used_kib() + kib) * 1024;
    char what[4200];
    snprintf(what, sizeof what, "%s with %zu KiB", path, kib);
    const pid_t child = test_child(TIME_LIMIT_S);
    if (child == 0) {
        const struct rlimit limit = {all, all};
        setrlimit(RLIMIT_AS, &limit);
        const int rc = try(path, how);
        if (rc != WNW_OK && rc != WNW_E_NOMEM)
            fprintf(stderr, "%s\n", wnw_last_error());
        _exit(rc == WNW_OK || rc == WNW_E_NOMEM ? -rc : OUTCOME_OTHER - rc);
    }
    const int code = test_child_status(child, what);
    if (code != WNW_OK && code != -WNW_E_NOMEM)
        fail_msg("%s: %s (exit status %d)", what, wnw_strerror(OUTCOME_OTHER - code), code);
    return -code;
}

static void little_by_little(void **state)
{
    static const char *const rows[][2] = {
        {"tiny/tiny-llama.gguf", "snapkv:window=8"},
        {"tiny/tiny-llama-q4_0.gguf", "kvzip"}, /* repacked weights */
        {"tiny/tiny-gemma3.gguf", "h2o"},
    };
    (void)state;
    if (SANITIZED) {
        print_message("skipped: built with sanitizers\n");
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[4096];
        int n_short = 0, n_works = 0;
        size_t kib = 0;
        test_model_path(path, sizeof path, rows[i][0]);
        for (; kib < MOST_KIB && n_works < 8; kib += STEP_KIB) {
            const int rc = attempt_within(kib, attempt, path, rows[i][1]);
            n_short += rc == WNW_E_NOMEM;
            n_works += rc == WNW_OK;
        }
        print_message("%s: too little %d times, works with %zu KiB\n", rows[i][0], n_short, kib);
        assert_cmp(n_short, >, 10);
        assert_cmp(n_works, ==, 8);
    }
}

/* A template for which there is no memory is not one that cannot be run. */
static void templates(void **state)
{
    static const char jinja[] =
        "{% set l = [] %}{% for i in range(400) %}{% set _ = l.append('0123456789' * 2000) %}{% endfor %}"
        "{{ messages[0].content }}";
    enum { STEP = 4 << 10, MOST = 512 << 10 };
    char path[4096];
    int n_short = 0, n_works = 0;
    (void)state;
    if (SANITIZED || !wnw_has_jinja())
        skip();
    test_model_path(path, sizeof path, "tiny/chat/smollm2.gguf");
    for (size_t kib = 0; kib < MOST && n_works < 3; kib += STEP) {
        const int rc = attempt_within(kib, attempt_prompt, path, jinja);
        n_short += rc == WNW_E_NOMEM;
        n_works += rc == WNW_OK;
    }
    print_message("too little %d times\n", n_short);
    assert_cmp(n_short, >, 10);
    assert_cmp(n_works, ==, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(little_by_little), cmocka_unit_test(templates)};
    return cmocka_run_group_tests_name("little address space", tests, NULL, NULL);
}
