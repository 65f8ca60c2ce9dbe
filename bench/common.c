/* SPDX-License-Identifier: MIT */
/* What the benchmarks share: lengths, tokens, the line about the machine, medians, memory. */
#include "bench/bench.h"

#include "app/automatic.h"
#include "app/cpu.h"
#include "app/models.h"
#include "app/process.h"
#include "app/values.h"
#include "base/vectors.h"
#include "winnow_method.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int bench_parse_lengths(int32_t *lengths, int32_t *n_lengths, const char *text)
{
    char *list = strdup(text), *save = NULL;
    int rc = APP_OK;
    *n_lengths = 0;
    if (!list)
        return app_fail(APP_FAILED, "out of memory");
    for (char *word = strtok_r(list, ",", &save); word && rc == APP_OK; word = strtok_r(NULL, ",", &save)) {
        int64_t n;
        if (!app_parse_int(&n, word))
            rc = app_fail(APP_BAD_INPUT, "--lengths: '%s' is not a whole number", word);
        else if (n < 16 || n > 1 << 24)
            rc = app_fail(APP_BAD_INPUT, "--lengths: %s is out of range; it must be 16 to 16777216", word);
        else if (*n_lengths == BENCH_MAX_LENGTHS)
            rc = app_fail(APP_BAD_INPUT, "--lengths: at most %d lengths", BENCH_MAX_LENGTHS);
        else
            lengths[(*n_lengths)++] = (int32_t)n;
    }
    free(list);
    if (rc == APP_OK && *n_lengths == 0)
        rc = app_fail(APP_BAD_INPUT, "--lengths is empty; give numbers, e.g. 512,2048");
    return rc;
}

int bench_check_csv(struct app_inputs *inputs, const struct bench_args *args, const char *model_path)
{
    app_inputs_add(inputs, model_path);
    app_inputs_add(inputs, args->app.profile);
    return args->csv ? app_out_check(args->csv, inputs) : APP_OK;
}

int bench_policy(wnw_policy **out, const struct bench_args *args, const char *recipe, const char *model_path)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    wnw_policy_choice choice;
    if (!app_is_auto(recipe)) {
        return app_status_code(wnw_policy_parse(out, recipe, args->app.registry));
    }
    facts.feeds_again = !args->app.devices;
    facts.kept = isnan(args->app.ratio) ? 0 : 1 - args->app.ratio;
    if (model_path)
        WNW_TRY(app_auto_find_profiles(&facts, &(struct app_profile_want){.given = args->app.profile,
                                                                          .model = args->app.model,
                                                                          .model_path = model_path}));
    WNW_TRY(app_auto_choose(out, &choice, &facts));
    app_auto_tell(&choice);
    return APP_OK;
}

int32_t *bench_make_tokens(int32_t n, int32_t n_vocab)
{
    uint64_t state = 42;
    int32_t *tokens = calloc((size_t)n + 1, sizeof *tokens);
    for (int32_t i = 0; tokens && i < n; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)n_vocab);
    }
    return tokens;
}

/* Threads that wait for each other use CPU time too. */
int bench_start_peer(struct bench_peer **peer, const struct bench_args *args, int32_t n_threads)
{
    if (args->cpu_time && n_threads != 1)
        return app_fail(APP_BAD_INPUT, "--cpu-time counts the work of one thread: give -t 1");
    const int rc = bench_peer_start(peer, args->peer, (int32_t)args->peer_timeout);
    return rc == APP_OK && args->cpu_time ? bench_peer_use_cpu_time(*peer) : rc;
}

int bench_start_bridge(struct bench_peer **peer, const struct bench_args *args)
{
    const int rc = bench_peer_start_bridge(peer, (int32_t)args->peer_timeout);
    return rc == APP_OK && args->cpu_time ? bench_peer_use_cpu_time(*peer) : rc;
}

double bench_now_ms(const struct bench_args *args)
{
    return args->cpu_time ? app_cpu_ms() : app_now_ms();
}

const char *bench_clock_name(const struct bench_args *args)
{
    return args->cpu_time ? "cpu" : "wall";
}

struct bench_spread bench_spread_of(double *v, int32_t n)
{
    int32_t n_good = 0;
    for (int32_t i = 0; i < n; i++)
        if (!isnan(v[i]))
            v[n_good++] = v[i];
    if (n_good == 0)
        return (struct bench_spread){NAN, NAN, NAN};
    qsort(v, (size_t)n_good, sizeof *v, wnw__ascending_f64);
    const int32_t mid = n_good / 2;
    return (struct bench_spread){
        .median = n_good % 2 ? v[mid] : 0.5 * (v[mid - 1] + v[mid]), .min = v[0], .max = v[n_good - 1]};
}

json_t *bench_spread_json(struct bench_spread s)
{
    return isnan(s.median) ? json_null()
                           : json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max);
}

/* ---- Memory ---- */

static double status_bytes(const char *key)
{
    uint64_t bytes;
    return app_proc_status(&bytes, key) ? (double)bytes : NAN;
}

void bench_memory_start(struct bench_memory *m)
{
    malloc_trim(0);
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool reset = f && fputs("5", f) >= 0;
    if (f)
        reset = fclose(f) == 0 && reset;
    m->before = reset ? status_bytes("VmRSS:") : NAN;
    m->peak = NAN;
}

void bench_memory_stop(struct bench_memory *m)
{
    m->peak = isnan(m->before) ? NAN : status_bytes("VmHWM:");
}

/* ---- What bench observe and bench methods start with ---- */

int bench_base_check(struct bench_base *b, const struct bench_args *args)
{
    b->args = args;
    b->n_reps = (int32_t)args->reps;
    b->n_threads = args->app.threads == APP_UNSET ? wnw_usable_cores() : (int32_t)args->app.threads;
    WNW_TRY(bench_parse_lengths(b->lengths, &b->n_lengths, args->lengths));
    WNW_TRY(app_model_path(&b->model_path, args->app.model));
    return bench_check_csv(&b->inputs, args, b->model_path);
}

void bench_describe_machine(char *out, size_t size, int n_threads)
{
    char cpu[160];
    app_cpu_name(cpu, sizeof cpu);
    snprintf(out, size, "%s, %d threads, %s attention kernels", cpu, n_threads, wnw_kernel_name());
}

int bench_base_open(struct bench_base *b)
{
    int32_t longest = 0;
    WNW_TRY(app_status_code(app_model_open(&b->model, b->model_path, NULL, NULL)));
    b->info = wnw_model_info_default();
    (void)wnw_model_get_info(b->model, &b->info); /* this call does not fail for an open model */
    for (int32_t i = 0; i < b->n_lengths; i++) {
        longest = b->lengths[i] > longest ? b->lengths[i] : longest;
        if (b->lengths[i] > b->info.n_ctx_train)
            return app_fail(APP_BAD_INPUT, "--lengths: %d tokens do not fit the model's context of %d",
                            b->lengths[i], b->info.n_ctx_train);
    }
    b->tokens = bench_make_tokens(longest, b->info.n_vocab);
    bench_describe_machine(b->machine, sizeof b->machine, b->n_threads);
    return b->tokens ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

void bench_base_close(struct bench_base *b)
{
    wnw_model_free(b->model);
    free(b->tokens);
    free(b->model_path);
}

int bench_observe(wnw_session *s, const wnw_policy *policy)
{
    const wnw_run run = {
        WNW_INIT(wnw_run),
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &policy, .n_policies = policy ? 1 : 0}};
    return wnw_session_begin(s, &run);
}

wnw_session_params bench_session_params(const struct bench_base *b)
{
    wnw_session_params params = wnw_session_default_params();
    params.n_ubatch = BENCH_N_UBATCH;
    params.n_threads = b->n_threads;
    return params;
}
