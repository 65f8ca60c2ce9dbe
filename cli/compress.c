/* SPDX-License-Identifier: MIT */
/* winnow compress: read a document, compress it and store it; or add documents to a stored one. */
#include "app/args.h"
#include "app/console.h"
#include "app/document.h"
#include "app/job.h"
#include "app/json.h"
#include "app/models.h"
#include "app/names.h"
#include "app/process.h"
#include "app/values.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/on_devices.h"
#include "cli/stored.h"
#include "winnow_store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char default_policy[] = "auto";

/* ---- What is stored ---- */

static int store(const struct app_job *job, const wnw_store_params *params, double *ms)
{
    const double start = app_now_ms();
    const int status = wnw_session_store(job->session, job->args->out, params);
    *ms = app_now_ms() - start;
    return app_status_code(status);
}

static int64_t bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static int print(const struct app_job *job, int32_t n_tokens, double store_ms)
{
    const int64_t bytes = bytes_of(job->args->out);
    if (job->args->json)
        return app_print_json(json_pack(
            "{s:i, s:f, s:I, s:I, s:b, s:I, s:f, s:f, s:f, s:f, s:I}", "prompt_tokens", (int)n_tokens,
            "kept_tokens_mean", job->kept_mean, "kv_bytes_full", (json_int_t)job->kv_bytes_full, "kv_bytes",
            (json_int_t)job->kv_bytes, "kv_rotated", app_kv_rotates(&job->kv), "peak_rss_bytes",
            (json_int_t)app_peak_rss(), "load_ms", job->load_ms, "prefill_ms", job->prefill_ms, "compress_ms",
            job->compress_ms, "store_ms", store_ms, "file_bytes", (json_int_t)bytes));
    app_note("'%s': %d tokens; kept %.1f per head, KV %.2f of %.2f MiB; file %.2f MiB; read in %.0f ms, "
             "compressed in %.0f ms, stored in %.0f ms",
             job->args->out, n_tokens, job->kept_mean, (double)job->kv_bytes / 1048576.0,
             (double)job->kv_bytes_full / 1048576.0, (double)bytes / 1048576.0, job->prefill_ms,
             job->compress_ms, store_ms);
    return APP_OK;
}

/* ---- A document ---- */

/* The prompt's first piece is read and compressed on the devices; then a session gets what their cache holds. */
static int take_from_devices(struct app_job *job, struct cli_on_devices *d, const struct cli_args *args)
{
    WNW_TRY(cli_on_devices_begin(d, job, args, 1));
    WNW_TRY(cli_on_devices_read_first(d, job, job->n_context));
    if (!app_sequence_rotates(job->info.n_embd_head))
        job->kv.unrotated = true;
    WNW_TRY(app_job_session(job));
    return app_status_code(app_sequence_give(d->sequence, job->session, job->tokens));
}

static int read_on_devices(struct app_job *job, const struct cli_args *args)
{
    struct cli_on_devices d = {.sequence = NULL};
    const int rc = take_from_devices(job, &d, args);
    cli_on_devices_end(&d);
    if (rc == APP_OK)
        app_job_measure(job);
    return rc;
}

static int read_document(struct app_job *job, const struct cli_args *own)
{
    const struct app_args *args = &own->app;
    WNW_TRY(app_job_check(job, args));
    if (args->expected.n == 0)
        WNW_TRY(app_keep_check_blind(job->keep.policy));
    WNW_TRY(cli_on_devices_check(own));
    job->stores = true;
    app_job_date(job);
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    if (args->devices)
        return read_on_devices(job, own);
    WNW_TRY(app_job_session(job));
    return app_job_read_first(job, job->n_context);
}

static int store_document(struct app_job *job, const struct cli_args *args)
{
    double ms;
    WNW_TRY(read_document(job, args));
    const wnw_prompt_params text = {WNW_INIT(wnw_prompt_params),
                                    .document = job->document,
                                    .system = job->system,
                                    .chat = args->app.chat,
                                    .raw = args->app.raw,
                                    .special = args->app.special,
                                    .now = job->now};
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text, .tokens = job->tokens,
                                     .n_tokens = job->n_context};
    WNW_TRY(store(job, &params, &ms));
    app_job_notes(job);
    return print(job, job->n_context, ms);
}

static int compress_new(const struct cli_args *args)
{
    struct app_job job;
    const int rc = store_document(&job, args);
    app_job_close(&job);
    return rc;
}

/* ---- Adding to a stored document ---- */

struct addition {
    wnw_stored *st;
    wnw_stored_info info;
    wnw_prompt_params text; /* its document is that of the file until `document` is made */
    char *document;         /* both, owned */
    int32_t *tokens;        /* [n_tokens] all of both, owned */
    int32_t n_tokens;
    bool pieces;
};

/* What the file says cannot be given once more. */
static int check_addition(const struct app_args *a)
{
    const char *size = app_keep_size_option(a);
    const char *given = APP_FIRST_GIVEN({a->policy, "--policy"}, {size, size}, {a->system, "--system"},
                                        {a->chat, "--chat"}, {a->raw, "--raw"}, {a->special, "--special"},
                                        {a->expected.n > 0, "--expect"}, {true, cli_stored_option(a)});
    if (!given)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "a document is added under the recipe, size, cache type and template of the stored one; "
                    "leave out %s",
                    given);
}

/* Opens file and model, and sets the job to the rules of the file. */
static int open_addition(struct app_job *job, struct addition *a, const struct cli_args *args)
{
    const struct app_args *common = &args->app;
    *job = (struct app_job){.args = common, .keep.run = wnw_run_default(), .stores = true};
    WNW_TRY(check_addition(common));
    WNW_TRY(app_documents_read(&job->document, &job->n_document, &common->documents, &job->remarks));
    WNW_TRY(app_model_path(&job->model_path, common->model));
    for (int i = 0; i < common->documents.n; i++)
        app_inputs_add(&job->inputs, common->documents.s[i]);
    app_inputs_add(&job->inputs, args->cache);
    app_inputs_add(&job->inputs, common->profile);
    app_inputs_add(&job->inputs, job->model_path);
    WNW_TRY(app_out_check(common->out, &job->inputs));
    WNW_TRY(cli_stored_open(&a->st, args->cache));
    WNW_TRY(cli_stored_text(&a->text, a->st, args->cache));
    WNW_TRY(cli_stored_describe(job, a->st));
    WNW_TRY(app_job_attention(job));
    return app_job_open(job);
}

/* The policy and size of the file, as rules of the job. */
static int take_rules(struct app_job *job, const struct addition *a)
{
    WNW_TRY(app_status_code(wnw_stored_check_model(a->st, job->model)));
    if (a->info.policy)
        WNW_TRY(app_status_code(wnw_policy_parse(&job->keep.policy, a->info.policy, NULL)));
    if (!job->keep.policy)
        return app_fail(APP_BAD_INPUT, "the stored document has no recipe; store it with `winnow compress`");
    job->keep.size = a->info.size;
    job->keep.run.phase = a->info.phase;
    job->keep.run.chunk = a->info.chunk;
    job->keep.chunk_slack = a->info.chunk_slack;
    return APP_OK;
}

/* The tokens of what is added, after those that were read: those that the template gives both documents together where
 * they begin alike, else those of the added text alone. */
static int make_tokens(struct app_job *job, struct addition *a)
{
    int32_t n_old, *more = NULL, n_more = 0;
    const int32_t *old = wnw_stored_tokens(a->st, &n_old), *from;
    const size_t n_first = strlen(a->text.document), n = n_first + job->n_document + 3;
    a->document = malloc(n);
    if (!a->document)
        return app_fail(APP_FAILED, "out of memory for the documents");
    snprintf(a->document, n, "%s\n\n%s", a->text.document, job->document);
    a->text.document = a->document;
    int status = wnw_prompt_build(&job->prompt, job->model, &a->text);
    a->pieces = a->info.pieces || status != WNW_OK || wnw_prompt_n_context(job->prompt) < n_old ||
                memcmp(wnw_prompt_tokens(job->prompt, NULL), old, (size_t)n_old * sizeof *old) != 0;
    if (status == WNW_OK && a->pieces)
        status = wnw_tokenize(job->model, a->document + n_first, n - n_first - 1, false, a->text.special,
                              &more, &n_more);
    if (status != WNW_OK)
        return app_fail_status(status);
    from = a->pieces ? more : wnw_prompt_tokens(job->prompt, NULL) + n_old;
    n_more = a->pieces ? n_more : wnw_prompt_n_context(job->prompt) - n_old;
    a->n_tokens = n_old + n_more;
    a->tokens = malloc((size_t)a->n_tokens * sizeof *a->tokens);
    if (a->tokens) {
        memcpy(a->tokens, old, (size_t)n_old * sizeof *old);
        memcpy(a->tokens + n_old, from, (size_t)n_more * sizeof *from);
    }
    wnw_free(more);
    job->tokens = a->tokens;
    return a->tokens ? APP_OK : app_fail(APP_FAILED, "out of memory for %d tokens", a->n_tokens);
}

static int read_addition(struct app_job *job, struct addition *a)
{
    int32_t n_old;
    (void)wnw_stored_tokens(a->st, &n_old);
    WNW_TRY(app_job_prepare(job));
    WNW_TRY(cli_stored_engine(job));
    WNW_TRY(cli_stored_session(&job->session, a->st, job->engine, a->n_tokens - n_old));
    WNW_TRY(app_status_code(wnw_stored_resume(job->session, a->st, &job->keep.run)));
    return app_job_read_on(job, n_old, a->n_tokens);
}

static int store_addition(struct app_job *job, struct addition *a, const struct cli_args *args)
{
    double ms;
    WNW_TRY(open_addition(job, a, args));
    (void)wnw_stored_get_info(a->st, &a->info); /* this call does not fail for an open file */
    WNW_TRY(take_rules(job, a));
    WNW_TRY(make_tokens(job, a));
    WNW_TRY(read_addition(job, a));
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &a->text, .tokens = a->tokens,
                                     .n_tokens = a->n_tokens, .pieces = a->pieces};
    WNW_TRY(store(job, &params, &ms));
    app_job_notes(job);
    return print(job, a->n_tokens, ms);
}

static int compress_more(const struct cli_args *args)
{
    struct app_job job;
    struct addition a = {.info = wnw_stored_info_default()};
    const int rc = store_addition(&job, &a, args);
    app_job_close(&job);
    wnw_stored_free(a.st);
    free(a.document);
    free(a.tokens);
    return rc;
}

int cli_compress(const struct app_args *args)
{
    struct cli_args own = *(const struct cli_args *)args;
    char policy[sizeof default_policy];
    memcpy(policy, default_policy, sizeof policy);
    if (!args->out)
        return app_fail(APP_BAD_INPUT, "where is the document to be stored? Name a file with -o");
    if (args->documents.n == 0)
        return app_fail(APP_BAD_INPUT, "no document; give one with -f");
    if (args->evict_every)
        return app_fail(APP_BAD_INPUT,
                        "--evict-every compresses what is generated, and nothing is here; leave it out");
    if (own.cache && (args->devices || args->layers))
        return app_fail(
            APP_BAD_INPUT,
            "documents are added to a stored one by sessions on the CPU; leave out -c or --devices");
    if (own.cache)
        return compress_more(&own);
    own.app.context_only = true;
    own.app.policy = args->policy ? args->policy : policy;
    return compress_new(&own);
}
