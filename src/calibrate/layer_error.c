/* SPDX-License-Identifier: MIT */
#include "calibrate/layer_error.h"

#include "attend/attend.h"
#include "base/vectors.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The output from the entries that count ---- */

/* Entries of one head in float32, and logits of the queries that read them. */
struct room {
    float *k, *v, *z;
};

static int32_t longest(const struct wnw__layer_token *t)
{
    const struct wnw__kv_layer *l = &t->cache->layers[t->il];
    int32_t most = 0;
    for (int32_t ih = 0; ih < t->cache->n_head_kv; ih++) {
        const int32_t n = t->n_keep[ih] + l->len[ih] - t->n_prompt;
        most = n > most ? n : most;
    }
    return most;
}

/* Loads keys and values of the entries that count; returns their number. */
static int32_t load(const struct wnw__layer_token *t, int32_t ih, const struct room *r)
{
    const struct wnw__kv_layer *l = &t->cache->layers[t->il];
    const size_t d = (size_t)t->cache->d;
    int32_t n = 0;
    for (; n < t->n_keep[ih]; n++) {
        wnw__cache_read(t->cache, t->il, WNW_KEYS, ih, t->keep[ih][n], 1, r->k + (size_t)n * d);
        wnw__cache_read(t->cache, t->il, WNW_VALUES, ih, t->keep[ih][n], 1, r->v + (size_t)n * d);
    }
    const int32_t n_more = l->len[ih] - t->n_prompt;
    wnw__cache_read(t->cache, t->il, WNW_KEYS, ih, t->n_prompt, n_more, r->k + (size_t)n * d);
    wnw__cache_read(t->cache, t->il, WNW_VALUES, ih, t->n_prompt, n_more, r->v + (size_t)n * d);
    return n + n_more;
}

/* The position of entry i of those that count, of n. */
static int32_t position(const struct wnw__layer_token *t, int32_t ih, int32_t i)
{
    return i < t->n_keep[ih] ? t->keep[ih][i] : t->n_prompt + i - t->n_keep[ih];
}

/* Turns the products z [n] of query head h into attention. */
static void attend(const struct wnw__layer_token *t, int32_t h, int32_t n, float *z)
{
    const int32_t ih = h / (t->w->n_head / t->cache->n_head_kv), last = position(t, ih, n - 1);
    const float slope = t->form ? wnw__form_slope(t->form->max_bias, t->w->n_head, h) : 1.0f;
    for (int32_t i = 0; t->form && i < n; i++) {
        const int32_t pos = position(t, ih, i);
        wnw__form_scores(t->form, slope, last, &pos, z + i, 1);
    }
    const float top = z[wnw__argmax(z, n)];
    wnw__softmax(z, n);
    wnw__form_share(t->form, h, top, z, n);
}

/* Writes the change of the outputs of the heads that read KV head ih to change[group][d]. */
static void change_of(const struct wnw__layer_token *t, int32_t ih, const struct room *r, float *change)
{
    const int32_t group = t->w->n_head / t->cache->n_head_kv, d = t->cache->d, n = load(t, ih, r);
    const size_t first = (size_t)(ih * group) * (size_t)d;
    wnw__mul_nt(t->q + first, group, r->k, n, d, t->scale, r->z, n);
    for (int32_t g = 0; g < group; g++) {
        const float *p = r->z + (size_t)g * (size_t)n;
        attend(t, ih * group + g, n, r->z + (size_t)g * (size_t)n);
        for (int32_t c = 0; c < d; c++) {
            double o = 0;
            for (int32_t i = 0; i < n; i++)
                o += (double)p[i] * (double)r->v[(size_t)i * (size_t)d + (size_t)c];
            const size_t at = (size_t)g * (size_t)d + (size_t)c;
            change[at] = (float)(o - (double)t->out[first + at]);
        }
    }
}

static double norm(const float *x, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

int wnw__layer_error(double *error, const struct wnw__layer_token *t)
{
    const size_t n_in = (size_t)t->w->n_head * (size_t)t->w->d, n_out = (size_t)t->w->n_out;
    const size_t n = (size_t)longest(t), d = (size_t)t->w->d;
    const int32_t n_kv = t->cache->n_head_kv, group = t->w->n_head / n_kv;
    float *all = malloc((2 * n_in + 2 * n_out + n * (2 * d + (size_t)group)) * sizeof *all);
    *error = 0;
    if (!all)
        return wnw__fail(WNW_E_NOMEM, "no memory for the error of a layer");
    float *x = all, *y = x + 2 * n_in;
    struct room r = {.k = y + 2 * n_out};
    r.v = r.k + n * d;
    r.z = r.v + n * d;
    for (int32_t ih = 0; ih < n_kv; ih++)
        change_of(t, ih, &r, x + (size_t)(ih * group) * d);
    memcpy(x + n_in, t->out, n_in * sizeof *x);
    const int rc = wnw__proj_apply(t->pool, t->w, x, 2, y);
    if (rc == WNW_OK)
        *error = norm(y, t->w->n_out) / (norm(y + n_out, t->w->n_out) + 1e-5);
    free(all);
    return rc;
}

/* ---- Shares ---- */

bool wnw__layer_add_sample(const double *error, int32_t n_step, int32_t n_layer, bool mean, double *set)
{
    int32_t n = 0;
    for (int32_t t = 0; t < n_step; t++)
        n += error[(int64_t)t * n_layer] >= 0;
    for (int32_t il = 0; n > 0 && il < n_layer; il++) {
        double sum = 0;
        for (int32_t t = 0; t < n_step; t++)
            sum += error[(int64_t)t * n_layer] >= 0 ? error[(int64_t)t * n_layer + il] : 0;
        set[il] += mean ? sum / n : sum;
    }
    return n > 0;
}

bool wnw__layer_add_set(const double *set, int32_t n_layer, double *share)
{
    double sum = 0;
    for (int32_t il = 0; il < n_layer; il++)
        sum += set[il];
    for (int32_t il = 0; sum > 0 && il < n_layer; il++)
        share[il] += set[il] / sum;
    return sum > 0;
}

double wnw__layer_overlap(const double *a, const double *b, int32_t n_layer, int32_t *most)
{
    double sum = 0;
    *most = 0;
    for (int32_t il = 0; il < n_layer; il++) {
        sum += a[il] < b[il] ? a[il] : b[il];
        *most = fabs(a[il] - b[il]) > fabs(a[*most] - b[*most]) ? il : *most;
    }
    return sum;
}

void wnw__layer_normalise(double *share, int32_t n_layer)
{
    double sum = 1e-12;
    for (int32_t il = 0; il < n_layer; il++)
        sum += share[il];
    for (int32_t il = 0; il < n_layer; il++)
        share[il] /= sum;
}
