/* SPDX-License-Identifier: MIT */
#include "cli/stored.h"

#include "app/console.h"
#include "app/files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Says why a file cannot be opened. What is neither a file nor a folder is left alone: opening a pipe takes what is in it, and may
 * never end. */
static int check_there(const char *path)
{
    struct stat st;
    FILE *f;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return APP_OK;
    const int rc = app_open_input(&f, path);
    if (rc == APP_OK)
        fclose(f);
    return rc;
}

int cli_stored_is(bool *yes, const char *path)
{
    *yes = wnw_stored_is(path);
    return *yes ? APP_OK : check_there(path);
}

int cli_stored_open(wnw_stored **st, const char *path)
{
    *st = NULL;
    const int rc = check_there(path); /* a file that is not there is bad input */
    if (rc != APP_OK)
        return rc;
    return app_status_code(wnw_stored_open(st, path));
}

const char *cli_stored_option(const struct app_args *args)
{
    if (strcmp(args->kv_type, "f16") != 0)
        return "--kv-type";
    if (args->kv_tail != 0)
        return "--kv-tail";
    if (strcmp(args->kv_rotate, "on") != 0)
        return "--kv-rotate";
    if (args->evict && strcmp(args->evict, "end") != 0)
        return "--evict";
    return NULL;
}

int cli_stored_text(wnw_prompt_params *text, const wnw_stored *st, const char *path)
{
    *text = wnw_prompt_default_params();
    if (wnw_stored_get_text(st, text) && text->document)
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "'%s' was stored without its text, so that questions cannot be laid out; store the document "
        "with `winnow compress`",
        path);
}

int cli_stored_check_prompt(const wnw_stored *st, const wnw_prompt *prompt, const char *path)
{
    wnw_stored_info info = wnw_stored_info_default();
    int32_t n;
    const int32_t *tokens = wnw_stored_tokens(st, &n);
    (void)wnw_stored_get_info(st, &info); /* this call does not fail for an open file */
    if (info.pieces || (wnw_prompt_n_context(prompt) == n &&
                        memcmp(wnw_prompt_tokens(prompt, NULL), tokens, (size_t)n * sizeof *tokens) == 0))
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "the model's template writes the document of '%s' differently than when it was stored; store it "
        "again with `winnow compress`",
        path);
}

int cli_stored_engine(struct app_job *job)
{
    const wnw_engine_params params = {
        WNW_INIT(wnw_engine_params),
        .n_threads = job->args->threads == APP_UNSET ? 0 : (int32_t)job->args->threads, .attn = job->attn};
    return app_status_code(wnw_engine_new(&job->engine, job->model, &params));
}

int cli_stored_session(wnw_session **s, const wnw_stored *st, wnw_engine *e, int64_t room)
{
    const wnw_stored_session_params params = {WNW_INIT(wnw_stored_session_params),
                                              .room = room < INT32_MAX ? (int32_t)room : INT32_MAX};
    return app_status_code(wnw_stored_session(s, st, e, &params));
}

int cli_stored_describe(struct app_job *job, const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    const int status = wnw_stored_get_info(st, &info);
    job->kv = (struct app_kv){.type = info.kv_type, .tail = info.kv_tail, .unrotated = info.kv_unrotated};
    job->n_context = job->n_tokens = info.n_tokens;
    return app_status_code(status);
}
