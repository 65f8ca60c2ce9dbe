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
 * so the same texts give the same bytes. The last piece of every text is not learned from; on these the report
 * compares predicted with true scores.
 *
 * Pieces that are learned from come in at most 8 reads, because what is remembered after one is the sums of squares of
 * all heads, many megabytes. Sums go on where those of the read before ended, so that their rounding does not depend on
 * where a run was interrupted. The sums of each layer are a unit of their own, which keeps lines of the journal short.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/gate_fit.h"
#include "calibrate/sample.h"
#include "calibrate/second_look.h"
#include "plan/compress.h"
#include "profile/profile.h"
#include "score/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-6
#define LAMBDA  0.01

enum { MOST_READS = 8 };
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

struct work {
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
    /* The read at hand: its pieces, from <= i < to counted over all texts, and the layers that are wanted of it, from
     * first_layer on. */
    int32_t from, to, first_layer;
    bool is_read;   /* the sums are those after the read at hand, in all layers */
    int32_t i_text; /* whose held-out piece is at hand */
};

/* ---- A piece ---- */

/* The features and targets of a piece's head. */
struct examples {
    float *f;  /* [n][n_feature] */
    double *y; /* [n] */
    int32_t n;
};

typedef int visit_fn(struct work *w, int32_t row, struct examples *ex, void *user);

static int visit_layer(struct work *w, struct wnw__looked *l, int32_t i_layer, struct examples *ex,
                       visit_fn *visit, void *user)
{
    const struct wnw__plan_source *src = &l->src;
    const int32_t n_head = l->n_head_kv;
    wnw_needs needs = {0};
    wnw_observation obs;
    wnw__gate_needs(&needs);
    WNW_TRY(src->observe(src, w->il[i_layer], &needs, NULL, &obs));
    const size_t n = (size_t)obs.n * (size_t)w->n_feature;
    float *room = malloc((wnw__gate_room(&obs) + n) * sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory for the features of %d entries", (int)obs.n);
    float *f = room + wnw__gate_room(&obs);
    int rc = wnw__gate_begin(&obs, room);
    for (int32_t ih = 0; rc == WNW_OK && ih < n_head; ih++) {
        const int32_t row = i_layer * n_head + ih;
        rc = wnw__gate_head(&obs, ih, w->n_feature, room, f);
        memcpy(ex->f, f + (size_t)l->n_first * (size_t)w->n_feature,
               (size_t)l->n * (size_t)w->n_feature * sizeof *f);
        for (int32_t i = 0; i < l->n; i++)
            ex->y[i] = log((double)l->score[(int64_t)row * l->n + i] + EPSILON);
        if (rc == WNW_OK)
            rc = visit(w, row, ex, user);
    }
    free(room);
    return rc;
}

/* Reads piece i of a text, twice, and visits the heads of its wanted layers. */
static int visit_piece(struct work *w, int32_t i_text, int32_t i, visit_fn *visit, void *user)
{
    const int32_t length = w->samples.length;
    const wnw_policy *policies[] = {w->target, w->reader};
    struct wnw__looked l = {.il = w->il, .n_layer = w->n_layer, .n_head_kv = w->c->info.n_head_kv};
    struct examples ex = {0};
    int rc = wnw__look_again(&l, w->c, policies, 2, wnw__samples_piece(&w->samples, i_text, i), length);
    if (rc == WNW_OK) {
        ex = (struct examples){.n = l.n,
                               .f = malloc((size_t)l.n * (size_t)w->n_feature * sizeof *ex.f),
                               .y = malloc((size_t)l.n * sizeof *ex.y)};
        rc = ex.f && ex.y ? WNW_OK
                          : wnw__fail(WNW_E_NOMEM, "no memory for the features of %d entries", (int)l.n);
    }
    for (int32_t k = w->first_layer; rc == WNW_OK && k < w->n_layer; k++)
        rc = visit_layer(w, &l, k, &ex, visit, user);
    free(ex.f);
    free(ex.y);
    wnw__looked_free(&l);
    return rc;
}

/* ---- Learning ---- */

static int learn(struct work *w, int32_t row, struct examples *ex, void *user)
{
    (void)user;
    wnw__gate_fit_add(&w->fit, row, ex->f, ex->y, ex->n);
    return WNW_OK;
}

/* The pieces of a text that are learned from: all but the last, or the only one. */
static int32_t n_learned(const struct work *w, int32_t i_text)
{
    const int32_t n = w->samples.n_piece[i_text];
    return n > 1 ? n - 1 : 1;
}

static int32_t n_learned_of_all(const struct work *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->samples.n_text; i++)
        n += n_learned(w, i);
    return n;
}

/* Learns from the pieces of the read at hand, in the order of texts. */
static int read_pieces(struct work *w)
{
    int32_t at = 0;
    for (int32_t i = 0; i < w->samples.n_text; i++)
        for (int32_t k = 0; k < n_learned(w, i); k++, at++) {
            if (at < w->from || at >= w->to)
                continue;
            wnw__calibrate_progress_in(w->c, (double)(at - w->from) / (w->to - w->from),
                                       1.0 / (w->to - w->from));
            WNW_TRY(visit_piece(w, i, k, learn, NULL));
        }
    wnw__calibrate_progress_in(w->c, 0, 1);
    return WNW_OK;
}

/* The sums of layer w->first_layer as they are after the read at hand. Where a run was interrupted between two layers
 * of a read, it is done once more, for the layers that are not remembered. */
static int run_layer(wnw_calibration *c, void *user, json_t **result)
{
    struct work *w = user;
    json_t *heads = json_array();
    const int32_t n_head = c->info.n_head_kv;
    bool good = heads != NULL;
    const int rc = w->is_read ? WNW_OK : read_pieces(w);
    w->is_read = rc == WNW_OK;
    for (int32_t ih = 0; good && rc == WNW_OK && ih < n_head; ih++) {
        char *text = wnw__gate_fit_text(&w->fit, w->first_layer * n_head + ih);
        good = json_array_append_new(heads, json_string(text)) == 0;
        free(text);
    }
    *result = good && rc == WNW_OK ? json_pack("{s:O}", "moments", heads) : NULL;
    json_decref(heads);
    return rc;
}

static bool take_layer(struct work *w, const json_t *result)
{
    const json_t *heads = json_object_get(result, "moments"), *text;
    const int32_t n_head = w->c->info.n_head_kv;
    bool good = json_array_size(heads) == (size_t)n_head;
    for (int32_t ih = 0; good && ih < n_head; ih++)
        good = (text = json_array_get(heads, (size_t)ih)) && json_is_string(text) &&
               wnw__gate_fit_read(&w->fit, w->first_layer * n_head + ih, json_string_value(text),
                                  json_string_length(text));
    return good;
}

static int do_layer(struct work *w)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "pieces %d to %d, layer %d", (int)w->from + 1, (int)w->to,
             (int)w->il[w->first_layer]);
    const struct wnw__calibrate_unit unit = {
        .name = name,
        .cost = w->first_layer == 0 ? (int64_t)(w->to - w->from) * w->samples.length : 0,
        .run = run_layer,
        .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const bool good = w->is_read || take_layer(w, result);
    json_decref(result);
    return good ? WNW_OK : wnw__calibrate_damaged(w->c, name);
}

static int fit_gates(struct work *w)
{
    const int32_t n = n_learned_of_all(w), n_read = n < MOST_READS ? n : MOST_READS;
    WNW_TRY(wnw__gate_fit_new(&w->fit, w->n_row, w->n_feature, 1));
    for (int32_t i = 0; i < n_read; i++) {
        w->from = (int32_t)((int64_t)n * i / n_read);
        w->to = (int32_t)((int64_t)n * (i + 1) / n_read);
        w->is_read = false;
        for (w->first_layer = 0; w->first_layer < w->n_layer; w->first_layer++)
            WNW_TRY(do_layer(w));
    }
    w->first_layer = 0;
    for (int32_t r = 0; r < w->n_row; r++)
        WNW_TRY(wnw__gate_fit_solve(&w->fit, r, LAMBDA, w->weight + (int64_t)r * w->n_feature, &w->bias[r]));
    return WNW_OK;
}

/* ---- Judging ---- */

/* True scores and what is ranked against them, of all heads of a piece. */
struct ranked {
    double *y, *x[N_RANKED]; /* [n_row][n] */
    int32_t n;
    struct held_out out;
};

static int judge_head(struct work *w, int32_t row, struct examples *ex, void *user)
{
    struct ranked *to = user;
    const int64_t at = (int64_t)row * ex->n;
    const int32_t p = w->n_feature;
    to->n = ex->n;
    for (int32_t i = 0; i < ex->n; i++) {
        const float *f = ex->f + (int64_t)i * p;
        double sum = (double)w->bias[row];
        for (int32_t c = 0; c < p; c++)
            sum += (double)w->weight[(int64_t)row * p + c] * (double)f[c];
        to->y[at + i] = ex->y[i];
        to->x[0][at + i] = sum;
        for (int k = 1; k < N_RANKED; k++)
            to->x[k][at + i] = (double)f[p - N_RANKED + k];
    }
    for (int k = 0; k < N_RANKED; k++) {
        double rho;
        WNW_TRY(wnw__rank_correlation(&rho, to->x[k] + at, to->y + at, ex->n));
        to->out.within[k] += rho / w->n_row;
    }
    return WNW_OK;
}

/* Room for n more predicted scores, after those that are there; NULL: out of memory. */
static float *more_scores(struct work *w, int32_t n)
{
    float *scores = realloc(w->scores, (size_t)(w->n_scores + n) * sizeof *scores);
    if (!scores)
        return NULL;
    w->scores = scores;
    return scores + w->n_scores;
}

static int judge_piece(struct work *w, struct ranked *to)
{
    const int32_t most = w->samples.length + WNW_LOOK_ROOM, i = w->samples.n_piece[w->i_text] - 1;
    const size_t n = (size_t)w->n_row * (size_t)most;
    bool good = (to->y = calloc(n, sizeof *to->y)) != NULL;
    for (int k = 0; k < N_RANKED; k++)
        good = (to->x[k] = calloc(n, sizeof *to->y)) != NULL && good;
    if (!good)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    WNW_TRY(visit_piece(w, w->i_text, i, judge_head, to));
    for (int k = 0; k < N_RANKED; k++)
        WNW_TRY(wnw__rank_correlation(&to->out.over_all[k], to->x[k], to->y, w->n_row * to->n));
    return WNW_OK;
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

/* x[n] as floats; NULL: out of memory. */
static json_t *score_list(const double *x, int32_t n)
{
    float *y = malloc((size_t)n * sizeof *y);
    for (int32_t i = 0; y && i < n; i++)
        y[i] = (float)x[i];
    json_t *list = y ? wnw__json_f32s(y, n) : NULL;
    free(y);
    return list;
}

static int run_held_out(wnw_calibration *c, void *user, json_t **result)
{
    struct work *w = user;
    struct ranked r = {0};
    (void)c;
    const int rc = judge_piece(w, &r);
    if (rc == WNW_OK)
        *result =
            json_pack("{s:o, s:o, s:o}", "within", wnw__json_f64s(r.out.within, N_RANKED), "over_all",
                      wnw__json_f64s(r.out.over_all, N_RANKED), "scores", score_list(r.x[0], w->n_row * r.n));
    free_ranked(&r);
    return rc; /* NULL = no memory */
}

static int take_held_out(struct work *w, const json_t *result, const char *unit)
{
    struct held_out *h = &w->held_out[w->i_text];
    const size_t n = json_array_size(json_object_get(result, "scores")),
                 most = (size_t)w->n_row * (size_t)(w->samples.length + WNW_LOOK_ROOM);
    if (n == 0 || n > most)
        return wnw__calibrate_damaged(w->c, unit);
    float *scores = more_scores(w, (int32_t)n);
    if (!scores)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    if (!wnw__json_get_f32s(result, "scores", scores, (int32_t)n) ||
        !wnw__json_get_f64s(result, "within", h->within, N_RANKED) ||
        !wnw__json_get_f64s(result, "over_all", h->over_all, N_RANKED))
        return wnw__calibrate_damaged(w->c, unit);
    w->n_scores += (int64_t)n;
    return WNW_OK;
}

static int do_held_out(struct work *w)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "held-out piece of text %d", (int)w->i_text);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = w->samples.length, .run = run_held_out, .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const int rc = take_held_out(w, result, name);
    json_decref(result);
    return rc;
}

static int judge_gates(struct work *w)
{
    for (w->i_text = 0; w->i_text < w->samples.n_text; w->i_text++)
        if (w->samples.n_piece[w->i_text] > 1)
            WNW_TRY(do_held_out(w));
    if (w->n_scores > 0)
        qsort(w->scores, (size_t)w->n_scores, sizeof *w->scores, falling);
    for (int k = 0; k < N_TAU && w->n_scores > 0; k++)
        w->tau[k] = (double)w->scores[(int64_t)(kept[k] * (double)(w->n_scores - 1))];
    return WNW_OK;
}

/* ---- The results ---- */

static void tell_row(struct wnw__calibrate_text *out, const char *name, const char *where, const double *x)
{
    wnw__calibrate_print(out, "%-20.20s  %-13s", name, where);
    for (int k = 0; k < N_RANKED; k++)
        wnw__calibrate_print(out, "  %7.3f", x[k]);
    wnw__calibrate_print(out, "\n");
}

static void tell(const struct work *w, struct wnw__calibrate_text *out, int64_t entries)
{
    bool any = false;
    wnw__calibrate_print(out, "gates from kvzip: %lld entries of each of %d heads, %d numbers an entry\n",
                         (long long)entries, (int)w->n_row, (int)w->n_feature);
    for (int32_t i = 0; i < w->samples.n_text; i++) {
        if (w->samples.n_piece[i] < 2)
            continue;
        if (!any)
            wnw__calibrate_print(
                out,
                "rank correlation with kvzip's scores, last piece of each text:\n%-35s  %7s  "
                "%7s  %7s  %7s  %7s\n",
                "", "gate", "lk", "keydiff", "ea", "lev");
        any = true;
        tell_row(out, w->c->params.texts[i].name, "in a head", w->held_out[i].within);
        tell_row(out, "", "over all", w->held_out[i].over_all);
    }
    for (int k = 0; any && k < N_TAU; k++)
        wnw__calibrate_print(out, "threshold that keeps %.4g %%: tau=%.3f\n", 100 * kept[k], w->tau[k]);
    if (!any)
        wnw__calibrate_print(out, "no text has a second piece; nothing was held out to compare with\n");
}

/* x[n_row][n] as [n_layer][n_head_kv][n] of all layers, zeros in those that policies leave alone; n 0: [n_layer]
 * [n_head_kv] of x[n_row]. */
static json_t *all_layers(const struct work *w, const float *x, int32_t n)
{
    const int32_t n_layer = w->c->info.n_layer, n_head = w->c->info.n_head_kv, each = n > 0 ? n : 1;
    float *rows = calloc((size_t)n_layer * (size_t)n_head * (size_t)each, sizeof *rows);
    json_t *a = json_array();
    for (int32_t i = 0; rows && i < w->n_layer; i++)
        memcpy(rows + (int64_t)w->il[i] * n_head * each, x + (int64_t)i * n_head * each,
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

static int finish(struct work *w)
{
    const int64_t entries = w->fit.n[0];
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(w->c, "report", &out));
    tell(w, out, entries);
    json_t *more = json_pack("{s:I}", "entries", (json_int_t)entries);
    json_t *results = json_pack("{s:o, s:o, s:o}", "weight", all_layers(w, w->weight, w->n_feature), "bias",
                                all_layers(w, w->bias, 0), "thresholds", wnw__json_f64s(w->tau, N_TAU));
    return wnw__calibrate_profile(w->c, "gate.json", "gate", more, results);
}

/* ---- The run ---- */

static int set_length(const struct work *w, int32_t *length)
{
    int32_t most;
    WNW_TRY(wnw__look_fits(&most, w->c, w->o->length));
    *length = w->o->length > 0 ? w->o->length : most < 1000 ? most : 1000;
    return WNW_OK;
}

static json_t *feature_names(const struct work *w)
{
    json_t *a = json_array();
    for (int i = w->o->features == FEATURES_ALL ? 0 : 2; a && wnw__gate_features[i]; i++)
        if (json_array_append_new(a, json_string(wnw__gate_features[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static int note_settings(struct work *w, int32_t n_piece)
{
    WNW_TRY(wnw__calibrate_set(w->c, "pieces", json_integer(n_piece)));
    WNW_TRY(wnw__calibrate_set(w->c, "length", json_integer(w->samples.length)));
    WNW_TRY(wnw__calibrate_set(w->c, "features", feature_names(w)));
    WNW_TRY(wnw__calibrate_set(w->c, "target", json_string("kvzip")));
    WNW_TRY(wnw__calibrate_set(w->c, "epsilon", json_real(EPSILON)));
    WNW_TRY(wnw__calibrate_set(w->c, "lambda", json_real(LAMBDA)));
    return wnw__calibrate_set(w->c, "n_future", json_integer(WNW_GATE_FUTURE));
}

static int prepare(struct work *w)
{
    int32_t length = 0;
    const int32_t n_piece = wnw__effort_value(w->c, w->o->pieces, (struct wnw__by_effort){7, 4, 13});
    WNW_TRY(wnw__looked_layers(&w->il, &w->n_layer, w->c));
    WNW_TRY(set_length(w, &length));
    WNW_TRY(wnw__samples_cut(&w->samples, w->c, length, 0, n_piece));
    WNW_TRY(wnw_policy_parse(&w->target, "kvzip", NULL));
    WNW_TRY(wnw_policy_parse(&w->reader, "expected_attention", NULL));
    WNW_TRY(note_settings(w, n_piece));
    w->n_row = w->n_layer * w->c->info.n_head_kv;
    w->n_feature = w->o->features == FEATURES_ALL ? wnw__gate_all(w->c->info.n_embd_head) : WNW_GATE_SCALARS;
    w->weight = calloc((size_t)w->n_row * (size_t)w->n_feature, sizeof *w->weight);
    w->bias = calloc((size_t)w->n_row, sizeof *w->bias);
    w->held_out = calloc((size_t)w->samples.n_text, sizeof *w->held_out);
    if (w->weight && w->bias && w->held_out)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the gates of %d heads", (int)w->n_row);
}

static int work(struct work *w)
{
    int64_t total = 0;
    WNW_TRY(prepare(w));
    for (int32_t i = 0; i < w->samples.n_text; i++)
        total += (int64_t)w->samples.n_piece[i] * w->samples.length;
    WNW_TRY(wnw__calibrate_begin(w->c, total));
    WNW_TRY(fit_gates(w));
    WNW_TRY(judge_gates(w));
    return finish(w);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts};
    const int rc = work(&w);
    wnw__gate_fit_free(&w.fit);
    wnw__samples_free(&w.samples);
    wnw_policy_free(w.target);
    wnw_policy_free(w.reader);
    free(w.il);
    free(w.weight);
    free(w.bias);
    free(w.held_out);
    free(w.scores);
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
