/* SPDX-License-Identifier: MIT */
/*
 * Prompts in the models' own templates, compared with those that jinja2 makes of the same messages. The tiny models have
 * the control tokens and templates of the real ones and a vocabulary of bytes; SmolLM2 is there whole, so for
 * it the token ids are compared with those of another tokenizer as well. model_chat_large does that for the
 * others.
 */
#include "chat_rows.h"
#include "peek_prompt.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

/* ids of text, control tokens included, added to tokens[*n]. */
static void add_text(const wnw_model *m, const char *text, int32_t *tokens, int32_t *n)
{
    int32_t *ids, n_ids;
    assert_ok(wnw_tokenize(m, text, strlen(text), false, true, &ids, &n_ids));
    memcpy(tokens + *n, ids, (size_t)n_ids * sizeof *ids);
    *n += n_ids;
    wnw_free(ids);
}

static void same_text(const struct chat_row *row, void *user)
{
    const wnw_model *m = user;
    static int32_t want[16384];
    int32_t n = 0;
    wnw_prompt *p = NULL;
    print_message("  %s, %s\n", row->template ? row->template : "raw", row->name);
    assert_cmp(strlen(row->first) + strlen(row->second), <, sizeof want / sizeof *want - 1);
    assert_ok(wnw_prompt_build(&p, m, &row->params));
    add_text(m, row->first, want, &n);
    /* A BOS in front of the text is the only thing that is not in it. */
    if (p->n_context == n + 1) {
        memmove(want + 1, want, (size_t)n * sizeof *want);
        want[0] = p->tokens[0];
        n++;
        assert_null(row->template);
    }
    assert_int_equal(p->n_context, n);
    add_text(m, row->second, want, &n);
    assert_int_equal(p->n_tokens, n);
    assert_memory_equal(p->tokens, want, (size_t)n * sizeof *want);
    wnw_prompt_free(p);
}

static void tiny(const char *file, const char *model)
{
    if (!wnw_has_jinja())
        skip();
    wnw_model *m = test_model_open(file);
    chat_each_row(model, same_text, m);
    wnw_model_free(m);
}

static void tiny_smollm2(void **state)
{
    (void)state;
    tiny("tiny/chat/smollm2.gguf", "smollm2-135m");
}

static void tiny_qwen2(void **state)
{
    (void)state;
    tiny("tiny/chat/qwen2.5.gguf", "qwen2.5-coder-0.5b");
}

static void tiny_gemma3(void **state)
{
    (void)state;
    tiny("tiny/chat/gemma3.gguf", "gemma-3-270m");
}

static void same_ids(const struct chat_row *row, void *user)
{
    wnw_prompt *p = NULL;
    print_message("  %s, %s\n", row->template ? row->template : "raw", row->name);
    assert_ok(wnw_prompt_build(&p, user, &row->params));
    assert_int_equal(p->n_context, row->n_context);
    assert_int_equal(p->n_tokens, row->n_ids);
    assert_memory_equal(p->tokens, row->ids, (size_t)p->n_tokens * sizeof *p->tokens);
    wnw_prompt_free(p);
}

static void smollm2(void **state)
{
    (void)state;
    if (!wnw_has_jinja())
        skip();
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    chat_each_row("smollm2-135m", same_ids, m);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_smollm2), cmocka_unit_test(tiny_qwen2),
                                       cmocka_unit_test(tiny_gemma3), cmocka_unit_test(smollm2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
