/* SPDX-License-Identifier: MIT */
/*
 * winnow bench batch: tokens per second of n sequences that decode together, each step being one pass over
 * the weights. It compares llama.cpp with full caches, winnow with full caches, and winnow with compressed
 * caches of different lengths. All decode the same tokens. The three engines take turns after a few steps, so
 * that other load on the machine affects all alike. A round measures every number of sequences; ratios are
 * formed within a round.
 */
#include "bench/batch.h"
#include "bench/commands.h"

#include "app/process.h"
#include "app/values.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 2 };

/* ---- Setting up ---- */

static int parse_counts(struct bench_batch *b, const char *text)
{
    char *list = strdup(text), *save = NULL;
    int rc = list ? APP_OK : app_fail(APP_FAILED, "out of memory");
    for (char *word = rc == APP_OK ? strtok_r(list, ",", &save) : NULL; word && rc == APP_OK;
         word = strtok_r(NULL, ",", &save)) {
        int64_t n;
        if (!app_parse_int(&n, word))
            rc = app_fail(APP_BAD_INPUT, "--sequences: '%s' is not a whole number", word);
        else if (n < 1 || n > BATCH_MAX_SEQUENCES)
            rc = app_fail(APP_BAD_INPUT, "--sequences: %s is out of range; it must be 1 to %d", word,
                          BATCH_MAX_SEQUENCES);
        else if (b->n_counts == BATCH_MAX_COUNTS)
            rc = app_fail(APP_BAD_INPUT, "--sequences: at most %d numbers", BATCH_MAX_COUNTS);
        else
            b->counts[b->n_counts++] = (int32_t)n;
    }
    free(list);
    for (int32_t i = 0; i < b->n_counts; i++)
        b->most = b->counts[i] > b->most ? b->counts[i] : b->most;
    if (rc == APP_OK && b->n_counts == 0)
        rc = app_fail(APP_BAD_INPUT, "--sequences is empty; give numbers, e.g. 1,4,8");
    return rc;
}

static int check(struct bench_batch *b, const struct bench_args *args)
{
    WNW_TRY(parse_counts(b, args->sequences));
    WNW_TRY(bench_base_check(&b->base, args));
    WNW_TRY(bench_start_peer(&b->peer, args, b->base.n_threads));
    b->n_decode = (int32_t)args->decode_tokens;
    return bench_policy(&b->policy, args, args->app.policy, NULL);
}

/* Number of tokens that a sequence decodes after its prompt: those that are timed, and the first of each turn, which is not. */
static int32_t n_decoded(const struct bench_batch *b)
{
    return 1 + WARM_STEPS + b->n_decode + bench_n_turns(b->n_decode);
}

/* Returns a status of the library. */
static int open_ours(struct bench_batch *b)
{
    wnw_engine_params of_engine = wnw_engine_default_params();
    wnw_session_params of_session = bench_session_params(&b->base);
    of_engine.n_ubatch = BENCH_N_UBATCH;
    of_engine.n_threads = b->base.n_threads;
    WNW_TRY(wnw_engine_new(&b->engine, b->base.model, &of_engine));
    WNW_TRY(wnw_session_new_on(&b->read, b->engine, &of_session));
    return bench_observe(b->read, b->policy);
}

static int open_all(struct bench_batch *b)
{
    int32_t longest = 0;
    WNW_TRY(bench_base_open(&b->base));
    for (int32_t i = 0; i < b->base.n_lengths; i++)
        longest = b->base.lengths[i] > longest ? b->base.lengths[i] : longest;
    const int32_t n_ctx = longest + n_decoded(b);
    if (n_ctx > b->base.info.n_ctx_train)
        return app_fail(APP_BAD_INPUT,
                        "--lengths: %d tokens, and %d to decode, do not fit the model's context of %d",
                        longest, n_decoded(b), b->base.info.n_ctx_train);
    bool ok = (b->steps = calloc((size_t)b->most * (1 + BENCH_TURN_STEPS), sizeof *b->steps)) != NULL;
    for (int e = FULL; e < N_ENGINES; e++)
        ok = (b->sequences[e] = calloc((size_t)b->most, sizeof **b->sequences)) != NULL && ok;
    if (!ok)
        return app_fail(APP_FAILED, "out of memory");
    WNW_TRY(bench_peer_load(b->peer, b->base.model_path,
                            &(struct bench_llama_params){.n_ctx = n_ctx,
                                                         .n_seq = b->most + 1, /* and the prompt */
                                                         .n_ubatch = BENCH_N_UBATCH,
                                                         .n_threads = b->base.n_threads}));
    return app_status_code(open_ours(b));
}

static void free_sequences(struct bench_batch *b)
{
    for (int e = FULL; e < N_ENGINES; e++)
        for (int32_t i = 0; b->sequences[e] && i < b->most; i++) {
            wnw_session_free(b->sequences[e][i]);
            b->sequences[e][i] = NULL;
        }
}

static void close_all(struct bench_batch *b)
{
    for (int32_t i = 0; i < b->n_lengths; i++)
        for (int32_t k = 0; k < b->n_counts; k++)
            for (int e = 0; e < N_ENGINES; e++)
                free(b->lengths[i].results[k].speed[e]);
    free_sequences(b);
    for (int e = FULL; e < N_ENGINES; e++)
        free(b->sequences[e]);
    free(b->steps);
    wnw_session_free(b->read);
    wnw_engine_free(b->engine);
    bench_peer_close(b->peer);
    wnw_policy_free(b->policy);
    bench_base_close(&b->base);
}

/* ---- Sequences ---- */

static int read_prompt(struct bench_batch *b, int32_t n)
{
    double unused = 0;
    WNW_TRY(bench_peer_reset(b->peer));
    WNW_TRY(bench_peer_feed(b->peer, b->most, b->base.tokens, n, &unused));
    int status = wnw_session_reset(b->read);
    if (status == WNW_OK)
        status = wnw_session_prefill(b->read, b->base.tokens, n, NULL, NULL);
    return app_status_code(status);
}

/* The fraction of its entries that sequence i of n gives up. What it keeps lies between 0.5 and 1.5 times
 * what --ratio leaves, so that the caches have different lengths; the mean is --ratio, unless a sequence
 * would keep more than all its entries. */
static double ratio_of(const struct bench_batch *b, int32_t i, int32_t n)
{
    const double keep = (1.0 - b->base.args->app.ratio) * (n > 1 ? 0.5 + (double)i / (n - 1) : 1.0);
    return keep < 1.0 ? 1.0 - keep : 0.0;
}

/* Mean number of entries per layer and KV head. Layers with a sliding window count too. */
static double entries_of(const struct bench_batch *b, const wnw_cache_stats *s)
{
    return (double)s->n_entries / ((double)b->base.info.n_layer * b->base.info.n_head_kv);
}

/* Makes sequence i of n from the session that has read the prompt. Returns a status of the library. */
static int copy_prompt(struct bench_batch *b, enum bench_engine e, int32_t i, int32_t n,
                       wnw_cache_stats *stats)
{
    wnw_session **s = &b->sequences[e][i];
    WNW_TRY(wnw_session_copy(s, b->read));
    if (e == COMPRESSED) {
        const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = ratio_of(b, i, n)};
        WNW_TRY(wnw_session_compress(*s, b->policy, &size, NULL));
    }
    WNW_TRY(bench_observe(*s, NULL)); /* only decoding is measured */
    return wnw_cache_get_stats(*s, stats);
}

static int start_ours(struct bench_batch *b, enum bench_engine e, int32_t i, struct batch_result *r)
{
    wnw_cache_stats stats = wnw_cache_stats_default();
    WNW_TRY(app_status_code(copy_prompt(b, e, i, r->n, &stats)));
    r->kv_bytes[e] += stats.bytes;
    if (e == COMPRESSED) {
        const double n = entries_of(b, &stats);
        r->fewest = i == 0 || n < r->fewest ? n : r->fewest;
        r->most = i == 0 || n > r->most ? n : r->most;
        r->mean = (i == 0 ? 0.0 : r->mean) + n / r->n;
    }
    return APP_OK;
}

static int start_sequences(struct bench_batch *b, struct batch_result *r)
{
    free_sequences(b);
    for (int32_t i = 0; i < r->n; i++)
        WNW_TRY(bench_peer_copy(b->peer, b->most, i));
    for (int e = FULL; e < N_ENGINES; e++) {
        r->kv_bytes[e] = 0;
        for (int32_t i = 0; i < r->n; i++)
            WNW_TRY(start_ours(b, (enum bench_engine)e, i, r));
    }
    return APP_OK;
}

/* ---- Measuring ---- */

/* Decodes one step of n sequences that is not timed, and n_steps that are. They begin at step `from`; every engine gets the
 * same tokens. */
static int decode(struct bench_batch *b, enum bench_engine e, int32_t n, int32_t from, int32_t n_steps,
                  double *ms)
{
    for (int32_t k = 0; k <= n_steps; k++)
        for (int32_t i = 0; i < n; i++)
            b->steps[k * n + i] = b->base.tokens[(from + k + 7 * i) % b->base.lengths[0]];
    if (e == LLAMA)
        return bench_peer_turn(b->peer, b->steps, n, n_steps, ms);
    double start = 0;
    bench_wait_until_asleep();
    for (int32_t k = 0; k <= n_steps; k++) {
        if (k == 1)
            start = bench_now_ms(b->base.args);
        WNW_TRY(app_status_code(wnw_decode_batch(b->engine, b->sequences[e], b->steps + k * n, n)));
    }
    *ms += bench_now_ms(b->base.args) - start;
    return APP_OK;
}

/* Measures n sequences with all engines. Which engine goes first changes from round to round. */
static int measure_count(struct bench_batch *b, struct batch_result *r, int32_t round)
{
    double ms[N_ENGINES] = {0}, unused = 0;
    WNW_TRY(start_sequences(b, r));
    for (int e = 0; e < N_ENGINES; e++) /* builds the graphs of this shape */
        WNW_TRY(decode(b, (enum bench_engine)e, r->n, 0, WARM_STEPS, &unused));
    for (int32_t i = 0; i < bench_n_turns(b->n_decode); i++) {
        const int32_t done = i * BENCH_TURN_STEPS, n = bench_turn_steps(b->n_decode, i);
        for (int k = 0; k < N_ENGINES; k++) {
            const enum bench_engine e = (enum bench_engine)((k + round) % N_ENGINES);
            WNW_TRY(decode(b, e, r->n, WARM_STEPS + done, n, &ms[e]));
        }
    }
    for (int e = 0; e < N_ENGINES; e++)
        r->speed[e][round] = (double)r->n * b->n_decode * 1e3 / ms[e];
    return APP_OK;
}

static int measure_length(struct bench_batch *b, int32_t length)
{
    struct batch_length *l = &b->lengths[b->n_lengths++];
    bool ok = true;
    l->length = length;
    for (int32_t i = 0; i < b->n_counts; i++) {
        l->results[i].n = b->counts[i];
        for (int e = 0; e < N_ENGINES; e++) {
            l->results[i].speed[e] = calloc((size_t)b->base.n_reps, sizeof **l->results[i].speed);
            ok = ok && l->results[i].speed[e];
        }
    }
    int rc = ok ? read_prompt(b, length) : app_fail(APP_FAILED, "out of memory");
    app_progress_start(&b->progress, "bench batch", "measurements");
    for (int32_t round = 0; round < b->base.n_reps && rc == APP_OK; round++)
        for (int32_t i = 0; i < b->n_counts && rc == APP_OK; i++) {
            rc = measure_count(b, &l->results[i], round);
            app_progress_step(round * b->n_counts + i + 1, b->base.n_reps * b->n_counts, &b->progress);
        }
    app_progress_end(&b->progress);
    return rc;
}

/* The caller closes b in any case. */
static int measure_and_print(struct bench_batch *b, const struct bench_args *args)
{
    WNW_TRY(check(b, args));
    WNW_TRY(open_all(b));
    for (int32_t i = 0; i < b->base.n_lengths; i++)
        WNW_TRY(measure_length(b, b->base.lengths[i]));
    WNW_TRY(args->app.json ? batch_print_json(b) : batch_print_table(b));
    return app_finish_stdout();
}

int bench_run_batch(const struct app_args *app)
{
    struct bench_batch b = {0};
    const int rc = measure_and_print(&b, (const struct bench_args *)app);
    close_all(&b);
    return rc;
}
