/* SPDX-License-Identifier: MIT */
/* What `winnow bench methods` prints: a table, Markdown, JSON, and a CSV file of every number. */
#include "bench/methods.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include "app/json.h"
#include "app/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of the spreads of a method, in the order of the CSV's columns. */
static const struct column {
    enum bench_cost cost;
    const char *csv, *json;
} columns[] = {
    {COST_PLAIN, "plain", "plain_prefill_ms"}, {COST_READ, "read", "extra_prefill_ms"},
    {COST_OBSERVE, "observe", "observe_ms"},   {COST_SCORE, "score", "score_ms"},
    {COST_SELECT, "select", "select_ms"},      {COST_COMPACT, "compact", "compact_ms"},
    {COST_SHARE, "percent", "share_percent"},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static bool is_measured(const struct bench_method *m)
{
    return m->group >= 0 && !isnan(m->cost[COST_SHARE].median);
}

/* Whether budgets are known only once the whole prompt is cached. */
static bool needs_whole_cache(const struct bench_method *m)
{
    return !wnw_policy_allows(m->policy, WNW_PHASE_LAYER, NULL);
}

static double median(const struct bench_method *m, enum bench_cost cost)
{
    return m->cost[cost].median;
}

static double peak_mib(const struct bench_method *m)
{
    return median(m, COST_PEAK) / 1048576.0;
}

/* ---- Tables to read ---- */

static int longest_name(const struct bench_methods *b)
{
    int n = 0;
    for (int32_t i = 0; i < b->n_methods; i++)
        n = (int)strlen(b->methods[i].recipe) > n ? (int)strlen(b->methods[i].recipe) : n;
    return n;
}

static void print_head(const struct bench_methods *b, int32_t n, int width)
{
    const struct bench_spread plain = bench_spread_of(b->plain_ms, b->n_plain_ms);
    const struct bench_base *base = &b->base;
    printf(
        "%s\n%s, f16 cache, %d tokens, %g of the entries removed; rounds: %d, each of %d observed readings "
        "and %d plain ones\nplain prefill %.0f ms [%.0f to %.0f]; medians in ms\n",
        base->machine, base->info.name, n, base->args->app.ratio, base->n_reps, b->n_groups, b->n_plain,
        plain.median, plain.min, plain.max);
    puts("prefill: what observing adds; presets that record the same share a reading, so this figure too\n"
         "observe to compact: of a copy of that session, one for each preset\n"
         "memory: MiB at the peak of reading or of compressing, the higher one, beyond that of a plain "
         "prefill");
    printf("  %-*s %8s %8s %8s %8s %8s  %-24s %8s  %s\n", width, "", "prefill", "observe", "score", "select",
           "compact", "all, share of prefill", "memory", "whole cache");
}

static void print_row(const struct bench_method *m, int width)
{
    const struct bench_spread share = m->cost[COST_SHARE];
    if (!is_measured(m)) {
        printf("  %-*s  %s\n", width, m->recipe, m->why);
        return;
    }
    printf("  %-*s %8.1f %8.1f %8.1f %8.1f %8.1f  %6.1f %% [%.1f to %.1f] %8.1f  %s\n", width, m->recipe,
           median(m, COST_READ), median(m, COST_OBSERVE), median(m, COST_SCORE), median(m, COST_SELECT),
           median(m, COST_COMPACT), share.median, share.min, share.max, peak_mib(m),
           needs_whole_cache(m) ? "yes" : "no");
}

static void print_markdown_head(const struct bench_methods *b, int32_t n)
{
    const struct bench_spread plain = bench_spread_of(b->plain_ms, b->n_plain_ms);
    const struct bench_base *base = &b->base;
    printf(
        "%s. %s, f16 cache, %d tokens, %g of the entries removed; rounds: %d, each of %d observed\n"
        "readings and %d plain ones; plain prefill %.0f ms (%.0f to %.0f).\n"
        "Medians, in ms; the share of a plain prefill also with its lowest and highest round. Extra prefill "
        "is "
        "what observing adds;\npresets that record the same share a reading, so this figure too, and each "
        "compresses a copy of that session. Extra MiB:\nthe peak resident size of reading or of compressing, "
        "the higher one, beyond that of a plain prefill.\n\n",
        base->machine, base->info.name, n, base->args->app.ratio, base->n_reps, b->n_groups, b->n_plain,
        plain.median, plain.min, plain.max);
    puts(
        "| preset | extra prefill | observe | score | select | compact | all, of prefill | extra MiB | needs "
        "the whole cache |\n|---|---:|---:|---:|---:|---:|---:|---:|---|");
}

static void print_markdown_row(const struct bench_method *m)
{
    const struct bench_spread share = m->cost[COST_SHARE];
    const char *whole = needs_whole_cache(m) ? "yes" : "no";
    if (!is_measured(m))
        printf("| `%s` | %s | | | | | | | %s |\n", m->recipe, m->why, whole);
    else
        printf("| `%s` | %.0f | %.0f | %.1f | %.1f | %.1f | %.1f %% (%.1f to %.1f) | %.1f | %s |\n",
               m->recipe, median(m, COST_READ), median(m, COST_OBSERVE), median(m, COST_SCORE),
               median(m, COST_SELECT), median(m, COST_COMPACT), share.median, share.min, share.max,
               peak_mib(m), whole);
}

/* ---- Tables for programs ---- */

static void write_csv_head(const struct bench_methods *b)
{
    FILE *f = b->csv.f;
    fprintf(f, "# %s\nmodel,recipe,n,ratio", b->base.machine);
    for (int i = 0; i < N_COLUMNS; i++)
        fprintf(f, ",%s%s,%s_min,%s_max", columns[i].csv, columns[i].cost == COST_SHARE ? "" : "_ms",
                columns[i].csv, columns[i].csv);
    fputs(",extra_mib,whole_cache,rounds,why\n", f);
}

static void write_csv_row(const struct bench_methods *b, const struct bench_method *m, int32_t n)
{
    FILE *f = b->csv.f;
    const bool measured = is_measured(m);
    fprintf(f, "%s,\"%s\",%d,%g", b->base.args->app.model, m->recipe, n, b->base.args->app.ratio);
    for (int i = 0; i < N_COLUMNS; i++) {
        const struct bench_spread s = m->cost[columns[i].cost];
        if (measured)
            fprintf(f, ",%.2f,%.2f,%.2f", s.median, s.min, s.max);
        else
            fputs(",,,", f);
    }
    if (measured && !isnan(peak_mib(m)))
        fprintf(f, ",%.2f", peak_mib(m));
    else
        fputc(',', f);
    fprintf(f, ",%d,%d,\"%s\"\n", needs_whole_cache(m), b->base.n_reps, measured ? "" : m->why);
}

/* What is recorded in words: "attention sums", "window attention (window 32)", ... */
static const char *recording_text(const struct bench_recording *r, char *out, size_t size)
{
    char names[256];
    const char *all = app_needs_text(r->flags, names, sizeof names);
    if (r->window > 0 && r->skip > 0)
        snprintf(out, size, "%s (window %d, skip %d)", all, r->window, r->skip);
    else if (r->window > 0 || r->skip > 0)
        snprintf(out, size, "%s (%s %d)", all, r->window > 0 ? "window" : "skip",
                 r->window > 0 ? r->window : r->skip);
    else
        snprintf(out, size, "%s", all);
    return out;
}

/* Returns NULL if memory runs out. */
static json_t *json_row(const struct bench_method *m, int32_t n)
{
    char needs[256], recorded[320];
    const bool measured = is_measured(m);
    json_t *o = json_pack("{s:s, s:s, s:i, s:b, s:s, s:s, s:s, s:b, s:f}", "recipe", m->recipe, "policy",
                          wnw_policy_string(m->policy), "n", (int)n, "measured", measured, "why",
                          measured ? "" : m->why, "needs",
                          app_needs_text(wnw_policy_needs(m->policy).flags, needs, sizeof needs), "recorded",
                          recording_text(&m->recording, recorded, sizeof recorded), "whole_cache",
                          needs_whole_cache(m), "kept_tokens_mean", m->kept_mean);
    const double peak = median(m, COST_PEAK);
    bool whole = json_object_set_new(o, "extra_peak_bytes", isnan(peak) ? json_null() : json_real(peak)) == 0;
    for (int i = 0; i < N_COLUMNS; i++)
        whole = json_object_set_new(o, columns[i].json, bench_spread_json(m->cost[columns[i].cost])) == 0 &&
                whole;
    if (whole)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- The three steps ---- */

int bench_methods_report_begin(struct bench_methods *b)
{
    b->json_rows = json_array();
    if (!b->base.args->csv)
        return APP_OK;
    const int rc = app_out_open(&b->csv, b->base.args->csv, &b->base.inputs);
    if (rc == APP_OK)
        write_csv_head(b);
    return rc;
}

static void print_length(const struct bench_methods *b, int32_t n)
{
    const int width = longest_name(b);
    const bool markdown = b->base.args->markdown;
    if (markdown)
        print_markdown_head(b, n);
    else
        print_head(b, n, width);
    for (int32_t i = 0; i < b->n_methods; i++)
        if (markdown)
            print_markdown_row(&b->methods[i]);
        else
            print_row(&b->methods[i], width);
    putchar('\n');
}

void bench_methods_report(struct bench_methods *b, int32_t n)
{
    for (int32_t i = 0; i < b->n_methods; i++) {
        if (b->csv.f)
            write_csv_row(b, &b->methods[i], n);
        if (b->base.args->app.json)
            app_json_append(&b->json_rows, json_row(&b->methods[i], n));
    }
    if (!b->base.args->app.json)
        print_length(b, n);
}

int bench_methods_report_end(struct bench_methods *b)
{
    const struct bench_base *base = &b->base;
    const int rc = b->csv.f ? app_out_commit(&b->csv) : APP_OK;
    if (rc != APP_OK || !base->args->app.json)
        return rc != APP_OK ? rc : app_finish_stdout();
    return app_print_json(json_pack("{s:o, s:i, s:o, s:f, s:i, s:i, s:i, s:O}", "machine",
                                    app_json_text(base->machine), "threads", (int)base->n_threads, "model",
                                    app_json_text(base->args->app.model), "ratio", base->args->app.ratio,
                                    "rounds", (int)base->n_reps, "observed_readings", (int)b->n_groups,
                                    "plain_readings", (int)b->n_plain, "methods", b->json_rows));
}
