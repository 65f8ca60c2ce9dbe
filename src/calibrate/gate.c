/* SPDX-License-Identifier: MIT */
/*
 * Gates on the cache (gates.h): for every KV head a linear form of what the cache holds of an entry after one reading, its
 * features (score/gate_features.c), that predicts KVzip's scores (arXiv 2505.23416). Forms of this kind are KVzap's (arXiv
 * 2601.07891), which reads hidden states in their place (inputgate.c).
 */
#include "base/json.h"
#include "calibrate/gates.h"
#include "profile/profile.h"
#include "score/score.h"

#include <stdlib.h>
#include <string.h>

enum { FEATURES_ALL, FEATURES_SCALARS };
static const char *const feature_sets[] = {"all", "scalars", NULL};
enum { FIRST_SCALAR = 2 /* of wnw__gate_features, after key and value */ };
enum { N_RANKED = 1 + WNW_GATE_SCALARS /* the gate, and each scalar by itself */ };
_Static_assert((int)N_RANKED <= (int)WNW_GATES_RANKED, "a gate is ranked beside all of its scalars");

struct opts {
    struct wnw__gates_opts gates;
    int32_t features;
    double least;
};

static int see_layer(struct wnw__gates *g, struct wnw__looked *l, int32_t i_layer)
{
    wnw_needs needs = {0};
    wnw_observation obs;
    wnw__gate_needs(&needs);
    WNW_TRY(l->src.observe(&l->src, g->il[i_layer], &needs, NULL, &obs));
    float *room = malloc((wnw__gate_room(&obs) + (size_t)obs.n * (size_t)g->n_feature) * sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory for the features of %d entries", (int)obs.n);
    float *f = room + wnw__gate_room(&obs);
    int rc = wnw__gate_begin(&obs, room);
    for (int32_t ih = 0; rc == WNW_OK && ih < l->n_head_kv; ih++) {
        rc = wnw__gate_head(&obs, ih, g->n_feature, room, f);
        if (rc == WNW_OK)
            rc = wnw__gates_take(g, l, i_layer, ih, f + (size_t)l->n_first * (size_t)g->n_feature);
    }
    free(room);
    return rc;
}

/* ---- The results ---- */

static void report_row(struct wnw__calibrate_text *out, const char *name, const char *where, const double *x)
{
    wnw__calibrate_print(out, "%-20.20s  %-13s", name, where);
    for (int k = 0; k < N_RANKED; k++)
        wnw__calibrate_print(out, "  %7.3f", x[k]);
    wnw__calibrate_print(out, "\n");
}

static void report_rows(struct wnw__calibrate_text *out, const char *name, const struct wnw__held_out *h)
{
    report_row(out, name, "in a head", h->within);
    report_row(out, "", "over all", h->over_all);
}

/* x[n_row][n] as [n_layer][n_head_kv][n] of all layers, zeros in those that policies leave alone; n 0: [n_layer]
 * [n_head_kv] of x[n_row]. */
static json_t *all_layers(const struct wnw__gates *g, const float *x, int32_t n)
{
    const int32_t n_layer = g->c->info.n_layer, n_head = g->c->info.n_head_kv, each = n > 0 ? n : 1;
    float *rows = calloc((size_t)n_layer * (size_t)n_head * (size_t)each, sizeof *rows);
    json_t *a = json_array();
    for (int32_t i = 0; rows && i < g->n_layer; i++)
        memcpy(rows + (int64_t)g->il[i] * n_head * each, x + (int64_t)i * n_head * each,
               (size_t)n_head * (size_t)each * sizeof *rows);
    bool good = rows && a;
    for (int32_t il = 0; good && il < n_layer; il++) {
        const float *of = rows + (int64_t)il * n_head * each;
        good = json_array_append_new(a, n > 0 ? wnw__json_f32_rows(of, n_head, n)
                                              : wnw__json_f32s(of, n_head)) == 0;
    }
    free(rows);
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

/* Thresholds are numbers that gates of float32 can come to. */
static json_t *thresholds(const struct wnw__gates *g)
{
    double tau[WNW_GATES_TAU];
    for (int k = 0; k < WNW_GATES_TAU; k++)
        tau[k] = (double)(float)g->tau[k];
    return wnw__json_f64s(tau, WNW_GATES_TAU);
}

static int finish(struct wnw__gates *g)
{
    const int64_t entries = wnw__gates_entries(g);
    char columns[128];
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(g->c, "report", &out));
    wnw__calibrate_print(out, "gates from kvzip: %lld entries of each of %d heads, %d numbers an entry\n",
                         (long long)entries, (int)g->n_row, (int)g->n_feature);
    int at = snprintf(columns, sizeof columns, "%-35s", "");
    for (int k = 0; k < N_RANKED; k++)
        at += snprintf(columns + at, sizeof columns - (size_t)at, "  %7s", g->ranked_by[k]);
    wnw__gates_tell(g, out, columns, report_rows);
    json_t *more = json_pack("{s:I}", "entries", (json_int_t)entries);
    json_t *results =
        json_pack("{s:o, s:o, s:o, s:o}", "weight", all_layers(g, g->weight, g->n_feature), "bias",
                  all_layers(g, g->bias, 0), "thresholds", thresholds(g), "held_out", wnw__gates_held_out(g));
    return wnw__calibrate_profile(g->c, "gate.json", "gate", more, results);
}

/* ---- The run ---- */

static json_t *feature_names(const struct opts *o)
{
    json_t *a = json_array();
    for (int i = o->features == FEATURES_ALL ? 0 : FIRST_SCALAR; a && wnw__gate_features[i]; i++)
        if (json_array_append_new(a, json_string(wnw__gate_features[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static int work(struct wnw__gates *g, const struct opts *o)
{
    WNW_TRY(wnw__gates_prepare(g));
    WNW_TRY(wnw__calibrate_set(g->c, "features", feature_names(o)));
    WNW_TRY(wnw__gates_note_fit(g));
    WNW_TRY(wnw__calibrate_set(g->c, "n_future", json_integer(WNW_GATE_FUTURE)));
    WNW_TRY(wnw__gates_run(g));
    return finish(g);
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct opts *o = opts;
    struct wnw__gates g = {.c = c,
                           .o = &o->gates,
                           .pieces = {.quick = 4, .normal = 7, .paper = 13},
                           .length = 1000,
                           .target = "kvzip",
                           .reader = "expected_attention",
                           .see = see_layer,
                           .n_feature = o->features == FEATURES_ALL ? wnw__gate_all(c->info.n_embd_head)
                                                                    : WNW_GATE_SCALARS,
                           .n_target = 1,
                           .ranked_by = {"gate"},
                           .n_ranked = N_RANKED};
    for (int k = 1; k < N_RANKED; k++)
        g.ranked_by[k] = wnw__gate_features[FIRST_SCALAR + k - 1];
    const int rc = work(&g, o);
    wnw__gates_free(&g);
    return rc;
}

static const wnw_option options[] = {
    {.name = "features",
     .help = "all, or scalars: without key and value, four numbers and a constant for each head",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, features),
     .def = FEATURES_ALL,
     .choices = feature_sets},
    WNW_OPTIONS_GATES("4, 7, 13", "1000"),
    {.name = "least",
     .help =
         "smallest share of the entries that auto asks them for where there is a profile of shares; 0 = any",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, least),
     .max = 1},
    {0}};

const struct wnw__calibrate_type wnw__calibrate_gate = {
    .name = "gate",
    .about =
        "A linear form for every KV head that predicts KVzip's scores from the cache, for the scorer kvgate.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
