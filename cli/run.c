/* SPDX-License-Identifier: MIT */
/* winnow run: read, compress, answer. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/json.h"
#include "app/process.h"
#include "app/stream.h"
#include "base/json.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

struct answer {
    wnw_sampler *sampler;
    struct app_stream stream;
    int32_t n_decoded; /* tokens fed back; one less than generated, usually */
    double ttft_ms, decode_ms;
};

/* Reads the first piece and compresses it, then reads the rest. */
static int read_prompt(struct app_job *job)
{
    const int32_t n_first = app_job_n_compressed(job);
    job->start_ms = app_now_ms();
    int rc = app_job_read_first(job, n_first);
    if (rc != APP_OK || n_first == job->n_tokens)
        return rc;
    rc = app_job_stop_observing(job);
    return rc == APP_OK ? app_job_read(job, n_first, job->n_tokens, NULL, NULL) : rc;
}

static int new_sampler(wnw_sampler **sampler, const struct cli_args *args)
{
    wnw_sampler_params params = wnw_sampler_default_params();
    params.temp = (float)args->temp;
    params.top_k = (int32_t)args->top_k;
    params.top_p = (float)args->top_p;
    params.seed = (uint32_t)args->app.seed;
    const int status = wnw_sampler_new(sampler, &params);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

static int generate(struct app_job *job, struct answer *a)
{
    const int32_t n_most = (int32_t)job->args->n;
    struct app_progress progress;
    int rc = APP_OK;
    app_progress_start(&progress, "generate", "tokens");
    /* An answer that is printed on a terminal shows the progress itself. */
    progress.terminal = progress.terminal && !isatty(STDOUT_FILENO);
    double first = app_now_ms();
    a->ttft_ms = first - job->start_ms;
    while (a->stream.n < n_most) {
        const float *logits = wnw_session_logits(job->session);
        const int32_t token = wnw_sampler_pick(a->sampler, logits, job->info.n_vocab);
        if (a->stream.n == 0) {
            first = app_now_ms();
            a->ttft_ms = first - job->start_ms;
        }
        if (wnw_token_is_eog(job->model, token))
            break;
        if ((rc = app_stream_add(&a->stream, token)) != APP_OK)
            break;
        app_progress_step(a->stream.n, n_most, &progress);
        if (a->stream.n == n_most)
            break;
        if (wnw_session_n_past(job->session) >= job->info.n_ctx_train) {
            app_progress_end(&progress);
            app_note("the context of %d tokens is full, the answer ends here", job->info.n_ctx_train);
            break;
        }
        const int status = wnw_session_decode(job->session, token);
        if (status != WNW_OK) {
            rc = app_fail_status(status);
            break;
        }
        a->n_decoded++;
    }
    a->decode_ms = app_now_ms() - first;
    app_progress_end(&progress);
    return rc == APP_OK && a->stream.n > 0 ? app_stream_end(&a->stream) : rc;
}

static double per_second(int64_t n, double ms)
{
    return n > 0 && ms > 0.0 ? (double)n * 1e3 / ms : 0.0;
}

static void print_summary(const struct app_job *job, const struct answer *a)
{
    const int32_t n_first = app_job_n_compressed(job);
    app_note("prompt %d tokens; kept %.1f of %d per head (%.1f %%), KV %.2f of %.2f MiB; prefill %.1f tok/s, "
             "compress %.1f ms, first token %.0f ms; %d tokens, decode %.1f tok/s",
             job->n_tokens, job->kept_mean, n_first, 100.0 * job->kept_mean / n_first,
             (double)job->kv_bytes / 1048576.0, (double)job->kv_bytes_full / 1048576.0,
             per_second(job->n_tokens, job->prefill_ms), job->compress_ms, a->ttft_ms, a->stream.n,
             per_second(a->n_decoded, a->decode_ms));
}

static int print_json(const struct app_job *job, const struct answer *a)
{
    json_t *tokens = wnw__json_i32s(a->stream.ids, a->stream.n);
    json_t *o = json_pack("{s:i, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s%, s:o}",
                          "prompt_tokens", (int)job->n_tokens, "kept_tokens_mean", job->kept_mean,
                          "kv_bytes_full", (json_int_t)job->kv_bytes_full, "kv_bytes",
                          (json_int_t)job->kv_bytes, "peak_rss_bytes", (json_int_t)app_peak_rss(), "load_ms",
                          job->load_ms, "prefill_ms", job->prefill_ms, "compress_ms", job->compress_ms,
                          "ttft_ms", a->ttft_ms, "decode_tps", per_second(a->n_decoded, a->decode_ms),
                          "prefill_tps", per_second(job->n_tokens, job->prefill_ms), "text",
                          a->stream.text.s ? a->stream.text.s : "", a->stream.text.len, "tokens", tokens);
    return app_print_json(o);
}

static int print_answer(const struct app_job *job, const struct answer *a)
{
    if (a->stream.text.len > 0 && a->stream.text.s[a->stream.text.len - 1] != '\n')
        putchar('\n');
    const int rc = app_finish_stdout();
    if (rc == APP_OK)
        print_summary(job, a);
    return rc;
}

int cli_run(const struct app_args *args)
{
    struct app_job job;
    struct answer a = {0};
    /* The sampler is made before the model is opened, because its options can be refused without the
     * model. */
    int rc = new_sampler(&a.sampler, (const struct cli_args *)args);
    if (rc != APP_OK)
        return rc;
    rc = app_job_start(&job, args);
    if (rc == APP_OK) {
        a.stream.model = job.model;
        a.stream.echo = args->json ? NULL : stdout;
        rc = read_prompt(&job);
    }
    if (rc == APP_OK) {
        app_job_notes(&job);
        rc = generate(&job, &a);
    }
    if (rc == APP_OK)
        rc = args->json ? print_json(&job, &a) : print_answer(&job, &a);
    wnw_sampler_free(a.sampler);
    app_stream_clear(&a.stream);
    app_job_close(&job);
    return rc;
}
