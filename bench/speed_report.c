/* SPDX-License-Identifier: MIT */
/* The benchmark's result as a table, as JSON and as CSV. */
#include "bench/bench.h"

#include "app/json.h"
#include "app/names.h"
#include "winnow_tools.h"

#include <jansson.h>
#include <stdlib.h>

static const char *const engine_names[] = {"llama.cpp", "winnow full", "winnow compressed", "bridge full",
                                           "bridge compressed"};

/* A row of the result: one speed, or the ratio of two within each round. */
struct figure {
    const char *phase; /* "prefill" or "decode" */
    int over, under;   /* engines; under < 0: no ratio */
};

static const struct figure figures[] = {
    {"prefill", LLAMA, -1},
    {"prefill", FULL, -1},
    {"prefill", COMPRESSED, -1},
    {"decode", LLAMA, -1},
    {"decode", FULL, -1},
    {"decode", COMPRESSED, -1},
    {"prefill", FULL, LLAMA},
    {"prefill", COMPRESSED, LLAMA},
    {"prefill", COMPRESSED, FULL},
    {"decode", FULL, LLAMA},
    {"decode", COMPRESSED, LLAMA},
    {"decode", COMPRESSED, FULL},
    /* with --bridge */
    {"prefill", BRIDGE, -1},
    {"prefill", BRIDGE_COMPRESSED, -1},
    {"decode", BRIDGE, -1},
    {"decode", BRIDGE_COMPRESSED, -1},
    {"prefill", BRIDGE, LLAMA},
    {"prefill", BRIDGE_COMPRESSED, LLAMA},
    {"decode", BRIDGE, LLAMA},
    {"decode", BRIDGE_COMPRESSED, LLAMA},
    {"prefill", BRIDGE, FULL},
    {"prefill", BRIDGE_COMPRESSED, COMPRESSED},
    {"decode", BRIDGE, FULL},
    {"decode", BRIDGE_COMPRESSED, COMPRESSED},
};
enum { N_FIGURES = sizeof figures / sizeof *figures, N_WITHOUT_BRIDGE = 12 };

static int n_figures(const struct bench *b)
{
    return b->n_engines == N_ENGINES ? N_FIGURES : N_WITHOUT_BRIDGE;
}

static bool spread_of(struct bench_spread *out, const struct bench_length *r, const struct figure *f)
{
    double *v = calloc((size_t)r->n_rounds, sizeof *v);
    if (!v)
        return false;
    for (int32_t k = 0; k < r->n_rounds; k++) {
        const bool prefill = f->phase[0] == 'p';
        const double *tps = prefill ? r->rounds[k].prefill : r->rounds[k].decode;
        v[k] = f->under < 0 ? tps[f->over] : tps[f->over] / tps[f->under];
    }
    *out = bench_spread_of(v, r->n_rounds);
    free(v);
    return true;
}

static double median_of(const struct bench_length *r, const char *phase, int over, int under)
{
    const struct figure f = {phase, over, under};
    struct bench_spread s = {0};
    spread_of(&s, r, &f);
    return s.median;
}

static double overhead(const wnw_cache_stats *s)
{
    return s->bytes_entries > 0 ? (double)s->bytes / (double)s->bytes_entries : 0.0;
}

static void print_speeds(const struct bench_length *r, const char *phase)
{
    printf("  %-8s %10.1f %10.1f %10.1f   %8.2fx %8.2fx %8.2fx\n", phase, median_of(r, phase, LLAMA, -1),
           median_of(r, phase, FULL, -1), median_of(r, phase, COMPRESSED, -1),
           median_of(r, phase, FULL, LLAMA), median_of(r, phase, COMPRESSED, LLAMA),
           median_of(r, phase, COMPRESSED, FULL));
}

static void print_bridge_speeds(const struct bench_length *r, const char *phase)
{
    printf("  %-8s %10s %10.1f %10.1f   %8.2fx %8.2fx %8.2fx %8.2fx\n", phase, "",
           median_of(r, phase, BRIDGE, -1), median_of(r, phase, BRIDGE_COMPRESSED, -1),
           median_of(r, phase, BRIDGE, LLAMA), median_of(r, phase, BRIDGE_COMPRESSED, LLAMA),
           median_of(r, phase, BRIDGE, FULL), median_of(r, phase, BRIDGE_COMPRESSED, COMPRESSED));
}

/* libllama of this build over winnow's backend, compared with llama.cpp and with winnow's sessions with the same cache. */
static void print_bridge(const struct bench_length *r)
{
    printf("  %-8s %10s %10s %10s   %9s %9s %9s %9s\n", "bridge", "", "full", "compressed", "full/",
           "compr./", "full/", "compr./");
    printf("  %-8s %10s %10s %10s   %9s %9s %9s %9s\n", "", "", "", "", "llama", "llama", "our full",
           "our compr.");
    print_bridge_speeds(r, "prefill");
    print_bridge_speeds(r, "decode");
}

int bench_print_table(const struct bench *b)
{
    printf("%s\n%s\n", b->machine, bench_peer_about(b->peer[LLAMA]));
    char *own, kv[64];
    app_kv_text(kv, sizeof kv, &b->kv);
    printf("%s, caches f16 (llama.cpp) and %s (ours), flash attention, batches of %d, %d rounds, %d tokens "
           "decoded\n",
           b->info.name, kv, BENCH_N_UBATCH, b->n_reps, b->n_decode);
    if (b->args->cpu_time)
        printf("times are CPU time of one thread\n");
    if (b->args->app.devices)
        printf("ours on %s, llama.cpp on this machine's CPU\n", b->args->app.devices);
    printf("compressed: %s\n", app_policy_text(b->policy, &own));
    wnw_free(own);
    for (int32_t i = 0; i < b->n_results; i++) {
        const struct bench_length *r = &b->results[i];
        printf("\n%d tokens, %.1f kept; tok/s (medians) and medians of ratios within a round\n", r->n,
               r->kept_mean);
        printf("  %-8s %10s %10s %10s   %9s %9s %9s\n", "", "llama.cpp", "full", "compressed", "full/",
               "compr./", "compr./");
        printf("  %-8s %10s %10s %10s   %9s %9s %9s\n", "", "", "", "", "llama", "llama", "full");
        print_speeds(r, "prefill");
        print_speeds(r, "decode");
        if (b->n_engines == N_ENGINES)
            print_bridge(r);
        for (int e = FULL; e <= COMPRESSED; e++) {
            const wnw_cache_stats *s = &r->stats[e];
            printf("  %-18s KV %.3f MiB for %lld entries, %.3fx of entries x bytes per entry",
                   engine_names[e], (double)s->bytes / 1048576.0, (long long)s->n_entries, overhead(s));
            if (s->growth > 0)
                printf(" (growth block %d)", s->growth);
            printf("\n");
        }
    }
    return APP_OK;
}

static json_t *figure_json(const struct bench_length *r, const struct figure *f)
{
    struct bench_spread s;
    if (!spread_of(&s, r, f))
        return NULL;
    return json_pack("{s:s, s:s, s:s*, s:s, s:f, s:f, s:f}", "phase", f->phase, "engine",
                     engine_names[f->over], "against", f->under < 0 ? NULL : engine_names[f->under], "unit",
                     f->under < 0 ? "tokens/s" : "ratio", "median", s.median, "min", s.min, "max", s.max);
}

/* Returns NULL if memory runs out, like the next function. */
static json_t *length_json(const struct bench *b, const struct bench_length *r)
{
    json_t *list = json_array(), *caches = json_array();
    for (int i = 0; i < n_figures(b); i++)
        app_json_append(&list, figure_json(r, &figures[i]));
    for (int e = FULL; e <= COMPRESSED; e++) {
        const wnw_cache_stats *s = &r->stats[e];
        app_json_append(&caches,
                        json_pack("{s:s, s:I, s:I, s:I, s:i}", "engine", engine_names[e], "entries",
                                  (json_int_t)s->n_entries, "kv_bytes", (json_int_t)s->bytes, "entry_bytes",
                                  (json_int_t)s->bytes_entries, "growth_block", (int)s->growth));
    }
    return json_pack("{s:i, s:f, s:i, s:i, s:o, s:o}", "n", (int)r->n, "kept_tokens_mean", r->kept_mean,
                     "rounds", (int)r->n_rounds, "decode_tokens", (int)b->n_decode, "figures", list, "caches",
                     caches);
}

int bench_print_json(struct bench *b)
{
    json_t *lengths = json_array();
    for (int32_t i = 0; i < b->n_results; i++)
        app_json_append(&lengths, length_json(b, &b->results[i]));
    return app_print_json(json_pack(
        "{s:o, s:o*, s:s, s:i, s:s, s:i, s:b, s:s, s:o, s:o, s:s, s:o}", "machine", app_json_text(b->machine),
        "devices", b->args->app.devices ? app_json_text(b->args->app.devices) : NULL, "clock",
        bench_clock_name(b->args), "threads", (int)b->n_threads, "kv_type", wnw_kv_type_name(b->kv.type),
        "kv_tail", (int)b->kv.tail, "kv_rotated", app_kv_rotates(&b->kv), "kernel", wnw_kernel_name(), "peer",
        bench_peer_json(b->peer[LLAMA]), "model", app_json_text(b->args->app.model), "policy",
        wnw_policy_string(b->policy), "lengths", lengths));
}

int bench_write_csv(const struct bench *b)
{
    struct app_out out;
    WNW_TRY(app_out_open(&out, b->args->csv, &b->inputs));
    fprintf(out.f,
            "# %s\n# "
            "%s%s%s\nmodel,policy,n,phase,engine,against,unit,median,min,max,rounds,kv_bytes,entry_bytes\n",
            b->machine, bench_peer_about(b->peer[LLAMA]), b->args->app.devices ? "; ours on " : "",
            b->args->app.devices ? b->args->app.devices : "");
    for (int32_t i = 0; i < b->n_results; i++) {
        const struct bench_length *r = &b->results[i];
        for (int k = 0; k < n_figures(b); k++) {
            const struct figure *f = &figures[k];
            struct bench_spread s;
            if (!spread_of(&s, r, f))
                continue;
            fprintf(out.f, "%s,\"%s\",%d,%s,%s,%s,%s,%.4f,%.4f,%.4f,%d,%llu,%llu\n", b->args->app.model,
                    f->over == COMPRESSED || f->over == BRIDGE_COMPRESSED ? wnw_policy_string(b->policy)
                                                                          : "full",
                    r->n, f->phase, engine_names[f->over], f->under < 0 ? "" : engine_names[f->under],
                    f->under < 0 ? "tokens/s" : "ratio", s.median, s.min, s.max, r->n_rounds,
                    (unsigned long long)r->stats[f->over].bytes,
                    (unsigned long long)r->stats[f->over].bytes_entries);
        }
    }
    return app_out_commit(&out);
}
