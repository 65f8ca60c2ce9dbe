/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states: for every KV head a linear form of what its layer's attention reads of a token, x, the hidden
 * state behind the norm in front of it, that predicts the score of a method that reads twice. As KVzap's linear ones
 * (arXiv 2601.07891), but fitted in closed form (gate_fit.h). The model reads pieces of text and repeats them; with Z the
 * target's scores of the entries after the chat header, y = log(Z + 1e-6), means over a piece taken off x and y, and
 *
 *     w = D^-1 (D^-1 G D^-1 + lambda I)^-1 D^-1 r,   b = mean y - w . mean x          lambda = 0.01
 *
 * with G = sum x x^T / N of the layer and r = sum x y / N of each of its heads. Nothing is random. The last piece of every
 * text is not learned from; on these the report compares predicted with true scores. All of it is one unit of work, because
 * sums of squares of all layers are far more than a line of a journal: a run that is interrupted begins again.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/gate_fit.h"
#include "calibrate/sample.h"
#include "calibrate/second_look.h"
#include "observe/recorders.h"
#include "observe/token_rows.h"
#include "profile/input_gate.h"
#include "profile/profile.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-6
#define LAMBDA  0.01

enum { TARGET_PLUS, TARGET_KVZIP };
static const char *const targets[] = {"kvzip_plus", "kvzip", NULL};
enum { N_TAU = 4 };
static const double kept[N_TAU] = {0.5, 0.25, 0.125, 0.0625};

struct opts {
    int32_t target, pieces, length;
};

/* Rank correlations of a held-out piece: the mean over heads of those inside a head, and over all heads. */
struct held_out {
    double within, over_all;
};

struct job {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *target;
    struct wnw__samples samples;
    int32_t *il, n_layer, n_row; /* layers and KV heads that take part */
    struct wnw__gate_fit fit;
    struct wnw__input_gate gate;
    struct held_out *held_out; /* [n_text], zeros where a text has one piece alone */
    double tau[N_TAU];
    double *scores; /* predicted, of all held-out entries */
    int64_t n_scores;
    int64_t done, total; /* tokens */
};

/* ---- A piece ---- */

/* What is known of a piece's layer: hidden states x[n][n_embd] and targets y[n_head_kv][n]. */
struct seen {
    float *x;
    double *y;
    int32_t n;
};

typedef int visit_fn(struct job *j, int32_t i_layer, struct seen *seen, void *user);

static int visit_layers(struct job *j, const struct wnw__looked *l, visit_fn *visit, void *user)
{
    const size_t n_embd = (size_t)j->gate.n_embd, n = (size_t)l->n, n_head = (size_t)l->n_head_kv;
    const struct wnw__token_rows *inputs = wnw__recorders_find(&l->s->recorders, &wnw__inputs_recorder);
    struct seen seen = {
        .n = l->n, .x = malloc(n * n_embd * sizeof *seen.x), .y = malloc(n * n_head * sizeof *seen.y)};
    int rc = seen.x && seen.y
                 ? WNW_OK
                 : wnw__fail(WNW_E_NOMEM, "no memory for the hidden states of %d tokens", (int)l->n);
    for (int32_t k = 0; rc == WNW_OK && k < j->n_layer; k++) {
        const struct wnw__token_rows_layer *of = &inputs->layers[j->il[k]];
        if (of->n != l->n_first + l->n) {
            rc = wnw__fail(WNW_E_NOT_OBSERVED, "hidden states of %d tokens, not %d", (int)of->n,
                           (int)(l->n_first + l->n));
            break;
        }
        memcpy(seen.x, of->q + (size_t)l->n_first * n_embd, n * n_embd * sizeof *seen.x);
        for (size_t i = 0; i < n * n_head; i++)
            seen.y[i] = log((double)l->score[(size_t)k * n * n_head + i] + EPSILON);
        rc = visit(j, k, &seen, user);
    }
    free(seen.x);
    free(seen.y);
    return rc;
}

/* Reads piece i of a text, twice, and visits all of its layers. */
static int visit_piece(struct job *j, int32_t i_text, int32_t i, visit_fn *visit, void *user)
{
    const int32_t length = j->samples.length;
    const wnw_policy *policy = j->target;
    struct wnw__looked l = {.il = j->il,
                            .n_layer = j->n_layer,
                            .n_head_kv = j->c->info.n_head_kv,
                            .record = wnw__inputs_recorder.name};
    wnw__calibrate_progress_in(j->c, (double)j->done / (double)j->total, (double)length / (double)j->total);
    int rc = wnw__look_again(&l, j->c, &policy, 1, wnw__samples_piece(&j->samples, i_text, i), length);
    if (rc == WNW_OK)
        rc = visit_layers(j, &l, visit, user);
    wnw__looked_free(&l);
    j->done += length;
    return rc;
}

/* ---- Learning ---- */

static int learn(struct job *j, int32_t i_layer, struct seen *seen, void *user)
{
    (void)user;
    wnw__gate_fit_add(&j->fit, i_layer, seen->x, seen->y, seen->n);
    return WNW_OK;
}

/* The pieces of a text that are learned from: all but the last, or the only one. */
static int32_t n_learned(const struct job *j, int32_t i_text)
{
    const int32_t n = j->samples.n_piece[i_text];
    return n > 1 ? n - 1 : 1;
}

/* The numbers of the i-th layer that takes part: weights [n_head_kv][n_embd] and biases [n_head_kv]. */
static float *numbers_of(const struct job *j, int32_t i)
{
    return j->gate.number + j->il[i] * wnw__input_numbers(&j->gate, &j->c->shape);
}

static int fit_gates(struct job *j)
{
    const int32_t n_head = j->c->info.n_head_kv;
    WNW_TRY(wnw__gate_fit_new(&j->fit, j->n_layer, j->gate.n_embd, n_head));
    for (int32_t i = 0; i < j->samples.n_text; i++)
        for (int32_t k = 0; k < n_learned(j, i); k++)
            WNW_TRY(visit_piece(j, i, k, learn, NULL));
    for (int32_t i = 0; i < j->n_layer; i++) {
        float *w = numbers_of(j, i);
        WNW_TRY(wnw__gate_fit_solve(&j->fit, i, LAMBDA, w, w + (int64_t)n_head * j->gate.n_embd));
        j->gate.there[j->il[i]] = true;
    }
    return WNW_OK;
}

/* ---- Judging ---- */

/* True and predicted scores of all heads of a piece. */
struct ranked {
    double *y, *x; /* [n_row][n] */
    int32_t n;
    struct held_out *out;
};

static int judge_layer(struct job *j, int32_t i_layer, struct seen *seen, void *user)
{
    struct ranked *to = user;
    const int32_t n_head = j->c->info.n_head_kv, p = j->gate.n_embd, n = seen->n;
    const float *w = numbers_of(j, i_layer), *b = w + (int64_t)n_head * p;
    to->n = n;
    for (int32_t ih = 0; ih < n_head; ih++) {
        const int64_t at = ((int64_t)i_layer * n_head + ih) * n;
        double rho;
        for (int32_t i = 0; i < n; i++) {
            double sum = (double)b[ih];
            for (int32_t c = 0; c < p; c++)
                sum += (double)w[(int64_t)ih * p + c] * (double)seen->x[(int64_t)i * p + c];
            to->x[at + i] = sum;
        }
        memcpy(to->y + at, seen->y + (int64_t)ih * n, (size_t)n * sizeof *to->y);
        WNW_TRY(wnw__rank_correlation(&rho, to->x + at, to->y + at, n));
        to->out->within += rho / j->n_row;
    }
    return WNW_OK;
}

static int judge_piece(struct job *j, int32_t i_text, struct ranked *to)
{
    const size_t most = (size_t)j->samples.length + WNW_LOOK_ROOM, n = (size_t)j->n_row * most;
    to->y = calloc(n, sizeof *to->y);
    to->x = calloc(n, sizeof *to->x);
    if (!to->y || !to->x)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu entries", n);
    WNW_TRY(visit_piece(j, i_text, j->samples.n_piece[i_text] - 1, judge_layer, to));
    const int32_t n_all = j->n_row * to->n;
    WNW_TRY(wnw__rank_correlation(&to->out->over_all, to->x, to->y, n_all));
    double *scores = realloc(j->scores, (size_t)(j->n_scores + n_all) * sizeof *scores);
    if (!scores)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d entries", (int)n_all);
    memcpy(scores + j->n_scores, to->x, (size_t)n_all * sizeof *scores);
    j->scores = scores;
    j->n_scores += n_all;
    return WNW_OK;
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static int judge_gates(struct job *j)
{
    for (int32_t i = 0; i < j->samples.n_text; i++) {
        struct ranked r = {.out = &j->held_out[i]};
        if (j->samples.n_piece[i] < 2)
            continue;
        const int rc = judge_piece(j, i, &r);
        free(r.y);
        free(r.x);
        if (rc != WNW_OK)
            return rc;
    }
    if (j->n_scores > 0)
        qsort(j->scores, (size_t)j->n_scores, sizeof *j->scores, falling);
    for (int k = 0; k < N_TAU && j->n_scores > 0; k++)
        j->tau[k] = j->scores[(int64_t)(kept[k] * (double)(j->n_scores - 1))];
    return WNW_OK;
}

/* ---- The unit of work ---- */

static json_t *judged_lists(const struct job *j)
{
    json_t *a = json_array();
    bool good = a != NULL;
    for (int32_t i = 0; good && i < j->samples.n_text; i++) {
        const double x[] = {j->held_out[i].within, j->held_out[i].over_all};
        good = json_array_append_new(a, wnw__json_f64s(x, 2)) == 0;
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
    wnw__calibrate_progress_in(c, 0, 1);
    *result = json_pack("{s:I, s:o, s:o, s:o}", "entries", (json_int_t)j->fit.n[0], "layers",
                        wnw__profile_input_layers(&j->gate, &c->shape), "thresholds",
                        wnw__json_f64s(j->tau, N_TAU), "held_out", judged_lists(j));
    return WNW_OK; /* NULL = no memory */
}

static bool read_unit(struct job *j, const json_t *result, int64_t *entries)
{
    const json_t *n = json_object_get(result, "entries"), *texts = json_object_get(result, "held_out");
    double x[2] = {0};
    *entries = json_is_integer(n) ? json_integer_value(n) : 0;
    bool good = *entries > 0 && json_array_size(texts) == (size_t)j->samples.n_text &&
                json_array_size(json_object_get(result, "layers")) == (size_t)j->c->info.n_layer &&
                wnw__json_get_f64s(result, "thresholds", j->tau, N_TAU);
    for (int32_t i = 0; good && i < j->samples.n_text; i++) {
        const json_t *of = json_array_get(texts, (size_t)i);
        good = json_array_size(of) == 2;
        for (size_t k = 0; good && k < 2; k++) {
            good = json_is_number(json_array_get(of, k));
            x[k] = json_number_value(json_array_get(of, k));
        }
        j->held_out[i] = (struct held_out){.within = x[0], .over_all = x[1]};
    }
    return good;
}

/* ---- The results ---- */

static void tell(const struct job *j, struct wnw__calibrate_text *out, int64_t entries)
{
    bool any = false;
    wnw__calibrate_print(
        out, "gates on hidden states from %s: %lld entries of each of %d heads, %d numbers an entry\n",
        targets[j->o->target], (long long)entries, (int)j->n_row, (int)j->gate.n_embd);
    for (int32_t i = 0; i < j->samples.n_text; i++) {
        if (j->samples.n_piece[i] < 2)
            continue;
        if (!any)
            wnw__calibrate_print(
                out, "rank correlation with %s's scores, last piece of each text:\n%-20s  %9s  %9s\n",
                targets[j->o->target], "", "in a head", "over all");
        any = true;
        wnw__calibrate_print(out, "%-20.20s  %9.3f  %9.3f\n", j->c->params.texts[i].name,
                             j->held_out[i].within, j->held_out[i].over_all);
    }
    for (int k = 0; any && k < N_TAU; k++)
        wnw__calibrate_print(out, "threshold that keeps %.4g %%: tau=%.3f\n", 100 * kept[k], j->tau[k]);
    if (!any)
        wnw__calibrate_print(out, "no text has a second piece; nothing was held out to compare with\n");
}

static int finish(struct job *j, const json_t *result, int64_t entries)
{
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(j->c, "report", &out));
    tell(j, out, entries);
    json_t *more = json_pack("{s:I}", "entries", (json_int_t)entries);
    json_t *results = json_pack("{s:O, s:o}", "layers", json_object_get(result, "layers"), "thresholds",
                                wnw__json_f64s(j->tau, N_TAU));
    return wnw__calibrate_profile(j->c, "inputgate.json", "inputgate", more, results);
}

/* ---- The run ---- */

/* Decides on the length of pieces: a piece and its second reading must fit the model's context. */
static int set_length(const struct job *j, int32_t *length)
{
    int32_t most;
    WNW_TRY(wnw__look_fits(&most, j->c, j->o->length));
    *length = j->o->length > 0 ? j->o->length : most < 1000 ? most : 1000;
    return WNW_OK;
}

static int note_settings(struct job *j, int32_t n_piece)
{
    WNW_TRY(wnw__calibrate_set(j->c, "pieces", json_integer(n_piece)));
    WNW_TRY(wnw__calibrate_set(j->c, "length", json_integer(j->samples.length)));
    WNW_TRY(wnw__calibrate_set(j->c, "target", json_string(targets[j->o->target])));
    WNW_TRY(wnw__calibrate_set(j->c, "epsilon", json_real(EPSILON)));
    WNW_TRY(wnw__calibrate_set(j->c, "lambda", json_real(LAMBDA)));
    if (wnw__profile_input_settings(&j->gate, j->c->settings))
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the settings of gates");
}

static int prepare(struct job *j)
{
    int32_t length = 0;
    const int32_t n_piece = wnw__effort_value(j->c, j->o->pieces, (struct wnw__by_effort){7, 4, 13});
    j->gate = (struct wnw__input_gate){.form = WNW_INPUT_LINEAR, .n_embd = j->c->info.n_embd};
    WNW_TRY(wnw__looked_layers(&j->il, &j->n_layer, j->c));
    WNW_TRY(set_length(j, &length));
    WNW_TRY(wnw__samples_cut(&j->samples, j->c, length, 0, n_piece));
    WNW_TRY(wnw_policy_parse(&j->target, targets[j->o->target], NULL));
    WNW_TRY(note_settings(j, n_piece));
    WNW_TRY(wnw__input_gate_new(&j->gate, &j->c->shape));
    j->n_row = j->n_layer * j->c->info.n_head_kv;
    j->held_out = calloc((size_t)j->samples.n_text, sizeof *j->held_out);
    return j->held_out ? WNW_OK
                       : wnw__fail(WNW_E_NOMEM, "no memory for a report of %d texts", (int)j->samples.n_text);
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
    const int rc =
        read_unit(j, result, &entries) ? finish(j, result, entries) : wnw__calibrate_damaged(j->c, unit.name);
    json_decref(result);
    return rc;
}

static int run(wnw_calibration *c, const void *opts)
{
    struct job j = {.c = c, .o = opts};
    const int rc = work(&j);
    wnw__gate_fit_free(&j.fit);
    wnw__input_gate_free(&j.gate);
    wnw__samples_free(&j.samples);
    wnw_policy_free(j.target);
    free(j.il);
    free(j.held_out);
    free(j.scores);
    return rc;
}

static const wnw_option options[] = {
    {.name = "target",
     .help = "whose scores are predicted",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, target),
     .def = TARGET_PLUS,
     .choices = targets},
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

const struct wnw__calibrate_type wnw__calibrate_inputgate = {
    .name = "inputgate",
    .about = "A linear form of hidden states for every KV head that predicts the scores of KVzip+ or KVzip, "
             "for the "
             "scorer inputgate.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
