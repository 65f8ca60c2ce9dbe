/* SPDX-License-Identifier: MIT */
/*
 * Gates: for every KV head the linear form that predicts, from what a cache holds after one reading, the scores of a
 * method that reads twice. The model reads pieces of text and repeats them as KVzip does (arXiv 2505.23416). With Z its
 * scores of the entries after the chat header and f their features (gate_features.c), y = log(Z + 1e-6), means over
 * the entries of a piece and head taken off (f', y'), N entries in all:
 *
 *     G = sum f' f'^T / N,   r = sum f' y' / N,   D = diag(G)^1/2
 *     w = D^-1 (D^-1 G D^-1 + lambda I)^-1 D^-1 r,   b = mean y - w . mean f          lambda = 0.01
 *
 * Forms of this kind are KVzap's (arXiv 2601.07891), which reads hidden states in place of f. There is nothing random,
 * so the same texts give the same bytes. All of it is one unit of work, because sums of squares of all heads would
 * make a journal of many megabytes: a run that is interrupted begins again. The last piece of every text is not
 * learned from; on these the report compares predicted with true scores.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/gate_fit.h"
#include "calibrate/sample.h"
#include "calibrate/second_look.h"
#include "plan/compress.h"
#include "profile/profile.h"
#include "score/gate_features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-6
#define LAMBDA  0.01

enum { FEATURES_ALL, FEATURES_SCALARS };
static const char *const feature_sets[] = {"all", "scalars", NULL};
enum { N_RANKED = 1 + WNW_GATE_SCALARS /* the gate, and each scalar by itself */, N_TAU = 4 };
static const double kept[N_TAU] = {0.5, 0.25, 0.125, 0.0625};

struct opts {
    int32_t features, pieces, length;
};

/* What a held-out piece of a text came to; correlations of the gate, then of each scalar. */
struct held_out {
    double within[N_RANKED]; /* mean over heads of the rank correlation inside a head */
    double over_all[N_RANKED];
};

struct job {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *target, *reader; /* whose scores are learned; a policy that observes what features need */
    struct wnw__samples samples;
    int32_t *il, n_layer, n_row, n_feature;
    struct wnw__gate_fit fit;
    float *weight, *bias;      /* [n_row][n_feature], [n_row] */
    struct held_out *held_out; /* [n_text], zeros where a text has one piece alone */
    double tau[N_TAU];
    float *scores; /* predicted, of all held-out entries */
    int64_t n_scores;
    int64_t done, total; /* tokens */
};

/* ---- A piece ---- */

/* The features and targets of a piece's head. */
struct rows {
    float *f;  /* [n][n_feature] */
    double *y; /* [n] */
    int32_t n;
};

typedef int visit_fn(struct job *j, int32_t row, struct rows *rows, void *user);

static int visit_layer(struct job *j, struct wnw__looked *l, int32_t i_layer, struct rows *rows,
                       visit_fn *visit, void *user)
{
    const struct wnw__plan_source *src = &l->src;
    const int32_t n_head = l->n_head_kv;
    wnw_needs needs = {0};
    wnw_observation obs;
    wnw__gate_needs(&needs);
    WNW_TRY(src->observe(src, j->il[i_layer], &needs, NULL, &obs));
    const size_t n = (size_t)obs.n * (size_t)j->n_feature;
    float *room = malloc((wnw__gate_room(&obs) + n) * sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory for the features of %d entries", (int)obs.n);
    float *f = room + wnw__gate_room(&obs);
    int rc = wnw__gate_begin(&obs, room);
    for (int32_t ih = 0; rc == WNW_OK && ih < n_head; ih++) {
        const int32_t row = i_layer * n_head + ih;
        rc = wnw__gate_head(&obs, ih, j->n_feature, room, f);
        memcpy(rows->f, f + (size_t)l->n_first * (size_t)j->n_feature,
               (size_t)l->n * (size_t)j->n_feature * sizeof *f);
        for (int32_t i = 0; i < l->n; i++)
            rows->y[i] = log((double)l->score[(int64_t)row * l->n + i] + EPSILON);
        if (rc == WNW_OK)
            rc = visit(j, row, rows, user);
    }
    free(room);
    return rc;
}

/* Reads piece i of a text, twice, and visits all of its heads. */
static int visit_piece(struct job *j, int32_t i_text, int32_t i, visit_fn *visit, void *user)
{
    const int32_t length = j->samples.length;
    const wnw_policy *policies[] = {j->target, j->reader};
    struct wnw__looked l = {.il = j->il, .n_layer = j->n_layer, .n_head_kv = j->c->info.n_head_kv};
    struct rows rows = {0};
    wnw__calibrate_part(j->c, (double)j->done / (double)j->total, (double)length / (double)j->total);
    int rc = wnw__look_again(&l, j->c, policies, 2, wnw__samples_piece(&j->samples, i_text, i), length);
    if (rc == WNW_OK) {
        rows = (struct rows){.n = l.n,
                             .f = malloc((size_t)l.n * (size_t)j->n_feature * sizeof *rows.f),
                             .y = malloc((size_t)l.n * sizeof *rows.y)};
        rc = rows.f && rows.y ? WNW_OK
                              : wnw__fail(WNW_E_NOMEM, "no memory for the features of %d entries", (int)l.n);
    }
    for (int32_t k = 0; rc == WNW_OK && k < j->n_layer; k++)
        rc = visit_layer(j, &l, k, &rows, visit, user);
    free(rows.f);
    free(rows.y);
    wnw__looked_free(&l);
    j->done += length;
    return rc;
}

/* ---- Learning ---- */

static int learn(struct job *j, int32_t row, struct rows *rows, void *user)
{
    (void)user;
    wnw__gate_fit_add(&j->fit, row, rows->f, rows->y, rows->n);
    return WNW_OK;
}

/* The pieces of a text that are learned from: all but the last, or the only one. */
static int32_t n_learned(const struct job *j, int32_t i_text)
{
    const int32_t n = j->samples.n_piece[i_text];
    return n > 1 ? n - 1 : 1;
}

static int fit_gates(struct job *j)
{
    WNW_TRY(wnw__gate_fit_new(&j->fit, j->n_row, j->n_feature));
    for (int32_t i = 0; i < j->samples.n_text; i++)
        for (int32_t k = 0; k < n_learned(j, i); k++)
            WNW_TRY(visit_piece(j, i, k, learn, NULL));
    for (int32_t r = 0; r < j->n_row; r++)
        WNW_TRY(wnw__gate_fit_solve(&j->fit, r, LAMBDA, j->weight + (int64_t)r * j->n_feature, &j->bias[r]));
    return WNW_OK;
}

/* ---- Judging ---- */

/* True scores and what is ranked against them, of all heads of a piece. */
struct ranked {
    double *y, *x[N_RANKED]; /* [n_row][n] */
    int32_t n;
    struct held_out *out;
};

static int judge_head(struct job *j, int32_t row, struct rows *rows, void *user)
{
    struct ranked *to = user;
    const int64_t at = (int64_t)row * rows->n;
    const int32_t p = j->n_feature;
    to->n = rows->n;
    for (int32_t i = 0; i < rows->n; i++) {
        const float *f = rows->f + (int64_t)i * p;
        double sum = (double)j->bias[row];
        for (int32_t c = 0; c < p; c++)
            sum += (double)j->weight[(int64_t)row * p + c] * (double)f[c];
        to->y[at + i] = rows->y[i];
        to->x[0][at + i] = sum;
        for (int k = 1; k < N_RANKED; k++)
            to->x[k][at + i] = (double)f[p - N_RANKED + k];
    }
    for (int k = 0; k < N_RANKED; k++) {
        double rho;
        WNW_TRY(wnw__rank_correlation(&rho, to->x[k] + at, to->y + at, rows->n));
        to->out->within[k] += rho / j->n_row;
    }
    return WNW_OK;
}

static int add_scores(struct job *j, const double *x, int64_t n)
{
    float *scores = realloc(j->scores, (size_t)(j->n_scores + n) * sizeof *scores);
    if (!scores)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %lld entries", (long long)n);
    j->scores = scores;
    for (int64_t i = 0; i < n; i++)
        scores[j->n_scores++] = (float)x[i];
    return WNW_OK;
}

static int judge_piece(struct job *j, int32_t i_text, struct ranked *to)
{
    const int32_t most = j->samples.length + WNW_LOOK_ROOM;
    const size_t n = (size_t)j->n_row * (size_t)most;
    const int32_t i = j->samples.n_piece[i_text] - 1;
    bool good = (to->y = calloc(n, sizeof *to->y)) != NULL;
    for (int k = 0; k < N_RANKED; k++)
        good = (to->x[k] = calloc(n, sizeof *to->y)) != NULL && good;
    if (!good)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    WNW_TRY(visit_piece(j, i_text, i, judge_head, to));
    for (int k = 0; k < N_RANKED; k++)
        WNW_TRY(wnw__rank_correlation(&to->out->over_all[k], to->x[k], to->y, j->n_row * to->n));
    return add_scores(j, to->x[0], (int64_t)j->n_row * to->n);
}

static void free_ranked(struct ranked *r)
{
    free(r->y);
    for (int k = 0; k < N_RANKED; k++)
        free(r->x[k]);
}

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static int judge_gates(struct job *j)
{
    for (int32_t i = 0; i < j->samples.n_text; i++) {
        struct ranked r = {.out = &j->held_out[i]};
        if (j->samples.n_piece[i] < 2)
            continue;
        const int rc = judge_piece(j, i, &r);
        free_ranked(&r);
        if (rc != WNW_OK)
            return rc;
    }
    if (j->n_scores > 0)
        qsort(j->scores, (size_t)j->n_scores, sizeof *j->scores, falling);
    for (int k = 0; k < N_TAU && j->n_scores > 0; k++)
        j->tau[k] = (double)j->scores[(int64_t)(kept[k] * (double)(j->n_scores - 1))];
    return WNW_OK;
}

/* ---- The unit of work ---- */

static json_t *judged_lists(const struct job *j)
{
    json_t *a = json_array();
    bool good = a != NULL;
    for (int32_t i = 0; good && i < j->samples.n_text; i++) {
        const struct held_out *h = &j->held_out[i];
        good = json_array_append_new(a, json_pack("{s:o, s:o}", "within", wnw__json_f64s(h->within, N_RANKED),
                                                  "over_all", wnw__json_f64s(h->over_all, N_RANKED))) == 0;
    }
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

static int run_unit(wnw_calibration *c, void *user, json_t **result)
{
    struct job *j = user;
    WNW_TRY(fit_gates(j));
    WNW_TRY(judge_gates(j));
    wnw__calibrate_part(c, 0, 1);
    *result = json_pack("{s:I, s:o, s:o, s:o, s:o}", "entries", (json_int_t)j->fit.n[0], "weight",
                        wnw__json_f32s(j->weight, j->n_row * j->n_feature), "bias",
                        wnw__json_f32s(j->bias, j->n_row), "thresholds", wnw__json_f64s(j->tau, N_TAU),
                        "held_out", judged_lists(j));
    return WNW_OK; /* NULL = no memory */
}

static bool read_unit(struct job *j, const json_t *result, int64_t *entries)
{
    const json_t *n = json_object_get(result, "entries"), *texts = json_object_get(result, "held_out");
    *entries = json_is_integer(n) ? json_integer_value(n) : 0;
    bool good = *entries > 0 && json_array_size(texts) == (size_t)j->samples.n_text &&
                wnw__json_get_f32s(result, "weight", j->weight, j->n_row * j->n_feature) &&
                wnw__json_get_f32s(result, "bias", j->bias, j->n_row) &&
                wnw__json_get_f64s(result, "thresholds", j->tau, N_TAU);
    for (int32_t i = 0; good && i < j->samples.n_text; i++) {
        const json_t *of = json_array_get(texts, (size_t)i);
        good = wnw__json_get_f64s(of, "within", j->held_out[i].within, N_RANKED) &&
               wnw__json_get_f64s(of, "over_all", j->held_out[i].over_all, N_RANKED);
    }
    return good;
}

/* ---- The results ---- */

static void tell_row(struct wnw__calibrate_text *out, const char *name, const char *where, const double *x)
{
    wnw__calibrate_print(out, "%-20.20s  %-13s", name, where);
    for (int k = 0; k < N_RANKED; k++)
        wnw__calibrate_print(out, "  %7.3f", x[k]);
    wnw__calibrate_print(out, "\n");
}

static void tell(const struct job *j, struct wnw__calibrate_text *out, int64_t entries)
{
    bool any = false;
    wnw__calibrate_print(out, "gates from kvzip: %lld entries of each of %d heads, %d numbers an entry\n",
                         (long long)entries, (int)j->n_row, (int)j->n_feature);
    for (int32_t i = 0; i < j->samples.n_text; i++) {
        if (j->samples.n_piece[i] < 2)
            continue;
        if (!any)
            wnw__calibrate_print(
                out,
                "rank correlation with kvzip's scores, last piece of each text:\n%-35s  %7s  "
                "%7s  %7s  %7s  %7s\n",
                "", "gate", "lk", "keydiff", "ea", "lev");
        any = true;
        tell_row(out, j->c->params.texts[i].name, "in a head", j->held_out[i].within);
        tell_row(out, "", "over all", j->held_out[i].over_all);
    }
    for (int k = 0; any && k < N_TAU; k++)
        wnw__calibrate_print(out, "threshold that keeps %.4g %%: tau=%.3f\n", 100 * kept[k], j->tau[k]);
    if (!any)
        wnw__calibrate_print(out, "no text has a second piece; nothing was held out to compare with\n");
}

/* x[n_row][n] as [n_layer][n_head_kv][n] of all layers, zeros in those that policies leave alone; n 0: [n_layer]
 * [n_head_kv] of x[n_row]. */
static json_t *all_layers(const struct job *j, const float *x, int32_t n)
{
    const int32_t n_layer = j->c->info.n_layer, n_head = j->c->info.n_head_kv, each = n > 0 ? n : 1;
    float *rows = calloc((size_t)n_layer * (size_t)n_head * (size_t)each, sizeof *rows);
    json_t *a = json_array();
    for (int32_t i = 0; rows && i < j->n_layer; i++)
        memcpy(rows + (int64_t)j->il[i] * n_head * each, x + (int64_t)i * n_head * each,
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

static int finish(struct job *j, int64_t entries)
{
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(j->c, "report", &out));
    tell(j, out, entries);
    json_t *more = json_pack("{s:I}", "entries", (json_int_t)entries);
    json_t *results = json_pack("{s:o, s:o, s:o}", "weight", all_layers(j, j->weight, j->n_feature), "bias",
                                all_layers(j, j->bias, 0), "thresholds", wnw__json_f64s(j->tau, N_TAU));
    return wnw__calibrate_profile(j->c, "gate.json", "gate", more, results);
}

/* ---- The run ---- */

/* Decides on the length of pieces: a piece and its second reading must fit the model's context. */
static int set_length(const struct job *j, int32_t *length)
{
    const int32_t most = (j->c->info.n_ctx_train - WNW_LOOK_ROOM) / 2;
    if (j->o->length > most || most < 1)
        return wnw__fail(
            WNW_E_RANGE,
            "pieces of %d tokens, read twice, do not fit the model's context of %d; at most %d do",
            (int)(j->o->length > 1 ? j->o->length : 1), (int)j->c->info.n_ctx_train,
            (int)(most > 0 ? most : 0));
    *length = j->o->length > 0 ? j->o->length : most < 1000 ? most : 1000;
    return WNW_OK;
}

static json_t *feature_names(const struct job *j)
{
    json_t *a = json_array();
    for (int i = j->o->features == FEATURES_ALL ? 0 : 2; a && wnw__gate_features[i]; i++)
        if (json_array_append_new(a, json_string(wnw__gate_features[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static int note_settings(struct job *j, int32_t n_piece)
{
    WNW_TRY(wnw__calibrate_set(j->c, "pieces", json_integer(n_piece)));
    WNW_TRY(wnw__calibrate_set(j->c, "length", json_integer(j->samples.length)));
    WNW_TRY(wnw__calibrate_set(j->c, "features", feature_names(j)));
    WNW_TRY(wnw__calibrate_set(j->c, "target", json_string("kvzip")));
    WNW_TRY(wnw__calibrate_set(j->c, "epsilon", json_real(EPSILON)));
    WNW_TRY(wnw__calibrate_set(j->c, "lambda", json_real(LAMBDA)));
    return wnw__calibrate_set(j->c, "n_future", json_integer(WNW_GATE_FUTURE));
}

static int prepare(struct job *j)
{
    int32_t length = 0;
    const int32_t n_piece = wnw__effort_value(j->c, j->o->pieces, (struct wnw__by_effort){7, 4, 13});
    WNW_TRY(wnw__looked_layers(&j->il, &j->n_layer, j->c));
    WNW_TRY(set_length(j, &length));
    WNW_TRY(wnw__samples_cut(&j->samples, j->c, length, 0, n_piece));
    WNW_TRY(wnw_policy_parse(&j->target, "kvzip", NULL));
    WNW_TRY(wnw_policy_parse(&j->reader, "expected_attention", NULL));
    WNW_TRY(note_settings(j, n_piece));
    j->n_row = j->n_layer * j->c->info.n_head_kv;
    j->n_feature = j->o->features == FEATURES_ALL ? wnw__gate_all(j->c->info.n_embd_head) : WNW_GATE_SCALARS;
    j->weight = calloc((size_t)j->n_row * (size_t)j->n_feature, sizeof *j->weight);
    j->bias = calloc((size_t)j->n_row, sizeof *j->bias);
    j->held_out = calloc((size_t)j->samples.n_text, sizeof *j->held_out);
    if (j->weight && j->bias && j->held_out)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the gates of %d heads", (int)j->n_row);
}

static int work(struct job *j)
{
    json_t *result;
    int64_t entries;
    WNW_TRY(prepare(j));
    for (int32_t i = 0; i < j->samples.n_text; i++)
        j->total += (int64_t)j->samples.n_piece[i] * j->samples.length;
    WNW_TRY(wnw__calibrate_begin(j->c, j->total));
    const struct wnw__calibrate_unit unit = {.name = "gates", .cost = j->total, .run = run_unit, .user = j};
    WNW_TRY(wnw__calibrate_unit(j->c, &unit, &result));
    const bool good = read_unit(j, result, &entries);
    json_decref(result);
    return good ? finish(j, entries) : wnw__calibrate_damaged(j->c, unit.name);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct job j = {.c = c, .o = opts};
    const int rc = work(&j);
    wnw__gate_fit_free(&j.fit);
    wnw__samples_free(&j.samples);
    wnw_policy_free(j.target);
    wnw_policy_free(j.reader);
    free(j.il);
    free(j.weight);
    free(j.bias);
    free(j.held_out);
    free(j.scores);
    return rc;
}

static const wnw_option options[] = {
    {.name = "features",
     .help = "all, or scalars: without key and value, four numbers and a constant for each head",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, features),
     .def = FEATURES_ALL,
     .choices = feature_sets},
    {.name = "pieces",
     .help =
         "pieces of each text, at most, the last of which is held out; 0 = 4, 7, 13 (quick, normal, paper)",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, pieces),
     .max = 10000},
    {.name = "length",
     .help = "tokens of a piece; 0 = 1000, or what fits",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, length),
     .max = 1000000},
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
