/* SPDX-License-Identifier: MIT */
/* Questions that are expected of a document, for policies that judge it by them (--expect). */
#include "app/job_expect.h"

#include "app/document.h"
#include "base/err.h"

#include <stdlib.h>

int app_job_expect_check(const struct app_job *job)
{
    const struct app_args *args = job->args;
    if (args->expected.n == 0)
        return APP_OK;
    if (args->documents.n == 0)
        return app_fail(APP_BAD_INPUT, "--expect names questions about a document; give one with -f");
    if (!app_keep_by_question(job->keep.policy))
        return app_fail(APP_BAD_INPUT,
                        "--expect goes with policies that judge a document by its questions, such as "
                        "kvcompose-aware; name one with --policy");
    return APP_OK;
}

/* The tokens that would be read after the document if it were question i. */
static int read_question(struct app_job *job, int i)
{
    const struct app_args *args = job->args;
    struct app_expected *e = &job->expected;
    char *question = NULL;
    int32_t n = 0;
    WNW_TRY(app_argument_clean(&question, args->expected.s[i], "a question (--expect)", &job->remarks));
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = job->document,
                                      .question = question,        .system = job->system,
                                      .chat = args->chat,          .raw = args->raw,
                                      .special = args->special,    .now = job->now};
    const int status = question && *question ? wnw_prompt_build(&e->prompt[i], job->model, &params) : WNW_OK;
    const bool empty = !question || !*question;
    free(question);
    if (empty)
        return app_fail(APP_BAD_INPUT, "--expect: a question is empty; leave it out");
    if (status != WNW_OK)
        return app_fail_status(status);
    const int32_t *tokens = wnw_prompt_tokens(e->prompt[i], &n);
    e->tokens[i] = tokens + wnw_prompt_n_context(e->prompt[i]);
    e->n_tokens[i] = n - wnw_prompt_n_context(e->prompt[i]);
    return APP_OK;
}

int app_job_expect(struct app_job *job)
{
    const int n = job->args->expected.n;
    struct app_expected *e = &job->expected;
    if (n == 0)
        return APP_OK;
    e->prompt = calloc((size_t)n, sizeof *e->prompt);
    e->tokens = calloc((size_t)n, sizeof *e->tokens);
    e->n_tokens = calloc((size_t)n, sizeof *e->n_tokens);
    if (!e->prompt || !e->tokens || !e->n_tokens)
        return app_fail(APP_FAILED, "out of memory for expected questions");
    for (e->n = 0; e->n < n; e->n++)
        WNW_TRY(read_question(job, e->n));
    return APP_OK;
}

void app_job_expect_clear(struct app_job *job)
{
    struct app_expected *e = &job->expected;
    for (int i = 0; e->prompt && i < job->args->expected.n; i++)
        wnw_prompt_free(e->prompt[i]);
    free(e->prompt);
    free(e->tokens);
    free(e->n_tokens);
    *e = (struct app_expected){.n = 0};
}
