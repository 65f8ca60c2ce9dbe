/* SPDX-License-Identifier: MIT */
/* winnow run: read, compress, answer. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/process.h"
#include "cli/answer.h"
#include "cli/commands.h"

/* Reads the first piece and compresses it, then reads the rest. */
static int read_prompt(struct app_job *job)
{
    const int32_t n_first = app_job_n_compressed(job);
    job->start_ms = app_now_ms();
    const int rc = app_job_read_first(job, n_first);
    if (rc != APP_OK || n_first == job->n_tokens)
        return rc;
    return app_job_read(job, n_first, job->n_tokens, NULL, NULL);
}

int cli_run(const struct app_args *args)
{
    struct app_job job;
    struct cli_answer a;
    /* The sampler is made before the model is opened, because its options can be refused without the
     * model. */
    int rc = cli_answer_begin(&a, (const struct cli_args *)args);
    if (rc != APP_OK)
        return rc;
    rc = app_job_start(&job, args);
    if (rc == APP_OK)
        rc = read_prompt(&job);
    if (rc == APP_OK) {
        app_job_notes(&job);
        a.n_prefill = job.n_tokens;
        rc = cli_answer_generate(&a, &job);
    }
    if (rc == APP_OK)
        rc = cli_answer_print(&a, &job);
    cli_answer_clear(&a);
    app_job_close(&job);
    return rc;
}
