/* SPDX-License-Identifier: MIT */
/*
 * winnow bench methods: what every preset costs. A round reads the same tokens once for each kind of record
 * that any preset needs from the reading; every preset then compresses a copy of the session that recorded
 * its kind. Plain prefills lie between these readings, so that other load on the machine affects both.
 * Presets of one kind share one figure for the additional time of their reading.
 *
 * The extra memory of a preset is what the process would have held at most with this preset alone: the higher
 * of
 *
 *     the peak during its kind of reading, and
 *     what was resident after that reading, plus what compressing the copy added to it at its peak,
 *
 * minus the peak of the plain prefills before and after that reading. Resident and peak are VmRSS and VmHWM
 * of /proc/self/status; before each measurement freed memory is returned to the system and VmHWM is set back
 * through /proc/self/clear_refs. A second pass builds its graph next to the one of the first reading, which a
 * session without copies would drop: the figure of such a preset is too high by that graph, at most.
 */
#include "bench/methods.h"
#include "bench/commands.h"
#include "winnow_method.h"

#include "app/process.h"
#include "app/profiles.h"
#include "app/text.h"
#include "app/values.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TASK_TOKENS = 32 /* tokens of the question that some methods expect */ };

/* Steps of the progress line, each about a hundredth of a prefill. A plain prefill is due after
 * STEPS_UNTIL_PLAIN steps of others. */
enum { STEPS_READING = 100, STEPS_METHOD = 2, STEPS_SECOND_PASS = 150, STEPS_UNTIL_PLAIN = 200 };

/* ---- Which methods ---- */

/* Every need that is not listed here counts as recorded while reading, also those that are added later. */
static struct bench_recording recording_of(const wnw_policy *policy)
{
    const uint32_t looked_at_afterwards =
        WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_PROJ_NORM | WNW_NEED_SECOND_PASS | WNW_NEED_PROFILE;
    const wnw_needs needs = wnw_policy_needs(policy);
    const uint32_t flags = needs.flags & ~looked_at_afterwards;
    return (struct bench_recording){
        .flags = flags,
        .window = flags & (WNW_NEED_WINDOW_ATTN | WNW_NEED_PERPLEXITY) ? needs.window : 0,
        .skip = flags & WNW_NEED_QUERY_STATS ? needs.skip : 0};
}

static int add_method(struct bench_methods *b, const char *recipe, size_t len)
{
    if (b->n_methods == BENCH_MAX_METHODS)
        return app_fail(APP_BAD_INPUT, "--policies: at most %d", BENCH_MAX_METHODS);
    struct bench_method *m = &b->methods[b->n_methods++];
    m->recipe = strndup(recipe, len);
    if (!m->recipe)
        return app_fail(APP_FAILED, "out of memory");
    WNW_TRY(bench_policy(&m->policy, b->base.args, m->recipe, b->base.model_path));
    m->recording = recording_of(m->policy);
    return APP_OK;
}

static int add_list(struct bench_methods *b, const char *list)
{
    for (const char *next = list; *next;) {
        const size_t len = app_recipe_length(next);
        WNW_TRY(add_method(b, next, len));
        next += len + (next[len] == ',');
    }
    return b->n_methods > 0 ? APP_OK : app_fail(APP_BAD_INPUT, "--policies is empty");
}

static int add_presets(struct bench_methods *b)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && wnw_method_get(i, &info); i++)
        if (strcmp(info.kind, "preset") == 0)
            rc = add_method(b, info.name, strlen(info.name));
    return rc;
}

/* Loads one profile with all kinds that any of the methods can use. */
static int load_profile(struct bench_methods *b)
{
    struct app_text notes = {0};
    uint32_t kinds = 0;
    for (int32_t i = 0; i < b->n_methods; i++) {
        const wnw_needs needs = wnw_policy_needs(b->methods[i].policy);
        kinds |= needs.flags & WNW_NEED_PROFILE ? needs.profiles | needs.profiles_optional : 0;
    }
    const struct bench_args *args = b->base.args;
    const int rc = app_profile_load(
        &b->profile, &notes, b->base.model,
        &(struct app_profile_want){.given = args->app.profile,
                                   .model = args->app.model,
                                   .model_path = b->base.model_path,
                                   .optional = kinds,
                                   .budget = floor(b->base.lengths[0] * (1 - args->app.ratio) + 1e-6),
                                   .user = "bench methods",
                                   .inputs = &b->base.inputs});
    free(notes.s);
    /* The output is checked once more before the work starts, because the profiles that were found are inputs
     * too. */
    return rc == APP_OK && args->csv ? app_out_check(args->csv, &b->base.inputs) : rc;
}

/* A method whose kind of profile is missing cannot be measured, and the result says so. */
static bool has_profile(struct bench_method *m, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(m->policy);
    const uint32_t missing =
        needs.flags & WNW_NEED_PROFILE ? needs.profiles & ~wnw_profile_kinds(profile) : 0;
    const char *kind;
    for (int32_t i = 0; (kind = wnw_profile_kind_name(i)); i++)
        if (missing >> i & 1u) {
            const size_t len = strlen(m->why);
            snprintf(m->why + len, sizeof m->why - len, "%s%s", len > 0 ? ", " : "needs a profile: ", kind);
        }
    return missing == 0;
}

static bool same_recording(const struct bench_recording *a, const struct bench_recording *b)
{
    return a->flags == b->flags && a->window == b->window && a->skip == b->skip;
}

/* Numbers the readings of a round, in the order of their first method. */
static void make_groups(struct bench_methods *b)
{
    for (int32_t i = 0; i < b->n_methods; i++) {
        struct bench_method *m = &b->methods[i];
        m->group = has_profile(m, b->profile) ? b->n_groups : -1;
        for (int32_t k = 0; k < i && m->group == b->n_groups; k++)
            if (b->methods[k].group >= 0 && same_recording(&m->recording, &b->methods[k].recording))
                m->group = b->methods[k].group;
        b->n_groups += m->group == b->n_groups;
    }
}

/* ---- What a round consists of ---- */

static int32_t method_steps(const struct bench_method *m)
{
    const wnw_needs needs = wnw_policy_needs(m->policy);
    const bool reads_again = needs.flags & WNW_NEED_SECOND_PASS && needs.second_pass != WNW_PASS_TASK;
    return reads_again ? STEPS_SECOND_PASS : STEPS_METHOD;
}

static int32_t group_steps(const struct bench_methods *b, int32_t group)
{
    int32_t steps = STEPS_READING;
    for (int32_t i = 0; i < b->n_methods; i++)
        steps += b->methods[i].group == group ? method_steps(&b->methods[i]) : 0;
    return steps;
}

/* The group before which a plain prefill is due, if the last one was before group `from`. */
static int32_t next_plain(const struct bench_methods *b, int32_t from)
{
    int32_t steps = 0;
    while (from < b->n_groups && steps < STEPS_UNTIL_PLAIN)
        steps += group_steps(b, from++);
    return from;
}

static void count_round(struct bench_methods *b)
{
    int32_t steps = 0;
    b->n_plain = 1;
    for (int32_t g = 0; g < b->n_groups; g = next_plain(b, g))
        b->n_plain++;
    for (int32_t g = 0; g < b->n_groups; g++)
        steps += group_steps(b, g);
    b->n_steps = b->base.n_reps * (steps + b->n_plain * STEPS_READING);
}

static void step_done(struct bench_methods *b, int32_t steps)
{
    b->n_steps_done += steps;
    app_progress_step(b->n_steps_done, b->n_steps, &b->progress);
}

/* ---- Setting up ---- */

static int alloc_rounds(struct bench_methods *b)
{
    const size_t n_reps = (size_t)b->base.n_reps;
    b->plain_ms = calloc(n_reps * (size_t)b->n_plain, sizeof *b->plain_ms);
    bool ok = b->plain_ms != NULL;
    for (int32_t i = 0; i < b->n_methods; i++)
        for (int k = 0; k < N_COSTS; k++) {
            b->methods[i].rounds[k] = calloc(n_reps, sizeof(double));
            ok = ok && b->methods[i].rounds[k];
        }
    return ok ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int set_up(struct bench_methods *b, const struct bench_args *args)
{
    if (args->app.json && args->markdown)
        return app_fail(APP_BAD_INPUT, "--json and --markdown exclude each other; give one of them");
    WNW_TRY(bench_base_check(&b->base, args));
    WNW_TRY(args->policies ? add_list(b, args->policies) : add_presets(b));
    WNW_TRY(bench_base_open(&b->base));
    WNW_TRY(load_profile(b));
    make_groups(b);
    count_round(b);
    return alloc_rounds(b);
}

static void close_bench(struct bench_methods *b)
{
    for (int32_t i = 0; i < b->n_methods; i++) {
        for (int k = 0; k < N_COSTS; k++)
            free(b->methods[i].rounds[k]);
        wnw_policy_free(b->methods[i].policy);
        free(b->methods[i].recipe);
    }
    free(b->plain_ms);
    wnw_profile_free(b->profile);
    json_decref(b->json_rows);
    bench_base_close(&b->base);
}

/* ---- Reading ---- */

struct reading {
    wnw_session *session; /* NULL after it was closed */
    double ms, peak;      /* peak in bytes, as explained at the top of this file */
    double resident;      /* bytes after the reading, including the session */
    int status;           /* of observing; wnw_last_error has the message */
};

/* Declares what the methods of a group need; nothing for a plain reading, which is group -1. */
static int observe(const struct bench_methods *b, wnw_session *s, int32_t group, int32_t n)
{
    const wnw_policy *policies[BENCH_MAX_METHODS];
    const int32_t *const task = b->base.tokens, n_task = n < TASK_TOKENS ? n : TASK_TOKENS;
    int32_t n_policies = 0;
    for (int32_t i = 0; i < b->n_methods && group >= 0; i++)
        if (b->methods[i].group == group)
            policies[n_policies++] = b->methods[i].policy;
    if (n_policies == 0)
        return WNW_OK;
    const wnw_run run = {WNW_INIT(wnw_run), .profile = b->profile,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .task_tokens = &task,
                                                 .n_task_tokens = &n_task, .policies = policies,
                                                 .n_policies = n_policies}};
    return wnw_session_begin(s, &run);
}

/* The part of read_tokens whose memory is measured. Returns a status of the library. */
static int open_and_read(const struct bench_methods *b, int32_t group, int32_t n, struct reading *out)
{
    const wnw_session_params params = bench_session_params(&b->base);
    WNW_TRY(wnw_session_new(&out->session, b->base.model, &params));
    out->status = observe(b, out->session, group, n);
    if (out->status != WNW_OK)
        return WNW_OK;
    const double start = app_now_ms();
    const int status = wnw_session_prefill(out->session, b->base.tokens, n, NULL, NULL);
    out->ms = app_now_ms() - start;
    return status;
}

/* Reads n tokens for a group, or plainly, in a new session, which stays open. Fails only if reading fails
 * without observing too; a refusal to observe is stored in out->status. */
static int read_tokens(struct bench_methods *b, int32_t group, int32_t n, struct reading *out)
{
    struct bench_memory memory;
    *out = (struct reading){.ms = NAN};
    bench_memory_start(&memory);
    const int status = open_and_read(b, group, n, out);
    bench_memory_stop(&memory);
    out->peak = memory.peak;
    bench_memory_start(&memory);
    out->resident = memory.before;
    step_done(b, STEPS_READING);
    return app_status_code(status);
}

static void close_reading(struct reading *r)
{
    wnw_session_free(r->session);
    r->session = NULL;
}

static int read_plainly(struct bench_methods *b, int32_t n, struct reading *out)
{
    const int rc = read_tokens(b, -1, n, out);
    close_reading(out);
    if (rc == APP_OK)
        b->plain_ms[b->n_plain_ms++] = out->ms;
    return rc;
}

/* ---- Compressing ---- */

/* The measurement of one method in one round. */
struct compression {
    wnw_report report;
    double added; /* bytes at its peak */
    int status;
};

/* Compresses a copy of the session. Copying and freeing the copy are not measured. */
static void compress_copy(const struct bench_methods *b, const wnw_policy *policy, const wnw_session *s,
                          struct compression *out)
{
    const wnw_size size = {.kind = wnw_policy_is_full(policy) ? WNW_SIZE_NONE : WNW_SIZE_RATIO,
                           .ratio = b->base.args->app.ratio};
    struct bench_memory memory;
    wnw_session *copy;
    *out = (struct compression){.added = NAN, .status = wnw_session_copy(&copy, s)};
    if (out->status != WNW_OK)
        return;
    bench_memory_start(&memory);
    out->report = wnw_report_default();
    out->status = wnw_session_compress(copy, policy, &size, &out->report);
    bench_memory_stop(&memory);
    out->added = memory.peak - memory.before;
    wnw_session_free(copy);
}

static double higher(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return a > b ? a : b;
}

static void note_refusal(struct bench_method *m, int32_t round)
{
    snprintf(m->why, sizeof m->why, "%s", wnw_last_error());
    for (int k = 0; k < N_COSTS; k++)
        m->rounds[k][round] = NAN;
}

static void note_compression(struct bench_method *m, int32_t round, const struct reading *r,
                             const struct compression *c)
{
    m->rounds[COST_READ][round] = r->ms;
    m->rounds[COST_OBSERVE][round] = c->report.observe_ms;
    m->rounds[COST_SCORE][round] = c->report.score_ms;
    m->rounds[COST_SELECT][round] = c->report.select_ms;
    m->rounds[COST_COMPACT][round] = c->report.compact_ms;
    m->rounds[COST_PEAK][round] = higher(r->peak, r->resident + c->added);
    m->kept_mean = c->report.kept_mean;
}

/* Measures a reading and every method of its group. */
static int run_group(struct bench_methods *b, int32_t group, int32_t n, int32_t round)
{
    struct reading r;
    struct compression c;
    const int rc = read_tokens(b, group, n, &r);
    for (int32_t i = 0; i < b->n_methods && rc == APP_OK; i++) {
        struct bench_method *m = &b->methods[i];
        if (m->group != group)
            continue;
        c.status = r.status;
        if (r.status == WNW_OK)
            compress_copy(b, m->policy, r.session, &c);
        if (c.status == WNW_OK)
            note_compression(m, round, &r, &c);
        else
            note_refusal(m, round);
        step_done(b, method_steps(m));
    }
    close_reading(&r);
    return rc;
}

/* ---- Rounds ---- */

/* Compares a method with the plain readings before and after its own. */
static void compare(struct bench_method *m, int32_t round, const struct reading *before,
                    const struct reading *after)
{
    const double plain_ms = 0.5 * (before->ms + after->ms);
    double all = 0;
    m->rounds[COST_PLAIN][round] = plain_ms;
    m->rounds[COST_READ][round] -= plain_ms;
    m->rounds[COST_PEAK][round] -= 0.5 * (before->peak + after->peak);
    for (int k = COST_READ; k <= COST_COMPACT; k++)
        all += m->rounds[k][round];
    m->rounds[COST_SHARE][round] = 100 * all / plain_ms;
}

/* A round begins and ends with a plain reading and has more of them between every one or two groups. */
static int run_round(struct bench_methods *b, int32_t n, int32_t round)
{
    struct reading before, after = {0};
    WNW_TRY(read_plainly(b, n, &before));
    for (int32_t from = 0, to; from < b->n_groups; from = to) {
        to = next_plain(b, from);
        for (int32_t g = from; g < to; g++)
            WNW_TRY(run_group(b, g, n, round));
        WNW_TRY(read_plainly(b, n, &after));
        for (int32_t i = 0; i < b->n_methods; i++)
            if (b->methods[i].group >= from && b->methods[i].group < to)
                compare(&b->methods[i], round, &before, &after);
        before = after;
    }
    return APP_OK;
}

static int run_length(struct bench_methods *b, int32_t n)
{
    int rc = APP_OK;
    b->n_plain_ms = b->n_steps_done = 0;
    app_progress_start(&b->progress, "bench methods", "steps");
    for (int32_t k = 0; k < b->base.n_reps && rc == APP_OK; k++)
        rc = run_round(b, n, k);
    app_progress_end(&b->progress);
    for (int32_t i = 0; i < b->n_methods && rc == APP_OK; i++)
        for (int k = 0; k < N_COSTS; k++)
            b->methods[i].cost[k] = b->methods[i].group < 0
                                        ? (struct bench_spread){NAN, NAN, NAN}
                                        : bench_spread_of(b->methods[i].rounds[k], b->base.n_reps);
    return rc;
}

/* Reads some tokens so that the weights are in memory before anything is measured. */
static int warm_up(struct bench_methods *b)
{
    struct reading unused;
    const int32_t n = b->base.lengths[0] < BENCH_N_UBATCH ? b->base.lengths[0] : BENCH_N_UBATCH;
    const int rc = read_tokens(b, -1, n, &unused);
    close_reading(&unused);
    return rc;
}

/* The caller closes b in any case. */
static int measure_and_report(struct bench_methods *b, const struct bench_args *args)
{
    WNW_TRY(set_up(b, args));
    WNW_TRY(warm_up(b));
    WNW_TRY(bench_methods_report_begin(b));
    for (int32_t i = 0; i < b->base.n_lengths; i++) {
        WNW_TRY(run_length(b, b->base.lengths[i]));
        bench_methods_report(b, b->base.lengths[i]);
    }
    return bench_methods_report_end(b);
}

int bench_run_methods(const struct app_args *app)
{
    struct bench_methods b = {0};
    const int rc = measure_and_report(&b, (const struct bench_args *)app);
    app_out_abort(&b.csv);
    close_bench(&b);
    return rc;
}
