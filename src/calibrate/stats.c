/* SPDX-License-Identifier: MIT */
/*
 * Calibration of kind stats: what the queries of every head look like, regardless of the text.
 *
 *   query_mean, query_cov   queries before RoPE, for Expected Attention (arXiv 2510.00636, "stats"): how
 *                           queries of coming positions are distributed
 *   filter                  for Q-Filters (arXiv 2503.02812): the first right singular vector of the queries
 *                           after RoPE, positive along their mean, averaged over the group of a KV head
 *
 * The text is read in pieces of `length` tokens, each a prompt of its own after the BOS, so that queries have
 * positions 0 .. length - 1. The first SKIP of a piece do not count, as in the prompt's own statistics: attention
 * sinks have queries unlike all others. Layers with a sliding window have rows of 0. The singular vector comes from
 * the second moment of all queries, where the authors' code takes 3000 of them.
 */
#include "base/json.h"
#include "calibrate/calibrate.h"
#include "calibrate/moments.h"

#include "session/planning/planning.h"
#include "session/session.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SKIP = 4, PER_UNIT = 4, CORRELATION_UNIT = 10000 };

struct opts {
    int32_t pieces, length;
};

struct work {
    wnw_calibration *c;
    wnw_policy *policies[2]; /* what they need is recorded */
    int32_t *tokens, bos;    /* bos: -1 = none */
    int32_t *piece;          /* [length] */
    int32_t pieces, length;
    int32_t first, n;                /* of the current unit: its first piece, and how many it has */
    int32_t at;                      /* the current piece, counted from the unit's first */
    struct wnw__moments raw, turned; /* of the current unit: before and after RoPE */
    double *mean, *cov;              /* of one head of one piece */
};

static void free_work(struct work *w)
{
    wnw_policy_free(w->policies[0]);
    wnw_policy_free(w->policies[1]);
    wnw_free(w->tokens);
    free(w->piece);
    wnw__moments_free(&w->raw);
    wnw__moments_free(&w->turned);
    free(w->mean);
    free(w->cov);
}

/* ---- Reading a piece ---- */

static bool progress(int32_t done, int32_t total, void *user)
{
    const struct work *w = user;
    const double here = total > 0 ? (double)done / total : 0;
    return wnw__calibrate_progress(w->c, (w->at + here) / w->n) == WNW_OK;
}

static void fill_piece(struct work *w, int32_t i)
{
    int32_t n = 0;
    if (w->bos >= 0)
        w->piece[n++] = w->bos;
    memcpy(w->piece + n, w->tokens + (int64_t)i * w->length, (size_t)(w->length - n) * sizeof *w->piece);
}

static void take_layer(struct work *w, int32_t il, const wnw_observation *obs)
{
    const int32_t n_head = obs->n_head, d = obs->n_embd_head, n = obs->n_queries - SKIP;
    const size_t stride = (size_t)n_head * (size_t)d;
    for (int32_t h = 0; h < n_head; h++) {
        const int32_t row = il * n_head + h;
        const float *mean = obs->query_mean + (int64_t)h * d, *cov = obs->query_cov + (int64_t)h * d * d;
        double *to = w->cov;
        for (int32_t a = 0; a < d; a++) {
            w->mean[a] = (double)mean[a];
            for (int32_t b = 0; b <= a; b++)
                *to++ = (double)cov[a * d + b];
        }
        wnw__moments_merge(&w->raw, row, n, w->mean, w->cov);
        wnw__moments_of(obs->queries + SKIP * stride + (size_t)h * (size_t)d, stride, n, d, w->mean, w->cov);
        wnw__moments_merge(&w->turned, row, n, w->mean, w->cov);
    }
}

static int take_layers(struct work *w, wnw_session *s)
{
    const wnw_needs needs = {WNW_INIT(wnw_needs), .flags = WNW_NEED_QUERY_STATS | WNW_NEED_QUERIES,
                             .skip = SKIP};
    struct wnw__plan_source src;
    WNW_TRY(wnw__session_source(&src, s));
    int rc = WNW_OK;
    for (int32_t il = 0; rc == WNW_OK && il < src.shape.n_layer; il++) {
        wnw_observation obs;
        if (!wnw__layer_takes_part(&src.shape, il))
            continue;
        rc = src.observe(&src, il, &needs, NULL, &obs);
        if (rc == WNW_OK)
            take_layer(w, il, &obs);
    }
    wnw__source_close(&src);
    return rc;
}

static int read_piece(struct work *w, int32_t i)
{
    wnw_session *s;
    fill_piece(w, i);
    WNW_TRY(wnw__calibrate_session(&s, w->c, w->length));
    s->params.progress = progress;
    s->params.progress_user = w;
    const wnw_run run = {WNW_INIT(wnw_run),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                 .policies = (const wnw_policy *const *)w->policies,
                                                 .n_policies = 2}};
    int rc = wnw_session_begin(s, &run);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, w->piece, w->length, NULL, NULL);
    if (rc == WNW_OK)
        rc = take_layers(w, s);
    wnw_session_free(s);
    w->raw.n += w->length - SKIP;
    w->turned.n += w->length - SKIP;
    return rc;
}

/* ---- A unit's result: what was measured, as float32 ---- */

static json_t *as_floats(const double *x, size_t n)
{
    float *f = malloc(n * sizeof *f);
    for (size_t i = 0; f && i < n; i++)
        f[i] = (float)x[i];
    json_t *v = f ? wnw__json_f32s(f, (int32_t)n) : NULL;
    free(f);
    return v;
}

static json_t *moments_result(const struct wnw__moments *m)
{
    const size_t n = (size_t)m->n_row;
    return json_pack("{s:I, s:o, s:o}", "n", (json_int_t)m->n, "mean", as_floats(m->mean, n * (size_t)m->d),
                     "cov", as_floats(m->cov, n * wnw__triangle(m->d)));
}

static int run_unit(wnw_calibration *c, void *user, json_t **result)
{
    struct work *w = user;
    (void)c;
    wnw__moments_reset(&w->raw);
    wnw__moments_reset(&w->turned);
    for (w->at = 0; w->at < w->n; w->at++)
        WNW_TRY(read_piece(w, w->first + w->at));
    *result = json_pack("{s:o, s:o}", "raw", moments_result(&w->raw), "turned", moments_result(&w->turned));
    return WNW_OK;
}

/* What a unit's result is read into: rows of means and of covariances. */
struct read {
    float *floats; /* [n_row * triangle(d)], owned, like the two that follow */
    double *mean, *cov;
};

static int read_new(struct read *r, const struct wnw__moments *m)
{
    const size_t n_row = (size_t)m->n_row, n_cov = n_row * wnw__triangle(m->d);
    *r = (struct read){.floats = malloc(n_cov * sizeof *r->floats),
                       .mean = malloc(n_row * (size_t)m->d * sizeof *r->mean),
                       .cov = malloc(n_cov * sizeof *r->cov)};
    return r->floats && r->mean && r->cov ? WNW_OK
                                          : wnw__fail(WNW_E_NOMEM, "no memory for the moments of a piece");
}

static void read_clear(struct read *r)
{
    free(r->floats);
    free(r->mean);
    free(r->cov);
}

/* Reads n floats of a unit's result as doubles; false if they are not there. */
static bool read_floats(double *x, const struct read *r, const json_t *v, const char *key, size_t n)
{
    const bool good = wnw__json_get_f32s(v, key, r->floats, (int32_t)n);
    for (size_t i = 0; good && i < n; i++)
        x[i] = (double)r->floats[i];
    return good;
}

/* Combines all rows of m with a unit's result. False if the result does not fit. */
static bool add_result(struct wnw__moments *m, const struct read *r, const json_t *v, int64_t want)
{
    const size_t d = (size_t)m->d, n_row = (size_t)m->n_row, step = wnw__triangle(m->d);
    const int64_t n = json_integer_value(json_object_get(v, "n"));
    if (n != want || !read_floats(r->mean, r, v, "mean", n_row * d) ||
        !read_floats(r->cov, r, v, "cov", n_row * step))
        return false;
    for (int32_t i = 0; i < m->n_row; i++)
        wnw__moments_merge(m, i, n, r->mean + (size_t)i * d, r->cov + (size_t)i * step);
    m->n += n;
    return true;
}

static int read_units(struct work *w, const struct read *r, struct wnw__moments *raw,
                      struct wnw__moments *turned)
{
    for (w->first = 0; w->first < w->pieces; w->first += w->n) {
        char name[48];
        json_t *result;
        w->n = w->pieces - w->first < PER_UNIT ? w->pieces - w->first : PER_UNIT;
        snprintf(name, sizeof name, "pieces %d to %d", (int)w->first + 1, (int)(w->first + w->n));
        const struct wnw__calibrate_unit unit = {
            .name = name, .cost = (int64_t)w->n * w->length, .run = run_unit, .user = w};
        const int64_t want = (int64_t)w->n * (w->length - SKIP);
        WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
        const bool good = add_result(raw, r, json_object_get(result, "raw"), want) &&
                          add_result(turned, r, json_object_get(result, "turned"), want);
        json_decref(result);
        if (!good)
            return wnw__calibrate_damaged(w->c, name);
    }
    return WNW_OK;
}

static int run_units(struct work *w, struct wnw__moments *raw, struct wnw__moments *turned)
{
    struct read r;
    int rc = read_new(&r, raw);
    if (rc == WNW_OK)
        rc = read_units(w, &r, raw, turned);
    read_clear(&r);
    return rc;
}

/* ---- The profile ---- */

/* x[n_layer][n_row][n] as one text a layer; exactly one of f and i is not NULL. As digits they would take twice the bytes. */
static json_t *tables(const float *f, const int32_t *i, int32_t n_layer, int32_t n_row, int32_t n)
{
    const size_t step = (size_t)n_row * (size_t)n;
    json_t *v = json_array();
    for (int32_t il = 0; v && il < n_layer; il++) {
        const size_t at = (size_t)il * step;
        json_t *row = f ? wnw__json_f32_text(f + at, step) : wnw__json_i16_text(i + at, step);
        if (!row || json_array_append_new(v, row) != 0) {
            json_decref(v);
            v = NULL;
        }
    }
    return v;
}

/* The numbers of the profile. */
struct found {
    float *mean, *std, *filter;
    int32_t *corr;
    double least, most, sum; /* shares of the squares of queries that lie along a head's direction */
    int32_t n;               /* heads that `sum` adds up */
};

static void free_found(struct found *f)
{
    free(f->mean);
    free(f->std);
    free(f->filter);
    free(f->corr);
}

static void describe_row(const struct wnw__moments *m, int32_t row, struct found *f)
{
    const int32_t d = m->d;
    const double *cov = m->cov + (size_t)row * wnw__triangle(d);
    float *std = f->std + (int64_t)row * d;
    int32_t *corr = f->corr + (size_t)row * (wnw__triangle(d) - (size_t)d);
    for (int32_t a = 0; a < d; a++) {
        const double *diagonal = cov + a;
        f->mean[(int64_t)row * d + a] = (float)m->mean[(int64_t)row * d + a];
        std[a] = (float)sqrt(*diagonal > 0 ? *diagonal : 0);
        for (int32_t b = 0; b < a; b++) {
            const double scale = (double)std[a] * (double)std[b];
            const double x = scale > 0 ? CORRELATION_UNIT * cov[b] / scale : 0;
            *corr++ = (int32_t)lround(fmax(-CORRELATION_UNIT, fmin(CORRELATION_UNIT, x)));
        }
        cov += a + 1;
    }
}

/* The filter of KV head ih (counted over all layers): the mean of its group's directions. */
static int make_filters(const struct work *w, const struct wnw__moments *turned, struct found *f)
{
    const int32_t d = turned->d, group = w->c->info.n_head / w->c->info.n_head_kv;
    double *room = calloc(2 * (size_t)d * (size_t)d + (size_t)d, sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory for the filters");
    double *direction = room + 2 * (size_t)d * (size_t)d;
    f->least = 1;
    for (int32_t row = 0; row < turned->n_row; row++) {
        if (!wnw__layer_takes_part(&w->c->shape, row / w->c->info.n_head))
            continue;
        const double share = wnw__moments_direction(turned, row, direction, room);
        float *to = f->filter + (int64_t)(row / group) * d;
        for (int32_t c = 0; c < d; c++)
            to[c] += (float)(direction[c] / group);
        f->least = fmin(f->least, share);
        f->most = fmax(f->most, share);
        f->sum += share;
        f->n++;
    }
    free(room);
    return WNW_OK;
}

static int describe(const struct work *w, const struct wnw__moments *raw, const struct wnw__moments *turned,
                    struct found *f)
{
    const size_t n_row = (size_t)raw->n_row, d = (size_t)raw->d;
    f->mean = calloc(n_row * d, sizeof *f->mean);
    f->std = calloc(n_row * d, sizeof *f->std);
    f->filter = calloc(n_row * d, sizeof *f->filter);
    f->corr = calloc(n_row * (wnw__triangle(raw->d) - d) + 1, sizeof *f->corr);
    if (!f->mean || !f->std || !f->filter || !f->corr)
        return wnw__fail(WNW_E_NOMEM, "no memory for the statistics of queries");
    for (int32_t row = 0; row < raw->n_row; row++)
        describe_row(raw, row, f);
    return make_filters(w, turned, f);
}

static int write_results(wnw_calibration *c, const struct found *f, int64_t n)
{
    const wnw_model_info *m = &c->info;
    const int32_t d = m->n_embd_head;
    struct wnw__calibrate_text *report;
    WNW_TRY(wnw__calibrate_output(c, "report", &report));
    wnw__calibrate_print(report,
                         "%lld queries of every head\n"
                         "share of a head's queries along its direction: mean %.3f, %.3f to %.3f\n",
                         (long long)n, f->n > 0 ? f->sum / f->n : 0, f->least, f->most);
    json_t *results =
        json_pack("{s:o, s:o, s:o, s:o}", "query_mean", tables(f->mean, NULL, m->n_layer, m->n_head, d),
                  "query_std", tables(f->std, NULL, m->n_layer, m->n_head, d), "query_corr",
                  tables(NULL, f->corr, m->n_layer, m->n_head, d * (d - 1) / 2), "filter",
                  tables(f->filter, NULL, m->n_layer, m->n_head_kv, d));
    return wnw__calibrate_profile(c, "stats.json", "stats", NULL, results);
}

/* ---- The run ---- */

static int resolve(struct work *w, const struct opts *o)
{
    static const int32_t pieces[] = {
        [WNW_EFFORT_QUICK] = 8, [WNW_EFFORT_NORMAL] = 16, [WNW_EFFORT_PAPER] = 20};
    const wnw_effort effort = w->c->params.effort;
    const int32_t length = effort == WNW_EFFORT_QUICK ? 1024 : 2048, n_ctx = w->c->info.n_ctx_train;
    w->pieces = o->pieces ? o->pieces : pieces[effort];
    w->length = o->length ? o->length : length;
    if (o->length > n_ctx)
        return wnw__fail(WNW_E_RANGE, "stats: length=%d; the model's context has %d tokens", (int)o->length,
                         (int)n_ctx);
    w->length = w->length < n_ctx ? w->length : n_ctx;
    if (w->length <= 4 * SKIP)
        return wnw__fail(WNW_E_RANGE, "stats: pieces of %d tokens are too short; give at least %d",
                         (int)w->length, 4 * SKIP + 1);
    WNW_TRY(wnw__calibrate_set(w->c, "pieces", json_integer(w->pieces)));
    return wnw__calibrate_set(w->c, "length", json_integer(w->length));
}

static int read_text(struct work *w)
{
    const int64_t need = (int64_t)w->pieces * w->length;
    int32_t n;
    if (need > INT32_MAX / 2)
        return wnw__fail(WNW_E_RANGE, "stats: %lld tokens are too many", (long long)need);
    WNW_TRY(wnw__calibrate_tokens(w->c, (int32_t)need, &w->tokens, &n));
    if (n < need)
        return wnw__fail(
            WNW_E_RANGE,
            "stats reads %d pieces of %d tokens, and the text has %d tokens; give a longer text, or "
            "pieces=%d",
            (int)w->pieces, (int)w->length, (int)n, (int)(n / w->length > 0 ? n / w->length : 1));
    return wnw__calibrate_bos(w->c, &w->bos);
}

static int prepare(struct work *w, const struct opts *o)
{
    const wnw_model_info *m = &w->c->info;
    WNW_TRY(resolve(w, o));
    WNW_TRY(read_text(w));
    WNW_TRY(wnw_policy_parse(&w->policies[0], "expected_attention:n_sink=4", NULL));
    WNW_TRY(wnw_policy_parse(&w->policies[1], "noncausal", NULL));
    WNW_TRY(wnw__moments_new(&w->raw, m->n_layer * m->n_head, m->n_embd_head));
    WNW_TRY(wnw__moments_new(&w->turned, m->n_layer * m->n_head, m->n_embd_head));
    w->piece = calloc((size_t)w->length, sizeof *w->piece);
    w->mean = calloc((size_t)m->n_embd_head, sizeof *w->mean);
    w->cov = calloc(wnw__triangle(m->n_embd_head), sizeof *w->cov);
    return w->piece && w->mean && w->cov ? WNW_OK
                                         : wnw__fail(WNW_E_NOMEM, "no memory for the queries of a piece");
}

static int measure(struct work *w, const void *opts, struct wnw__moments *raw, struct wnw__moments *turned,
                   struct found *f)
{
    WNW_TRY(prepare(w, opts));
    WNW_TRY(wnw__moments_new(raw, w->raw.n_row, w->raw.d));
    WNW_TRY(wnw__moments_new(turned, w->raw.n_row, w->raw.d));
    WNW_TRY(wnw__calibrate_begin(w->c, (int64_t)w->pieces * w->length));
    WNW_TRY(run_units(w, raw, turned));
    WNW_TRY(describe(w, raw, turned, f));
    return write_results(w->c, f, raw->n);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c};
    struct wnw__moments raw = {0}, turned = {0};
    struct found f = {0};
    const int rc = measure(&w, opts, &raw, &turned, &f);
    wnw__moments_free(&raw);
    wnw__moments_free(&turned);
    free_found(&f);
    free_work(&w);
    return rc;
}

static const wnw_option options[] = {{.name = "pieces",
                                      .help = "pieces of the text that are read, 0 = as the effort says",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, pieces),
                                      .def = 0,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "length",
                                      .help = "tokens of a piece, 0 = as the effort says",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, length),
                                      .def = 0,
                                      .min = 0,
                                      .max = 1 << 20},
                                     {0}};

const struct wnw__calibrate_type wnw__calibrate_stats = {
    .name = "stats",
    .about = "Mean and covariance of queries, for Expected Attention; their directions, for Q-Filters.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
