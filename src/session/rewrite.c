/* SPDX-License-Identifier: MIT */
/*
 * Merging values and pruning key channels, as plans say. A head's new values are computed in float32 while
 * the dropped entries are still there; then the layer is compacted, and then the new values are written. So
 * every failure comes before any change.
 *
 *     v_t <- v_t + sum w v_from           divided by 1 + sum w with `averages`
 *     k[c] <- 0                           for pruned channels, except in the last n_spared entries
 *
 * Sums run in the order of the plan's merges, so that they are the same for any number of threads. Norms of
 * projected values belong to the old values; they are marked as unknown (-1) and computed again at need.
 */
#include "session/rewrite.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* The i in 0 .. n - 1 with list[index[i]] = want (list[i], if index is NULL), or -1. They ascend with i. */
static int32_t find(const int32_t *list, const int32_t *index, int32_t n, int32_t want)
{
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (list[index ? index[mid] : mid] < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && list[index ? index[lo] : lo] == want ? lo : -1;
}

int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const struct wnw__plan_contents *contents = kept->contents;
    for (int32_t ih = 0; contents && ih < c->n_head_kv; ih++) {
        const int32_t *pos = l->pos + l->off[ih], *keep = kept->keep[ih], n_keep = kept->n_keep[ih];
        for (int32_t m = 0; m < contents[ih].n_merge; m++) {
            const wnw_merge *g = &contents[ih].merges[m];
            const int32_t to = find(pos, keep, n_keep, g->to);
            if (find(pos, NULL, l->len[ih], g->from) < 0 || find(pos, keep, n_keep, g->from) >= 0 || to < 0 ||
                g->n_to < 1 || g->n_to > n_keep - to)
                return wnw__fail(
                    WNW_E_MISMATCH,
                    "the plan merges position %d into %d of layer %d head %d; the first must go and "
                    "the other must stay",
                    (int)g->from, (int)g->to, (int)il, (int)ih);
        }
        for (int32_t i = 0; i < contents[ih].n_channel; i++)
            if (contents[ih].channels[i] < 0 || contents[ih].channels[i] >= c->d)
                return wnw__fail(WNW_E_MISMATCH, "the plan prunes key channel %d; heads have %d",
                                 (int)contents[ih].channels[i], (int)c->d);
    }
    return WNW_OK;
}

/* The new values of one KV head. */
struct merged {
    float *sum;    /* [n_keep][d] weighted sums, at the end the new values */
    float *weight; /* [n_keep] sum of weights */
    bool *changed; /* [n_keep] whether something is merged into the entry */
};

static void merged_free(struct merged *w, int32_t n)
{
    for (int32_t ih = 0; w && ih < n; ih++) {
        free(w[ih].sum);
        free(w[ih].weight);
        free(w[ih].changed);
    }
    free(w);
}

/* Computes the new values of KV head ih; row[d] is scratch. */
static int add_up(const struct wnw__cache *c, int32_t il, int32_t ih, const struct wnw__kept_layer *kept,
                  struct merged *w, float *row)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const struct wnw__plan_contents *contents = &kept->contents[ih];
    const int32_t *pos = l->pos + l->off[ih], *keep = kept->keep[ih], n_keep = kept->n_keep[ih];
    const size_t d = (size_t)c->d, n = (size_t)n_keep;
    w->sum = calloc(n * d + 1, sizeof *w->sum);
    w->weight = calloc(n + 1, sizeof *w->weight);
    w->changed = calloc(n + 1, sizeof *w->changed);
    if (!w->sum || !w->weight || !w->changed)
        return wnw__fail(WNW_E_NOMEM, "no memory to merge %zu values", n);
    for (int32_t m = 0; m < contents->n_merge; m++) {
        const wnw_merge *g = &contents->merges[m];
        const int32_t from = find(pos, NULL, l->len[ih], g->from);
        const int32_t to = find(pos, keep, n_keep, g->to);
        wnw__cache_read(c, il, WNW_VALUES, ih, from, 1, row);
        for (int32_t t = to; t < to + g->n_to; t++) {
            float *sum = w->sum + (size_t)t * d;
            for (size_t i = 0; i < d; i++)
                sum[i] += g->weight * row[i];
            w->weight[t] += g->weight;
            w->changed[t] = true;
        }
    }
    for (int32_t t = 0; t < n_keep; t++) {
        float *sum = w->sum + (size_t)t * d;
        const float scale = kept->averages ? 1 / (1 + w->weight[t]) : 1;
        if (!w->changed[t])
            continue;
        wnw__cache_read(c, il, WNW_VALUES, ih, keep[t], 1, row);
        for (size_t i = 0; i < d; i++)
            sum[i] = (row[i] + sum[i]) * scale;
    }
    return WNW_OK;
}

/* Writes the new values of one head after the layer was compacted, when kept entry t is row t of its head. */
static void write_values(struct wnw__cache *c, int32_t il, int32_t ih, const struct merged *w)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t t = 0; w->changed && t < l->len[ih]; t++) {
        if (!w->changed[t])
            continue;
        const int64_t row = l->off[ih] + t;
        wnw__cache_write(c, il, WNW_VALUES, ih, t, 1, w->sum + (size_t)t * (size_t)c->d);
        for (int kind = WNW_AUX_PROJ; kind < WNW_N_AUX; kind++)
            for (int32_t p = 0; p < c->aux_planes[kind]; p++)
                wnw__cache_aux(l, (enum wnw__aux)kind, p)[row] = -1;
    }
}

static void prune_keys(struct wnw__cache *c, int32_t il, int32_t ih,
                       const struct wnw__plan_contents *contents, float *row)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t t = 0; contents->n_channel > 0 && t < l->len[ih] - contents->n_spared; t++) {
        wnw__cache_read(c, il, WNW_KEYS, ih, t, 1, row);
        for (int32_t i = 0; i < contents->n_channel; i++)
            row[contents->channels[i]] = 0;
        wnw__cache_write(c, il, WNW_KEYS, ih, t, 1, row);
    }
}

static bool keeps_all(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        if (kept->n_keep[ih] != c->layers[il].len[ih])
            return false;
    return true;
}

int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept, int32_t room)
{
    const struct wnw__plan_contents *contents = kept->contents;
    struct merged *w = contents ? calloc((size_t)c->n_head_kv, sizeof *w) : NULL;
    float *row = contents ? malloc((size_t)c->d * sizeof *row) : NULL;
    int rc = !contents || (w && row) ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to merge values");
    for (int32_t ih = 0; rc == WNW_OK && contents && ih < c->n_head_kv; ih++)
        if (contents[ih].n_merge > 0)
            rc = add_up(c, il, ih, kept, &w[ih], row);
    if (rc == WNW_OK && !keeps_all(c, il, kept))
        rc = room < 0 ? wnw__cache_keep_layer(c, il, kept->keep, kept->n_keep)
                      : wnw__cache_keep_in_place(c, il, kept->keep, kept->n_keep, room);
    for (int32_t ih = 0; rc == WNW_OK && contents && ih < c->n_head_kv; ih++) {
        write_values(c, il, ih, &w[ih]);
        prune_keys(c, il, ih, &contents[ih], row);
    }
    if (rc == WNW_OK)
        c->layers[il].n_settled = kept->n_settled;
    merged_free(w, c->n_head_kv);
    free(row);
    return rc;
}
