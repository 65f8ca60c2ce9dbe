/* SPDX-License-Identifier: MIT */
/*
 * Kind "gradient": how much the model's last hidden states depend on the residual stream after each layer, while a text is
 * repeated. For KVgrad (openreview cg1wTCJjjk), which weighs an entry's attention and value by the gradient of
 *
 *     Phi = sum over tokens p of the repeat of ||h_p||^2, where h_p is the hidden state after the last layer.
 *
 * The paper has that gradient by a backward pass, for each prompt, token and layer. Here it is one factor for each layer,
 * measured once on calibration texts without a backward pass. Let x be the rows [n][n_embd] after layer l, eps a step, and
 * u signs drawn at random. Then
 *
 *     D = (Phi(x + eps u) - Phi(x - eps u)) / (2 eps), and the mean of D^2 over u is the sum over p of ||grad_p Phi||^2.
 *     g(l) = the root of the mean of D^2 / n over draws and pieces; g of the last layer is 2 ||h_p||, exactly.
 *
 * The profile has g divided by its mean over the layers. The paper takes the stream inside a layer, between attention and
 * MLP. The stream after the layer is what a batch can be started from. A step is a share of the mean absolute value of x:
 * rounding drowns a small one, and a large one is no gradient.
 *
 * A unit of work is a piece: it is read, then read once more layer by layer, then from each layer on 2 x draws times. Cost:
 * draws x n_layer times a prefill of the piece.
 */
#include "base/json.h"
#include "base/random.h"
#include "cache/cache.h"
#include "calibrate/calibrate.h"
#include "calibrate/sample.h"
#include "session/session.h"
#include "session/timeline/feed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 512 }; /* of a piece: those of one batch */

struct opts {
    int32_t pieces, length, draws;
    double step;
};

struct work {
    wnw_calibration *c;
    const struct opts *o;
    struct wnw__samples samples;
    int32_t length, draws;
    int32_t i_text, i_piece; /* the current piece */
    double *square;          /* [n_layer] g^2 of the current piece */
    double *sum[2];          /* [n_layer] of pieces with an even and an odd number */
    int32_t n[2];
};

/* ---- The length of the last hidden states, as a recorder sees it ---- */

struct ends {
    int32_t n_layer, n_embd;
    double phi; /* of the last pass */
};

static int open_ends(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    struct ends *e = *rec = calloc(1, sizeof *e);
    if (!e)
        return wnw__fail(WNW_E_NOMEM, "no memory for the lengths of hidden states");
    *e = (struct ends){.n_layer = shape->model.n_layer, .n_embd = shape->n_embd};
    return WNW_OK;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    const struct ends *e = rec;
    (void)pass;
    return point == WNW_POINT_STATE && il == e->n_layer - 1;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    struct ends *e = rec;
    const size_t n = (size_t)r->pass->n * (size_t)e->n_embd;
    (void)nth;
    if (ith != 0)
        return;
    e->phi = 0;
    for (size_t i = 0; i < n; i++)
        e->phi += (double)r->q[i] * (double)r->q[i];
}

static const struct wnw__recorder_type ends_recorder = {
    .name = "ends", .open = open_ends, .free = free, .stages = stages, .take = take};

/* ---- One piece ---- */

/* A repeat of n tokens that a session has read. */
struct repeat {
    wnw_session *s;
    const int32_t *tokens; /* [n] */
    int32_t n;
    const struct ends *ends;
    float *x;     /* [n_layer][n][n_embd] what enters each layer; nothing of layer 0 */
    float *moved; /* [n][n_embd] */
};

static size_t row_floats(const struct repeat *r)
{
    return (size_t)r->n * (size_t)r->s->m->hp.n_embd;
}

/* Takes x[n][n_embd] through layers from .. to - 1. Entries of the repeat stay in these layers until forget(). */
static int pass(const struct repeat *r, int32_t from, int32_t to, float *x)
{
    return wnw__feed_span(r->s,
                          &(struct wnw__span){.from = from,
                                              .to = to,
                                              .tokens = r->tokens,
                                              .x = x,
                                              .n = r->n,
                                              .n_out = r->n}); /* all rows reach the end of the last layer */
}

static void forget(const struct repeat *r)
{
    wnw__cache_rewind(&r->s->cache, r->s->n_past);
}

/* Fills r->x, and r->ends with Phi. */
static int read_repeat(const struct repeat *r)
{
    const int32_t n_layer = r->s->m->hp.n_layer;
    const size_t row = row_floats(r);
    for (int32_t il = 0; il < n_layer; il++) {
        float *to = il + 1 < n_layer ? r->x + (size_t)(il + 1) * row : r->moved;
        if (il > 0)
            memcpy(to, r->x + (size_t)il * row, row * sizeof *to);
        WNW_TRY(pass(r, il, il + 1, to));
    }
    forget(r);
    return WNW_OK;
}

/* Sets *phi for what enters layer il, moved by `by` times the signs of the stream. */
static int phi_of(const struct repeat *r, int32_t il, uint64_t stream, double by, double *phi)
{
    const size_t row = row_floats(r);
    const float *x = r->x + (size_t)il * row;
    for (size_t i = 0; i < row; i++) {
        const bool up = wnw__mix(stream ^ i) >> 63;
        r->moved[i] = (float)((double)x[i] + (up ? by : -by));
    }
    WNW_TRY(pass(r, il, r->s->m->hp.n_layer, r->moved));
    forget(r);
    *phi = r->ends->phi;
    return WNW_OK;
}

static double mean_size(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum / (double)n;
}

/* Sets *square to the mean of D^2 / n after layer il - 1. */
static int measure_layer(const struct work *w, const struct repeat *r, int32_t il, double *square)
{
    const double eps = w->o->step * mean_size(r->x + (size_t)il * row_floats(r), row_floats(r));
    const uint64_t piece = (uint64_t)w->i_text << 32 | (uint32_t)w->i_piece;
    *square = 0;
    for (int32_t k = 0; k < w->draws; k++) {
        const uint64_t stream = wnw__mix(wnw__stream((int32_t)w->c->params.seed, il, k) ^ wnw__mix(piece));
        double up, down;
        WNW_TRY(phi_of(r, il, stream, eps, &up));
        WNW_TRY(phi_of(r, il, stream, -eps, &down));
        const double d = eps > 0 ? (up - down) / (2 * eps) : 0;
        *square += d * d / r->n / w->draws;
    }
    return WNW_OK;
}

static int measure(const struct work *w, struct repeat *r)
{
    const int32_t n_layer = r->s->m->hp.n_layer;
    WNW_TRY(read_repeat(r));
    w->square[n_layer - 1] = 4 * r->ends->phi / r->n;
    for (int32_t il = 1; il < n_layer; il++) {
        WNW_TRY(measure_layer(w, r, il, &w->square[il - 1]));
        WNW_TRY(wnw__calibrate_progress(w->c, (il + 1.0) / n_layer));
    }
    return WNW_OK;
}

/* A session that has read the piece and whose recorder sees the ends of what comes next. */
static int read_piece(const struct work *w, wnw_session **s, const int32_t *piece)
{
    const struct wnw__samples *of = &w->samples;
    WNW_TRY(wnw__calibrate_session(s, w->c, of->n_bos + 2 * w->length));
    (*s)->params.progress = NULL; /* layers tell */
    if (of->n_bos > 0)
        WNW_TRY(wnw_session_prefill(*s, of->bos, of->n_bos, NULL, NULL));
    WNW_TRY(wnw_session_prefill(*s, piece, w->length, NULL, NULL));
    return wnw__recorders_open(&(*s)->recorders, &ends_recorder, &(struct wnw__record_arg){0}, &(*s)->shape);
}

static int run_piece(wnw_calibration *c, void *user, json_t **result)
{
    const struct work *w = user;
    const int32_t n_layer = c->info.n_layer;
    struct repeat r = {.tokens = wnw__samples_piece(&w->samples, w->i_text, w->i_piece), .n = w->length};
    int rc = read_piece(w, &r.s, r.tokens);
    if (rc == WNW_OK) {
        r.ends = wnw__recorders_find(&r.s->recorders, &ends_recorder);
        r.x = malloc((size_t)n_layer * row_floats(&r) * sizeof *r.x);
        r.moved = malloc(row_floats(&r) * sizeof *r.moved);
        rc = r.x && r.moved
                 ? measure(w, &r)
                 : wnw__fail(WNW_E_NOMEM, "no memory for the hidden states of %d layers", (int)n_layer);
    }
    free(r.x);
    free(r.moved);
    wnw_session_free(r.s);
    if (rc != WNW_OK)
        return rc;
    *result = json_pack("{s:o}", "square", wnw__json_f64s(w->square, n_layer));
    return *result ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the gradients of a piece");
}

/* ---- All pieces ---- */

static int do_piece(struct work *w)
{
    const int32_t n_layer = w->c->info.n_layer, half = (w->n[0] + w->n[1]) % 2;
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "text %d, piece %d", (int)w->i_text, (int)w->i_piece);
    const struct wnw__calibrate_unit unit = {.name = name, .cost = w->length, .run = run_piece, .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    bool good = wnw__json_get_f64s(result, "square", w->square, n_layer);
    json_decref(result);
    for (int32_t il = 0; good && il < n_layer; il++) {
        good = w->square[il] >= 0 && isfinite(w->square[il]);
        w->sum[half][il] += w->square[il];
    }
    w->n[half]++;
    return good ? WNW_OK : wnw__calibrate_damaged(w->c, name);
}

/* Sets g[n_layer] from sums of squares over n pieces, with a mean of 1. E_NOT_FINITE where nothing depends on any layer. */
static int factors(double *g, const double *sum, int32_t n_layer, int32_t n)
{
    double mean = 0;
    for (int32_t il = 0; il < n_layer; il++) {
        g[il] = sqrt(sum[il] / n);
        mean += g[il] / n_layer;
    }
    if (!(mean > 0 && isfinite(mean)))
        return wnw__fail(WNW_E_NOT_FINITE, "the last hidden states depend on no layer: mean gradient %g",
                         mean);
    for (int32_t il = 0; il < n_layer; il++)
        g[il] /= mean;
    return WNW_OK;
}

/* halves[2][n_layer]: room for the factors of two halves of the pieces. */
static int write_factors(struct work *w, double *halves)
{
    const int32_t n_layer = w->c->info.n_layer;
    struct wnw__calibrate_text *report;
    double *g = w->square;
    WNW_TRY(wnw__calibrate_output(w->c, "report", &report));
    for (int i = 0; i < 2; i++) { /* with one piece, both are its */
        const int of = w->n[i] > 0 ? i : 0;
        WNW_TRY(factors(halves + i * n_layer, w->sum[of], n_layer, w->n[of]));
    }
    for (int32_t il = 0; il < n_layer; il++)
        w->sum[0][il] += w->sum[1][il];
    WNW_TRY(factors(g, w->sum[0], n_layer, w->n[0] + w->n[1]));
    wnw__calibrate_print(report,
                         "factors of layers, %d pieces of %d tokens; those of two halves of the pieces\n",
                         (int)(w->n[0] + w->n[1]), (int)w->length);
    for (int32_t il = 0; il < n_layer; il++)
        wnw__calibrate_print(report, "%5d %8.3f %8.3f %8.3f\n", (int)il, g[il], halves[il],
                             halves[n_layer + il]);
    return wnw__calibrate_profile(w->c, "gradient.json", "gradient", NULL,
                                  json_pack("{s:o, s:o}", "gradient", wnw__json_f64s(g, n_layer), "halves",
                                            wnw__json_f64_rows(halves, 2, n_layer)));
}

static int finish(struct work *w)
{
    const int32_t n_layer = w->c->info.n_layer;
    double *halves = calloc(2 * (size_t)n_layer, sizeof *halves);
    if (!halves)
        return wnw__fail(WNW_E_NOMEM, "no memory for the gradients of %d layers", (int)n_layer);
    const int rc = write_factors(w, halves);
    free(halves);
    return rc;
}

/* ---- The run ---- */

static int prepare(struct work *w)
{
    const struct opts *o = w->o;
    const int32_t n_text = w->c->params.n_texts, n_layer = w->c->info.n_layer,
                  n = wnw__effort_value(w->c, o->pieces, (struct wnw__by_effort){8, 4, 16});
    w->draws = wnw__effort_value(w->c, o->draws, (struct wnw__by_effort){4, 2, 8});
    WNW_TRY(wnw__sample_length(&w->length, w->c, o->length, (struct wnw__by_effort){256, 128, 256},
                               w->c->info.n_ctx_train / 2 + 1));
    WNW_TRY(wnw__samples_cut(&w->samples, w->c, w->length, 0, (n + n_text - 1) / n_text));
    w->square = calloc(3 * (size_t)n_layer, sizeof *w->square);
    if (!w->square)
        return wnw__fail(WNW_E_NOMEM, "no memory for the gradients of %d layers", (int)n_layer);
    w->sum[0] = w->square + n_layer;
    w->sum[1] = w->sum[0] + n_layer;
    WNW_TRY(wnw__calibrate_set(w->c, "pieces", json_integer(n)));
    WNW_TRY(wnw__calibrate_set(w->c, "length", json_integer(w->length)));
    WNW_TRY(wnw__calibrate_set(w->c, "draws", json_integer(w->draws)));
    return wnw__calibrate_begin(w->c, (int64_t)wnw__samples_n(&w->samples) * w->length);
}

static int work(struct work *w)
{
    WNW_TRY(prepare(w));
    for (w->i_text = 0; w->i_text < w->samples.n_text; w->i_text++)
        for (w->i_piece = 0; w->i_piece < w->samples.n_piece[w->i_text]; w->i_piece++)
            WNW_TRY(do_piece(w));
    return finish(w);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts};
    const int rc = work(&w);
    wnw__samples_free(&w.samples);
    free(w.square);
    return rc;
}

static const wnw_option options[] = {
    WNW_KIND_INT(struct opts, pieces, 0, 0, 10000,
                 "pieces of all texts, at most; 0 = 4, 8, 16 (quick, normal, paper)"),
    WNW_KIND_INT(struct opts, length, 0, 0, MOST_TOKENS,
                 "tokens of a piece; 0 = 128, 256, 256, or what fits"),
    WNW_KIND_INT(struct opts, draws, 0, 0, 10000, "directions of each layer and piece; 0 = 2, 4, 8"),
    WNW_KIND_REAL(struct opts, step, 0.05, 1e-6, 1,
                  "how far hidden states are moved, as a share of their mean absolute value"),
    {0}};

const struct wnw__calibrate_type wnw__calibrate_gradient = {
    .name = "gradient",
    .about = "How much the last hidden states depend on every layer, for kvzip:norm=gradient.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
