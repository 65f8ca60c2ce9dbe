/* SPDX-License-Identifier: MIT */
#include "calibrate/gates.h"

#include "base/json.h"
#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-6
#define LAMBDA  0.01

static const double kept[WNW_GATES_TAU] = {0.5, 0.25, 0.125, 0.0625};

/* True scores and what is ranked against them, of all heads of a held-out piece. */
struct wnw__ranked {
    double *y, *x[WNW_GATES_RANKED]; /* [n_row][n] */
    int32_t n;
    struct wnw__held_out out;
};

/* ---- The pieces and settings ---- */

/* Half of a text's tokens, but at most `most`, so that the text makes two pieces. One of them is held out. */
static int half_of(int32_t *half, const struct wnw__gates *g, const wnw_calibration_text *t, int32_t most)
{
    int32_t *tokens, n;
    size_t len;
    *half = most;
    if (wnw_text_exceeds(g->c->m, t->text, t->len, 2 * most, &len))
        return WNW_OK;
    WNW_TRY(wnw_tokenize(g->c->m, t->text, t->len, false, false, &tokens, &n));
    wnw_free(tokens);
    *half = n / 2 < most ? n / 2 : most;
    return WNW_OK;
}

/* A piece and its second reading must fit the model's context; where nobody says how long pieces are, each text makes two of them if it
 * can with FEWEST tokens or more. */
static int set_length(const struct wnw__gates *g, int32_t *length)
{
    enum { FEWEST = 1000 };
    int32_t most, half;
    WNW_TRY(wnw__look_fits(&most, g->c, g->o->length));
    *length = most < g->length ? most : g->length;
    if (g->o->length > 0)
        *length = g->o->length;
    for (int32_t i = 0; g->o->length == 0 && *length > FEWEST && i < g->c->params.n_texts; i++) {
        WNW_TRY(half_of(&half, g, &g->c->params.texts[i], *length));
        *length = half > FEWEST ? half : FEWEST;
    }
    return WNW_OK;
}

int wnw__gates_prepare(struct wnw__gates *g)
{
    int32_t length = 0;
    const int32_t n_piece = wnw__effort_value(g->c, g->o->pieces, g->pieces);
    WNW_TRY(wnw__looked_layers(&g->il, &g->n_layer, g->c));
    WNW_TRY(set_length(g, &length));
    WNW_TRY(wnw__samples_cut(&g->samples, g->c, length, 0, n_piece));
    WNW_TRY(wnw_policy_parse(&g->policies[0], g->target, NULL));
    if (g->reader)
        WNW_TRY(wnw_policy_parse(&g->policies[1], g->reader, NULL));
    g->n_row = g->n_layer * g->c->info.n_head_kv;
    g->weight = calloc((size_t)g->n_row * (size_t)g->n_feature, sizeof *g->weight);
    g->bias = calloc((size_t)g->n_row, sizeof *g->bias);
    g->held_out = calloc((size_t)g->samples.n_text, sizeof *g->held_out);
    if (!g->weight || !g->bias || !g->held_out)
        return wnw__fail(WNW_E_NOMEM, "no memory for the gates of %d heads", (int)g->n_row);
    WNW_TRY(wnw__calibrate_set(g->c, "pieces", json_integer(n_piece)));
    return wnw__calibrate_set(g->c, "length", json_integer(length));
}

int wnw__gates_note_fit(struct wnw__gates *g)
{
    WNW_TRY(wnw__calibrate_set(g->c, "target", json_string(g->target)));
    WNW_TRY(wnw__calibrate_set(g->c, "epsilon", json_real(EPSILON)));
    return wnw__calibrate_set(g->c, "lambda", json_real(LAMBDA));
}

/* ---- A piece ---- */

/* Reads the current piece. */
static int look(struct wnw__gates *g, struct wnw__looked *l)
{
    const wnw_policy *policies[] = {g->policies[0], g->policies[1]};
    *l = (struct wnw__looked){
        .il = g->il, .n_layer = g->n_layer, .n_head_kv = g->c->info.n_head_kv, .record = g->record};
    return wnw__look(l, g->c, policies, g->reader ? 2 : 1,
                     wnw__samples_piece(&g->samples, g->i_text, g->i_piece), g->samples.length);
}

static int see_layers(struct wnw__gates *g, struct wnw__looked *l)
{
    int rc = WNW_OK;
    g->y = malloc((size_t)g->n_target * (size_t)l->n * sizeof *g->y);
    if (!g->y)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d entries", (int)l->n);
    for (int32_t i = 0; rc == WNW_OK && i < g->n_layer; i++)
        rc = g->see(g, l, i);
    free(g->y);
    g->y = NULL;
    return rc;
}

/* The prediction of a row from features f[n_feature]. */
static double predict(const struct wnw__gates *g, int32_t row, const float *f)
{
    const float *w = g->weight + (int64_t)row * g->n_feature;
    double sum = (double)g->bias[row];
    for (int32_t c = 0; c < g->n_feature; c++)
        sum += (double)w[c] * (double)f[c];
    return sum;
}

static int rank_head(struct wnw__gates *g, int32_t row, const float *f, const double *y, int32_t n)
{
    struct wnw__ranked *to = g->ranked;
    const int64_t at = (int64_t)row * n;
    to->n = n;
    for (int32_t i = 0; i < n; i++) {
        const float *of = f + (int64_t)i * g->n_feature;
        to->y[at + i] = y[i];
        to->x[0][at + i] = predict(g, row, of);
        for (int32_t k = 1; k < g->n_ranked; k++)
            to->x[k][at + i] = (double)of[g->n_feature - g->n_ranked + k];
    }
    for (int32_t k = 0; k < g->n_ranked; k++) {
        double rho;
        WNW_TRY(wnw__rank_correlation(&rho, to->x[k] + at, to->y + at, n));
        to->out.within[k] += rho / g->n_row;
    }
    return WNW_OK;
}

int wnw__gates_take(struct wnw__gates *g, const struct wnw__looked *l, int32_t i_layer, int32_t i, float *f)
{
    const int32_t n = l->n, first = i_layer * l->n_head_kv + i * g->n_target;
    for (int64_t k = 0; k < (int64_t)g->n_target * n; k++)
        g->y[k] = log((double)l->score[(int64_t)first * n + k] + EPSILON);
    if (!g->ranked)
        wnw__gate_fit_add(&g->fit, first / g->n_target, f, g->y, n);
    for (int32_t k = 0; g->ranked && k < g->n_target; k++)
        WNW_TRY(rank_head(g, first + k, f, g->y + (int64_t)k * n, n));
    return WNW_OK;
}

/* ---- Learning ---- */

/* A piece that is learned from, while its unit is asked for. */
struct lesson {
    struct wnw__gates *g;
    bool is_learned; /* in this run of the program: it was not remembered */
};

/* Reads a piece and scores it. The caller frees l in any case. */
static int score_piece(struct wnw__gates *g, struct wnw__looked *l)
{
    WNW_TRY(look(g, l));
    WNW_TRY(wnw__look_score(l, g->policies[0]));
    return see_layers(g, l);
}

static int run_lesson(wnw_calibration *c, void *user, json_t **result)
{
    struct lesson *lesson = user;
    struct wnw__gates *g = lesson->g;
    struct wnw__looked l;
    (void)c;
    const int rc = score_piece(g, &l);
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "scores", wnw__json_f32s(l.score, g->n_row * l.n));
    lesson->is_learned = rc == WNW_OK;
    wnw__looked_free(&l);
    return rc; /* NULL = no memory */
}

static int see_again(struct wnw__gates *g, struct wnw__looked *l, const json_t *result, const char *unit)
{
    WNW_TRY(look(g, l));
    const int32_t n = g->n_row * l->n;
    l->score = malloc((size_t)n * sizeof *l->score);
    if (!l->score)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d entries", (int)l->n);
    if (!wnw__json_get_f32s(result, "scores", l->score, n))
        return wnw__calibrate_damaged(g->c, unit);
    return see_layers(g, l);
}

/* Reads a piece whose scores are remembered, once. */
static int learn_again(struct wnw__gates *g, const json_t *result, const char *unit)
{
    struct wnw__looked l;
    g->c->what = unit;
    const int rc = see_again(g, &l, result, unit);
    wnw__looked_free(&l);
    g->c->what = NULL;
    return rc;
}

static int learn_piece(struct wnw__gates *g)
{
    char name[64];
    json_t *result;
    struct lesson lesson = {.g = g};
    snprintf(name, sizeof name, "piece %d of text %d", (int)g->i_piece + 1, (int)g->i_text + 1);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = g->samples.length, .run = run_lesson, .user = &lesson};
    WNW_TRY(wnw__calibrate_unit(g->c, &unit, &result));
    const int rc = lesson.is_learned ? WNW_OK : learn_again(g, result, name);
    json_decref(result);
    return rc;
}

/* The pieces of a text that are learned from: all but the last, or the only one. */
static int32_t n_learned(const struct wnw__gates *g, int32_t i_text)
{
    const int32_t n = g->samples.n_piece[i_text];
    return n > 1 ? n - 1 : 1;
}

static int learn(struct wnw__gates *g)
{
    const int32_t p = g->n_feature, n_target = g->n_target;
    WNW_TRY(wnw__gate_fit_new(&g->fit, g->n_row / n_target, p, n_target));
    for (g->i_text = 0; g->i_text < g->samples.n_text; g->i_text++)
        for (g->i_piece = 0; g->i_piece < n_learned(g, g->i_text); g->i_piece++)
            WNW_TRY(learn_piece(g));
    for (int32_t r = 0; r < g->fit.n_row; r++)
        WNW_TRY(wnw__gate_fit_solve(&g->fit, r, LAMBDA, g->weight + (int64_t)r * n_target * p,
                                    g->bias + (int64_t)r * n_target));
    return WNW_OK;
}

/* ---- Judging ---- */

static int rank_piece(struct wnw__gates *g, struct wnw__ranked *to)
{
    const size_t n = (size_t)g->n_row * (size_t)(g->samples.length + WNW_LOOK_ROOM);
    struct wnw__looked l;
    bool good = (to->y = calloc(n, sizeof *to->y)) != NULL;
    for (int32_t k = 0; k < g->n_ranked; k++)
        good = (to->x[k] = calloc(n, sizeof *to->y)) != NULL && good;
    if (!good)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    const int rc = score_piece(g, &l);
    wnw__looked_free(&l);
    WNW_TRY(rc);
    for (int32_t k = 0; k < g->n_ranked; k++)
        WNW_TRY(wnw__rank_correlation(&to->out.over_all[k], to->x[k], to->y, g->n_row * to->n));
    return WNW_OK;
}

static int run_held_out(wnw_calibration *c, void *user, json_t **result)
{
    struct wnw__gates *g = user;
    struct wnw__ranked r = {0};
    (void)c;
    g->ranked = &r;
    const int rc = rank_piece(g, &r);
    g->ranked = NULL;
    if (rc == WNW_OK)
        *result = json_pack("{s:o, s:o, s:o}", "within", wnw__json_f64s(r.out.within, g->n_ranked),
                            "over_all", wnw__json_f64s(r.out.over_all, g->n_ranked), "scores",
                            wnw__json_f64s(r.x[0], g->n_row * r.n));
    free(r.y);
    for (int32_t k = 0; k < g->n_ranked; k++)
        free(r.x[k]);
    return rc; /* NULL = no memory */
}

static int take_held_out(struct wnw__gates *g, const json_t *result, const char *unit)
{
    struct wnw__held_out *h = &g->held_out[g->i_text];
    const size_t n = json_array_size(json_object_get(result, "scores")),
                 most = (size_t)g->n_row * (size_t)(g->samples.length + WNW_LOOK_ROOM);
    if (n == 0 || n > most)
        return wnw__calibrate_damaged(g->c, unit);
    double *scores = realloc(g->scores, ((size_t)g->n_scores + n) * sizeof *scores);
    if (!scores)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    g->scores = scores;
    if (!wnw__json_get_f64s(result, "scores", scores + g->n_scores, (int32_t)n) ||
        !wnw__json_get_f64s(result, "within", h->within, g->n_ranked) ||
        !wnw__json_get_f64s(result, "over_all", h->over_all, g->n_ranked))
        return wnw__calibrate_damaged(g->c, unit);
    g->n_scores += (int64_t)n;
    return WNW_OK;
}

static int judge_piece(struct wnw__gates *g)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "held-out piece of text %d", (int)g->i_text + 1);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = g->samples.length, .run = run_held_out, .user = g};
    WNW_TRY(wnw__calibrate_unit(g->c, &unit, &result));
    const int rc = take_held_out(g, result, name);
    json_decref(result);
    return rc;
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static int judge(struct wnw__gates *g)
{
    for (g->i_text = 0; g->i_text < g->samples.n_text; g->i_text++) {
        g->i_piece = g->samples.n_piece[g->i_text] - 1;
        if (g->i_piece > 0)
            WNW_TRY(judge_piece(g));
    }
    if (g->n_scores > 0)
        qsort(g->scores, (size_t)g->n_scores, sizeof *g->scores, falling);
    for (int k = 0; k < WNW_GATES_TAU && g->n_scores > 0; k++)
        g->tau[k] = g->scores[(int64_t)(kept[k] * (double)(g->n_scores - 1))];
    return WNW_OK;
}

/* ---- The work ---- */

int wnw__gates_run(struct wnw__gates *g)
{
    WNW_TRY(wnw__calibrate_begin(g->c, (int64_t)wnw__samples_n(&g->samples) * g->samples.length));
    WNW_TRY(learn(g));
    return judge(g);
}

void wnw__gates_free(struct wnw__gates *g)
{
    wnw__gate_fit_free(&g->fit);
    wnw__samples_free(&g->samples);
    wnw_policy_free(g->policies[0]);
    wnw_policy_free(g->policies[1]);
    free(g->il);
    free(g->weight);
    free(g->bias);
    free(g->held_out);
    free(g->scores);
}

static json_t *by_name(const struct wnw__gates *g, const double *rho)
{
    json_t *o = json_object();
    bool good = o != NULL;
    for (int32_t k = 0; k < g->n_ranked; k++)
        good = good && json_object_set_new(o, g->ranked_by[k], json_real(rho[k])) == 0;
    if (good)
        return o;
    json_decref(o);
    return NULL;
}

json_t *wnw__gates_held_out(const struct wnw__gates *g)
{
    json_t *a = json_array();
    bool good = a != NULL;
    for (int32_t i = 0; i < g->samples.n_text; i++) {
        const struct wnw__held_out *h = &g->held_out[i];
        if (g->samples.n_piece[i] > 1)
            good = good && json_array_append_new(
                               a, json_pack("{s:s, s:o, s:o}", "text", g->c->params.texts[i].name, "within",
                                            by_name(g, h->within), "over_all", by_name(g, h->over_all))) == 0;
    }
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

int64_t wnw__gates_entries(const struct wnw__gates *g)
{
    return g->fit.n[0];
}

void wnw__gates_tell(const struct wnw__gates *g, struct wnw__calibrate_text *out, const char *columns,
                     wnw__gates_row *row)
{
    if (g->n_scores == 0) {
        wnw__calibrate_print(out, "no text has a second piece; nothing was held out to compare with\n");
        return;
    }
    wnw__calibrate_print(out, "rank correlation with %s's scores, last piece of each text:\n%s\n", g->target,
                         columns);
    for (int32_t i = 0; i < g->samples.n_text; i++)
        if (g->samples.n_piece[i] > 1)
            row(out, g->c->params.texts[i].name, &g->held_out[i]);
    for (int k = 0; k < WNW_GATES_TAU; k++)
        wnw__calibrate_print(out, "threshold that keeps %.4g %%: tau=%.3f\n", 100 * kept[k], g->tau[k]);
}
