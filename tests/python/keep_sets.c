/* SPDX-License-Identifier: MIT */
/* Which entries a policy keeps of a prompt at half of its size, by the C library alone: keep_sets MODEL.gguf DOCUMENT.txt QUESTION RECIPE
 *
 * Prints a line `layer head: positions` for each head. package.py compares them with the package's plans. */
#include "winnow_method.h"
#include "winnow_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int print(wnw_session *s, const wnw_policy *policy, const wnw_prompt_parts *parts)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    const int32_t *positions;
    wnw_plan *plan = NULL;
    int status = wnw_session_prefill(s, parts->tokens, parts->n_tokens, NULL, NULL);
    if (status == WNW_OK)
        status = wnw_session_plan(s, policy, &size, &plan, NULL);
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const int32_t n = wnw_plan_head(plan, il, ih, &positions);
            printf("%" PRId32 " %" PRId32 ":", il, ih);
            for (int32_t i = 0; i < n; i++)
                printf(" %" PRId32, positions[i]);
            putchar('\n');
        }
    wnw_plan_free(plan);
    return status;
}

static int run(const char *path, const char *document, const char *question, const char *recipe)
{
    wnw_model *model = NULL;
    wnw_prompt *prompt = NULL;
    wnw_policy *policy = NULL;
    wnw_session *s = NULL;
    wnw_run_more more = wnw_run_more_default();
    wnw_run rules = wnw_run_default();
    wnw_prompt_parts parts = wnw_prompt_parts_default();
    wnw_prompt_params layout = wnw_prompt_default_params();
    wnw_session_params params = wnw_session_default_params();
    layout.document = document;
    layout.question = question;
    params.n_threads = 1;
    int status = wnw_model_open(&model, path, NULL);
    if (status == WNW_OK)
        status = wnw_prompt_build(&prompt, model, &layout);
    if (status == WNW_OK)
        status = wnw_prompt_get_parts(prompt, &parts);
    if (status == WNW_OK)
        status = wnw_policy_parse(&policy, recipe, NULL);
    if (status == WNW_OK)
        status = wnw_session_new(&s, model, &params);
    if (status == WNW_OK) {
        const wnw_policy *policies[] = {policy};
        more.n_policies = 1;
        more.policies = policies;
        rules.prompt = prompt;
        rules.more = &more;
        status = wnw_session_begin(s, &rules);
    }
    if (status == WNW_OK)
        status = print(s, policy, &parts);
    wnw_session_free(s);
    wnw_policy_free(policy);
    wnw_prompt_free(prompt);
    wnw_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    FILE *f = argc == 5 && text ? fopen(argv[2], "rb") : NULL;
    if (!f || fread(text, 1, MOST - 1, f) == 0 || !feof(f)) {
        fprintf(
            stderr,
            "usage: keep_sets MODEL.gguf DOCUMENT.txt QUESTION RECIPE, with a document of less than 1 MiB\n");
        free(text);
        if (f)
            fclose(f);
        return 2;
    }
    fclose(f);
    const int status = run(argv[1], text, argv[3], argv[4]);
    if (status != WNW_OK)
        fprintf(stderr, "keep_sets: %s\n", wnw_last_error());
    free(text);
    return status == WNW_OK ? 0 : 1;
}
