/* SPDX-License-Identifier: MIT */
#include "cli/store_use.h"

#include "app/console.h"
#include "app/files.h"
#include "app/values.h"
#include "base/err.h"
#include "cli/stored.h"
#include "winnow_method.h"

bool cli_store_use_given(const struct cli_args *args)
{
    return args->store || args->store_limit != APP_UNSET || args->store_exact || args->store_any;
}

int cli_store_use_check(const struct cli_args *args)
{
    const struct app_args *a = &args->app;
    if (args->store_limit != APP_UNSET && !args->store)
        return app_fail(APP_BAD_INPUT, "--store-limit bounds a folder; name it with --store");
    if ((args->store_exact || args->store_any) && !args->store)
        return app_fail(APP_BAD_INPUT, "%s says how a folder is used; name it with --store",
                        args->store_exact ? "--store-exact" : "--store-any");
    if (args->store_exact && args->store_any)
        return app_fail(APP_BAD_INPUT, "--store-exact and --store-any exclude each other; give one of them");
    if (!args->store)
        return APP_OK;
    if (cli_parked_is(args->store) && args->store_limit != APP_UNSET)
        return app_fail(APP_BAD_INPUT,
                        "'%s' is a server's folder, which --park-disk bounds; leave out --store-limit",
                        args->store);
    if (args->api_key_file && !cli_parked_is(args->store))
        return app_fail(APP_BAD_INPUT, "'%s' is no server's folder; leave out --api-key-file", args->store);
    if (!a->context_only || a->tokens)
        return app_fail(
            APP_BAD_INPUT,
            "--store keeps documents as they are before a question; give one with -f and --context-only");
    const char *refused = APP_FIRST_GIVEN(
        {a->evict_every, "--evict-every"}, {a->mask_heads, "--mask-heads"}, {a->kv_peak > 0, "--kv-peak"},
        {a->chunk_slack > 0, "--chunk-slack"}, {a->expected.n > 0, "--expect"});
    return refused ? app_fail(APP_BAD_INPUT, "--store does not go with %s", refused) : APP_OK;
}

static wnw_store_key key_of(const struct app_job *job, const wnw_session_params *how)
{
    return (wnw_store_key){WNW_INIT(wnw_store_key), .model = job->model,   .session = how,
                           .run = &job->keep.run,   .tokens = job->tokens, .n_tokens = job->n_context};
}

static wnw_session_params session_params(const struct app_job *job)
{
    wnw_session_params how = wnw_session_default_params();
    how.kv_type = job->kv.type;
    how.kv_tail = job->kv.tail;
    how.kv_unrotated = job->kv.unrotated;
    how.attn = job->attn;
    return how;
}

/* Makes the session of the file that was found. */
static int use_stored(struct cli_store_use *use, struct app_job *job)
{
    WNW_TRY(cli_stored_engine(job));
    WNW_TRY(cli_stored_session(&job->session, use->st, job->engine,
                               (int64_t)job->n_tokens - use->n_have + job->args->n));
    if (use->n_have == job->n_context)
        return APP_OK;
    return app_status_code(wnw_stored_resume(job->session, use->st, &job->keep.run));
}

/* Finds the parked prompt that has the most of the document. */
static int find_parked(struct cli_store_use *use, const struct app_job *job, const wnw_session_params *how,
                       const struct cli_args *args)
{
    WNW_TRY(cli_parked_open(&use->parked, args->store, job->model, args->api_key_file));
    WNW_TRY(cli_parked_beginning(&use->st, &use->parked, how, &job->keep.run, job->tokens, job->n_context));
    (void)wnw_stored_tokens(use->st, &use->n_have);
    if (use->exact && use->n_have < job->n_context) {
        wnw_stored_free(use->st);
        use->st = NULL;
        use->n_have = 0;
    }
    return APP_OK;
}

static int find(struct cli_store_use *use, const struct app_job *job, const wnw_session_params *how,
                const struct cli_args *args)
{
    const uint64_t limit = args->store_limit == APP_UNSET ? 0 : (uint64_t)args->store_limit;
    const wnw_store_key key = key_of(job, how);
    int status = wnw_store_open(&use->store, args->store, limit);
    if (status != WNW_OK)
        return app_fail(app_folder_code(args->store, "index.sqlite", status), "%s", wnw_last_error());
    status = wnw_store_find(&use->st, use->store, &key, use->exact);
    (void)wnw_stored_tokens(use->st, &use->n_have);
    return app_status_code(status);
}

int cli_store_use_begin(struct cli_store_use *use, struct app_job *job, const struct cli_args *args)
{
    job->no_profiles = true;
    WNW_TRY(app_job_prepare(job));
    WNW_TRY(app_keep_check_blind(job->keep.policy));    /* documents are kept for every question */
    const wnw_session_params how = session_params(job); /* whose type may have been chosen just now */
    if (wnw_policy_needs(job->keep.policy).flags & WNW_NEED_PROFILE)
        return app_fail(APP_BAD_INPUT, "--store does not go with policies that read calibration results");
    job->keep.run.profile = NULL; /* one that was found and is not needed decides nothing */
    use->folder = args->store;
    use->parks = cli_parked_is(args->store);
    use->exact = args->store_exact || (!args->store_any && !wnw_store_continues(&job->keep.run));
    WNW_TRY(use->parks ? find_parked(use, job, &how, args) : find(use, job, &how, args));
    job->store.used = true;
    job->store.exact = use->exact;
    job->store.n_tokens = use->n_have;
    return use->st ? use_stored(use, job) : app_job_session(job);
}

/* How the document was laid out. */
static wnw_prompt_params text_of(const struct app_job *job)
{
    return (wnw_prompt_params){WNW_INIT(wnw_prompt_params),
                               .document = job->document,
                               .system = job->system,
                               .chat = job->args->chat,
                               .raw = job->args->raw,
                               .special = job->args->special,
                               .now = job->now};
}

static int write_parked(const char *path, void *user)
{
    const struct app_job *job = user;
    const wnw_prompt_params text = text_of(job);
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    return app_status_code(wnw_session_store(job->session, path, &params));
}

static int add_parked(struct cli_store_use *use, struct app_job *job)
{
    const int rc = cli_parked_add(&use->parked, write_parked, job, NULL, false);
    if (rc != APP_OK && !use->required)
        app_note("warning: the document was not parked");
    return use->required ? rc : APP_OK;
}

static int add(const struct cli_store_use *use, const struct app_job *job)
{
    const wnw_session_params how = session_params(job);
    const wnw_store_key key = key_of(job, &how);
    const wnw_prompt_params text = text_of(job);
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    const int status = wnw_store_add(use->store, &key, job->session, &params);
    if (status != WNW_OK && use->required)
        return app_fail(app_exit_code(status),
                        "the document was not stored, so that nothing can be asked of it: %s",
                        wnw_last_error());
    if (status != WNW_OK)
        app_note("warning: the document was not stored: %s", wnw_last_error());
    return APP_OK;
}

int cli_store_use_read(struct cli_store_use *use, struct app_job *job)
{
    WNW_TRY(app_job_read_on(job, use->n_have, job->n_context));
    if (use->st)
        app_note("%d of %d tokens of the document come from the store%s", use->n_have, job->n_context,
                 use->n_have < job->n_context && !wnw_store_continues(&job->keep.run)
                     ? "; what is kept of them was chosen without the others"
                     : "");
    if (use->n_have == job->n_context)
        return APP_OK;
    return use->parks ? add_parked(use, job) : add(use, job);
}

int cli_store_use_find(wnw_stored **st, struct cli_store_use *use, const struct app_job *job)
{
    const wnw_session_params how = session_params(job);
    const wnw_store_key key = key_of(job, &how);
    const wnw_prompt_params text = text_of(job);
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    if (use->parks)
        return cli_parked_store(st, &use->parked, job->session, &params);
    const int status = wnw_store_find(st, use->store, &key, true);
    if (status != WNW_OK)
        return app_fail_status(status);
    return *st ? APP_OK
               : app_fail(APP_FAILED, "the document is not in '%s', so that nothing can be asked of it there",
                          use->folder);
}

void cli_store_use_end(struct cli_store_use *use)
{
    wnw_stored_free(use->st);
    wnw_store_close(use->store);
    cli_parked_close(&use->parked);
    *use = (struct cli_store_use){0};
}
