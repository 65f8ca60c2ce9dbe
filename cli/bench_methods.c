/* SPDX-License-Identifier: MIT */
/*
 * winnow bench methods: what every preset costs. Each one reads the same tokens in a session of its own,
 * plans and compacts; plain prefills lie between them, so that what the machine does meanwhile hits both.
 * Peak memory is VmHWM of /proc/self/status, which is set back before each reading through
 * /proc/self/clear_refs.
 */
#include "bench.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { METHODS_PER_PLAIN = 3, MAX_METHODS = 128, TASK_TOKENS = 32 /* of the question that some expect */ };

/* One method at one length; arrays are [n_reps], NaN where nothing was measured. */
struct sample {
    double *read_ms;  /* its prefill minus the plain prefills around it */
    double *plain_ms; /* mean of those */
    double *observe_ms, *score_ms, *select_ms, *compact_ms;
    double *peak; /* bytes: highest resident size minus that of the plain readings around it */
};

struct method {
    char *recipe;
    wnw_policy *policy;
    bool left_out;
    char why[200]; /* why nothing was measured, "" if something was */
    struct sample sample;
    double kept_mean;
};

struct bench_methods {
    const struct cli_args *args;
    int32_t lengths[BENCH_MAX_LENGTHS], n_lengths, n_reps, n_threads;
    char *model_path;
    wnw_model *model;
    wnw_model_info info;
    wnw_profile *profile;
    int32_t *tokens;
    struct method methods[MAX_METHODS];
    int32_t n_methods;
    struct cli_progress progress;
    struct cli_out csv;
    json_t *json_rows;
    char machine[256];
};

/* ---- Setting up ---- */

static int add_method(struct bench_methods *b, const char *recipe, size_t len)
{
    if (b->n_methods == MAX_METHODS)
        return cli_fail(CLI_BAD_INPUT, "--policies: at most %d", MAX_METHODS);
    struct method *m = &b->methods[b->n_methods++];
    m->recipe = strndup(recipe, len);
    if (!m->recipe)
        return cli_fail(CLI_FAILED, "out of memory");
    const int status = wnw_policy_parse(&m->policy, m->recipe, NULL);
    return status == WNW_OK ? CLI_OK : cli_fail_status(status);
}

/* An item key=value of a list goes on with the recipe before it. */
static int add_list(struct bench_methods *b, const char *list)
{
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        while (at[len] == ',' && at[len + 1 + strcspn(at + len + 1, "=:+,")] == '=')
            len += 1 + strcspn(at + len + 1, ",");
        const int rc = add_method(b, at, len);
        if (rc != CLI_OK)
            return rc;
        at += len + (at[len] == ',');
    }
    return b->n_methods > 0 ? CLI_OK : cli_fail(CLI_BAD_INPUT, "--policies is empty");
}

static int add_presets(struct bench_methods *b)
{
    wnw_method_info info;
    int rc = CLI_OK;
    for (int32_t i = 0; rc == CLI_OK && wnw_method_get(i, &info); i++)
        if (strcmp(info.kind, "preset") == 0)
            rc = add_method(b, info.name, strlen(info.name));
    return rc;
}

/* One profile with whatever any of the methods can use. */
static int load_profile(struct bench_methods *b)
{
    struct cli_text notes = {0};
    uint32_t kinds = 0;
    for (int32_t i = 0; i < b->n_methods; i++) {
        const wnw_needs needs = wnw_policy_needs(b->methods[i].policy);
        kinds |= needs.flags & WNW_NEED_PROFILE ? needs.profiles | needs.profiles_optional : 0;
    }
    const int rc = cli_profile_load(
        &b->profile, &notes, b->model,
        &(struct cli_profile_want){.given = b->args->profile,
                                   .model = b->args->model,
                                   .model_path = b->model_path,
                                   .optional = kinds,
                                   .budget = floor(b->lengths[0] * (1 - b->args->ratio) + 1e-6),
                                   .policy = "bench methods"});
    free(notes.s);
    return rc;
}

/* A kind of profile that is missing makes a method one that cannot be measured, which the result says. */
static void check_profile(struct method *m, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(m->policy);
    const uint32_t missing =
        needs.flags & WNW_NEED_PROFILE ? needs.profiles & ~wnw_profile_kinds(profile) : 0;
    const char *kind;
    m->left_out = missing != 0;
    for (int32_t i = 0; (kind = wnw_profile_kind_name(i)); i++)
        if (missing >> i & 1u) {
            const size_t len = strlen(m->why);
            snprintf(m->why + len, sizeof m->why - len, "%s%s", len > 0 ? ", " : "needs a profile: ", kind);
        }
}

static int set_up(struct bench_methods *b)
{
    int32_t longest = 0;
    if (b->args->json && b->args->markdown)
        return cli_fail(CLI_BAD_INPUT, "--json and --markdown exclude each other; give one of them");
    int rc = bench_parse_lengths(b->lengths, &b->n_lengths, b->args->lengths);
    b->n_reps = (int32_t)b->args->reps;
    b->n_threads = b->args->threads == CLI_UNSET ? wnw_usable_cores() : (int32_t)b->args->threads;
    if (rc == CLI_OK)
        rc = b->args->policies ? add_list(b, b->args->policies) : add_presets(b);
    if (rc == CLI_OK && b->args->csv)
        rc = cli_out_check(b->args->csv);
    if (rc == CLI_OK)
        rc = cli_model_path(&b->model_path, b->args->model);
    if (rc != CLI_OK)
        return rc;
    for (int32_t i = 0; i < b->n_methods; i++) {
        struct sample *s = &b->methods[i].sample;
        double **const arrays[] = {&s->read_ms,   &s->plain_ms,   &s->observe_ms, &s->score_ms,
                                   &s->select_ms, &s->compact_ms, &s->peak};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
            if (!(*arrays[k] = calloc((size_t)b->n_reps, sizeof **arrays[k])))
                return cli_fail(CLI_FAILED, "out of memory");
    }
    const int status = wnw_model_open(&b->model, b->model_path, NULL);
    if (status != WNW_OK)
        return cli_fail_status(status);
    wnw_model_get_info(b->model, &b->info);
    for (int32_t i = 0; i < b->n_lengths; i++) {
        longest = b->lengths[i] > longest ? b->lengths[i] : longest;
        if (b->lengths[i] > b->info.n_ctx_train)
            return cli_fail(CLI_BAD_INPUT, "--lengths: %d tokens do not fit the model's context of %d",
                            b->lengths[i], b->info.n_ctx_train);
    }
    if ((rc = load_profile(b)) != CLI_OK)
        return rc;
    for (int32_t i = 0; i < b->n_methods; i++)
        check_profile(&b->methods[i], b->profile);
    b->tokens = bench_make_tokens(longest, b->info.n_vocab);
    bench_describe_machine(b->machine, sizeof b->machine, b->n_threads);
    return b->tokens ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
}

static void close_bench(struct bench_methods *b)
{
    for (int32_t i = 0; i < b->n_methods; i++) {
        struct sample *s = &b->methods[i].sample;
        double *const arrays[] = {s->read_ms,   s->plain_ms,   s->observe_ms, s->score_ms,
                                  s->select_ms, s->compact_ms, s->peak};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
            free(arrays[k]);
        wnw_policy_free(b->methods[i].policy);
        free(b->methods[i].recipe);
    }
    wnw_profile_free(b->profile);
    wnw_model_free(b->model);
    json_decref(b->json_rows);
    free(b->tokens);
    free(b->model_path);
}

/* ---- Measuring ---- */

/* What was freed goes back to the system, and the high-water mark starts anew; false where it cannot. */
static bool reset_peak(void)
{
    malloc_trim(0);
    FILE *f = fopen("/proc/self/clear_refs", "w");
    const bool ok = f && fputs("5", f) >= 0;
    return f && fclose(f) == 0 && ok;
}

struct reading {
    double ms, peak;
    wnw_report report;
    int status; /* of observing, planning and compacting */
};

/* Reads n tokens for a policy, or plainly, and compresses. Fails only where the model itself fails. */
static int read_once(struct bench_methods *b, const wnw_policy *policy, int32_t n, struct reading *out)
{
    wnw_session *s = NULL;
    wnw_session_params params = wnw_session_default_params();
    params.n_ubatch = BENCH_N_UBATCH;
    params.n_threads = b->n_threads;
    *out = (struct reading){.ms = NAN, .peak = NAN};
    const bool has_peak = reset_peak();
    int status = wnw_session_new(&s, b->model, &params);
    if (status == WNW_OK && policy) {
        const int32_t n_task = n < TASK_TOKENS ? n : TASK_TOKENS;
        status = wnw_session_set_profile(s, b->profile);
        if (status == WNW_OK)
            status = wnw_session_set_tasks(s, (const int32_t *const[]){b->tokens}, &n_task, 1);
        out->status = status == WNW_OK ? wnw_session_observe(s, &policy, 1) : status;
    }
    if (status == WNW_OK && out->status == WNW_OK) {
        const double start = cli_now_ms();
        status = wnw_session_prefill(s, b->tokens, n, NULL, NULL);
        out->ms = cli_now_ms() - start;
    }
    if (status == WNW_OK && out->status == WNW_OK && policy) {
        const wnw_size size = {.kind = wnw_policy_is_full(policy) ? WNW_SIZE_NONE : WNW_SIZE_RATIO,
                               .ratio = b->args->ratio};
        out->status = wnw_session_compress(s, policy, &size, &out->report);
    }
    if (has_peak)
        out->peak = (double)cli_peak_rss();
    if (status != WNW_OK)
        cli_fail_status(status);
    wnw_session_free(s);
    return status == WNW_OK ? CLI_OK : cli_exit_code(status);
}

static void note_reading(struct method *m, const struct reading *r, int32_t round)
{
    const bool good = r->status == WNW_OK;
    struct sample *s = &m->sample;
    if (!good)
        snprintf(m->why, sizeof m->why, "%s", wnw_last_error());
    s->read_ms[round] = good ? r->ms : NAN;
    s->observe_ms[round] = good ? r->report.observe_ms : NAN;
    s->score_ms[round] = good ? r->report.score_ms : NAN;
    s->select_ms[round] = good ? r->report.select_ms : NAN;
    s->compact_ms[round] = good ? r->report.compact_ms : NAN;
    s->peak[round] = good ? r->peak : NAN;
    m->kept_mean = r->report.kept_mean;
}

/* Plain, a few methods, plain, a few methods, ... plain. */
static int run_round(struct bench_methods *b, int32_t n, int32_t round)
{
    struct reading before, after, r;
    int rc = read_once(b, NULL, n, &before);
    for (int32_t i = 0; i < b->n_methods && rc == CLI_OK; i += METHODS_PER_PLAIN) {
        const int32_t end = i + METHODS_PER_PLAIN < b->n_methods ? i + METHODS_PER_PLAIN : b->n_methods;
        for (int32_t k = i; k < end && rc == CLI_OK; k++) {
            if (b->methods[k].left_out)
                continue;
            rc = read_once(b, b->methods[k].policy, n, &r);
            note_reading(&b->methods[k], &r, round);
            cli_progress_step(round * b->n_methods + k + 1, b->n_reps * b->n_methods, &b->progress);
        }
        if (rc == CLI_OK)
            rc = read_once(b, NULL, n, &after);
        for (int32_t k = i; k < end && rc == CLI_OK; k++) {
            struct sample *s = &b->methods[k].sample;
            s->plain_ms[round] = 0.5 * (before.ms + after.ms);
            s->read_ms[round] -= s->plain_ms[round];
            s->peak[round] -= 0.5 * (before.peak + after.peak);
        }
        before = after;
    }
    return rc;
}

/* ---- Reporting ---- */

/* What the columns show of one method, all times in ms. */
struct row {
    struct bench_spread plain, read, observe, score, select, compact, peak;
    struct bench_spread share; /* all of them, in per cent of the plain prefill of the same round */
    char needs[256];
    bool whole_cache; /* budgets are known only once the whole prompt is cached */
};

static void make_row(struct row *out, const struct bench_methods *b, const struct method *m)
{
    const struct sample *s = &m->sample;
    double share[1000];
    const wnw_needs needs = wnw_policy_needs(m->policy);
    const char *name;
    size_t len = 0;
    for (int32_t i = 0; i < b->n_reps; i++)
        share[i] = 100 *
                   (s->read_ms[i] + s->observe_ms[i] + s->score_ms[i] + s->select_ms[i] + s->compact_ms[i]) /
                   s->plain_ms[i];
    *out = (struct row){.plain = bench_spread_of(s->plain_ms, b->n_reps),
                        .read = bench_spread_of(s->read_ms, b->n_reps),
                        .observe = bench_spread_of(s->observe_ms, b->n_reps),
                        .score = bench_spread_of(s->score_ms, b->n_reps),
                        .select = bench_spread_of(s->select_ms, b->n_reps),
                        .compact = bench_spread_of(s->compact_ms, b->n_reps),
                        .peak = bench_spread_of(s->peak, b->n_reps),
                        .share = bench_spread_of(share, b->n_reps),
                        .whole_cache = !wnw_policy_allows(m->policy, WNW_PHASE_LAYER, NULL)};
    for (int32_t bit = 0; (name = wnw_need_name(bit)) && len < sizeof out->needs; bit++)
        if (needs.flags >> bit & 1u)
            len += (size_t)snprintf(out->needs + len, sizeof out->needs - len, "%s%s", len > 0 ? ", " : "",
                                    name);
    if (len == 0)
        snprintf(out->needs, sizeof out->needs, "nothing");
}

static double mib(double bytes)
{
    return bytes / 1048576.0;
}

static void print_text_row(const struct method *m, const struct row *r)
{
    if (m->left_out || isnan(r->share.median)) {
        printf("  %-24s %s\n", m->recipe, m->why);
        return;
    }
    printf("  %-24s %8.1f %8.1f %8.1f %8.1f %8.1f  %6.1f %% [%.1f to %.1f] %8.1f  %s\n", m->recipe,
           r->read.median, r->observe.median, r->score.median, r->select.median, r->compact.median,
           r->share.median, r->share.min, r->share.max, mib(r->peak.median), r->whole_cache ? "yes" : "no");
}

static void print_markdown_row(const struct method *m, const struct row *r)
{
    if (m->left_out || isnan(r->share.median))
        printf("| `%s` | %s | | | | | | | %s |\n", m->recipe, m->why, r->whole_cache ? "yes" : "no");
    else
        printf("| `%s` | %.0f | %.0f | %.1f | %.1f | %.1f | %.1f %% (%.1f to %.1f) | %.1f | %s |\n",
               m->recipe, r->read.median, r->observe.median, r->score.median, r->select.median,
               r->compact.median, r->share.median, r->share.min, r->share.max, mib(r->peak.median),
               r->whole_cache ? "yes" : "no");
}

static void print_heads(const struct bench_methods *b, int32_t n, struct bench_spread plain)
{
    if (b->args->markdown) {
        printf("%s. %s, f16 cache, %d tokens, %g of the entries removed, %d rounds; plain prefill %.0f ms "
               "(%.0f to "
               "%.0f).\nMedians, in ms; the share of a plain prefill also with its lowest and highest round. "
               "Memory is "
               "the peak resident size beyond that of a plain prefill.\n\n",
               b->machine, b->info.name, n, b->args->ratio, b->n_reps, plain.median, plain.min, plain.max);
        puts("| preset | extra prefill | observe | score | select | compact | all, of prefill | extra MiB | "
             "needs the "
             "whole cache |\n|---|---:|---:|---:|---:|---:|---:|---:|---|");
        return;
    }
    printf(
        "%s\n%s, f16 cache, %d tokens, %g of the entries removed, %d rounds\nplain prefill %.0f ms [%.0f to "
        "%.0f]; medians in ms; extra memory: VmHWM beyond that of a plain prefill, MiB\n",
        b->machine, b->info.name, n, b->args->ratio, b->n_reps, plain.median, plain.min, plain.max);
    printf("  %-24s %8s %8s %8s %8s %8s  %-24s %8s  %s\n", "", "prefill", "observe", "score", "select",
           "compact", "all, share of prefill", "memory", "whole cache");
}

static void csv_row(struct bench_methods *b, const struct method *m, const struct row *r, int32_t n)
{
    const struct bench_spread *const columns[] = {&r->plain,  &r->read,    &r->observe, &r->score,
                                                  &r->select, &r->compact, &r->share};
    fprintf(b->csv.f, "%s,\"%s\",%d,%g", b->args->model, m->recipe, n, b->args->ratio);
    const bool good = !m->left_out && !isnan(r->share.median);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (good)
            fprintf(b->csv.f, ",%.2f,%.2f,%.2f", columns[i]->median, columns[i]->min, columns[i]->max);
        else
            fputs(",,,", b->csv.f);
    }
    if (good && !isnan(r->peak.median))
        fprintf(b->csv.f, ",%.2f", mib(r->peak.median));
    else
        fputc(',', b->csv.f);
    fprintf(b->csv.f, ",%d,%d,\"%s\"\n", r->whole_cache, b->n_reps, good ? "" : m->why);
}

static json_t *json_spread(struct bench_spread s)
{
    return isnan(s.median) ? json_null()
                           : json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max);
}

static json_t *json_row(const struct method *m, const struct row *r, int32_t n)
{
    const bool good = !m->left_out && !isnan(r->share.median);
    return json_pack("{s:s, s:s, s:i, s:b, s:s, s:s, s:b, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "recipe", m->recipe, "policy", wnw_policy_string(m->policy), "n", (int)n, "measured",
                     good, "why", good ? "" : m->why, "needs", r->needs, "whole_cache", r->whole_cache,
                     "kept_tokens_mean", m->kept_mean, "plain_prefill_ms", json_spread(r->plain),
                     "extra_prefill_ms", json_spread(r->read), "observe_ms", json_spread(r->observe),
                     "score_ms", json_spread(r->score), "select_ms", json_spread(r->select), "compact_ms",
                     json_spread(r->compact), "share_percent", json_spread(r->share), "extra_peak_bytes",
                     isnan(r->peak.median) ? json_null() : json_real(r->peak.median));
}

static void report(struct bench_methods *b, int32_t n)
{
    struct row row;
    for (int32_t i = 0; i < b->n_methods; i++) {
        const struct method *m = &b->methods[i];
        make_row(&row, b, m);
        if (b->csv.f)
            csv_row(b, m, &row, n);
        if (b->args->json) {
            json_array_append_new(b->json_rows, json_row(m, &row, n));
            continue;
        }
        if (i == 0)
            print_heads(b, n, row.plain);
        if (b->args->markdown)
            print_markdown_row(m, &row);
        else
            print_text_row(m, &row);
    }
    if (!b->args->json)
        putchar('\n');
}

static int run(struct bench_methods *b)
{
    struct reading unused;
    /* Pages the weights in. */
    int rc = read_once(b, NULL, b->lengths[0] < BENCH_N_UBATCH ? b->lengths[0] : BENCH_N_UBATCH, &unused);
    b->json_rows = json_array();
    if (rc == CLI_OK && b->args->csv && (rc = cli_out_open(&b->csv, b->args->csv)) == CLI_OK)
        fprintf(
            b->csv.f,
            "# %s\nmodel,recipe,n,ratio,plain_ms,plain_min,plain_max,read_ms,read_min,read_max,observe_ms,"
            "observe_min,observe_max,score_ms,score_min,score_max,select_ms,select_min,select_max,compact_ms,"
            "compact_min,compact_max,percent,percent_min,percent_max,extra_mib,whole_cache,rounds,why\n",
            b->machine);
    for (int32_t i = 0; i < b->n_lengths && rc == CLI_OK; i++) {
        cli_progress_start(&b->progress, "bench methods", "methods");
        for (int32_t k = 0; k < b->n_reps && rc == CLI_OK; k++)
            rc = run_round(b, b->lengths[i], k);
        cli_progress_end(&b->progress);
        if (rc == CLI_OK)
            report(b, b->lengths[i]);
    }
    if (rc == CLI_OK && b->csv.f)
        rc = cli_out_commit(&b->csv);
    else if (b->csv.f)
        cli_out_abort(&b->csv);
    return rc;
}

int cli_bench_methods(const struct cli_args *args)
{
    struct bench_methods b = {.args = args};
    int rc = set_up(&b);
    if (rc == CLI_OK)
        rc = run(&b);
    if (rc == CLI_OK && args->json)
        rc = cli_print_json(json_pack("{s:s, s:i, s:s, s:f, s:i, s:O}", "machine", b.machine, "threads",
                                      (int)b.n_threads, "model", args->model, "ratio", args->ratio, "rounds",
                                      (int)b.n_reps, "methods", b.json_rows));
    else if (rc == CLI_OK)
        rc = cli_finish_stdout();
    close_bench(&b);
    return rc;
}
