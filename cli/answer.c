/* SPDX-License-Identifier: MIT */
/* Answering: what `run` and `ask` have in common, from a session that has read the question to what is printed. */
#include "cli/answer.h"

#include "app/console.h"
#include "app/json.h"
#include "app/process.h"
#include "app/shown.h"
#include "app/stop.h"
#include "base/json.h"
#include "cli/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cli_answer_begin(struct cli_answer *a, const struct cli_args *args)
{
    *a = (struct cli_answer){.said = wnw_generated_default(), .most = (int32_t)args->app.n};
    wnw_sampler_params params = wnw_sampler_default_params();
    params.temp = (float)args->temp;
    params.top_k = (int32_t)args->top_k;
    params.top_p = (float)args->top_p;
    params.seed = (uint32_t)args->app.seed;
    params.repeat_penalty = (float)args->repeat_penalty;
    return app_status_code(wnw_sampler_new(&a->sampler, &params));
}

/* What is done with the answer while it is generated. */
struct listener {
    struct app_shown echo; /* new text is written here at once; f = NULL: nowhere */
    struct app_progress progress;
    double first; /* when the first token came */
    int32_t most;
    bool stoppable;
    struct cli_loop *loop; /* of what was generated; NULL = loops go on */
    bool looped;
    int rc;
};

static bool on_text(const char *text, size_t n_bytes, int32_t n_tokens, void *user)
{
    struct listener *l = user;
    if (n_tokens == 1 && l->first == 0)
        l->first = app_now_ms();
    errno = 0;
    /* The error is reported at once, because generating the rest of an unreadable answer would be in vain. */
    if (l->echo.f && n_bytes > 0 && (!app_shown_write(&l->echo, text, n_bytes) || fflush(l->echo.f) != 0))
        l->rc = app_stdout_failed();
    else
        app_progress_step(n_tokens, l->most, &l->progress);
    l->looped = l->loop && cli_loop_add(l->loop, text, n_bytes);
    return l->rc == APP_OK && !l->looped && !(l->stoppable && app_stop_asked());
}

static int generate(struct cli_answer *a, const struct app_job *job, const wnw_generate_params *params)
{
    if (!a->sequence)
        return wnw_generate(&a->said, job->session, a->sampler, params);
    const wnw_decoder by = app_sequence_decoder(a->sequence, job->model);
    return wnw_generate_by(&a->said, &by, a->sampler, params);
}

int cli_answer_generate(struct cli_answer *a, struct app_job *job)
{
    struct cli_loop loop = {.n = 0};
    struct listener l = {.most = a->most, .stoppable = a->stoppable, .loop = a->ends_loops ? &loop : NULL};
    const wnw_generate_params params = {WNW_INIT(wnw_generate_params), .n_max = a->most, .on_text = on_text,
                                        .user = &l};
    a->ttft_ms = app_now_ms() - job->start_ms;
    if (params.n_max == 0)
        return APP_OK;
    if (!job->args->json)
        app_shown_begin(&l.echo, stdout);
    app_progress_start(&l.progress, "generate", "tokens");
    /* An answer that is printed on a terminal shows the progress itself. */
    l.progress.terminal = l.progress.terminal && !isatty(STDOUT_FILENO);
    const int status = generate(a, job, &params);
    const double end = app_now_ms();
    l.first = l.first > 0 ? l.first : end;
    a->ttft_ms = l.first - job->start_ms;
    a->decode_ms = end - l.first;
    app_progress_end(&l.progress);
    a->looped = l.looped;
    if (l.echo.f && l.rc == APP_OK && (!app_shown_end(&l.echo) || fflush(l.echo.f) != 0))
        l.rc = app_stdout_failed();
    if (status != WNW_OK)
        return app_fail_status(status);
    if (a->said.end == WNW_END_FULL)
        app_note("the context of %d tokens is full, the answer ends here", job->info.n_ctx_train);
    return l.rc;
}

static double per_second(int64_t n, double ms)
{
    return n > 0 && ms > 0.0 ? (double)n * 1e3 / ms : 0.0;
}

static void print_summary(const struct app_job *job, const struct cli_answer *a)
{
    const int32_t n_first = app_job_n_compressed(job);
    app_note("prompt %d tokens; kept %.1f of %d per head (%.1f %%), KV %.2f of %.2f MiB; prefill %.1f tok/s, "
             "compress %.1f ms, first token %.0f ms; %d tokens, decode %.1f tok/s",
             job->n_tokens, job->kept_mean, n_first, 100.0 * job->kept_mean / n_first,
             (double)job->kv_bytes / 1048576.0, (double)job->kv_bytes_full / 1048576.0,
             per_second(a->n_prefill, job->prefill_ms), job->compress_ms, a->ttft_ms, a->said.n_tokens,
             per_second(a->said.n_read, a->decode_ms));
}

/* What came from a folder of documents; NULL where none was named. */
static json_t *store_json(const struct app_job *job)
{
    return job->store.used
               ? json_pack("{s:b, s:i}", "exact", (int)job->store.exact, "tokens", (int)job->store.n_tokens)
               : NULL;
}

json_t *cli_answer_json(const struct cli_answer *a, const struct app_job *job)
{
    json_t *tokens = wnw__json_i32s(a->said.tokens, a->said.n_tokens);
    return json_pack(
        "{s:i, s:f, s:I, s:I, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s%, s:o, s:o*, s:o*, s:o*}",
        "prompt_tokens", (int)job->n_tokens, "kept_tokens_mean", job->kept_mean, "kv_bytes_full",
        (json_int_t)job->kv_bytes_full, "kv_bytes", (json_int_t)job->kv_bytes, "kv_rotated",
        app_kv_rotates(&job->kv), "peak_rss_bytes", (json_int_t)app_peak_rss(), "load_ms", job->load_ms,
        "prefill_ms", job->prefill_ms, "compress_ms", job->compress_ms, "ttft_ms", a->ttft_ms, "decode_tps",
        per_second(a->said.n_read, a->decode_ms), "prefill_tps", per_second(a->n_prefill, job->prefill_ms),
        "text", a->said.text ? a->said.text : "", a->said.n_text, "tokens", tokens, "choice",
        app_job_choice(job), "store", store_json(job), "chunks", app_job_chunks(job));
}

int cli_answer_print(const struct cli_answer *a, const struct app_job *job)
{
    if (job->args->json)
        return app_print_json(cli_answer_json(a, job));
    if (a->said.n_text > 0 && a->said.text[a->said.n_text - 1] != '\n')
        putchar('\n');
    const int rc = app_finish_stdout();
    if (rc == APP_OK)
        print_summary(job, a);
    return rc;
}

void cli_answer_clear(struct cli_answer *a)
{
    wnw_sampler_free(a->sampler);
    wnw_generated_clear(&a->said);
    a->sampler = NULL;
}
