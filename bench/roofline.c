/* SPDX-License-Identifier: MIT */
/*
 * winnow bench roofline: how near each part of the work comes to what the machine can do. The peaks of the
 * machine are measured before and after, with the threads in use. Each round reads the prompt, compresses a
 * copy, and decodes with both caches while the engine measures; and decodes once more while it does not, to
 * see what measuring costs. A chunk is read over another copy of the compressed cache, as when a prompt is read in chunks.
 */
#include "bench/roofline.h"
#include "bench/commands.h"

#include "app/process.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>

/* ---- Setting up ---- */

static int check(struct bench_roofline *b, const struct bench_args *args)
{
    WNW_TRY(bench_base_check(&b->base, args));
    b->n_decode = (int32_t)args->decode_tokens;
    return bench_policy(&b->policy, args, args->app.policy, NULL);
}

/* Tokens that a session decodes after its prompt: measured and not, each with one to begin with. */
static int32_t n_behind(const struct bench_roofline *b)
{
    return 2 * (b->n_decode + 1);
}

static int open_all(struct bench_roofline *b)
{
    wnw_engine_params params = wnw_engine_default_params();
    WNW_TRY(bench_base_open(&b->base));
    for (int32_t i = 0; i < b->base.n_lengths; i++)
        if (b->base.lengths[i] > b->base.info.n_ctx_train - n_behind(b))
            return app_fail(APP_BAD_INPUT,
                            "--lengths: %d tokens, and %d to decode, do not fit the model's context of %d",
                            b->base.lengths[i], n_behind(b), b->base.info.n_ctx_train);
    params.n_ubatch = BENCH_N_UBATCH;
    params.n_threads = b->base.n_threads;
    return app_status_code(wnw_engine_new(&b->engine, b->base.model, &params));
}

static void close_all(struct bench_roofline *b)
{
    for (int32_t i = 0; i < b->n_results; i++)
        for (int k = 0; k < N_ROOF_PHASES; k++)
            free(b->results[i].rounds[k]);
    wnw_engine_free(b->engine);
    wnw_policy_free(b->policy);
    bench_base_close(&b->base);
}

/* ---- Measuring ---- */

/* Takes over what the engine has measured; what of ms it does not account for lies between its passes. */
static void take_times(const struct bench_roofline *b, struct roof_round *r, double ms)
{
    wnw_engine_times t = wnw_engine_times_default();
    (void)wnw_engine_get_times(b->engine, &t); /* this call does not fail for an open engine */
    r->part[ROOF_WEIGHTS] = t.weights;
    r->part[ROOF_ATTENTION] = t.attention;
    r->part[ROOF_OBSERVATION] = t.observation;
    r->part[ROOF_LOGITS] = t.logits;
    r->part[ROOF_OTHER] = t.other;
    r->part[ROOF_OTHER].ms +=
        ms - (t.weights.ms + t.attention.ms + t.observation.ms + t.logits.ms + t.other.ms);
    r->ms = ms;
}

/* The work of looking at the cache with the newest queries: each with every key. */
static wnw_work window_work(const struct bench_roofline *b, int32_t n)
{
    const wnw_model_info *m = &b->base.info;
    const wnw_needs needs = wnw_policy_needs(b->policy);
    const double n_layer = m->n_layer - m->n_layer_swa, window = needs.window < n ? needs.window : n;
    if (!(needs.flags & WNW_NEED_WINDOW_ATTN))
        return (wnw_work){0};
    return (wnw_work){.ops = 2.0 * window * m->n_head * m->n_embd_head * n * n_layer,
                      .bytes = 2.0 * m->n_head_kv * m->n_embd_head * n * n_layer};
}

/* The functions of a round return a status of the library. */

/* Reads n tokens after those that s has. policy: whose observations are made meanwhile; NULL = none. */
static int read_tokens(struct bench_roofline *b, wnw_session *s, const wnw_policy *policy, int32_t n,
                       struct roof_round *r)
{
    WNW_TRY(bench_observe(s, policy));
    WNW_TRY(wnw_engine_measure(b->engine, true));
    const double start = app_now_ms();
    WNW_TRY(wnw_session_prefill(s, b->base.tokens, n, NULL, NULL));
    take_times(b, r, app_now_ms() - start);
    r->untimed_ms = NAN;
    return WNW_OK;
}

/* Compresses s, which counts as part of the prompt's time. */
static int compress(struct bench_roofline *b, wnw_session *s, struct roof_length *l, struct roof_round *r)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = b->base.args->app.ratio};
    wnw_report report = wnw_report_default();
    WNW_TRY(wnw_engine_measure(b->engine, false));
    const double start = app_now_ms();
    WNW_TRY(wnw_session_compress(s, b->policy, &size, &report));
    const double ms = app_now_ms() - start;
    const wnw_work work = window_work(b, l->n);
    r->part[ROOF_OBSERVATION].ms += report.observe_ms;
    r->part[ROOF_OBSERVATION].ops += work.ops;
    r->part[ROOF_OBSERVATION].bytes += work.bytes;
    r->part[ROOF_COMPRESSION].ms = ms - report.observe_ms;
    r->ms += ms;
    l->kept_mean = report.kept_mean;
    return WNW_OK;
}

/* Decodes n_decode tokens and one before, which builds the graph. *ms is the time of those after it. */
static int decode(struct bench_roofline *b, wnw_session *s, bool measured, double *ms)
{
    WNW_TRY(wnw_engine_measure(b->engine, measured));
    WNW_TRY(wnw_session_decode(s, b->base.tokens[0]));
    WNW_TRY(wnw_engine_measure(b->engine, measured)); /* forgets that token */
    const double start = app_now_ms();
    for (int32_t i = 0; i < b->n_decode; i++)
        WNW_TRY(wnw_session_decode(s, b->base.tokens[i % b->base.lengths[0]]));
    *ms = app_now_ms() - start;
    return WNW_OK;
}

static int decode_both_ways(struct bench_roofline *b, wnw_session *s, struct roof_round *r)
{
    double ms = 0;
    WNW_TRY(bench_observe(s, NULL)); /* only decoding is measured */
    WNW_TRY(decode(b, s, true, &ms));
    take_times(b, r, ms);
    return decode(b, s, false, &r->untimed_ms);
}

/* The sessions of a round: that which has read the prompt, its compressed copy, and a copy of that one, which reads the chunk. */
struct roof_sessions {
    wnw_session *full, *kept, *next;
};

static int measure_phases(struct bench_roofline *b, struct roof_sessions *s, struct roof_length *l,
                          int32_t round)
{
    const wnw_session_params params = bench_session_params(&b->base);
    WNW_TRY(wnw_session_new_on(&s->full, b->engine, &params));
    WNW_TRY(read_tokens(b, s->full, b->policy, l->n, &l->rounds[ROOF_PREFILL][round]));
    WNW_TRY(wnw_session_copy(&s->kept, s->full));
    WNW_TRY(compress(b, s->kept, l, &l->rounds[ROOF_PREFILL][round]));
    WNW_TRY(decode_both_ways(b, s->full, &l->rounds[ROOF_FULL][round]));
    WNW_TRY(wnw_session_copy(&s->next, s->kept));
    WNW_TRY(read_tokens(b, s->next, NULL, l->n_chunk, &l->rounds[ROOF_CHUNK][round]));
    return decode_both_ways(b, s->kept, &l->rounds[ROOF_KEPT][round]);
}

/* Returns an exit code. */
static int run_round(struct bench_roofline *b, struct roof_length *l, int32_t round)
{
    struct roof_sessions s = {0};
    const int status = measure_phases(b, &s, l, round);
    const int rc = app_status_code(status);
    wnw_session_free(s.full);
    wnw_session_free(s.kept);
    wnw_session_free(s.next);
    return rc;
}

static int measure_length(struct bench_roofline *b, int32_t n)
{
    struct roof_length *l = &b->results[b->n_results++];
    bool ok = true;
    const int32_t room = b->base.info.n_ctx_train - n, chunk = n < BENCH_N_UBATCH ? n : BENCH_N_UBATCH;
    *l = (struct roof_length){.n = n, .n_chunk = chunk < room ? chunk : room};
    for (int k = 0; k < N_ROOF_PHASES; k++)
        ok = (l->rounds[k] = calloc((size_t)b->base.n_reps, sizeof **l->rounds)) != NULL && ok;
    int rc = ok ? APP_OK : app_fail(APP_FAILED, "out of memory");
    for (; l->n_rounds < b->base.n_reps && rc == APP_OK; l->n_rounds++) {
        rc = run_round(b, l, l->n_rounds);
        app_progress_step(l->n_rounds + 1, b->base.n_reps, &b->progress);
    }
    return rc;
}

static int measure_lengths(struct bench_roofline *b)
{
    int rc = APP_OK;
    app_progress_start(&b->progress, "bench roofline", "rounds");
    for (int32_t i = 0; rc == APP_OK && i < b->base.n_lengths; i++)
        rc = measure_length(b, b->base.lengths[i]);
    app_progress_end(&b->progress);
    return rc;
}

/* The caller closes b in any case. */
static int measure_and_print(struct bench_roofline *b, const struct bench_args *args)
{
    WNW_TRY(check(b, args));
    WNW_TRY(open_all(b));
    WNW_TRY(bench_peaks_measure(b->peaks, b->base.n_threads));
    WNW_TRY(measure_lengths(b));
    WNW_TRY(bench_peaks_measure(b->peaks, b->base.n_threads));
    WNW_TRY(args->app.json ? roofline_print_json(b) : roofline_print_table(b));
    return app_finish_stdout();
}

int bench_run_roofline(const struct app_args *app)
{
    struct bench_roofline b = {0};
    const int rc = measure_and_print(&b, (const struct bench_args *)app);
    close_all(&b);
    return rc;
}
