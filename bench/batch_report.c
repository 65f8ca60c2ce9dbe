/* SPDX-License-Identifier: MIT */
/* What `winnow bench batch` measured, as a table and as JSON. */
#include "bench/batch.h"

#include "app/json.h"
#include "app/names.h"

#include <math.h>
#include <stdlib.h>

static const char *const engine_names[] = {"llama.cpp", "winnow full", "winnow compressed"};

/* A figure is tokens per second, or the ratio of two speeds within each round: of two engines, or of n
 * sequences and the first number of sequences in the list. */
struct figure {
    int over, under; /* engines; under < 0: no ratio between engines */
    bool gain;       /* relative to the first number of sequences */
};

static const struct figure figures[] = {
    {LLAMA, -1, false},   {FULL, -1, false},          {COMPRESSED, -1, false},
    {FULL, LLAMA, false}, {COMPRESSED, LLAMA, false}, {COMPRESSED, FULL, false},
    {LLAMA, -1, true},    {FULL, -1, true},           {COMPRESSED, -1, true},
};
enum { N_FIGURES = sizeof figures / sizeof *figures };

static struct bench_spread spread_of(const struct bench_batch *b, const struct batch_length *l, int32_t i,
                                     const struct figure *f)
{
    const struct batch_result *r = &l->results[i];
    struct bench_spread s = {NAN, NAN, NAN};
    double *v = calloc((size_t)b->base.n_reps, sizeof *v);
    for (int32_t k = 0; v && k < b->base.n_reps; k++) {
        double under = 1.0;
        if (f->gain)
            under = l->results[0].speed[f->over][k];
        else if (f->under >= 0)
            under = r->speed[f->under][k];
        v[k] = r->speed[f->over][k] / under;
    }
    if (v)
        s = bench_spread_of(v, b->base.n_reps);
    free(v);
    return s;
}

static double median_of(const struct bench_batch *b, const struct batch_length *l, int32_t i, int over,
                        int under, bool gain)
{
    return spread_of(b, l, i, &(struct figure){over, under, gain}).median;
}

static void print_row(const struct bench_batch *b, const struct batch_length *l, int32_t i)
{
    printf("  %9d %10.1f %10.1f %10.1f   %8.2fx %8.2fx %8.2fx   %8.2fx %8.2fx %8.2fx\n", l->results[i].n,
           median_of(b, l, i, LLAMA, -1, false), median_of(b, l, i, FULL, -1, false),
           median_of(b, l, i, COMPRESSED, -1, false), median_of(b, l, i, FULL, LLAMA, false),
           median_of(b, l, i, COMPRESSED, LLAMA, false), median_of(b, l, i, COMPRESSED, FULL, false),
           median_of(b, l, i, LLAMA, -1, true), median_of(b, l, i, FULL, -1, true),
           median_of(b, l, i, COMPRESSED, -1, true));
}

int batch_print_table(const struct bench_batch *b)
{
    printf("%s\n%s\n%s, f16 caches, %d rounds, %d tokens decoded by every sequence\n", b->base.machine,
           bench_peer_about(b->peer), b->base.info.name, b->base.n_reps, b->n_decode);
    char *own;
    if (b->base.args->cpu_time)
        printf("times are CPU time of one thread\n");
    printf("compressed: %s, %g of the entries removed on average\n", app_policy_text(b->policy, &own),
           b->base.args->app.ratio);
    wnw_free(own);
    for (int32_t k = 0; k < b->n_lengths; k++) {
        const struct batch_length *l = &b->lengths[k];
        printf("\nprompts of %d tokens; tok/s of all sequences together (medians), and medians of ratios "
               "within a "
               "round\n",
               l->length);
        printf("  %9s %10s %10s %10s   %9s %9s %9s   %s %d\n", "sequences", "llama.cpp", "full", "compressed",
               "full/", "compr./", "compr./", "over the speed with", b->counts[0]);
        printf("  %9s %10s %10s %10s   %9s %9s %9s   %9s %9s %9s\n", "", "", "", "", "llama", "llama", "full",
               "llama", "full", "compr.");
        for (int32_t i = 0; i < b->n_counts; i++)
            print_row(b, l, i);
        for (int32_t i = 0; i < b->n_counts; i++) {
            const struct batch_result *r = &l->results[i];
            printf("  %d compressed: %.1f to %.1f entries per layer and KV head, %.1f on average, KV %.3f "
                   "MiB of "
                   "%.3f\n",
                   r->n, r->fewest, r->most, r->mean, (double)r->kv_bytes[COMPRESSED] / 1048576.0,
                   (double)r->kv_bytes[FULL] / 1048576.0);
        }
    }
    return APP_OK;
}

/* Returns NULL if memory runs out, like the next two functions. */
static json_t *figure_json(const struct bench_batch *b, const struct batch_length *l, int32_t i,
                           const struct figure *f)
{
    const struct bench_spread s = spread_of(b, l, i, f);
    return json_pack("{s:s, s:s*, s:o*, s:s, s:f, s:f, s:f}", "engine", engine_names[f->over], "against",
                     f->under < 0 ? NULL : engine_names[f->under], "over_sequences",
                     f->gain ? json_integer(b->counts[0]) : NULL, "unit",
                     f->gain || f->under >= 0 ? "ratio" : "tokens/s", "median", s.median, "min", s.min, "max",
                     s.max);
}

static json_t *result_json(const struct bench_batch *b, const struct batch_length *l, int32_t i)
{
    const struct batch_result *r = &l->results[i];
    json_t *list = json_array();
    for (int k = 0; k < N_FIGURES; k++)
        app_json_append(&list, figure_json(b, l, i, &figures[k]));
    return json_pack("{s:i, s:o, s:{s:f, s:f, s:f}, s:I, s:I}", "sequences", (int)r->n, "figures", list,
                     "kept_per_head", "fewest", r->fewest, "mean", r->mean, "most", r->most, "kv_bytes_full",
                     (json_int_t)r->kv_bytes[FULL], "kv_bytes_compressed",
                     (json_int_t)r->kv_bytes[COMPRESSED]);
}

static json_t *length_json(const struct bench_batch *b, const struct batch_length *l)
{
    json_t *results = json_array();
    for (int32_t i = 0; i < b->n_counts; i++)
        app_json_append(&results, result_json(b, l, i));
    return json_pack("{s:i, s:o}", "n", (int)l->length, "results", results);
}

int batch_print_json(struct bench_batch *b)
{
    json_t *lengths = json_array();
    for (int32_t i = 0; i < b->n_lengths; i++)
        app_json_append(&lengths, length_json(b, &b->lengths[i]));
    return app_print_json(json_pack(
        "{s:o, s:s, s:i, s:o, s:o, s:s, s:f, s:i, s:i, s:o}", "machine", app_json_text(b->base.machine),
        "clock", bench_clock_name(b->base.args), "threads", (int)b->base.n_threads, "peer",
        bench_peer_json(b->peer), "model", app_json_text(b->base.args->app.model), "policy",
        wnw_policy_string(b->policy), "ratio", b->base.args->app.ratio, "rounds", (int)b->base.n_reps,
        "decode_tokens", (int)b->n_decode, "lengths", lengths));
}
