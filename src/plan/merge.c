/* SPDX-License-Identifier: MIT */
#include "plan/merge.h"

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
    const bool there = lo < n && list[index ? index[lo] : lo] == want;
    return there ? lo : -1;
}

int wnw__merge_check(const struct wnw__merge_head *h, int32_t il, int32_t ih)
{
    for (int32_t m = 0; m < h->contents->n_merge; m++) {
        const wnw_merge *g = &h->contents->merges[m];
        const int32_t to = find(h->pos, h->keep, h->n_keep, g->to);
        if (find(h->pos, NULL, h->n, g->from) < 0 || find(h->pos, h->keep, h->n_keep, g->from) >= 0 ||
            to < 0 || g->n_to < 1 || g->n_to > h->n_keep - to)
            return wnw__fail(WNW_E_MISMATCH,
                             "the plan merges position %d into %d of layer %d head %d; the first must go and "
                             "the other must stay",
                             (int)g->from, (int)g->to, (int)il, (int)ih);
    }
    for (int32_t i = 0; i < h->contents->n_channel; i++)
        if (h->contents->channels[i] < 0 || h->contents->channels[i] >= h->d)
            return wnw__fail(WNW_E_MISMATCH, "the plan prunes key channel %d; heads have %d",
                             (int)h->contents->channels[i], (int)h->d);
    return WNW_OK;
}

/* Adds the values that go, times their weights; row[d] is scratch. */
static void add_up(struct wnw__merged *out, const struct wnw__merge_head *h, float *weight, float *row)
{
    const size_t d = (size_t)h->d;
    for (int32_t m = 0; m < h->contents->n_merge; m++) {
        const wnw_merge *g = &h->contents->merges[m];
        const int32_t to = find(h->pos, h->keep, h->n_keep, g->to);
        h->read(h->of, find(h->pos, NULL, h->n, g->from), row);
        for (int32_t t = to; t < to + g->n_to; t++) {
            float *sum = out->value + (size_t)t * d;
            for (size_t i = 0; i < d; i++)
                sum[i] += g->weight * row[i];
            weight[t] += g->weight;
            out->changed[t] = true;
        }
    }
}

int wnw__merge_values(struct wnw__merged *out, const struct wnw__merge_head *h)
{
    const size_t d = (size_t)h->d, n = (size_t)h->n_keep;
    float *weight = calloc(n + d + 1, sizeof *weight), *row = weight ? weight + n : NULL;
    out->value = calloc(n * d + 1, sizeof *out->value);
    out->changed = calloc(n + 1, sizeof *out->changed);
    if (!weight || !out->value || !out->changed) {
        free(weight);
        return wnw__fail(WNW_E_NOMEM, "no memory to merge %zu values", n);
    }
    add_up(out, h, weight, row);
    for (int32_t t = 0; t < h->n_keep; t++) {
        float *sum = out->value + (size_t)t * d;
        const float scale = h->averages ? 1 / (1 + weight[t]) : 1;
        if (!out->changed[t])
            continue;
        h->read(h->of, h->keep[t], row);
        for (size_t i = 0; i < d; i++)
            sum[i] = (row[i] + sum[i]) * scale;
    }
    free(weight);
    return WNW_OK;
}

void wnw__merged_free(struct wnw__merged *m)
{
    free(m->value);
    free(m->changed);
    *m = (struct wnw__merged){0};
}
