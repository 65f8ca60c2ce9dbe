/* SPDX-License-Identifier: MIT */
#include "app/job.h"

#include "app/automatic.h"
#include "app/job_expect.h"
#include "app/job_input.h"
#include "app/models.h"
#include "app/process.h"
#include "app/profiles.h"
#include "base/err.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int app_job_mask_form(wnw_mask_form *form, const char *word)
{
    *form = word && strcmp(word, "mean") == 0 ? WNW_MASK_MEAN : WNW_MASK_ZERO;
    return !word || *form == WNW_MASK_MEAN || strcmp(word, "zero") == 0
               ? APP_OK
               : app_fail(APP_BAD_INPUT, "--mask-form '%s' is unknown; use zero or mean", word);
}

static int check_masks(struct app_job *job)
{
    const char *phase = job->args->mask_phase;
    if (!phase || strcmp(phase, "all") == 0)
        job->mask_phase = WNW_MASK_ALL;
    else if (strcmp(phase, "decode") == 0)
        job->mask_phase = WNW_MASK_DECODE;
    else
        return app_fail(APP_BAD_INPUT, "--mask-phase '%s' is unknown; use all or decode", phase);
    if (phase && !job->args->mask_heads)
        return app_fail(APP_BAD_INPUT,
                        "--mask-phase says when heads are masked; name them with --mask-heads");
    if (job->args->mask_form && !job->args->mask_heads)
        return app_fail(APP_BAD_INPUT,
                        "--mask-form says what masked heads give; name them with --mask-heads");
    return app_job_mask_form(&job->mask_form, job->args->mask_form);
}

int app_job_attention(struct app_job *job)
{
    if (strcmp(job->args->attn, "own") == 0)
        job->attn = WNW_ATTN_OWN;
    else if (strcmp(job->args->attn, "ggml") == 0)
        job->attn = WNW_ATTN_GGML;
    else if (strcmp(job->args->attn, "f32") == 0)
        job->attn = WNW_ATTN_F32;
    else
        return app_fail(APP_BAD_INPUT, "--attn '%s' is unknown; use own, f32 or ggml", job->args->attn);
    return APP_OK;
}

static int check_types(struct app_job *job)
{
    WNW_TRY(app_job_attention(job));
    return app_kv_check(&job->kv, job->args, job->attn);
}

int app_job_check(struct app_job *job, const struct app_args *args)
{
    *job = (struct app_job){.args = args, .keep.run = wnw_run_default()};
    WNW_TRY(app_keep_check(&job->keep, args));
    WNW_TRY(check_types(job));
    WNW_TRY(check_masks(job));
    WNW_TRY(app_job_check_prompt(job));
    WNW_TRY(app_job_expect_check(job));
    WNW_TRY(app_job_find_inputs(job));
    return args->out ? app_out_check(args->out, &job->inputs) : APP_OK;
}

int app_job_check_conversation(struct app_job *job, const struct app_args *args)
{
    *job = (struct app_job){.args = args, .keep.run = wnw_run_default(), .talks = true};
    WNW_TRY(app_keep_check(&job->keep, args));
    WNW_TRY(app_keep_check_blind(job->keep.policy));
    WNW_TRY(check_types(job));
    WNW_TRY(app_job_check_layout(args));
    WNW_TRY(app_job_read_texts(job));
    return app_job_find_inputs(job);
}

int app_job_check_input(struct app_job *job, const struct app_args *args)
{
    *job = (struct app_job){.args = args, .any_length = true};
    WNW_TRY(app_job_check_prompt(job));
    return app_model_path(&job->model_path, args->model);
}

int app_job_open(struct app_job *job)
{
    const double start = app_now_ms();
    const int status = app_model_open(&job->model, job->model_path, NULL, &job->remarks);
    if (status != WNW_OK)
        return app_fail_status(status);
    job->load_ms = app_now_ms() - start;
    job->info = wnw_model_info_default();
    return app_status_code(wnw_model_get_info(job->model, &job->info));
}

/* A policy that scores the document by the question takes the question from the prompt's second piece. */
static int check_question(const struct app_job *job)
{
    if (!app_keep_by_question(job->keep.policy) || job->expected.n > 0)
        return APP_OK;
    if (job->n_tokens == job->n_context || !job->question || !*job->question)
        return app_fail(APP_BAD_INPUT,
                        "the policy judges the prompt by its question; give one with -p, or with --expect");
    return APP_OK;
}

/* Returns a status of the library. */
static int mask_heads(struct app_job *job)
{
    wnw_head *heads;
    int32_t n;
    int status = wnw_heads_parse(&heads, &n, job->args->mask_heads, job->model, job->keep.profile);
    if (status == WNW_OK)
        status = wnw_session_mask_form(job->session, job->mask_form);
    if (status == WNW_OK)
        status = wnw_session_mask_heads(job->session, heads, n, job->mask_phase);
    wnw_free(heads);
    return status;
}

int app_job_prepare(struct app_job *job)
{
    if (job->is_prepared)
        return APP_OK;
    const int32_t n = app_job_n_compressed(job);
    if (job->kv.automatic)
        app_kv_choose(&job->kv, (uint64_t)job->args->kv_bytes, n, &job->info);
    WNW_TRY(app_keep_prepare(&job->keep, &job->remarks,
                             &(struct app_keep_of){.args = job->args,
                                                   .model = job->model,
                                                   .model_path = job->model_path,
                                                   .info = &job->info,
                                                   .kv = &job->kv,
                                                   .prompt = job->prompt,
                                                   .expected = job->expected.tokens,
                                                   .n_expected_tokens = job->expected.n_tokens,
                                                   .n_expected = job->expected.n,
                                                   .inputs = &job->inputs,
                                                   .n = n,
                                                   .stores = job->stores,
                                                   .talks = job->talks,
                                                   .no_profiles = job->no_profiles,
                                                   .reads_once = job->reads_once,
                                                   .on_devices = job->on_devices}));
    job->is_prepared = true;
    return APP_OK;
}

int app_job_session(struct app_job *job)
{
    WNW_TRY(app_job_prepare(job));
    wnw_session_params params = wnw_session_default_params();
    params.kv_type = job->kv.type;
    params.kv_tail = job->kv.tail;
    params.kv_unrotated = job->kv.unrotated;
    params.attn = job->attn;
    params.n_threads = job->args->threads == APP_UNSET ? 0 : (int32_t)job->args->threads;
    params.progress = app_progress_step;
    params.progress_user = &job->progress;
    WNW_TRY(app_status_code(wnw_session_new(&job->session, job->model, &params)));
    WNW_TRY(app_status_code(wnw_session_begin(job->session, &job->keep.run)));
    if (job->args->mask_heads)
        WNW_TRY(app_status_code(mask_heads(job)));
    return check_question(job);
}

int app_job_read(struct app_job *job, int32_t from, int32_t to, wnw_logits_fn on_logits, void *user)
{
    if (to <= from)
        return APP_OK;
    const double start = app_now_ms();
    app_progress_start(&job->progress, "prefill", "tokens");
    const int status = wnw_session_prefill(job->session, job->tokens + from, to - from, on_logits, user);
    app_progress_end(&job->progress);
    job->prefill_ms += app_now_ms() - start;
    return app_status_code(status);
}

void app_job_measure(struct app_job *job)
{
    wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
    int64_t entries = 0, heads = 0;
    for (int32_t il = 0; il < job->info.n_layer; il++) {
        for (int32_t ih = 0; ih < job->info.n_head_kv && !wnw_model_layer_is_swa(job->model, il); ih++) {
            entries += wnw_cache_n(job->session, il, ih);
            heads++;
        }
    }
    (void)wnw_cache_get_stats(job->session, &stats); /* this call does not fail for an open session */
    job->kept_mean = heads > 0 ? (double)entries / (double)heads : 0.0;
    job->kv_bytes = stats.bytes;
    job->kv_bytes_swa = stats.bytes_swa;
    job->kv_bytes_full = stats.bytes_full;
}

/* Fails if the cache takes more bytes than were asked for. Heads grow in blocks, memory grows in pages, and a policy may
 * always keep some entries, so there is a smallest size. Layers with a sliding window are not counted: no policy acts on them. */
static int check_bytes(const struct app_job *job)
{
    const uint64_t has = job->kv_bytes - job->kv_bytes_swa;
    if (job->keep.size.kind != WNW_SIZE_BYTES || has <= job->keep.size.bytes || !job->keep.policy ||
        wnw_policy_is_full(job->keep.policy))
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "--kv-bytes %llu is too small: what the policy leaves of %d tokens takes %llu "
                    "bytes, in blocks of "
                    "entries and in pages; allow at least that, or name another policy",
                    (unsigned long long)job->keep.size.bytes, app_job_n_compressed(job),
                    (unsigned long long)has);
}

int app_job_check_peak(const struct app_job *job)
{
    return app_peak_verify(&job->keep.peak,
                           &(struct app_peak_of){.args = job->args, .kv = &job->kv, .info = &job->info},
                           job->kv_bytes_peak - job->kv_bytes_swa);
}

int app_job_read_on(struct app_job *job, int32_t from, int32_t to)
{
    wnw_report report = {WNW_INIT(wnw_report)};
    if (to > from) {
        app_progress_start(&job->progress, "prefill", "tokens");
        const int status = wnw_session_read(job->session, job->tokens + from, to - from, &report);
        app_progress_end(&job->progress);
        if (status != WNW_OK)
            return app_fail_status(status);
        job->compress_ms = report.observe_ms + report.score_ms + report.select_ms + report.compact_ms;
        job->prefill_ms += report.read_ms;
        job->kv_bytes_peak = report.kv_bytes_before;
    }
    app_job_measure(job);
    if (to > from) { /* what is refused needs no warning */
        WNW_TRY(app_job_check_peak(job));
        WNW_TRY(check_bytes(job));
    }
    if (*report.warning)
        app_note("warning: %s", report.warning);
    return APP_OK;
}

int app_job_read_first(struct app_job *job, int32_t n)
{
    return app_job_read_on(job, 0, n);
}

/* Says that the first chunks leave fewer entries than a policy looks with, and which chunks do not. */
static void note_short_chunks(const struct app_job *job)
{
    const struct app_keep *keep = &job->keep;
    const int32_t window = keep->policy ? wnw_policy_needs(keep->policy).window : 0;
    const double kept = (1 - keep->size.ratio) * fmax(keep->more.chunk_slack, 1),
                 left = floor(kept * keep->run.chunk);
    if (!job->args->evict || keep->run.phase != WNW_PHASE_CHUNK || keep->size.kind != WNW_SIZE_RATIO ||
        !(kept > 0) || keep->run.chunk < 1 || keep->run.chunk >= app_job_n_compressed(job) || left >= window)
        return;
    app_note("the first chunk of %d tokens leaves %.0f entries, fewer than the %d tokens that the policy "
             "looks with: from "
             "--evict chunk:%.0f on they stay",
             (int)keep->run.chunk, left, (int)window, ceil(window / kept));
}

/* Says that --evict-every does nothing. */
static void note_own_times(const struct app_job *job)
{
    const wnw_policy *policy = job->keep.policy;
    if (!job->args->evict_every || !policy)
        return;
    if (wnw_policy_is_full(policy))
        app_note("the policy keeps everything, --evict-every has no effect");
    else if (wnw_policy_has_own_times(policy))
        app_note(
            "the policy drops entries at times of its own while it answers, --evict-every has no effect");
}

/* Says why documents of a folder may be kept by another policy than without one. */
static void note_no_profiles(const struct app_job *job)
{
    struct app_text found = {0};
    if (job->no_profiles && job->keep.automatic && app_profile_list(&found, job->model_path) == APP_OK &&
        found.len > 0)
        app_note(
            "auto chooses without this model's calibration results here, which documents of a folder are "
            "not found by; without --store it may choose another policy");
    free(found.s);
}

void app_job_notes(const struct app_job *job)
{
    note_short_chunks(job);
    if (job->keep.size_assumed)
        app_note("no size given, removing half of the entries (--ratio 0.5)");
    if (job->keep.automatic && job->keep.choice.recipe)
        app_auto_tell(&job->keep.choice);
    note_no_profiles(job);
    if (!job->no_profiles && app_keep_lacks_shares(&job->keep, job->args))
        app_note("this model has no profile of shares, without which more answers are lost: "
                 "`winnow calibrate shares -m %.120s` makes one, in minutes for small models",
                 job->args->model);
    if (job->kv.automatic)
        app_kv_tell(&job->kv, (uint64_t)job->args->kv_bytes, app_job_n_compressed(job), &job->info);
    app_peak_tell(&job->keep.peak, job->args, job->kv_bytes_peak - job->kv_bytes_swa);
    if (job->keep.own_chunk > 0)
        app_note("read in chunks of %d tokens, because the prompt is long: %.2f MiB were used of %.2f; "
                 "--evict end reads it whole",
                 job->keep.own_chunk, (double)(job->kv_bytes_peak - job->kv_bytes_swa) / 1048576.0,
                 (double)job->kv_bytes_full / 1048576.0);
    if (job->keep.size_ignored)
        app_note("the policy keeps everything, the given size has no effect");
    note_own_times(job);
    app_note_lines("warning: ", job->remarks.s);
}

json_t *app_job_chunks(const struct app_job *job)
{
    if (job->keep.run.phase != WNW_PHASE_CHUNK || !job->keep.policy || wnw_policy_is_full(job->keep.policy))
        return NULL;
    return json_pack("{s:o, s:f, s:I}", "chunk",
                     job->keep.run.chunk > 0 ? json_integer(job->keep.run.chunk) : json_null(), "slack",
                     job->keep.more.chunk_slack > 1 ? job->keep.more.chunk_slack : 1.0, "kv_peak_bytes",
                     (json_int_t)job->kv_bytes_peak);
}

json_t *app_job_choice(const struct app_job *job)
{
    return job->keep.automatic && job->keep.choice.recipe ? app_auto_json(&job->keep.choice) : NULL;
}

void app_job_end_session(struct app_job *job)
{
    wnw_session_free(job->session);
    wnw_engine_free(job->engine);
    job->session = NULL;
    job->engine = NULL;
}

void app_job_close(struct app_job *job)
{
    app_job_end_session(job);
    app_keep_clear(&job->keep);
    free(job->remarks.s);
    wnw_prompt_free(job->prompt);
    app_job_expect_clear(job);
    wnw_model_free(job->model);
    free(job->file_tokens);
    free(job->document);
    free(job->question);
    free(job->system);
    free(job->model_path);
    *job = (struct app_job){0};
}

int app_job_start(struct app_job *job, const struct app_args *args)
{
    WNW_TRY(app_job_check(job, args));
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    return app_job_session(job);
}
