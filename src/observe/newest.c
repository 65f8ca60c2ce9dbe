/* SPDX-License-Identifier: MIT */
/* The recorder "newest". It serves to study heads, e.g. to find the retrieval heads
 * when a model is calibrated. */
#include "observe/newest.h"

#include "attend/attend.h"
#include "base/memory.h"
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "observe/recorders.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BLOCK = 256 }; /* keys converted at a time */

struct layer {
    struct wnw__buffer rows; /* [n_head][n_next] */
    int32_t n, n_next;       /* row lengths: of the newest token, of the present pass */
};

struct wnw__newest {
    struct wnw__shape model;
    int32_t n_threads;
    struct layer *layers; /* [n_layer] */
    float *blocks;        /* [n_threads][KEY_BLOCK][d] */
};

const float *wnw__newest_rows(const struct wnw__newest *w, int32_t il, int32_t *n)
{
    *n = w->layers[il].n;
    return *n > 0 ? w->layers[il].rows.p : NULL;
}

static void close_newest(void *rec)
{
    struct wnw__newest *w = rec;
    if (!w)
        return;
    for (int32_t il = 0; w->layers && il < w->model.n_layer; il++)
        wnw__buffer_free(&w->layers[il].rows);
    free(w->layers);
    free(w->blocks);
    free(w);
}

static int open_newest(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    struct wnw__newest *w = *rec = calloc(1, sizeof *w);
    if (w) {
        w->model = shape->model;
        w->n_threads = shape->n_threads;
        w->layers = calloc((size_t)shape->model.n_layer, sizeof *w->layers);
        w->blocks = malloc((size_t)shape->n_threads * KEY_BLOCK * (size_t)shape->model.d * sizeof *w->blocks);
    }
    if (w && w->layers && w->blocks)
        return WNW_OK;
    close_newest(w);
    *rec = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for the attention of tokens in %d layers",
                     (int)shape->model.n_layer);
}

static int need_rows(struct wnw__newest *w, int32_t il, int32_t n)
{
    return wnw__buffer_need(&w->layers[il].rows, (size_t)w->model.n_head * (size_t)n, sizeof(float),
                            "attention of a token");
}

static int copy_newest(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__newest *f = from;
    WNW_TRY(open_newest(rec, shape, NULL));
    struct wnw__newest *w = *rec;
    for (int32_t il = 0; il < w->model.n_layer; il++) {
        const int32_t n = f->layers[il].n;
        const int rc = n > 0 ? need_rows(w, il, n) : WNW_OK;
        if (rc != WNW_OK) {
            close_newest(w);
            *rec = NULL;
            return rc;
        }
        if (n > 0)
            memcpy(w->layers[il].rows.p, f->layers[il].rows.p,
                   (size_t)w->model.n_head * (size_t)n * sizeof(float));
        w->layers[il].n = n;
    }
    return WNW_OK;
}

static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__newest *w = rec;
    for (int32_t il = pass->from; il < pass->to; il++) {
        const struct wnw__kv_layer *l = &pass->cache->layers[il];
        int32_t n = 0;
        for (int32_t ih = 0; ih < pass->cache->n_head_kv; ih++)
            n = l->len[ih] + 1 > n ? l->len[ih] + 1 : n;
        w->layers[il].n = 0; /* the rows are of an older token */
        w->layers[il].n_next = n;
        if (pass->generated)
            WNW_TRY(need_rows(w, il, n));
    }
    return WNW_OK;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && pass->generated;
}

/* Turns the products of query head h with n_entry entries into scores. The last entry is its own. */
static void form(const struct wnw__newest *w, const struct wnw__record_rows *r, int32_t h, int32_t n_entry,
                 float *x)
{
    const struct wnw__kv_layer *l = &r->pass->cache->layers[r->il];
    const struct wnw__score_form *f = wnw__shape_form(&w->model, r->il);
    if (!f)
        return;
    const float slope = wnw__form_slope(f->max_bias, w->model.n_head, h);
    const int32_t ih = h / wnw__shape_group(&w->model), n_past = r->pass->n_past;
    if (n_entry > 1)
        wnw__form_scores(f, slope, n_past, l->pos + l->off[ih], x, n_entry - 1);
    wnw__form_scores(f, slope, n_past, &n_past, x + n_entry - 1, 1);
}

/* Scores all entries of KV head ih with each query of the group, then takes one softmax per query. */
static void take_head(const struct wnw__newest *w, const struct wnw__record_rows *r, int32_t ih, float *block)
{
    const struct wnw__cache *c = r->pass->cache;
    const struct wnw__kv_layer *l = &c->layers[r->il];
    const int32_t group = w->model.n_head / c->n_head_kv, n_entry = l->len[ih] + 1,
                  n = w->layers[r->il].n_next;
    float *out = (float *)w->layers[r->il].rows.p + (size_t)(ih * group) * (size_t)n;
    for (int32_t at = 0; at < n_entry; at += KEY_BLOCK) {
        const int32_t n_now = n_entry - at < KEY_BLOCK ? n_entry - at : KEY_BLOCK;
        wnw__cache_read(c, r->il, WNW_KEYS, ih, at, n_now, block);
        for (int32_t g = 0; g < group; g++)
            wnw__mul_nt(r->q + (size_t)(ih * group + g) * r->head_stride, 1, block, n_now, w->model.d,
                        r->attend->scale, out + (size_t)g * (size_t)n + at, n);
    }
    const float *bias = wnw__cache_bias(l, ih);
    for (int32_t g = 0; g < group; g++, out += n) {
        const int32_t h = ih * group + g;
        form(w, r, h, n_entry, out);
        for (int32_t i = 0; bias && i < n_entry; i++)
            out[i] += bias[i];
        for (int32_t i = 0; l->n_swa > 0 && i < l->len[ih]; i++)
            if (l->pos[l->off[ih] + i] < wnw__cache_first_seen(c, l, r->pass->n_past))
                out[i] = -INFINITY;
        const float top = out[wnw__argmax(out, n_entry)];
        wnw__softmax(out, n_entry);
        wnw__form_share(wnw__shape_form(&w->model, r->il), h, top, out, n_entry);
        memset(out + n_entry, 0, (size_t)(n - n_entry) * sizeof *out);
    }
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__newest *w = rec;
    const int32_t n_threads = nth < w->n_threads ? nth : w->n_threads;
    for (int32_t ih = ith; ith < n_threads && ih < r->pass->cache->n_head_kv; ih += n_threads)
        take_head(w, r, ih, w->blocks + (size_t)ith * KEY_BLOCK * (size_t)w->model.d);
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__newest *w = rec;
    for (int32_t il = pass->from; pass->generated && il < pass->to; il++)
        w->layers[il].n = w->layers[il].n_next;
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    struct wnw__newest *w = rec;
    (void)event;
    for (int32_t il = from; il < to; il++)
        w->layers[il].n = 0;
}

const struct wnw__recorder_type wnw__newest_recorder = {
    .name = "newest",
    .open = open_newest,
    .free = close_newest,
    .copy = copy_newest,
    .reserve = reserve,
    .stages = stages,
    .take = take,
    .commit = commit,
    .told = told,
};
