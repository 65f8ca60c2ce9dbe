/* SPDX-License-Identifier: MIT */
/*
 * Token for token what jinja2 and other tokenizers make of the same messages, with vocabularies that set-up
 * does not fetch (scripts/fetch_models.sh does). Skipped where a model is missing.
 */
#include "chat_rows.h"
#include "peek_prompt.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIPPED = 77 }; /* what ctest shows as skipped */

static bool skipped;

struct given {
    wnw_model *model;
    const char *jinja; /* in the place of the model's own template; NULL = that */
};

static void same_ids(const struct chat_row *row, void *user)
{
    const struct given *given = user;
    wnw_prompt_params params = row->params;
    wnw_prompt *p = NULL;
    params.jinja = row->template ? given->jinja : NULL;
    print_message("  %s, %s\n", row->template ? row->template : "raw", row->name);
    assert_ok(wnw_prompt_build(&p, given->model, &params));
    assert_int_equal(p->n_context, row->n_context);
    assert_int_equal(p->n_tokens, row->n_ids);
    assert_memory_equal(p->tokens, row->ids, (size_t)p->n_tokens * sizeof *p->tokens);
    wnw_prompt_free(p);
}

static void compare(const char *model, const char *jinja)
{
    char file[64], path[4096];
    snprintf(file, sizeof file, "%s.gguf", model);
    if (!wnw_has_jinja() || !test_has_model(path, sizeof path, file)) {
        skipped = true;
        print_message("skipped: %s is not in the cache folder; scripts/fetch_models.sh %s fetches it\n",
                      model, model);
        skip();
    }
    struct given given = {.model = test_model_open(file), .jinja = jinja};
    chat_each_row(model, same_ids, &given);
    wnw_model_free(given.model);
}

static void qwen2(void **state)
{
    (void)state;
    compare("qwen2.5-coder-0.5b", NULL);
}

/* A base model without a template. */
static void gemma3(void **state)
{
    (void)state;
    char *jinja = chat_template("turns");
    compare("gemma-3-270m", jinja); /* skipping leaves this function too */
    free(jinja);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(qwen2), cmocka_unit_test(gemma3)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed : skipped ? EXIT_SKIPPED : 0;
}
