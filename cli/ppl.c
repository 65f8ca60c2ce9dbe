/* SPDX-License-Identifier: MIT */
/* winnow ppl: perplexity of a text, with the full cache or after compressing its first part. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/json.h"
#include "app/likelihood.h"
#include "app/options.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/on_devices.h"
#include "winnow.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* Negative log-likelihood, summed over scored tokens. */
struct score {
    const int32_t *next; /* next[i]: the token that logits i predict */
    int32_t n_next;      /* logits beyond these predict a token that is not known */
    int32_t n_vocab, n_scored;
    int32_t n_text; /* tokens of the whole text; job->n_tokens of them are read; < 0: not counted */
    double nll;
};

static void score_next(struct score *sc, const float *logits, int32_t token)
{
    sc->nll += app_token_nll(logits, sc->n_vocab, token);
    sc->n_scored++;
}

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct score *sc = user;
    if (i < sc->n_next)
        score_next(sc, logits, sc->next[i]);
    return true;
}

/* Bytes of the text that have to be turned into tokens: all, or as many as twice the tokens that will be read
 * can have. Text far after a token has no influence on that token. */
static size_t bytes_to_read(const struct app_job *job)
{
    const int64_t n = job->args->n != APP_UNSET ? job->args->n : job->info.n_ctx_train;
    const int64_t n_most = 2 * n + 64;
    size_t len;
    wnw_text_exceeds(job->model, job->document, job->n_document,
                     n_most < INT32_MAX ? (int32_t)n_most : INT32_MAX, &len);
    while (len < job->n_document && ((unsigned char)job->document[len] & 0xc0) == 0x80)
        len++;
    return len;
}

/* Token ids of the text into job->file_tokens, cut to what can be read. */
static int read_text(struct app_job *job, int32_t *n_text)
{
    int32_t n = job->n_file_tokens;
    size_t len = job->n_document;
    if (job->document) {
        int32_t *tokens;
        len = bytes_to_read(job);
        const int status =
            wnw_tokenize(job->model, job->document, len, true, job->args->special, &tokens, &n);
        if (status != WNW_OK)
            return app_fail_status(status);
        const wnw_prompt_parts parts = {WNW_INIT(wnw_prompt_parts), .tokens = tokens, .n_tokens = n,
                                        .n_context = n};
        const int made = wnw_prompt_new(&job->prompt, &parts);
        wnw_free(tokens);
        if (made != WNW_OK)
            return app_fail_status(made);
        job->tokens = wnw_prompt_tokens(job->prompt, NULL);
    } else {
        job->tokens = job->file_tokens;
    }
    const bool asked = job->args->n != APP_UNSET;
    job->n_tokens = asked && job->args->n < n ? (int32_t)job->args->n : n;
    if (job->n_tokens > job->info.n_ctx_train && !(asked && app_keep_is_endless(&job->keep))) {
        /* Without -n the text is cut to the context; a value of -n beyond the context is refused. */
        if (asked)
            return app_fail(APP_BAD_INPUT, "-n %d is more than the model's context of %d tokens",
                            job->n_tokens, job->info.n_ctx_train);
        job->n_tokens = job->info.n_ctx_train;
    }
    for (int32_t i = 0; i < job->n_tokens; i++) {
        if (job->tokens[i] < 0 || job->tokens[i] >= job->info.n_vocab)
            return app_fail(APP_BAD_INPUT, "token %d (number %d) is not in the vocabulary, 0 to %d",
                            job->tokens[i], i + 1, job->info.n_vocab - 1);
    }
    if (job->n_tokens < 2)
        return app_fail(APP_BAD_INPUT, "the text has %d token; at least 2 are needed", job->n_tokens);
    job->n_context = job->n_tokens; /* no question follows */
    *n_text = len < job->n_document ? -1 : n;
    return APP_OK;
}

static int prefix_length(const struct app_job *job, int32_t *prefix)
{
    const int64_t asked = ((const struct cli_args *)job->args)->prefix;
    if (asked == APP_UNSET) {
        *prefix = wnw_policy_is_full(job->keep.policy) ? 0 : job->n_tokens / 2;
        return APP_OK;
    }
    if (asked >= job->n_tokens)
        return app_fail(APP_BAD_INPUT, "--prefix %lld leaves nothing to score of %d tokens; give less",
                        (long long)asked, job->n_tokens);
    if (asked == 0 && !wnw_policy_is_full(job->keep.policy))
        return app_fail(APP_BAD_INPUT, "--prefix 0 leaves nothing to compress; give at least 1");
    *prefix = (int32_t)asked;
    return APP_OK;
}

static int evaluate(struct app_job *job, int32_t prefix, struct score *sc)
{
    if (prefix > 0) {
        WNW_TRY(app_job_read_first(job, prefix));
        score_next(sc, wnw_session_logits(job->session), job->tokens[prefix]);
    }
    sc->next = job->tokens + prefix + 1;
    sc->n_next = job->n_tokens - prefix - 1;
    WNW_TRY(app_job_read(job, prefix, job->n_tokens, on_logits, sc));
    /* Without a prefix nothing was compressed, so the cache is measured at the end. */
    if (prefix == 0)
        app_job_measure(job);
    return APP_OK;
}

/* Reads and scores the tokens that follow n on --devices, up to `to`. */
static int score_on_devices(struct cli_on_devices *d, struct app_job *job, int32_t n, int32_t to,
                            struct score *sc)
{
    sc->next = job->tokens + n + 1;
    sc->n_next = job->n_tokens - n - 1;
    return cli_on_devices_read(d, job, n, to, on_logits, sc);
}

/* The same on --devices. These give the memory of what was dropped back with the first token after it. */
static int evaluate_on_devices(struct cli_on_devices *d, struct app_job *job, int32_t prefix,
                               struct score *sc)
{
    WNW_TRY(cli_on_devices_begin(d, job, (const struct cli_args *)job->args, 0));
    if (prefix > 0) {
        WNW_TRY(cli_on_devices_read_first(d, job, prefix));
        score_next(sc, app_sequence_logits(d->sequence), job->tokens[prefix]);
        WNW_TRY(score_on_devices(d, job, prefix, prefix + 1, sc));
        cli_on_devices_measure_bytes(d, job);
    }
    WNW_TRY(score_on_devices(d, job, prefix > 0 ? prefix + 1 : 0, job->n_tokens, sc));
    if (prefix == 0)
        cli_on_devices_measure(d, job);
    return APP_OK;
}

static int print_result(const struct app_job *job, int32_t prefix, const struct score *sc)
{
    const double mean = sc->nll / sc->n_scored;
    if (!isfinite(mean))
        return app_fail(APP_FAILED, "the model gave logits that are not finite");
    if (!job->args->json) {
        printf("ppl %.4f  (%d tokens scored after a prefix of %d, kept %.1f per head, KV %.2f of %.2f MiB)\n",
               exp(mean), sc->n_scored, prefix, job->kept_mean, (double)job->kv_bytes / 1048576.0,
               (double)job->kv_bytes_full / 1048576.0);
        return app_finish_stdout();
    }
    json_t *o =
        json_pack("{s:f, s:f, s:i, s:i, s:o, s:s, s:f, s:I, s:I, s:f, s:f, s:f, s:o*, s:o*}", "ppl",
                  exp(mean), "nll_mean", mean, "scored_tokens", (int)sc->n_scored, "prefix_tokens",
                  (int)prefix, "text_tokens", sc->n_text < 0 ? json_null() : json_integer(sc->n_text),
                  "policy", wnw_policy_string(job->keep.policy), "kept_tokens_mean", job->kept_mean,
                  "kv_bytes_full", (json_int_t)job->kv_bytes_full, "kv_bytes", (json_int_t)job->kv_bytes,
                  "load_ms", job->load_ms, "prefill_ms", job->prefill_ms, "compress_ms", job->compress_ms,
                  "choice", app_job_choice(job), "chunks", app_job_chunks(job));
    return app_print_json(o);
}

static int score_text(struct app_job *job, struct cli_on_devices *devices, const struct app_args *args)
{
    struct score sc = {0};
    int32_t prefix = 0;
    WNW_TRY(app_job_check(job, args));
    WNW_TRY(cli_on_devices_check((const struct cli_args *)args));
    WNW_TRY(app_job_open(job));
    WNW_TRY(read_text(job, &sc.n_text));
    WNW_TRY(prefix_length(job, &prefix));
    job->n_first = prefix;
    if (!args->devices)
        WNW_TRY(app_job_session(job));
    sc.n_vocab = job->info.n_vocab;
    WNW_TRY(args->devices ? evaluate_on_devices(devices, job, prefix, &sc) : evaluate(job, prefix, &sc));
    app_job_notes(job);
    if (sc.n_text < 0)
        app_note("read %d tokens of the text, which is much longer", job->n_tokens);
    else if (job->n_tokens < sc.n_text)
        app_note("read %d of %d tokens of the text%s", job->n_tokens, sc.n_text,
                 args->n == APP_UNSET ? ", the model's context" : "");
    return print_result(job, prefix, &sc);
}

int cli_ppl(const struct app_args *args)
{
    struct app_job job;
    struct cli_on_devices devices = {.sequence = NULL};
    if (args->evict_every)
        return app_fail(APP_BAD_INPUT, "ppl generates nothing; leave out --evict-every");
    if (args->mask_phase && strcmp(args->mask_phase, "decode") == 0)
        return app_fail(APP_BAD_INPUT,
                        "ppl generates nothing, so that --mask-phase decode masks nothing; leave "
                        "it out");
    const int rc = score_text(&job, &devices, args);
    cli_on_devices_end(&devices);
    app_job_close(&job);
    return rc;
}
