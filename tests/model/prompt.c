/* SPDX-License-Identifier: MIT */
/* Prompts: what of them the chat template wrote. Ids are those of the vocabularies' own control tokens. */
#include "helpers.h"
#include "peek_prompt.h"
#include "winnow_chat.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static wnw_prompt *build(const wnw_model *m, const char *document, const char *question, const char *chat,
                         bool raw)
{
    wnw_prompt *p = NULL;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = document, .question = question,
                                      .chat = chat, .raw = raw};
    assert_ok(wnw_prompt_build(&p, m, &params));
    assert_in_range(p->n_prefix, 0, p->n_context);
    return p;
}

/* text's ids, control tokens included. */
static void assert_tokens(const wnw_model *m, const char *text, const int32_t *got, int32_t n_got)
{
    int32_t *want, n;
    assert_ok(wnw_tokenize(m, text, strlen(text), false, true, &want, &n));
    assert_int_equal(n_got, n);
    if (n > 0)
        assert_memory_equal(got, want, (size_t)n * sizeof *want);
    wnw_free(want);
}

/* Both models write ChatML and have a system message of their own. */
static void own_templates(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t start, end; /* <|im_start|>, <|im_end|> */
        const char *prefix;
    } row[] = {{"tiny/chat/smollm2.gguf", 1, 2,
                "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
                "Face<|im_end|>\n<|im_start|>user\n"},
               {"tiny/chat/qwen2.5.gguf", 1, 2,
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
                "assistant.<|im_end|>\n<|im_start|>user\n"}};
    for (size_t i = 0; wnw_has_jinja() && i < sizeof row / sizeof *row; i++) {
        wnw_model *m = test_model_open(row[i].model);
        /* The template contains "user" too, and the document may begin like a part of it. */
        static const char *const documents[] = {"The harbor is red.", "user", " blank first", "", NULL};
        for (size_t k = 0; k < sizeof documents / sizeof *documents; k++) {
            wnw_prompt *p = build(m, documents[k], "Which harbor?", NULL, false);
            assert_tokens(m, row[i].prefix, p->tokens, p->n_prefix);
            assert_int_equal(p->tokens[0], row[i].start);
            assert_tokens(m, "<|im_end|>\n<|im_start|>assistant\n", p->suffix, p->n_suffix);
            assert_int_equal(p->suffix[0], row[i].end);
            assert_int_equal(p->suffix[2], row[i].start);
            /* The prompt ends with it. */
            assert_memory_equal(p->tokens + p->n_tokens - p->n_suffix, p->suffix,
                                (size_t)p->n_suffix * sizeof *p->suffix);
            if (!documents[k] || !*documents[k])
                assert_int_equal(p->n_context, p->n_prefix);
            wnw_prompt_free(p);
        }
        /* A message that is a word of the template is cut at its own place, not at the template's. */
        wnw_prompt *p = build(m, "user", NULL, NULL, false);
        assert_int_equal(p->n_context, p->n_prefix + 3); /* u, s, er */
        wnw_prompt_free(p);
        wnw_model_free(m);
    }
}

/* Two line breaks are one token, which is not the template's alone. */
static void line_breaks_over_the_border(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    wnw_prompt *p = build(m, "\n", "Which?", "chatml", false);
    assert_tokens(m, "<|im_start|>user", p->tokens, p->n_prefix);
    wnw_prompt_free(p);
    wnw_model_free(m);
}

/* A token over the border belongs to the text: the head of `[INST] ` ends with a blank that goes to the word
 * after it. */
static void token_over_the_border(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    int32_t *head, n_head;
    assert_ok(wnw_tokenize(m, "[INST] ", 7, false, true, &head, &n_head));
    wnw_prompt *p = build(m, "harbor", NULL, "llama2", false);
    assert_tokens(m, "[INST] harbor", p->tokens, p->n_context);
    assert_int_equal(p->n_prefix, n_head - 1);
    assert_tokens(m, "[INST]", p->tokens, p->n_prefix);
    assert_tokens(m, " [/INST]", p->suffix, p->n_suffix);
    wnw_prompt_free(p);
    wnw_free(head);
    wnw_model_free(m);
}

/* A template that trims the message. */
static void trimmed_message(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    wnw_prompt *p = build(m, "\n The harbor ", NULL, "gemma", false);
    assert_tokens(m, "<start_of_turn>user\n", p->tokens, p->n_prefix);
    assert_tokens(m, "<start_of_turn>user\nThe harbor", p->tokens, p->n_context);
    assert_tokens(m, "<end_of_turn>\n<start_of_turn>model\n", p->suffix, p->n_suffix);
    wnw_prompt_free(p);
    wnw_model_free(m);
}

/* Gemma's vocabulary adds a BOS: with a template it is the template's, without one the text's. */
static void without_template(void **state)
{
    (void)state;
    static const char *const models[] = {"smollm2-135m.gguf", "tiny/chat/gemma3.gguf"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        wnw_model *m = test_model_open(models[i]);
        wnw_prompt *p = build(m, "The harbor", "Which?", NULL, true);
        assert_int_equal(p->n_prefix, 0);
        assert_int_equal(p->n_suffix, 0);
        assert_null(p->suffix);
        wnw_prompt_free(p);
        p = build(m, "The harbor", "Which?", "gemma", false);
        const int32_t n_bos = i == 1 ? 1 : 0;
        assert_tokens(m, "<start_of_turn>user\n", p->tokens + n_bos, p->n_prefix - n_bos);
        wnw_prompt_free(p);
        wnw_model_free(m);
    }
}

/* A prompt of a program's own tokens has copies of them, and nothing that a session would compute wrong with. */
static void own_tokens(void **state)
{
    (void)state;
    int32_t tokens[] = {5, 6, 7, 8}, suffix[] = {8}, n;
    const wnw_prompt_parts parts = {
        WNW_INIT(wnw_prompt_parts), .tokens = tokens, .n_tokens = 4, .n_context = 3,
        .suffix = suffix,           .n_suffix = 1,    .n_prefix = 2, .n_past = 9};
    wnw_prompt *p;
    assert_ok(wnw_prompt_new(&p, &parts));
    tokens[0] = suffix[0] = -1;
    assert_int_equal(wnw_prompt_tokens(p, &n)[0], 5);
    assert_int_equal(n, 4);
    assert_int_equal(wnw_prompt_n_context(p), 3);
    assert_int_equal(wnw_prompt_n_past(p), 9);
    const wnw_prompt_parts got = wnw_prompt_parts_of(p);
    assert_int_equal(got.suffix[0], 8);
    assert_int_equal(got.n_suffix, 1);
    assert_int_equal(got.n_prefix, 2);
    assert_int_equal(got.n_past, 9);
    assert_null(got.text);
    assert_int_equal(got.n_plain, 0);
    wnw_prompt_free(p);

    const struct {
        wnw_prompt_parts parts;
        int want;
    } rows[] = {
        {{.struct_size = 0}, WNW_E_ARG},
        {{WNW_INIT(wnw_prompt_parts), .n_tokens = -1}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .tokens = tokens, .n_tokens = 2, .n_context = 3}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .n_context = -1}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .n_prefix = -2}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .n_suffix = -1}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .n_past = -1}, WNW_E_RANGE},
        {{WNW_INIT(wnw_prompt_parts), .n_tokens = 2}, WNW_E_ARG},
        {{WNW_INIT(wnw_prompt_parts), .n_suffix = 2}, WNW_E_ARG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p = (wnw_prompt *)(void *)tokens;
        assert_error(wnw_prompt_new(&p, &rows[i].parts), rows[i].want);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_tokens),
                                       cmocka_unit_test(own_templates),
                                       cmocka_unit_test(line_breaks_over_the_border),
                                       cmocka_unit_test(token_over_the_border),
                                       cmocka_unit_test(trimmed_message),
                                       cmocka_unit_test(without_template)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
