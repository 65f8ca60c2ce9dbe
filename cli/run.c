/* SPDX-License-Identifier: MIT */
/* winnow run: read, compress, answer. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/process.h"
#include "base/err.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/on_devices.h"
#include "cli/store_use.h"

/* Reads the first piece and compresses it, or takes it from the store, then reads the rest. */
static int read_prompt(struct app_job *job, struct cli_store_use *use)
{
    const int32_t n_first = app_job_n_compressed(job);
    const int rc = use->folder ? cli_store_use_read(use, job) : app_job_read_first(job, n_first);
    if (rc != APP_OK || n_first == job->n_tokens)
        return rc;
    return app_job_read(job, n_first, job->n_tokens, NULL, NULL);
}

/* The same on --devices, from a job whose prompt is known. */
static int read_on_devices(struct app_job *job, struct cli_on_devices *d, const struct cli_args *args)
{
    const int32_t n_first = app_job_n_compressed(job);
    WNW_TRY(cli_on_devices_begin(d, job, args, args->app.n));
    job->start_ms = app_now_ms();
    WNW_TRY(cli_on_devices_read_first(d, job, n_first));
    return cli_on_devices_read(d, job, n_first, job->n_tokens, NULL, NULL);
}

/* From options to a session that is ready to read what is missing of the prompt. */
static int start(struct app_job *job, struct cli_store_use *use, const struct cli_args *args)
{
    int rc = app_job_check(job, &args->app);
    if (rc == APP_OK)
        rc = cli_on_devices_check(args);
    if (rc == APP_OK && args->store && args->app.plugins.n > 0)
        rc =
            app_fail(APP_BAD_INPUT, "a stored document needs its policy's parts when it is opened again, and "
                                    "plugins may be gone then; leave out --store or --plugin");
    if (rc == APP_OK)
        rc = cli_store_use_check(args);
    if (rc != APP_OK)
        return rc;
    if (args->store)
        app_job_date(job);
    rc = app_job_open(job);
    if (rc == APP_OK)
        rc = app_job_prompt(job);
    if (rc != APP_OK)
        return rc;
    job->start_ms = app_now_ms();
    if (args->app.devices)
        return APP_OK;
    if (args->store)
        return cli_store_use_begin(use, job, args);
    job->reads_once = true;
    rc = app_job_session(job);
    job->start_ms = app_now_ms();
    return rc;
}

int cli_run(const struct app_args *args)
{
    struct app_job job;
    struct cli_answer a;
    struct cli_store_use use = {0};
    struct cli_on_devices devices = {.sequence = NULL};
    const struct cli_args *own = (const struct cli_args *)args;
    /* The sampler is made before the model is opened, because its options can be refused without the
     * model. */
    int rc = cli_answer_begin(&a, own);
    if (rc != APP_OK)
        return rc;
    rc = start(&job, &use, own);
    if (rc == APP_OK)
        rc = own->app.devices ? read_on_devices(&job, &devices, own) : read_prompt(&job, &use);
    if (rc == APP_OK) {
        app_job_notes(&job);
        a.n_prefill = job.n_tokens;
        a.sequence = devices.sequence;
        rc = cli_answer_generate(&a, &job);
        if (devices.sequence)
            cli_on_devices_measure_bytes(&devices, &job);
    }
    if (rc == APP_OK)
        rc = cli_answer_print(&a, &job);
    cli_answer_clear(&a);
    cli_on_devices_end(&devices);
    app_job_close(&job);
    cli_store_use_end(&use);
    return rc;
}
