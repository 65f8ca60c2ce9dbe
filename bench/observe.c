/* SPDX-License-Identifier: MIT */
/*
 * winnow bench observe: what each kind of observation costs. The cost of what is collected while the prompt
 * is read is the difference between prefills of the same tokens with and without it; the library's report has
 * the time of what is computed afterwards. The policies have scorers from outside the library that ask
 * for one kind of observation and read it.
 */
#include "bench/bench.h"
#include "bench/commands.h"
#include "winnow_method.h"

#include "app/json.h"
#include "app/process.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Probes ---- */

static void needs_columns(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM;
}

static void needs_columns_max(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX;
}

static void needs_stats(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERY_STATS;
    out->skip = 4;
}

static void needs_norms(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROJ_NORM;
}

/* The scores have no meaning and differ between entries; the cost of budgets and selection does not depend on
 * them. */
static int score_flat(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    uint32_t state = 1;
    (void)opts;
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++) {
        state = state * 1664525u + 1013904223u;
        score[i] = (float)(state >> 8) * 0x1p-24f;
    }
    return WNW_OK;
}

static int score_norm(const wnw_observation *obs, wnw_proj_norm kind, float *score)
{
    const float *norm = obs->proj_norm(obs, kind);
    if (!norm)
        return WNW_E_NOMEM;
    memcpy(score, norm, (size_t)obs->n_head_kv * (size_t)obs->n * sizeof *score);
    return WNW_OK;
}

static int score_l1(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    return score_norm(obs, WNW_PROJ_L1, score);
}

static int score_l2(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    return score_norm(obs, WNW_PROJ_L2, score);
}

static int score_sketch(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    return score_norm(obs, WNW_PROJ_SKETCH, score);
}

static const wnw_scorer scorers[] = {
    {.part = {WNW_SCORER_INIT, .name = "bench-flat"}, .score = score_flat},
    {.part = {WNW_SCORER_INIT, .name = "bench-columns", .needs = needs_columns}, .score = score_flat},
    {.part = {WNW_SCORER_INIT, .name = "bench-columns-max", .needs = needs_columns_max}, .score = score_flat},
    {.part = {WNW_SCORER_INIT, .name = "bench-stats", .needs = needs_stats}, .score = score_flat},
    {.part = {WNW_SCORER_INIT, .name = "bench-l1", .needs = needs_norms}, .score = score_l1},
    {.part = {WNW_SCORER_INIT, .name = "bench-l2", .needs = needs_norms}, .score = score_l2},
    {.part = {WNW_SCORER_INIT, .name = "bench-sketch", .needs = needs_norms}, .score = score_sketch},
};

/* ---- What is measured ---- */

/* Prefills of one round: none, or one kind of observation collected. */
enum reading { PLAIN, WINDOW, COLUMNS, COLUMNS_MAX, STATS, N_READINGS };

enum figure_kind {
    READ,    /* this kind of prefill minus the plain one */
    SCORE,   /* observing the cache, and scoring */
    SELECT,  /* budgets and selection */
    COMPACT, /* applying the plan */
};

/* A row of the result. The recipes of a reading are planned in this order after it. */
static const struct figure {
    const char *what;
    enum reading reading;
    enum figure_kind kind;
    const char *recipe;
    double target; /* share of prefill in per cent; 0 = none */
} figures[] = {
    {"window: keep the last 32 queries", WINDOW, READ, "snapkv", 0},
    {"window: attention and scores", WINDOW, SCORE, "snapkv", 3},
    {"columns: sums over all queries", COLUMNS, READ, "bench-columns", 35},
    {"columns: sums and maxima", COLUMNS_MAX, READ, "bench-columns-max", 35},
    {"query mean and covariance", STATS, READ, "bench-stats", 0},
    {"projected norms: l1", WINDOW, SCORE, "bench-l1", 5},
    {"projected norms: l2", WINDOW, SCORE, "bench-l2", 5},
    {"projected norms: sketch", WINDOW, SCORE, "bench-sketch", 5},
    {"selection: top-k, equal heads", WINDOW, SELECT, "bench-flat", 2},
    {"selection: top-k, adakv", WINDOW, SELECT, "bench-flat+adakv", 2},
    {"compaction, uneven heads", WINDOW, COMPACT, "bench-flat+adakv", 0},
};
enum { N_FIGURES = sizeof figures / sizeof *figures };

struct result {
    int32_t n;
    double *plain;            /* [n_reps] ms */
    double *ms[N_FIGURES];    /* [n_reps], NaN where it could not be measured */
    double *share[N_FIGURES]; /* [n_reps] of the plain prefill of the same round, in per cent */
    char why[N_FIGURES][160]; /* why it could not be measured */
};

struct bench_observe {
    struct bench_base base;
    wnw_registry *registry;
    wnw_policy *policies[N_FIGURES];
    wnw_session *session;
    struct result results[BENCH_MAX_LENGTHS];
    int32_t n_results;
    struct app_progress progress;
};

/* ---- Setting up ---- */

/* Returns a status of the library. */
static int parse_policies(struct bench_observe *b)
{
    WNW_TRY(wnw_registry_new(&b->registry));
    for (size_t i = 0; i < sizeof scorers / sizeof *scorers; i++)
        WNW_TRY(wnw_registry_add(b->registry, &scorers[i].part));
    for (int i = 0; i < N_FIGURES; i++)
        WNW_TRY(wnw_policy_parse(&b->policies[i], figures[i].recipe, b->registry));
    return WNW_OK;
}

static int set_up(struct bench_observe *b, const struct bench_args *args)
{
    WNW_TRY(bench_base_check(&b->base, args));
    WNW_TRY(app_status_code(parse_policies(b)));
    WNW_TRY(bench_base_open(&b->base));
    const wnw_session_params params = bench_session_params(&b->base);
    return app_status_code(wnw_session_new(&b->session, b->base.model, &params));
}

static void close_bench(struct bench_observe *b)
{
    for (int32_t i = 0; i < b->n_results; i++) {
        free(b->results[i].plain);
        for (int k = 0; k < N_FIGURES; k++) {
            free(b->results[i].ms[k]);
            free(b->results[i].share[k]);
        }
    }
    wnw_session_free(b->session);
    for (int i = 0; i < N_FIGURES; i++)
        wnw_policy_free(b->policies[i]);
    wnw_registry_free(b->registry);
    bench_base_close(&b->base);
}

/* ---- Measuring ---- */

/* Reads n tokens, observing what this reading's recipes need; *ms is NaN if observing is refused. */
static int time_reading(struct bench_observe *b, enum reading reading, int32_t n, double *ms)
{
    const wnw_policy *policies[N_FIGURES];
    int32_t n_policies = 0;
    for (int i = 0; i < N_FIGURES && reading != PLAIN; i++)
        if (figures[i].reading == reading)
            policies[n_policies++] = b->policies[i];
    *ms = NAN;
    int status = wnw_session_reset(b->session);
    if (status != WNW_OK)
        return app_fail_status(status);
    const wnw_run run = {
        WNW_INIT(wnw_run),
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = policies, .n_policies = n_policies}};
    if (wnw_session_begin(b->session, &run) != WNW_OK)
        return APP_OK; /* the plans will say why */
    const double start = app_now_ms();
    status = wnw_session_prefill(b->session, b->base.tokens, n, NULL, NULL);
    *ms = app_now_ms() - start;
    return app_status_code(status);
}

/* Plans, and compacts for the row that measures it. A refusal is stored in r->why and is no error. */
static void time_plan(struct bench_observe *b, struct result *r, int figure, double read_ms, double *ms)
{
    const struct figure *f = &figures[figure];
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = b->base.args->app.ratio};
    wnw_plan *plan = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    int status = isnan(read_ms) ? WNW_E_NOT_OBSERVED
                                : wnw_session_plan(b->session, b->policies[figure], &size, &plan, &report);
    if (status == WNW_OK && f->kind == COMPACT)
        status = wnw_session_apply(b->session, plan, &report);
    wnw_plan_free(plan);
    *ms = NAN;
    if (status != WNW_OK)
        snprintf(r->why[figure], sizeof r->why[figure], "%s", wnw_last_error());
    else if (f->kind == READ)
        *ms = read_ms;
    else if (f->kind == SCORE)
        *ms = report.observe_ms + report.score_ms;
    else
        *ms = f->kind == SELECT ? report.select_ms : report.compact_ms;
}

static int run_round(struct bench_observe *b, struct result *r, int32_t round)
{
    for (int k = 0; k < N_READINGS; k++) {
        const enum reading reading = (enum reading)((k + round) % N_READINGS);
        double ms;
        WNW_TRY(time_reading(b, reading, r->n, &ms));
        if (reading == PLAIN)
            r->plain[round] = ms;
        for (int i = 0; i < N_FIGURES && reading != PLAIN; i++)
            if (figures[i].reading == reading)
                time_plan(b, r, i, ms, &r->ms[i][round]);
        app_progress_step(round * N_READINGS + k + 1, b->base.n_reps * N_READINGS, &b->progress);
    }
    for (int i = 0; i < N_FIGURES; i++) {
        if (figures[i].kind == READ)
            r->ms[i][round] -= r->plain[round];
        r->share[i][round] = 100 * r->ms[i][round] / r->plain[round];
    }
    return APP_OK;
}

static int measure(struct bench_observe *b)
{
    double unused;
    /* The first reading brings the weights into memory. */
    int rc = time_reading(b, PLAIN, b->base.lengths[0] < BENCH_N_UBATCH ? b->base.lengths[0] : BENCH_N_UBATCH,
                          &unused);
    for (int32_t i = 0; i < b->base.n_lengths && rc == APP_OK; i++) {
        struct result *r = &b->results[b->n_results++];
        r->n = b->base.lengths[i];
        r->plain = calloc((size_t)b->base.n_reps, sizeof *r->plain);
        bool ok = r->plain != NULL;
        for (int k = 0; k < N_FIGURES; k++) {
            r->ms[k] = calloc((size_t)b->base.n_reps, sizeof **r->ms);
            r->share[k] = calloc((size_t)b->base.n_reps, sizeof **r->share);
            ok = ok && r->ms[k] && r->share[k];
        }
        if (!ok)
            return app_fail(APP_FAILED, "out of memory");
        app_progress_start(&b->progress, "bench observe", "prefills");
        for (int32_t k = 0; k < b->base.n_reps && rc == APP_OK; k++)
            rc = run_round(b, r, k);
        app_progress_end(&b->progress);
    }
    return rc;
}

/* ---- Reporting ---- */

static const char *const kind_names[] = {"read", "score", "select", "compact"};

static void print_table(struct bench_observe *b)
{
    printf("%s\n%s, f16 cache, batches of %d, %d rounds, %g of the entries removed\n", b->base.machine,
           b->base.info.name, BENCH_N_UBATCH, b->base.n_reps, b->base.args->app.ratio);
    for (int32_t i = 0; i < b->n_results; i++) {
        struct result *r = &b->results[i];
        const struct bench_spread plain = bench_spread_of(r->plain, b->base.n_reps);
        printf("\n%d tokens: plain prefill %.0f ms [%.0f to %.0f]; medians [lowest to highest round]\n", r->n,
               plain.median, plain.min, plain.max);
        printf("  %-34s %10s   %s\n", "", "ms", "share of prefill");
        for (int k = 0; k < N_FIGURES; k++) {
            const struct bench_spread ms = bench_spread_of(r->ms[k], b->base.n_reps),
                                      share = bench_spread_of(r->share[k], b->base.n_reps);
            if (isnan(ms.median)) {
                printf("  %-34s %10s   %s\n", figures[k].what, "-", r->why[k]);
                continue;
            }
            printf("  %-34s %10.1f   %5.1f %% [%.1f to %.1f]", figures[k].what, ms.median, share.median,
                   share.min, share.max);
            if (figures[k].target > 0)
                printf("   target %g %%: %s", figures[k].target,
                       share.median <= figures[k].target ? "met" : "missed");
            putchar('\n');
        }
    }
}

/* Returns NULL if memory runs out. */
static json_t *length_json(struct bench_observe *b, struct result *r)
{
    const int32_t n = b->base.n_reps;
    json_t *list = json_array();
    for (int k = 0; k < N_FIGURES; k++)
        app_json_append(&list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "what", figures[k].what, "kind",
                                         kind_names[figures[k].kind], "recipe", figures[k].recipe, "ms",
                                         bench_spread_json(bench_spread_of(r->ms[k], n)), "share_percent",
                                         bench_spread_json(bench_spread_of(r->share[k], n)), "target_percent",
                                         figures[k].target > 0 ? json_real(figures[k].target) : json_null()));
    return json_pack("{s:i, s:o, s:o}", "n", (int)r->n, "prefill_ms",
                     bench_spread_json(bench_spread_of(r->plain, n)), "figures", list);
}

static int print_json(struct bench_observe *b)
{
    json_t *lengths = json_array();
    for (int32_t i = 0; i < b->n_results; i++)
        app_json_append(&lengths, length_json(b, &b->results[i]));
    return app_print_json(
        json_pack("{s:o, s:i, s:o, s:i, s:f, s:o}", "machine", app_json_text(b->base.machine), "threads",
                  (int)b->base.n_threads, "model", app_json_text(b->base.args->app.model), "rounds",
                  (int)b->base.n_reps, "ratio", b->base.args->app.ratio, "lengths", lengths));
}

static void csv_spread(FILE *f, struct bench_spread s)
{
    if (isnan(s.median))
        fputs(",,,", f);
    else
        fprintf(f, ",%.3f,%.3f,%.3f", s.median, s.min, s.max);
}

static int write_csv(struct bench_observe *b)
{
    struct app_out out;
    WNW_TRY(app_out_open(&out, b->base.args->csv, &b->base.inputs));
    fprintf(out.f,
            "# %s\nmodel,n,what,kind,recipe,ms,ms_min,ms_max,percent,percent_min,percent_max,target,rounds\n",
            b->base.machine);
    for (int32_t i = 0; i < b->n_results; i++) {
        struct result *r = &b->results[i];
        fprintf(out.f, "%s,%d,plain prefill,read,", b->base.args->app.model, r->n);
        csv_spread(out.f, bench_spread_of(r->plain, b->base.n_reps));
        fprintf(out.f, ",100,100,100,,%d\n", b->base.n_reps);
        for (int k = 0; k < N_FIGURES; k++) {
            fprintf(out.f, "%s,%d,\"%s\",%s,%s", b->base.args->app.model, r->n, figures[k].what,
                    kind_names[figures[k].kind], figures[k].recipe);
            csv_spread(out.f, bench_spread_of(r->ms[k], b->base.n_reps));
            csv_spread(out.f, bench_spread_of(r->share[k], b->base.n_reps));
            fprintf(out.f, ",%g,%d\n", figures[k].target, b->base.n_reps);
        }
    }
    return app_out_commit(&out);
}

/* The caller closes b in any case. */
static int measure_and_report(struct bench_observe *b, const struct bench_args *args)
{
    WNW_TRY(set_up(b, args));
    WNW_TRY(measure(b));
    if (args->csv)
        WNW_TRY(write_csv(b));
    if (args->app.json)
        return print_json(b);
    print_table(b);
    return app_finish_stdout();
}

int bench_run_observe(const struct app_args *app)
{
    struct bench_observe b = {0};
    const int rc = measure_and_report(&b, (const struct bench_args *)app);
    close_bench(&b);
    return rc;
}
