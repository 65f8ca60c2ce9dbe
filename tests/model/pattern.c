/* SPDX-License-Identifier: MIT */
/* A build without the Jinja engine: this program is linked with jinja_absent.c. */
#include "helpers.h"
#include "peek_prompt.h"
#include "winnow_tools.h"

#include <string.h>

static int n_lines;

static void count_line(wnw_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == WNW_LOG_WARN && strstr(text, "libllama-common"))
        n_lines++;
}

/* The pattern has no default system message, and one line says so. */
static void pattern_and_a_line(void **state)
{
    (void)state;
    static const char text[] = "<|im_start|>user\nab\n\nef<|im_end|>\n<|im_start|>assistant\n";
    wnw_model *m = test_model_open("tiny/chat/smollm2.gguf");
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = "ab", .question = "ef"};
    wnw_prompt *p = NULL;
    int32_t *ids, n;
    assert_false(wnw_has_jinja());
    wnw_set_log(count_line, NULL);
    assert_ok(wnw_prompt_build(&p, m, &params));
    wnw_set_log(NULL, NULL);
    assert_int_equal(n_lines, 1);
    assert_ok(wnw_tokenize(m, text, strlen(text), false, true, &ids, &n));
    assert_int_equal(p->n_tokens, n);
    assert_memory_equal(p->tokens, ids, (size_t)n * sizeof *ids);
    assert_int_equal(p->n_context, p->n_prefix + 2);
    wnw_free(ids);
    wnw_prompt_free(p);
    wnw_model_free(m);
}

static void a_given_template(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/chat/smollm2.gguf");
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .question = "ef",
                                      .jinja = "{{ messages[0].content }}"};
    wnw_prompt *p = NULL;
    assert_error(wnw_prompt_build(&p, m, &params), WNW_E_UNSUPPORTED);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pattern_and_a_line),
                                       cmocka_unit_test(a_given_template)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
