/* SPDX-License-Identifier: MIT */
#include "cli/on_devices.h"

#include "app/process.h"
#include "app/profiles.h"
#include "base/err.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first option that was given and that sequences of libllama lack; NULL: there is none. */
static const char *find_refused(const struct app_args *a)
{
    if (a->evict && strcmp(a->evict, "layer") == 0)
        return a->evict;
    if (a->evict_every)
        return "--evict-every";
    if (a->kv_tail > 0)
        return "--kv-tail";
    if (a->kv_rotate && strcmp(a->kv_rotate, "on") != 0)
        return "--kv-rotate";
    if (a->attn && strcmp(a->attn, "own") != 0)
        return "--attn";
    if (a->mask_heads)
        return "--mask-heads";
    if (a->plugins.n > 0)
        return "--plugin";
    return NULL;
}

int cli_on_devices_check(const struct cli_args *args)
{
    if (!args->app.devices)
        return args->app.layers
                   ? app_fail(APP_BAD_INPUT, "--layers shares layers out among --devices: name them")
                   : APP_OK;
    if (args->store)
        return app_fail(APP_BAD_INPUT,
                        "documents of --store are read by sessions on the CPU; leave out --store or "
                        "--devices");
    const char *refused = find_refused(&args->app);
    if (!refused)
        return APP_OK;
    if (refused == args->app.evict)
        return app_fail(APP_BAD_INPUT,
                        "--evict %s is for sessions on the CPU; on --devices a prompt is compressed at "
                        "its end (--evict end), or in chunks (--evict chunk)",
                        refused);
    return app_fail(APP_BAD_INPUT, "%s is for sessions on the CPU; leave out %s or --devices", refused,
                    refused);
}

/* The files of profiles that the backend reads: those of the model, and after them what the user names. */
static int list_profiles(struct cli_on_devices *d, const struct app_job *job)
{
    const char *own = job->args->profile;
    const int rc = app_profile_list(&d->profiles, job->model_path);
    if (rc != APP_OK || !own)
        return rc;
    if (!app_text_put(&d->profiles, "%s%s", d->profiles.len > 0 ? ":" : "", own))
        return app_fail(APP_FAILED, "out of memory");
    return APP_OK;
}

/* What the devices cannot do is refused before the model is opened on them. */
static int check_policy(const struct app_job *job)
{
    const int status = app_sequence_check_policy(job->keep.policy, job->keep.profile);
    if (status == WNW_E_UNSUPPORTED)
        return app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    return app_status_code(status);
}

/* Opens the model on devices that were made. */
static int open_model(struct cli_on_devices *d, struct app_job *job, int64_t n_ctx, const wnw_policy *policy)
{
    const int64_t most = job->info.n_ctx_train;
    const double start = app_now_ms();
    const struct app_sequence_params params = {
        .model = job->model_path,
        .devices = d->devices.ours.s,
        .split = d->devices.split.s,
        .n_ctx = (int32_t)(n_ctx < most ? n_ctx : most),
        .n_threads = job->args->threads == APP_UNSET ? 0 : (int32_t)job->args->threads,
        .kv_type = job->kv.type,
        .profiles = d->profiles.s,
        .policy = policy,
        .progress = app_progress_step,
        .user = &job->progress};
    const int status = app_sequence_new(&d->sequence, &params);
    job->load_ms += app_now_ms() - start;
    return app_status_code(status);
}

int cli_on_devices_open(struct cli_on_devices *d, struct app_job *job, const struct cli_args *args,
                        int64_t n_ctx, const wnw_policy *policy)
{
    const int rc = app_devices_make(&d->devices, &args->app, job->model_path);
    return rc == APP_OK ? open_model(d, job, n_ctx, policy) : rc;
}

int cli_on_devices_begin(struct cli_on_devices *d, struct app_job *job, const struct cli_args *args,
                         int64_t n_more)
{
    job->on_devices = true;
    WNW_TRY(app_devices_make(&d->devices, &args->app, job->model_path));
    WNW_TRY(app_job_prepare(job));
    WNW_TRY(check_policy(job));
    WNW_TRY(list_profiles(d, job));
    return open_model(d, job, job->n_tokens + n_more, job->keep.policy);
}

int cli_on_devices_read(struct cli_on_devices *d, struct app_job *job, int32_t from, int32_t to,
                        wnw_logits_fn on_logits, void *user)
{
    if (to <= from)
        return APP_OK;
    const double start = app_now_ms();
    app_progress_start(&job->progress, "prefill", "tokens");
    const int status = app_sequence_read(d->sequence, job->tokens + from, to - from, on_logits, user);
    app_progress_end(&job->progress);
    job->prefill_ms += app_now_ms() - start;
    return app_status_code(status);
}

void cli_on_devices_measure(const struct cli_on_devices *d, struct app_job *job)
{
    struct app_sequence_size size;
    app_sequence_measure(d->sequence, &size);
    job->kept_mean = size.kept_mean;
    job->kv_bytes = size.bytes;
    job->kv_bytes_full = size.bytes_full;
    job->kv_bytes_swa = size.bytes_swa;
    job->kv_bytes_peak = size.bytes_most;
}

void cli_on_devices_measure_bytes(const struct cli_on_devices *d, struct app_job *job)
{
    struct app_sequence_size size;
    app_sequence_measure(d->sequence, &size);
    job->kv_bytes = size.bytes;
}

/* The same in chunks: each is compressed when it was read. */
static int read_chunks(struct cli_on_devices *d, struct app_job *job, int32_t n)
{
    const double start = app_now_ms();
    app_progress_start(&job->progress, "prefill", "tokens");
    const struct app_sequence_chunks chunks = {.chunk = job->keep.run.chunk,
                                               .slack = job->keep.more.chunk_slack,
                                               .size = &job->keep.size,
                                               .n_prefix = wnw_prompt_parts_of(job->prompt).n_prefix};
    const int status = app_sequence_read_chunks(d->sequence, job->tokens, n, &chunks);
    app_progress_end(&job->progress);
    job->prefill_ms = app_now_ms() - start;
    if (status == WNW_E_UNSUPPORTED)
        return app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    if (status != WNW_OK)
        return app_fail_status(status);
    cli_on_devices_measure(d, job);
    job->compress_ms = app_sequence_compress_ms(d->sequence);
    job->prefill_ms -= job->compress_ms;
    return app_job_check_peak(job);
}

int cli_on_devices_read_first(struct cli_on_devices *d, struct app_job *job, int32_t n)
{
    if (job->keep.run.phase == WNW_PHASE_CHUNK && !wnw_policy_is_full(job->keep.policy))
        return read_chunks(d, job, n);
    WNW_TRY(cli_on_devices_read(d, job, 0, n, NULL, NULL));
    const double start = app_now_ms();
    const int status =
        app_sequence_compress(d->sequence, &job->keep.size, wnw_prompt_parts_of(job->prompt).n_prefix);
    job->compress_ms = app_now_ms() - start;
    if (status != WNW_OK)
        return app_fail_status(status);
    cli_on_devices_measure(d, job);
    return APP_OK;
}

int cli_on_devices_plan(const struct cli_on_devices *d, const struct app_job *job, wnw_plan **plan)
{
    const int32_t n_layer = job->info.n_layer, n_head = job->info.n_head_kv;
    const int32_t n_read = app_sequence_n_read(d->sequence);
    const size_t n_all = (size_t)n_layer * (size_t)n_head;
    int32_t *room = malloc((n_all * (size_t)n_read + 1) * sizeof *room);
    int32_t *n = calloc(n_all + 1, sizeof *n);
    const int32_t **positions = calloc(n_all + 1, sizeof *positions);
    int status = room && n && positions ? WNW_OK : WNW_E_NOMEM;
    *plan = NULL;
    for (size_t i = 0; status == WNW_OK && i < n_all; i++) {
        int32_t *const own = room + i * (size_t)n_read;
        status = app_sequence_head(d->sequence, (int32_t)(i / (size_t)n_head), (int32_t)(i % (size_t)n_head),
                                   job->info.n_swa, own, &n[i]);
        positions[i] = own;
    }
    if (status == WNW_OK)
        status = wnw_plan_new(plan, n_layer, n_head, n_read, n, positions);
    const bool no_memory = !room || !n || !positions;
    free(room);
    free(n);
    free(positions);
    if (no_memory)
        return app_fail(APP_FAILED, "out of memory for a keep-plan");
    return app_status_code(status);
}

void cli_on_devices_end(struct cli_on_devices *d)
{
    app_sequence_free(d->sequence);
    app_devices_clear(&d->devices);
    free(d->profiles.s);
    *d = (struct cli_on_devices){.sequence = NULL};
}
