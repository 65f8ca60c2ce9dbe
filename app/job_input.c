/* SPDX-License-Identifier: MIT */
/* What a job reads: texts, tokens, and what they may be. */
#include "app/job_input.h"

#include "app/document.h"
#include "app/job_expect.h"
#include "app/models.h"
#include "app/names.h"
#include "app/values.h"
#include "base/err.h"
#include "base/system.h"

#include <stdio.h>
#include <string.h>

/* --tokens goes with no option that makes a text. */
static int check_no_text(const struct app_args *args)
{
    if (args->documents.n > 0 || args->question)
        return app_fail(APP_BAD_INPUT, "--tokens is the whole prompt; leave out -f and -p");
    if (args->chat || args->system || args->special)
        return app_fail(
            APP_BAD_INPUT, "--tokens are fed as they are; leave out %s",
            APP_FIRST_GIVEN({args->chat, "--chat"}, {args->system, "--system"}, {true, "--special"}));
    return APP_OK;
}

int app_job_check_layout(const struct app_args *args)
{
    if (args->raw && args->chat)
        return app_fail(APP_BAD_INPUT, "--raw and --chat exclude each other; give one of them");
    if (args->raw && args->system)
        return app_fail(APP_BAD_INPUT, "--raw has no place for a --system message; put it into the document");
    return APP_OK;
}

/* Options that make the text of a prompt. */
static int check_text(const struct app_args *args)
{
    const bool question = args->question && *args->question, document = args->documents.n > 0;
    WNW_TRY(app_job_check_layout(args));
    if (!args->tokens && !document && !question)
        return app_fail(APP_BAD_INPUT, "no input; give a document with -f, a question with -p, or --tokens");
    if (args->context_only && !document && !args->tokens)
        return app_fail(APP_BAD_INPUT, "--context-only compresses a document; give one with -f");
    return APP_OK;
}

int app_job_read_texts(struct app_job *job)
{
    const struct app_args *args = job->args;
    WNW_TRY(app_argument_clean(&job->question, args->question, "the question (-p)", &job->remarks));
    WNW_TRY(app_argument_clean(&job->system, args->system, "the system message (--system)", &job->remarks));
    return app_documents_read(&job->document, &job->n_document, &args->documents, &job->remarks);
}

int app_job_check_prompt(struct app_job *job)
{
    const struct app_args *args = job->args;
    if (args->tokens)
        WNW_TRY(check_no_text(args));
    WNW_TRY(check_text(args));
    return args->tokens ? app_read_tokens(&job->file_tokens, &job->n_file_tokens, args->tokens)
                        : app_job_read_texts(job);
}

void app_job_date(struct app_job *job)
{
    job->now = wnw__local_seconds(time(NULL));
}

int app_job_find_inputs(struct app_job *job)
{
    const struct app_args *args = job->args;
    const int rc = app_model_path(&job->model_path, args->model);
    for (int i = 0; i < args->documents.n; i++)
        app_inputs_add(&job->inputs, args->documents.s[i]);
    app_inputs_add(&job->inputs, args->tokens);
    app_inputs_add(&job->inputs, args->profile);
    app_inputs_add(&job->inputs, job->model_path);
    return rc;
}

static int check_tokens(const struct app_job *job)
{
    for (int32_t i = 0; i < job->n_tokens; i++) {
        if (job->tokens[i] < 0 || job->tokens[i] >= job->info.n_vocab)
            return app_fail(APP_BAD_INPUT, "'%s': token %d (number %d) is not in the vocabulary, 0 to %d",
                            job->args->tokens, job->tokens[i], i + 1, job->info.n_vocab - 1);
    }
    return APP_OK;
}

static int too_long(const struct app_job *job, const char *what)
{
    return app_fail(APP_BAD_INPUT,
                    "%s and the model's context is %d; shorten the prompt, use another model, or %s", what,
                    job->info.n_ctx_train,
                    job->talks ? "--context endless" : "--policy streaming_llm-rerotated --evict chunk");
}

/* A document that is certainly too long is refused before it is turned into tokens. */
static int check_length(const struct app_job *job)
{
    char what[96];
    if (!job->document || app_keep_is_endless(&job->keep) ||
        !wnw_text_exceeds(job->model, job->document, job->n_document, job->info.n_ctx_train, NULL))
        return APP_OK;
    snprintf(what, sizeof what, "the document of %zu bytes has more than %d tokens", job->n_document,
             job->info.n_ctx_train);
    return too_long(job, what);
}

int app_job_prompt(struct app_job *job)
{
    const struct app_args *args = job->args;
    if (job->file_tokens) {
        job->tokens = job->file_tokens;
        job->n_tokens = job->n_context = job->n_file_tokens;
        WNW_TRY(check_tokens(job));
    } else {
        if (!job->any_length)
            WNW_TRY(check_length(job));
        const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = job->document,
                                          .question = job->question,   .system = job->system,
                                          .chat = args->chat,          .raw = args->raw,
                                          .special = args->special,    .now = job->now};
        wnw_set_log(app_note_warning, &job->remarks);
        const int status = wnw_prompt_build(&job->prompt, job->model, &params);
        wnw_set_log(NULL, NULL);
        if (status != WNW_OK)
            return app_fail_status(status);
        job->tokens = wnw_prompt_tokens(job->prompt, &job->n_tokens);
        job->n_context = wnw_prompt_n_context(job->prompt);
    }
    if (job->n_tokens < 1)
        return app_fail(APP_BAD_INPUT, "the prompt has no tokens; give some text");
    if (job->n_tokens > job->info.n_ctx_train && !job->any_length && !app_keep_is_endless(&job->keep)) {
        char what[64];
        snprintf(what, sizeof what, "the prompt has %d tokens", job->n_tokens);
        return too_long(job, what);
    }
    return app_job_expect(job);
}

int32_t app_job_n_compressed(const struct app_job *job)
{
    if (job->n_first > 0)
        return job->n_first;
    return job->args->context_only ? job->n_context : job->n_tokens;
}
