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
    WNW_TRY(use->folder ? cli_store_use_read(use, job) : app_job_read_first(job, n_first));
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
    WNW_TRY(app_job_check(job, &args->app));
    WNW_TRY(cli_on_devices_check(args));
    if (args->store && args->app.plugins.n > 0)
        return app_fail(APP_BAD_INPUT,
                        "a stored document needs its policy's parts when it is opened again, and "
                        "plugins may be gone then; leave out --store or --plugin");
    WNW_TRY(cli_store_use_check(args));
    if (args->store)
        app_job_date(job);
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    job->start_ms = app_now_ms();
    if (args->app.devices)
        return APP_OK;
    if (args->store)
        return cli_store_use_begin(use, job, args);
    job->reads_once = true;
    WNW_TRY(app_job_session(job));
    job->start_ms = app_now_ms();
    return APP_OK;
}

static int answer(struct cli_answer *a, struct app_job *job, struct cli_store_use *use,
                  struct cli_on_devices *d, const struct cli_args *args)
{
    WNW_TRY(start(job, use, args));
    WNW_TRY(args->app.devices ? read_on_devices(job, d, args) : read_prompt(job, use));
    app_job_notes(job);
    a->n_prefill = job->n_tokens;
    a->sequence = d->sequence;
    WNW_TRY(cli_answer_generate(a, job));
    if (d->sequence)
        cli_on_devices_measure_bytes(d, job);
    return cli_answer_print(a, job);
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
    WNW_TRY(cli_answer_begin(&a, own));
    const int rc = answer(&a, &job, &use, &devices, own);
    cli_answer_clear(&a);
    cli_on_devices_end(&devices);
    app_job_close(&job);
    cli_store_use_end(&use);
    return rc;
}
