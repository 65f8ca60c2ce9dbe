/* SPDX-License-Identifier: MIT */
#include "observe/qstats.h"

#include "kernel/kernel_impl.h"
#include "observe/recorders.h"
#include "observe/source_impl.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4 * WNW_TILE }; /* queries that are summed in float before they are added in double */

struct layer {
    const struct wnw__qstats *st;
    int32_t end;        /* position after the last query */
    int64_t *n;         /* [n_head] */
    double *mean, *sum; /* [n_head][d]; [n_head][d (d + 1) / 2] products about the mean, lower triangle */
};

struct wnw__qstats {
    struct wnw__qstats_params params;
    const struct wnw__vec *vec;
    struct layer *layers; /* [n_layer]; n is NULL in a layer that is left out */
    float *scratch;       /* [n_threads][scratch_floats] */
    size_t scratch_floats;
};

static size_t triangle(const struct wnw__qstats *st)
{
    const size_t d = (size_t)st->params.model.d;
    return d * (d + 1) / 2;
}

static int32_t padded(int32_t d)
{
    return (d + WNW_TILE_PAD - 1) / WNW_TILE_PAD * WNW_TILE_PAD;
}

static bool alloc_layer(struct wnw__qstats *st, int32_t il)
{
    struct layer *l = &st->layers[il];
    const size_t n_head = (size_t)st->params.model.n_head;
    l->n = calloc(n_head, sizeof *l->n);
    l->mean = calloc(n_head * (size_t)st->params.model.d, sizeof *l->mean);
    l->sum = calloc(n_head * triangle(st), sizeof *l->sum);
    return l->n && l->mean && l->sum;
}

int wnw__qstats_new(struct wnw__qstats **out, const struct wnw__qstats_params *params)
{
    struct wnw__qstats *st = calloc(1, sizeof *st);
    const size_t d = (size_t)params->model.d, ld = (size_t)padded(params->model.d);
    bool ok = st != NULL;
    *out = NULL;
    if (ok) {
        st->params = *params;
        st->vec = wnw__vec_at(0);
        st->scratch_floats = BLOCK * ld + ld * WNW_TILE + WNW_GRAM_FLOATS(d) + 3 * d;
        st->scratch_floats += st->scratch_floats % 2; /* each thread's begins at a double */
        st->scratch = calloc((size_t)params->n_threads * st->scratch_floats, sizeof *st->scratch);
        st->layers = calloc((size_t)params->model.n_layer, sizeof *st->layers);
        ok = st->scratch && st->layers;
    }
    for (int32_t il = 0; ok && il < params->model.n_layer; il++) {
        st->layers[il].st = st;
        ok = !wnw__layer_takes_part(&params->model, il) || alloc_layer(st, il);
    }
    if (!ok) {
        wnw__qstats_free(st);
        return wnw__fail(WNW_E_NOMEM, "no memory for the query statistics of %d layers",
                         (int)params->model.n_layer);
    }
    *out = st;
    return WNW_OK;
}

int wnw__qstats_copy(struct wnw__qstats **out, const struct wnw__qstats *st)
{
    *out = NULL;
    const size_t n_layer = (size_t)st->params.model.n_layer, n_head = (size_t)st->params.model.n_head;
    WNW_TRY(wnw__qstats_new(out, &st->params));
    for (size_t il = 0; il < n_layer; il++) {
        const struct layer *from = &st->layers[il];
        struct layer *to = &(*out)->layers[il];
        to->end = from->end;
        if (!from->n)
            continue;
        memcpy(to->n, from->n, n_head * sizeof *to->n);
        memcpy(to->mean, from->mean, n_head * (size_t)st->params.model.d * sizeof *to->mean);
        memcpy(to->sum, from->sum, n_head * triangle(st) * sizeof *to->sum);
    }
    return WNW_OK;
}

void wnw__qstats_free(struct wnw__qstats *st)
{
    if (!st)
        return;
    for (int32_t il = 0; st->layers && il < st->params.model.n_layer; il++) {
        free(st->layers[il].n);
        free(st->layers[il].mean);
        free(st->layers[il].sum);
    }
    free(st->layers);
    free(st->scratch);
    free(st);
}

void wnw__qstats_reset(struct wnw__qstats *st)
{
    for (int32_t il = 0; il < st->params.model.n_layer; il++) {
        struct layer *l = &st->layers[il];
        l->end = 0;
        if (!l->n)
            continue;
        memset(l->n, 0, (size_t)st->params.model.n_head * sizeof *l->n);
        memset(l->mean, 0, (size_t)st->params.model.n_head * (size_t)st->params.model.d * sizeof *l->mean);
        memset(l->sum, 0, (size_t)st->params.model.n_head * triangle(st) * sizeof *l->sum);
    }
}

const struct wnw__qstats_params *wnw__qstats_params(const struct wnw__qstats *st)
{
    return &st->params;
}

/* ---- Taking queries ---- */

/* One thread's memory. */
struct work {
    float *x;       /* [BLOCK][ld] queries, then their differences from the mean */
    double *sum;    /* [d] */
    float *columns; /* [ld][WNW_TILE] */
    float *gram;    /* products x^T x */
    float *mean;    /* [d] */
};

static struct work work_of(const struct wnw__qstats *st, int ith)
{
    const size_t d = (size_t)st->params.model.d, ld = (size_t)padded(st->params.model.d);
    struct work w;
    float *at = st->scratch + (size_t)ith * st->scratch_floats;
    w.sum = (double *)(void *)at;
    w.x = at + 2 * d;
    w.columns = w.x + BLOCK * ld;
    w.gram = w.columns + ld * WNW_TILE;
    w.mean = w.gram + WNW_GRAM_FLOATS(d);
    return w;
}

/* Computes the mean of n queries and subtracts it from x. */
static void centre(const struct work *w, int32_t n, int32_t d, int32_t ld)
{
    for (int32_t c = 0; c < d; c++)
        w->sum[c] = 0.0;
    for (int32_t k = 0; k < n; k++)
        for (int32_t c = 0; c < d; c++)
            w->sum[c] += (double)w->x[k * ld + c];
    for (int32_t c = 0; c < d; c++)
        w->mean[c] = (float)(w->sum[c] / n);
    for (int32_t k = 0; k < n; k++)
        for (int32_t c = 0; c < d; c++)
            w->x[k * ld + c] -= w->mean[c];
}

/* Computes gram = x^T x for n centred queries. */
static void multiply(const struct wnw__qstats *st, const struct work *w, int32_t n, int32_t ld)
{
    const int32_t d = st->params.model.d;
    const size_t rest = (size_t)((WNW_TILE - n % WNW_TILE) % WNW_TILE);
    memset(w->x + (size_t)n * (size_t)ld, 0, rest * (size_t)ld * sizeof *w->x);
    memset(w->gram, 0, WNW_GRAM_FLOATS(d) * sizeof *w->gram);
    for (int32_t at = 0; at < n; at += WNW_TILE) {
        const float *x = w->x + (size_t)at * (size_t)ld;
        st->vec->transpose(x, ld, w->columns);
        wnw__gram_add(x, ld, d, w->columns, w->gram);
    }
}

/* Combines the mean and products of a block of n queries with those of the head so far. */
static void merge(struct layer *l, int32_t h, const struct work *w, int32_t n)
{
    const int32_t d = l->st->params.model.d;
    const double before = (double)l->n[h], after = before + n;
    double *mean = l->mean + (size_t)h * (size_t)d, *sum = l->sum + (size_t)h * triangle(l->st);
    for (int32_t a = 0; a < d; a++) {
        const double f = ((double)w->mean[a] - mean[a]) * (before * n / after);
        for (int32_t block = 0; block <= a; block += WNW_GRAM_BLOCK) {
            const float *product = w->gram + wnw__gram_at(d, a, block) - block;
            const int32_t end = a < block + WNW_GRAM_BLOCK ? a + 1 : block + WNW_GRAM_BLOCK;
            for (int32_t b = block; b < end; b++)
                *sum++ += (double)product[b] + f * ((double)w->mean[b] - mean[b]);
        }
    }
    for (int32_t c = 0; c < d; c++)
        mean[c] += ((double)w->mean[c] - mean[c]) * (n / after);
    l->n[h] += n;
}

static void add_head(struct layer *l, const struct wnw__qstats_batch *b, int32_t h, const struct work *w)
{
    const struct wnw__qstats_params *p = &l->st->params;
    const int32_t ld = padded(p->model.d);
    for (int32_t t = 0; t < b->n;) {
        int32_t n = 0;
        for (; t < b->n && n < BLOCK; t++) {
            const float *q = b->q + (size_t)t * b->token_stride + (size_t)h * b->head_stride;
            if (b->first + t < p->skip)
                continue;
            for (int32_t c = 0; c < p->model.d; c++)
                w->x[n * ld + c] = p->scale * q[c];
            memset(w->x + n * ld + p->model.d, 0, (size_t)(ld - p->model.d) * sizeof *w->x);
            n++;
        }
        if (n == 0)
            return;
        centre(w, n, p->model.d, ld);
        multiply(l->st, w, n, ld);
        merge(l, h, w, n);
    }
}

void wnw__qstats_add(struct wnw__qstats *st, int32_t il, const struct wnw__qstats_batch *b, int ith, int nth)
{
    struct layer *l = &st->layers[il];
    const struct work w = work_of(st, ith);
    if (!l->n || b->n == 0)
        return;
    for (int32_t h = ith; h < st->params.model.n_head; h += nth)
        add_head(l, b, h, &w);
    if (ith == 0)
        l->end = b->first + b->n;
}

/* ---- Reading ---- */

int32_t wnw__qstats_end(const struct wnw__qstats *st, int32_t il)
{
    return st->layers[il].end;
}

int64_t wnw__qstats_get(const struct wnw__qstats *st, int32_t il, float *mean, float *cov)
{
    const struct layer *l = &st->layers[il];
    const size_t n_head = (size_t)st->params.model.n_head, d = (size_t)st->params.model.d;
    memset(mean, 0, n_head * d * sizeof *mean);
    memset(cov, 0, n_head * d * d * sizeof *cov);
    if (!l->n || l->n[0] == 0)
        return 0;
    for (size_t i = 0; i < n_head * d; i++)
        mean[i] = (float)l->mean[i];
    for (size_t h = 0; h < n_head; h++, cov += d * d) {
        const double *sum = l->sum + h * triangle(st);
        for (size_t a = 0; a < d; a++)
            for (size_t b = 0; b <= a; b++)
                cov[a * d + b] = cov[b * d + a] = (float)(*sum++ / (double)l->n[h]);
    }
    return l->n[0];
}

/* ---- The recorder ---- */

/* The buffers of the source that are used here. */
enum { MEAN, COV };

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){.n = needs->merged.skip};
    return needs->merged.flags & WNW_NEED_QUERY_STATS;
}

static int open_stats(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    const struct wnw__qstats_params params = {
        .model = shape->model, .n_threads = shape->n_threads, .skip = arg->n, .scale = shape->q_scale};
    struct wnw__qstats *st;
    *rec = NULL;
    WNW_TRY(wnw__record_one_reader(shape, "statistics of queries"));
    const int rc = wnw__qstats_new(&st, &params);
    *rec = st;
    return rc;
}

static void close_stats(void *rec)
{
    wnw__qstats_free(rec);
}

static int copy_stats(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    (void)shape;
    struct wnw__qstats *st;
    const int rc = wnw__qstats_copy(&st, from);
    *rec = st;
    return rc;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)pass;
    return point == WNW_POINT_QUERIES && ((const struct wnw__qstats *)rec)->layers[il].n;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__qstats_batch b = {.q = r->q,
                                        .token_stride = r->token_stride,
                                        .head_stride = r->head_stride,
                                        .first = r->pass->n_past,
                                        .n = r->pass->n};
    wnw__qstats_add(rec, r->il, &b, ith, nth);
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    (void)from;
    (void)to;
    if (event == WNW_EVENT_RENUMBERED || event == WNW_EVENT_EMPTIED)
        wnw__qstats_reset(rec);
}

/* A sum does not say what one token added to it. */
static bool can_rewind(const void *rec, int32_t n_past)
{
    const struct wnw__qstats *st = rec;
    for (int32_t il = 0; il < st->params.model.n_layer; il++)
        if (st->layers[il].end > n_past)
            return false;
    return true;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__qstats *st = rec;
    const int32_t skip = needs->skip;
    (void)heads;
    if (!st)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no statistics of queries were gathered; declare the policy before prefill");
    if (st->params.skip != skip)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "the policy wants query statistics without the first %d tokens, the session was told "
            "to leave out %d",
            (int)skip, (int)st->params.skip);
    if (st->layers[obs->il].end != obs->n_past)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "query statistics of layer %d end at token %d of %d; declare the policy before prefill",
            (int)obs->il, (int)st->layers[obs->il].end, (int)obs->n_past);
    const size_t n = (size_t)st->params.model.n_head * (size_t)st->params.model.d;
    float *mean, *cov;
    WNW_TRY(wnw__source_need(source, MEAN, n, &mean));
    WNW_TRY(wnw__source_need(source, COV, n * (size_t)st->params.model.d, &cov));
    obs->n_query_stats = wnw__qstats_get(st, obs->il, mean, cov);
    obs->query_mean = mean;
    obs->query_cov = cov;
    return WNW_OK;
}

const struct wnw__recorder_type wnw__qstats_recorder = {
    .name = "query statistics",
    .needs = WNW_NEED_QUERY_STATS,
    .needed = needed,
    .open = open_stats,
    .free = close_stats,
    .copy = copy_stats,
    .stages = stages,
    .take = take,
    .told = told,
    .can_rewind = can_rewind,
    .fill = fill,
};
