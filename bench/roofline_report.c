/* SPDX-License-Identifier: MIT */
/* What `winnow bench roofline` measured, as a table and as JSON. */
#include "bench/roofline.h"

#include "app/json.h"
#include "app/names.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_names[] = {"prefill", "decode full", "decode compressed", "next chunk"};
static const char *const part_names[] = {"weights", "attention", "observation",
                                         "logits",  "other",     "compression"};

/* ---- Figures ---- */

/* Whether a phase reads many tokens at a time. */
static bool reads_many(enum roof_phase phase)
{
    return phase == ROOF_PREFILL || phase == ROOF_CHUNK;
}

static int32_t n_tokens(const struct bench_roofline *b, const struct roof_length *l, enum roof_phase phase)
{
    if (phase == ROOF_CHUNK)
        return l->n_chunk;
    return phase == ROOF_PREFILL ? l->n : b->n_decode;
}

static int by_time(const void *a, const void *b)
{
    const struct roof_round *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* The round with the median time: of one round, the parts add up to the whole. The function sorts. */
static const struct roof_round *median_round(const struct roof_length *l, enum roof_phase phase)
{
    qsort(l->rounds[phase], (size_t)l->n_rounds, sizeof *l->rounds[phase], by_time);
    return &l->rounds[phase][(l->n_rounds - 1) / 2];
}

static double untimed_ms(const struct bench_roofline *b, const struct roof_length *l, enum roof_phase phase)
{
    double *v = calloc((size_t)b->base.n_reps, sizeof *v);
    for (int32_t i = 0; v && i < l->n_rounds; i++)
        v[i] = l->rounds[phase][i].untimed_ms;
    const double median = v ? bench_spread_of(v, l->n_rounds).median : NAN;
    free(v);
    return median;
}

/* Whether the attention of prompts has products in bf16. The cache is f16. */
static bool attends_in_bf16(void)
{
    return strstr(wnw_kernel_name(), "bf16") != NULL;
}

/* Which products a part makes: quantised weights are multiplied as bytes, the attention of prompts in bf16 where the CPU has
 * that (scores of far entries in bytes, which counts as bf16, too), everything else in float32. Bytes and operations of a pass with n rows give the bits per weight. */
static enum bench_peak_kind kind_of(enum roof_phase phase, enum roof_part part, const wnw_work *w,
                                    double n_pass, double n_row)
{
    enum { MOST_BITS = 12 };
    const bool weights = part == ROOF_WEIGHTS || part == ROOF_LOGITS;
    const double bits = 8 * w->bytes / n_pass / (w->ops / (2 * n_row));
    if (part == ROOF_ATTENTION && reads_many(phase) && attends_in_bf16())
        return PEAK_BF16;
    return weights && bits < MOST_BITS ? PEAK_INT8 : PEAK_F32;
}

/* What a part took, next to what it would take at the machine's peak. */
struct figure {
    double ms, ops_per_s, bytes_per_s;
    double floor_ms;            /* the least time that operations and bytes allow; 0 = nothing is counted */
    enum bench_peak_kind limit; /* which of the two that is */
};

static struct figure figure_of(const struct bench_roofline *b, const wnw_work *w, enum bench_peak_kind kind)
{
    struct figure f = {.ms = w->ms, .limit = PEAK_READ};
    const double ops_ms = b->peaks[kind].rate > 0 ? 1e3 * w->ops / b->peaks[kind].rate : 0;
    f.ops_per_s = w->ms > 0 ? 1e3 * w->ops / w->ms : 0;
    f.bytes_per_s = w->ms > 0 ? 1e3 * w->bytes / w->ms : 0;
    f.floor_ms = 1e3 * w->bytes / b->peaks[PEAK_READ].rate;
    if (ops_ms > f.floor_ms) {
        f.floor_ms = ops_ms;
        f.limit = kind;
    }
    return f;
}

struct phase_figures {
    struct figure part[N_ROOF_PARTS];
    struct figure all; /* its floor is the sum of those of the parts */
    double n_token, read_share;
};

static struct phase_figures phase_figures(const struct bench_roofline *b, const struct roof_length *l,
                                          enum roof_phase phase)
{
    const struct roof_round *r = median_round(l, phase);
    const double n_token = n_tokens(b, l, phase);
    const double n_pass = reads_many(phase) ? ceil(n_token / BENCH_N_UBATCH) : n_token;
    struct phase_figures f = {.n_token = n_token};
    wnw_work all = {.ms = r->ms};
    double floor_ms = 0;
    for (int i = 0; i < N_ROOF_PARTS; i++) {
        const wnw_work *w = &r->part[i];
        const double n_row = i == ROOF_LOGITS ? n_pass : n_token; /* one row of logits per pass */
        f.part[i] = figure_of(b, w, kind_of(phase, (enum roof_part)i, w, n_pass, n_row));
        all.ops += w->ops;
        all.bytes += w->bytes;
        floor_ms += f.part[i].floor_ms;
    }
    f.all = figure_of(b, &all, PEAK_F32);
    f.all.floor_ms = floor_ms;
    f.read_share = f.all.bytes_per_s / b->peaks[PEAK_READ].rate;
    return f;
}

/* ---- The table ---- */

static void print_peaks(const struct bench_roofline *b)
{
    printf("peaks with these threads:");
    for (int k = 0; k < N_PEAKS; k++) {
        const struct bench_peak *p = &b->peaks[k];
        printf("%s %s ", k ? "," : "", bench_peak_name((enum bench_peak_kind)k));
        if (p->rate > 0)
            printf("%.1f %s (%s)", p->rate * 1e-9, k == PEAK_READ ? "GB/s" : "GOP/s", p->how);
        else
            printf("none");
    }
    putchar('\n');
}

static void print_row(const char *name, const struct figure *f, double scale, double whole, const char *limit)
{
    printf("  %-12s %10.3f %6.1f", name, f->ms * scale, 100 * f->ms / whole);
    if (f->floor_ms > 0)
        printf(" %10.2f %8.2f %7.1f %%  %s", f->ops_per_s * 1e-9, f->bytes_per_s * 1e-9,
               100 * f->floor_ms / f->ms, limit);
    putchar('\n');
}

static void print_phase(const struct bench_roofline *b, const struct roof_length *l, enum roof_phase phase)
{
    const struct phase_figures f = phase_figures(b, l, phase);
    const bool many = reads_many(phase);
    const double scale = many ? 1 : 1 / f.n_token, whole = f.all.ms;
    if (phase == ROOF_CHUNK)
        printf("\na chunk of %d tokens over %.1f entries per head: %.0f ms, %.1f tok/s\n", l->n_chunk,
               l->kept_mean, whole, f.n_token * 1e3 / whole);
    else if (many)
        printf("\nprefill of %d tokens and compression: %.0f ms, %.1f tok/s\n", l->n, whole,
               f.n_token * 1e3 / whole);
    else
        printf("\n%s, %.1f entries per head: %.3f ms per token, %.1f tok/s; without timers %.3f ms\n",
               phase_names[phase], phase == ROOF_FULL ? l->n : l->kept_mean, whole * scale,
               f.n_token * 1e3 / whole, untimed_ms(b, l, phase) * scale);
    printf("  %-12s %10s %6s %10s %8s %9s\n", "", many ? "ms" : "ms/token", "%", "GOP/s", "GB/s", "of peak");
    for (int i = 0; i < N_ROOF_PARTS; i++)
        if (f.part[i].ms > 0)
            print_row(part_names[i], &f.part[i], scale, whole, bench_peak_name(f.part[i].limit));
    print_row("all", &f.all, scale, whole, "each part at its peak");
    printf("  bytes of weights, keys and values: %.1f %% of the read bandwidth\n", 100 * f.read_share);
}

int roofline_print_table(struct bench_roofline *b)
{
    char *own;
    printf("%s\n%s, f16 cache, batches of %d, %d rounds, %d tokens decoded\n", b->base.machine,
           b->base.info.name, BENCH_N_UBATCH, b->base.n_reps, b->n_decode);
    printf("compressed: %s, %g of the entries removed\n", app_policy_text(b->policy, &own),
           b->base.args->app.ratio);
    wnw_free(own);
    print_peaks(b);
    for (int32_t i = 0; i < b->n_results; i++)
        for (int k = 0; k < N_ROOF_PHASES; k++)
            print_phase(b, &b->results[i], (enum roof_phase)k);
    return APP_OK;
}

/* ---- JSON ---- */

/* Returns NULL if memory runs out, like the next three functions. */
static json_t *figure_json(const char *name, const struct figure *f, const wnw_work *w)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "part", name, "ms", f->ms, "ops", w->ops,
                     "bytes", w->bytes, "ops_per_s", f->ops_per_s, "bytes_per_s", f->bytes_per_s, "floor_ms",
                     f->floor_ms, "limit",
                     f->floor_ms > 0 ? json_string(bench_peak_name(f->limit)) : json_null());
}

static json_t *phase_json(const struct bench_roofline *b, const struct roof_length *l, enum roof_phase phase)
{
    const struct phase_figures f = phase_figures(b, l, phase);
    const struct roof_round *r = median_round(l, phase);
    const double untimed = untimed_ms(b, l, phase);
    json_t *parts = json_array();
    for (int i = 0; i < N_ROOF_PARTS; i++)
        app_json_append(&parts, figure_json(part_names[i], &f.part[i], &r->part[i]));
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:o}", "phase", phase_names[phase], "tokens", f.n_token,
                     "ms", f.all.ms, "floor_ms", f.all.floor_ms, "read_share", f.read_share, "untimed_ms",
                     isnan(untimed) ? json_null() : json_real(untimed), "parts", parts);
}

static json_t *length_json(const struct bench_roofline *b, const struct roof_length *l)
{
    json_t *phases = json_array();
    for (int k = 0; k < N_ROOF_PHASES; k++)
        app_json_append(&phases, phase_json(b, l, (enum roof_phase)k));
    return json_pack("{s:i, s:f, s:o}", "n", (int)l->n, "kept_tokens_mean", l->kept_mean, "phases", phases);
}

static json_t *peaks_json(const struct bench_roofline *b)
{
    json_t *peaks = json_array();
    for (int k = 0; k < N_PEAKS; k++) {
        const struct bench_peak *p = &b->peaks[k];
        app_json_append(&peaks,
                        json_pack("{s:s, s:s, s:o, s:s}", "peak", bench_peak_name((enum bench_peak_kind)k),
                                  "unit", k == PEAK_READ ? "bytes/s" : "operations/s", "rate",
                                  p->rate > 0 ? json_real(p->rate) : json_null(), "how", p->how));
    }
    return peaks;
}

int roofline_print_json(struct bench_roofline *b)
{
    json_t *lengths = json_array();
    for (int32_t i = 0; i < b->n_results; i++)
        app_json_append(&lengths, length_json(b, &b->results[i]));
    return app_print_json(json_pack(
        "{s:o, s:i, s:o, s:s, s:f, s:i, s:i, s:o, s:o}", "machine", app_json_text(b->base.machine), "threads",
        (int)b->base.n_threads, "model", app_json_text(b->base.args->app.model), "policy",
        wnw_policy_string(b->policy), "ratio", b->base.args->app.ratio, "rounds", (int)b->base.n_reps,
        "decode_tokens", (int)b->n_decode, "peaks", peaks_json(b), "lengths", lengths));
}
