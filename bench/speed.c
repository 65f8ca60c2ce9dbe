/* SPDX-License-Identifier: MIT */
/* winnow bench: llama.cpp with its full cache, winnow with the full cache and winnow with a compressed one, and with --bridge
 * libllama over our backend with both, side by side. One round reads the same tokens with all in turn. Then they decode a few
 * tokens each in turns, so that other load on the machine affects all alike. Ratios are formed within a round;
 * the result is their median, not the ratio of two medians. */
#include "bench/bench.h"
#include "bench/commands.h"

#include "app/models.h"
#include "app/process.h"
#include "app/values.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_TOKENS = 64 };

/* ---- Setting up ---- */

/* Options that sequences of libllama lack, and clocks that do not see other devices. */
static int check_devices(const struct bench_args *args)
{
    const struct app_args *a = &args->app;
    if (!a->devices)
        return a->layers ? app_fail(APP_BAD_INPUT, "--layers shares layers out among --devices: name them")
                         : APP_OK;
    const char *refused = APP_FIRST_GIVEN(
        {args->bridge, "--bridge"}, {args->cpu_time, "--cpu-time"}, {a->kv_tail > 0, "--kv-tail"},
        {strcmp(a->kv_rotate, "on") != 0, "--kv-rotate"}, {a->plugins.n > 0, "--plugin"});
    return refused ? app_fail(APP_BAD_INPUT, "%s is for the CPU; leave out %s or --devices", refused, refused)
                   : APP_OK;
}

static int check(struct bench *b)
{
    const struct bench_args *args = b->args;
    b->n_reps = (int32_t)args->reps;
    b->n_decode = (int32_t)args->decode_tokens;
    b->n_threads = args->app.threads == APP_UNSET ? wnw_usable_cores() : (int32_t)args->app.threads;
    WNW_TRY(check_devices(args));
    WNW_TRY(bench_parse_lengths(b->lengths, &b->n_lengths, args->lengths));
    WNW_TRY(app_kv_check(&b->kv, &args->app, WNW_ATTN_OWN));
    WNW_TRY(bench_policy(&b->policy, args, args->app.policy, NULL));
    if (wnw_policy_is_full(b->policy))
        return app_fail(APP_BAD_INPUT,
                        "--policy full compresses nothing, and the full cache is measured anyway");
    WNW_TRY(app_model_path(&b->model_path, args->app.model));
    WNW_TRY(bench_check_csv(&b->inputs, args, b->model_path));
    b->n_engines = args->bridge ? N_ENGINES : BRIDGE;
    WNW_TRY(bench_start_peer(&b->peer[LLAMA], args, b->n_threads));
    for (int e = BRIDGE; e < b->n_engines; e++)
        WNW_TRY(bench_start_bridge(&b->peer[e], args));
    return APP_OK;
}

/* Tokens that are decoded after a context: those that are timed, and one of each turn that is not. */
static int32_t n_decoded(const struct bench *b)
{
    return b->n_decode + bench_n_turns(b->n_decode);
}

/* A length that leaves too little room for decoding is shortened by the missing tokens; longer ones are
 * refused. */
static int fit_lengths(struct bench *b)
{
    const int32_t n_ctx = b->info.n_ctx_train;
    for (int32_t i = 0; i < b->n_lengths; i++) {
        if (b->lengths[i] > n_ctx || n_ctx - n_decoded(b) < 16)
            return app_fail(APP_BAD_INPUT,
                            "--lengths: %d tokens, and %d to decode, do not fit the model's context of %d",
                            b->lengths[i], n_decoded(b), n_ctx);
        if (b->lengths[i] > n_ctx - n_decoded(b))
            b->lengths[i] = n_ctx - n_decoded(b);
    }
    return APP_OK;
}

static int new_session(wnw_session **s, const struct bench *b, const wnw_policy *policy)
{
    wnw_session_params params = wnw_session_default_params();
    params.n_ubatch = BENCH_N_UBATCH;
    params.n_threads = b->n_threads;
    params.kv_type = b->kv.type;
    params.kv_tail = b->kv.tail;
    params.kv_unrotated = b->kv.unrotated;
    int status = wnw_session_new(s, b->model, &params);
    if (status == WNW_OK && policy)
        status = bench_observe(*s, policy);
    return app_status_code(status);
}

/* The sequence of one engine on the devices, which share a model. */
static int new_sequence(struct bench *b, enum bench_engine e, const wnw_policy *policy, int32_t n_ctx)
{
    const struct app_sequence_params params = {.model = b->model_path,
                                               .devices = b->devices.ours.s,
                                               .like = e == FULL ? NULL : b->sequence[FULL],
                                               .split = b->devices.split.s,
                                               .n_ctx = n_ctx,
                                               .n_threads = b->n_threads,
                                               .kv_type = b->kv.type,
                                               .policy = policy};
    return app_status_code(app_sequence_new(&b->sequence[e], &params));
}

static int open_devices(struct bench *b, int32_t n_ctx)
{
    WNW_TRY(app_devices_make(&b->devices, &b->args->app, b->model_path));
    const int status = app_sequence_check_policy(b->policy, NULL);
    if (status != WNW_OK)
        return status == WNW_E_UNSUPPORTED ? app_fail(APP_BAD_INPUT, "%s", wnw_last_error())
                                           : app_fail_status(status);
    WNW_TRY(new_sequence(b, FULL, NULL, n_ctx));
    return new_sequence(b, COMPRESSED, b->policy, n_ctx);
}

static int open_ours(struct bench *b, int32_t n_ctx)
{
    if (b->args->app.devices)
        return open_devices(b, n_ctx);
    WNW_TRY(new_session(&b->full, b, NULL));
    return new_session(&b->compressed, b, b->policy);
}

static int open_engines(struct bench *b)
{
    int32_t longest = WARM_TOKENS;
    WNW_TRY(app_status_code(app_model_open(&b->model, b->model_path, NULL, NULL)));
    b->info = wnw_model_info_default();
    (void)wnw_model_get_info(b->model, &b->info); /* this call does not fail for an open model */
    WNW_TRY(fit_lengths(b));
    for (int32_t i = 0; i < b->n_lengths; i++)
        longest = b->lengths[i] > longest ? b->lengths[i] : longest;
    const struct bench_llama_params params = {
        .n_ctx = longest + n_decoded(b), .n_ubatch = BENCH_N_UBATCH, .n_threads = b->n_threads};
    for (int e = 0; e < b->n_engines; e++)
        if (b->peer[e])
            WNW_TRY(bench_peer_load(b->peer[e], b->model_path, &params));
    b->tokens = bench_make_tokens(longest + n_decoded(b), b->info.n_vocab);
    if (!b->tokens)
        return app_fail(APP_FAILED, "out of memory");
    bench_describe_machine(b->machine, sizeof b->machine, b->n_threads);
    return open_ours(b, longest + n_decoded(b));
}

/* ---- Measuring ---- */

static void step_done(struct bench *b, int32_t n_tokens, int32_t n_all)
{
    b->n_steps_done += n_tokens;
    app_progress_step(b->n_steps_done, n_all, &b->progress);
}

static int read_by_llama(struct bench *b, enum bench_engine e, const struct bench_length *r, double *ms)
{
    struct bench_peer *p = b->peer[e];
    WNW_TRY(bench_peer_reset(p));
    if (e == BRIDGE_COMPRESSED)
        WNW_TRY(bench_peer_policy(p, wnw_policy_string(b->policy), r->budget));
    WNW_TRY(bench_peer_feed(p, 0, b->tokens, r->n, ms));
    return e == BRIDGE_COMPRESSED ? bench_peer_compress(p, ms) : APP_OK;
}

/* The COMPRESSED session compresses what it has read, which counts as prefill. Returns a status of the library. */
static int read_by_us(struct bench *b, enum bench_engine e, struct bench_length *r, struct bench_round *out,
                      double *ms)
{
    wnw_session *s = e == FULL ? b->full : b->compressed;
    wnw_session_reset(s);
    const double start = bench_now_ms(b->args);
    WNW_TRY(wnw_session_prefill(s, b->tokens, r->n, NULL, NULL));
    if (e == COMPRESSED) {
        const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = r->budget};
        wnw_report report = {WNW_INIT(wnw_report)};
        const double before = bench_now_ms(b->args);
        WNW_TRY(wnw_session_compress(s, b->policy, &size, &report));
        out->compress_ms = bench_now_ms(b->args) - before;
        r->kept_mean = report.kept_mean;
    }
    *ms = bench_now_ms(b->args) - start;
    r->stats[e] = wnw_cache_stats_default();
    (void)wnw_cache_get_stats(s, &r->stats[e]);
    return WNW_OK;
}

/* The same on --devices. */
static int read_by_devices(struct bench *b, enum bench_engine e, struct bench_length *r,
                           struct bench_round *out, double *ms)
{
    struct app_sequence *s = b->sequence[e];
    struct app_sequence_size size;
    WNW_TRY(app_sequence_rewind(s, 0));
    const double start = bench_now_ms(b->args);
    WNW_TRY(app_sequence_read(s, b->tokens, r->n, NULL, NULL));
    if (e == COMPRESSED) {
        const double before = bench_now_ms(b->args);
        WNW_TRY(app_sequence_compress(s, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = r->budget}, 0));
        out->compress_ms = bench_now_ms(b->args) - before;
    }
    *ms = bench_now_ms(b->args) - start;
    app_sequence_measure(s, &size);
    if (e == COMPRESSED)
        r->kept_mean = size.kept_mean;
    return WNW_OK;
}

/* Devices give memory back when the next token is computed, so that the cache is measured after decoding. */
static void measure_devices(struct bench *b, struct bench_length *r)
{
    for (int e = FULL; e <= COMPRESSED; e++) {
        struct app_sequence_size size;
        if (!b->sequence[e])
            continue;
        app_sequence_measure(b->sequence[e], &size);
        r->stats[e] = wnw_cache_stats_default();
        r->stats[e].bytes = size.bytes;
        r->stats[e].bytes_full = size.bytes_full;
        r->stats[e].bytes_entries = size.bytes_entries;
        r->stats[e].n_entries = size.n_entries;
    }
}

/* One engine reads the context. */
static int time_prefill(struct bench *b, enum bench_engine e, struct bench_length *r, struct bench_round *out)
{
    double ms = 0;
    bench_wait_until_asleep();
    if (b->peer[e]) {
        WNW_TRY(read_by_llama(b, e, r, &ms));
    } else {
        WNW_TRY(app_status_code(b->sequence[e] ? read_by_devices(b, e, r, out, &ms)
                                               : read_by_us(b, e, r, out, &ms)));
    }
    out->prefill[e] = (double)r->n * 1e3 / ms;
    return APP_OK;
}

/* One token that is not timed, and n that are: tokens[1 + n]. */
static int decode_turn(struct bench *b, enum bench_engine e, const int32_t *tokens, int32_t n, double *ms)
{
    if (b->peer[e])
        return bench_peer_turn(b->peer[e], tokens, 1, n, ms);
    double start = 0;
    bench_wait_until_asleep();
    for (int32_t i = 0; i <= n; i++) {
        if (i == 1)
            start = bench_now_ms(b->args);
        wnw_session *s = e == FULL ? b->full : b->compressed;
        WNW_TRY(app_status_code(b->sequence[e] ? app_sequence_read(b->sequence[e], &tokens[i], 1, NULL, NULL)
                                               : wnw_session_decode(s, tokens[i])));
    }
    *ms += bench_now_ms(b->args) - start;
    return APP_OK;
}

static int run_round(struct bench *b, struct bench_length *r, struct bench_round *out, int32_t turn,
                     int32_t n_all)
{
    double ms[N_ENGINES] = {0};
    /* Which engine goes first changes from round to round. */
    for (int k = 0; k < b->n_engines; k++) {
        WNW_TRY(time_prefill(b, (enum bench_engine)((k + turn) % b->n_engines), r, out));
        step_done(b, r->n, n_all);
    }
    for (int32_t i = 0; i < bench_n_turns(b->n_decode); i++) {
        const int32_t n = bench_turn_steps(b->n_decode, i);
        const int32_t *tokens = b->tokens + r->n + i * (BENCH_TURN_STEPS + 1);
        for (int k = 0; k < b->n_engines; k++) {
            const enum bench_engine e = (enum bench_engine)((k + turn) % b->n_engines);
            WNW_TRY(decode_turn(b, e, tokens, n, &ms[e]));
        }
    }
    for (int e = 0; e < b->n_engines; e++)
        out->decode[e] = b->n_decode * 1e3 / ms[e];
    measure_devices(b, r);
    return APP_OK;
}

static int64_t budget_for(const struct bench *b, int32_t n)
{
    if (b->args->app.budget != APP_UNSET)
        return b->args->app.budget;
    return n / 8 > 0 ? n / 8 : 1;
}

/* Brings weights into memory, starts threads and builds graphs, so that no measured round includes this. */
static int warm_up(struct bench *b)
{
    struct bench_length r = {.n = WARM_TOKENS, .budget = WARM_TOKENS};
    struct bench_round ignored = {0};
    double ms = 0.0;
    for (int e = 0; e < b->n_engines; e++) {
        WNW_TRY(time_prefill(b, (enum bench_engine)e, &r, &ignored));
        WNW_TRY(decode_turn(b, (enum bench_engine)e, b->tokens, 1, &ms));
    }
    return APP_OK;
}

static int measure_length(struct bench *b, int32_t n, int32_t n_all)
{
    struct bench_length *r = &b->results[b->n_results++];
    *r = (struct bench_length){.n = n, .budget = budget_for(b, n)};
    r->rounds = calloc((size_t)b->n_reps, sizeof *r->rounds);
    if (!r->rounds)
        return app_fail(APP_FAILED, "out of memory");
    for (; r->n_rounds < b->n_reps; r->n_rounds++)
        WNW_TRY(run_round(b, r, &r->rounds[r->n_rounds], r->n_rounds, n_all));
    return APP_OK;
}

static int measure(struct bench *b)
{
    int64_t n_all = 0;
    int rc = warm_up(b);
    for (int32_t i = 0; i < b->n_lengths; i++)
        n_all += (int64_t)b->lengths[i] * b->n_reps * b->n_engines;
    const int32_t n_shown = n_all > INT32_MAX ? INT32_MAX : (int32_t)n_all;
    app_progress_start(&b->progress, "bench", "tokens");
    for (int32_t i = 0; i < b->n_lengths && rc == APP_OK; i++)
        rc = measure_length(b, b->lengths[i], n_shown);
    app_progress_end(&b->progress);
    return rc;
}

static void close_bench(struct bench *b)
{
    for (int32_t i = 0; i < b->n_results; i++)
        free(b->results[i].rounds);
    wnw_session_free(b->full);
    wnw_session_free(b->compressed);
    app_sequence_free(b->sequence[COMPRESSED]); /* its model is that of FULL */
    app_sequence_free(b->sequence[FULL]);
    app_devices_clear(&b->devices);
    for (int e = 0; e < N_ENGINES; e++)
        bench_peer_close(b->peer[e]);
    wnw_model_free(b->model);
    wnw_policy_free(b->policy);
    free(b->tokens);
    free(b->model_path);
}

/* The caller closes b in any case. */
static int measure_and_report(struct bench *b)
{
    WNW_TRY(check(b));
    WNW_TRY(open_engines(b));
    WNW_TRY(measure(b));
    if (b->args->csv)
        WNW_TRY(bench_write_csv(b));
    WNW_TRY(b->args->app.json ? bench_print_json(b) : bench_print_table(b));
    return app_finish_stdout();
}

int bench_run_speed(const struct app_args *app)
{
    struct bench b = {.args = (const struct bench_args *)app};
    const int rc = measure_and_report(&b);
    close_bench(&b);
    return rc;
}
